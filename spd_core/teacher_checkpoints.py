"""Autoregressive teachers on disk: a folder like a student's, with an adapter over the whole backbone and no head."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from spd_core import checkpoint_files as files
from spd_core import checkpoint_weights as weights
from spd_core.backbone import Backbone, load_backbone
from spd_core.backbone_files import find_backbone
from spd_core.checkpoint_config import (
    SCHEMA_VERSION,
    TeacherCheckpointConfig,
    TeacherSettings,
    TrainingFacts,
    read_teacher_config,
    settings_hash,
)
from spd_core.errors import CheckpointError
from spd_core.prompts import find_template
from spd_core.teachers.autoregressive import AutoregressiveTeacher, output_weights_of

ZERO_SHOT = "zero-shot"


@dataclass(frozen=True)
class TeacherInfo:
    """A teacher's checkpoint as a list shows it: its config, or why it cannot be used."""

    checkpoint_id: str
    folder: Path
    config: TeacherCheckpointConfig | None
    error: str | None = None

    @property
    def summary(self) -> str:
        """One line: backbone, adapter and what it learned from, or the error."""
        if self.config is None:
            return self.error or ""
        lora = self.config.teacher.lora
        adapter = f"LoRA r={lora.rank}" if lora else "as it came"
        source = f", learned from {self.config.training.teacher}" if self.config.training else ""
        return f"{self.config.backbone.id} ({adapter}), {self.config.backbone.layer_count} layers{source}"


def save_teacher(
    teacher: AutoregressiveTeacher,
    folder: str | Path,
    *,
    settings: TeacherSettings,
    facts: TrainingFacts | None,
    model_card: str,
) -> Path:
    """Folder of the saved checkpoint; one that is already there is replaced as a whole.

    Args:
        teacher: with its adapters attached, not merged; they are written as bfloat16.
        folder: its name becomes the checkpoint's id.
        settings: of the teacher.
        facts: where the weights come from; None for an untrained teacher.
        model_card: text of README.md.

    Raises:
        CheckpointError: adapters already merged, a weight that is not finite, or a folder that is something else.
    """
    target, backbone = Path(folder).expanduser().absolute(), teacher.backbone
    adapter_parameters = sum(p.numel() for name, p in backbone.model.named_parameters() if "lora_" in name)
    with files.replaced_folder(target) as fresh:
        names = _needed(settings)
        if settings.lora is not None:
            weights.write_adapter(backbone.model, backbone.backbone_id, fresh)
        record = weights.record_of(backbone)
        config = TeacherCheckpointConfig(
            schema_version=SCHEMA_VERSION,
            id=files.checkpoint_id(target),
            role="teacher",
            teacher=settings,
            template=teacher.template,
            template_hash=teacher.template.hash,
            backbone=record,
            settings_hash=settings_hash(settings, teacher.template, record),
            training=facts,
            parameter_counts={
                "adapter": adapter_parameters,
                "backbone": sum(p.numel() for p in backbone.model.parameters()) - adapter_parameters,
            },
            files={name: files.describe_file(fresh / name) for name in sorted(names)},
        )
        (fresh / files.CARD_FILE).write_text(model_card, "utf-8")
        (fresh / files.CONFIG_FILE).write_text(config.model_dump_json(indent=2) + "\n", "utf-8")
    return target


def load_teacher(
    checkpoint: str | Path,
    *,
    mode: str = "constrained",
    backbone: Backbone | str | None = None,
    device: str = "auto",
    dtype: str = "auto",
    merge: bool = True,
) -> AutoregressiveTeacher:
    """A teacher ready to write: eval mode, no gradients, at full depth.

    Args:
        checkpoint: id under `sample_data/checkpoints` (or `$SPD_CHECKPOINTS`), or a folder.
        mode: key of `MODES`.
        backbone, device, dtype, merge: as in `load_student`.

    Raises:
        CheckpointError: anything about the checkpoint is amiss; the message says which file or key and what to do.
        BackboneError: the backbone is not on disk, or a bad device or dtype.
        SpdError: unknown mode, or the backbone has no language head.
    """
    folder = files.find_checkpoint(checkpoint, role="teacher")
    config = read_teacher_config(folder)
    files.check_contents(folder, weights.listed_files(folder, config, _needed(config.teacher)))
    wish = weights.Wish(backbone, device, dtype, merge)
    base = weights.load_adapted(folder, config, wish, depth=None, lora=config.teacher.lora)
    base.model.eval().requires_grad_(False)
    source = find_backbone(backbone if isinstance(backbone, str) else config.backbone.id)
    return AutoregressiveTeacher(base, output_weights_of(base, source), config.template, config.id, mode)  # type: ignore[arg-type]


def zero_shot_teacher(
    backbone: str | None = None,
    *,
    template: str = "shop",
    mode: str = "constrained",
    device: str = "auto",
    dtype: str = "auto",
) -> AutoregressiveTeacher:
    """A teacher that nobody trained: the backbone as it came; a floor, since a small one ranks at chance.

    Args:
        backbone: hub id or folder; None is the embedded model.
        template: key of `TEMPLATES`.
        mode, device, dtype: as in `load_teacher`.

    Raises:
        SpdError: the backbone is not on disk, has no language head, or a bad option.
    """
    base = load_backbone(backbone, device=device, dtype=dtype)
    output_weights = output_weights_of(base, find_backbone(backbone))
    return AutoregressiveTeacher(base, output_weights, find_template(template), ZERO_SHOT, mode)  # type: ignore[arg-type]


def list_teachers() -> list[TeacherInfo]:
    """All teachers under the roots, sorted by id; a broken one is listed with its error. Weights are not read."""
    infos = []
    for checkpoint_id, folder in files.checkpoint_folders().items():
        if files.read_role(folder) != "teacher":
            continue
        try:
            config = read_teacher_config(folder)
            records = weights.listed_files(folder, config, _needed(config.teacher))
            files.check_contents(folder, records, hashes=False)
        except CheckpointError as error:
            infos.append(TeacherInfo(checkpoint_id, folder, None, str(error)))
        else:
            infos.append(TeacherInfo(checkpoint_id, folder, config))
    return infos


def _needed(settings: TeacherSettings) -> frozenset[str]:
    return frozenset(weights.ADAPTER_FILES if settings.lora is not None else ())
