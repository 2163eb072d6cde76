"""Students on disk: saved with everything needed to know what they are, loaded only if nothing is amiss.

A checkpoint is a folder with `spd_config.json`, `head.safetensors`, `adapter/` and a model card. It is bound to the backbone
and to the prompt template it was trained with; neither PEFT nor safetensors checks that, so it is checked here.
"""

from __future__ import annotations

from pathlib import Path

import torch
from torch import Tensor, nn

from spd_core import checkpoint_files as files
from spd_core import checkpoint_weights as weights
from spd_core.backbone import Backbone, load_backbone
from spd_core.checkpoint_config import (
    SCHEMA_VERSION,
    CheckpointConfig,
    CheckpointInfo,
    TrainingFacts,
    read_config,
    settings_hash,
)
from spd_core.errors import CheckpointError
from spd_core.model import Student, StudentConfig, build_student, parameter_counts
from spd_core.prompts import find_template

UNTRAINED = "untrained"
UNSAVED = "unsaved"


def origin(student: Student) -> str:
    """Id of the checkpoint a student was loaded from; `UNTRAINED` if nobody trained it, `UNSAVED` if it was not loaded."""
    return str(student.__dict__.get("checkpoint_id", UNSAVED))


def largest_slate(student: Student) -> int | None:
    """Most candidates of a slate that a student learned from; None where its checkpoint does not say."""
    largest: int | None = student.__dict__.get("largest_slate")
    return largest


def save_student(student: Student, folder: str | Path, *, facts: TrainingFacts | None, model_card: str) -> Path:
    """Folder of the saved checkpoint; one that is already there is replaced as a whole.

    Args:
        student: with its adapters not merged; weights are written as bfloat16, the head's statistics as float32.
        folder: its name becomes the checkpoint's id.
        facts: where the weights come from; None for an untrained student.
        model_card: text of README.md.

    Raises:
        CheckpointError: adapters already merged, a weight that is not finite, or a folder that is something else.
    """
    target, backbone = Path(folder).expanduser().absolute(), student.backbone
    with files.replaced_folder(target) as fresh:
        files.write_tensors(fresh / files.HEAD_FILE, _head_tensors(student.head))
        names = [files.HEAD_FILE]
        if student.config.lora is not None:
            weights.write_adapter(student.model, backbone.backbone_id, fresh)
            names += weights.ADAPTER_FILES
        record = weights.record_of(backbone)
        config = CheckpointConfig(
            schema_version=SCHEMA_VERSION,
            id=files.checkpoint_id(target),
            student=student.config,
            template=student.template,
            template_hash=student.template.hash,
            backbone=record,
            settings_hash=settings_hash(student.config, student.template, record),
            training=facts,
            parameter_counts=parameter_counts(student),
            files={name: files.describe_file(fresh / name) for name in names},
        )
        (fresh / files.CARD_FILE).write_text(model_card, "utf-8")
        (fresh / files.CONFIG_FILE).write_text(config.model_dump_json(indent=2) + "\n", "utf-8")
    return target


def _head_tensors(head: nn.Module) -> dict[str, Tensor]:
    buffers = {name for name, _ in head.named_buffers()}
    return {name: t.float() if name in buffers else t.to(torch.bfloat16) for name, t in head.state_dict().items()}


def load_student(
    checkpoint: str | Path,
    *,
    backbone: Backbone | str | None = None,
    device: str = "auto",
    dtype: str = "auto",
    merge: bool = True,
) -> Student:
    """A student ready for inference: eval mode, no gradients, head in float32.

    Args:
        checkpoint: id under `sample_data/checkpoints` (or `$SPD_CHECKPOINTS`), or a folder.
        backbone: hub id or folder where the checkpoint's own backbone lies, or one that is already loaded at the right
            depth, which is copied where adapters change it; None looks for the recorded id.
        device: ``auto``, ``cpu`` or ``cuda``; with a loaded backbone ``auto`` keeps its device.
        dtype: compute type of the backbone; with a loaded backbone ``auto`` keeps its dtype.
        merge: fold the adapters into the weights, in float32, before the cast to `dtype`: faster, same scores but for
            rounding. False keeps them apart, to train on.

    Raises:
        CheckpointError: anything about the checkpoint is amiss; the message says which file or key and what to do.
        BackboneError: the backbone is not on disk, or a bad device or dtype.
    """
    folder = files.find_checkpoint(checkpoint, role="student")
    config = read_config(folder)
    files.check_contents(folder, _expected_files(folder, config))
    base = weights.load_adapted(
        folder,
        config,
        weights.Wish(backbone, device, dtype, merge),
        depth=config.student.layer,
        lora=config.student.lora,
    )
    student = build_student(base, config.student, config.template, with_lora=False)
    head = files.read_tensors(folder, files.HEAD_FILE, student.head.state_dict())
    student.head.load_state_dict({name: tensor.float() for name, tensor in head.items()})
    student.__dict__["largest_slate"] = config.training.largest_slate if config.training else None
    return _finished(student, config.id if config.training else UNTRAINED)


def _finished(student: Student, checkpoint_id: str) -> Student:
    student.eval().requires_grad_(False)
    student.__dict__["checkpoint_id"] = checkpoint_id
    return student


def _expected_files(folder: Path, config: CheckpointConfig) -> dict[str, files.FileRecord]:
    has_lora = config.student.lora is not None
    return weights.listed_files(folder, config, {files.HEAD_FILE, *(weights.ADAPTER_FILES if has_lora else ())})


def list_checkpoints() -> list[CheckpointInfo]:
    """All students under the roots, sorted by id; a broken one is listed with its error. Weights are not read."""
    infos = []
    for checkpoint_id, folder in files.checkpoint_folders().items():
        if files.read_role(folder) == "teacher":
            continue
        try:
            config = read_config(folder)
            files.check_contents(folder, _expected_files(folder, config), hashes=False)
        except CheckpointError as error:
            infos.append(CheckpointInfo(checkpoint_id, folder, None, str(error)))
        else:
            infos.append(CheckpointInfo(checkpoint_id, folder, config))
    return infos


def random_student(
    backbone: Backbone | str | None = None,
    *,
    config: StudentConfig | None = None,
    template: str = "shop",
    device: str = "auto",
    dtype: str = "auto",
    seed: int = 0,
) -> Student:
    """A student with a random head on an unchanged backbone, to try the machinery; its rankings mean nothing.

    Args:
        backbone: as in `load_student`; None is the embedded one.
        config: settings; None takes the paper's head at the last layer. LoRA is left out, as fresh adapters do nothing.
        template: key of `TEMPLATES`.
        device, dtype: as in `load_student`.
        seed: of the head's weights; equal seeds give equal students.

    Raises:
        SpdError: the backbone is not on disk, or a bad option.
    """
    settings = (config or StudentConfig()).model_copy(update={"lora": None})
    if not isinstance(backbone, Backbone):
        backbone = load_backbone(backbone, device=device, dtype=dtype, depth=settings.layer)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        student = build_student(backbone, settings, find_template(template))
    return _finished(student, UNTRAINED)
