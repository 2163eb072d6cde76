"""Students on disk: saved with everything needed to know what they are, loaded only if nothing is amiss.

A checkpoint is a folder with `spd_config.json`, `head.safetensors`, `adapter/` and a model card. It is bound to the backbone
and to the prompt template it was trained with; neither PEFT nor safetensors checks that, so it is checked here.
"""

from __future__ import annotations

import copy
import dataclasses
from pathlib import Path
from typing import Any

import torch
from peft import PeftModel, get_peft_model_state_dict, set_peft_model_state_dict
from torch import Tensor, nn

from spd_core import checkpoint_files as files
from spd_core.backbone import Backbone, choose_device, choose_dtype, load_backbone
from spd_core.backbone_files import EMBEDDED_BACKBONE
from spd_core.checkpoint_config import (
    SCHEMA_VERSION,
    BackboneRecord,
    CheckpointConfig,
    CheckpointInfo,
    TrainingFacts,
    read_config,
    settings_hash,
)
from spd_core.errors import BackboneError, CheckpointError
from spd_core.model import Student, StudentConfig, attach_lora, build_student, parameter_counts
from spd_core.prompts import find_template

UNTRAINED = "untrained"
UNSAVED = "unsaved"


def origin(student: Student) -> str:
    """Id of the checkpoint a student was loaded from; `UNTRAINED` if nobody trained it, `UNSAVED` if it was not loaded."""
    return str(student.__dict__.get("checkpoint_id", UNSAVED))


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
    target = Path(folder).expanduser().absolute()
    with files.replaced_folder(target) as fresh:
        files.write_tensors(fresh / files.HEAD_FILE, _head_tensors(student.head))
        names = [files.HEAD_FILE]
        if student.config.lora is not None:
            _write_adapter(student, fresh)
            names += [files.ADAPTER_FILE, files.ADAPTER_CONFIG_FILE]
        backbone = student.backbone
        record = BackboneRecord(id=backbone.backbone_id, fingerprint=backbone.fingerprint, layer_count=backbone.layer_count)
        config = CheckpointConfig(
            schema_version=SCHEMA_VERSION,
            id=target.name,
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


def _adapter_tensors(model: nn.Module) -> dict[str, Tensor]:
    tensors: dict[str, Tensor] = get_peft_model_state_dict(model, save_embedding_layers=False)
    return tensors


def _write_adapter(student: Student, folder: Path) -> None:
    if not isinstance(student.model, PeftModel):
        raise CheckpointError("the student's adapters are merged into its backbone; save it before merging")
    tensors = {name: tensor.to(torch.bfloat16) for name, tensor in _adapter_tensors(student.model).items()}
    files.write_tensors(folder / files.ADAPTER_FILE, tensors)
    config: Any = copy.deepcopy(student.model.peft_config["default"])
    config.base_model_name_or_path = student.backbone.backbone_id  # never a path of this machine
    config.inference_mode = True
    if not isinstance(config.target_modules, str):
        config.target_modules = sorted(config.target_modules)
    config.save_pretrained(str((folder / files.ADAPTER_CONFIG_FILE).parent))


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
    folder = files.find_checkpoint(checkpoint)
    config = read_config(folder)
    files.check_contents(folder, _expected_files(folder, config))
    base, compute = _base(folder, config, backbone, device, dtype)
    if base.fingerprint != config.backbone.fingerprint:
        raise CheckpointError(
            f"checkpoint {folder.name!r} belongs to backbone {config.backbone.id!r} with fingerprint "
            f"{config.backbone.fingerprint}, but {base.backbone_id!r} has {base.fingerprint}; give the right --backbone"
        )
    if config.student.lora is not None:
        base = dataclasses.replace(base, model=_adapted(folder, base.model, config.student))
        if merge:
            base = dataclasses.replace(base, model=base.model.merge_and_unload(safe_merge=True))  # type: ignore[operator]
    base.model.to(compute)
    student = build_student(base, config.student, config.template, with_lora=False)
    head = files.read_tensors(folder, files.HEAD_FILE, student.head.state_dict())
    student.head.load_state_dict({name: tensor.float() for name, tensor in head.items()})
    return _finished(student, config.id if config.training else UNTRAINED)


def _finished(student: Student, checkpoint_id: str) -> Student:
    student.eval().requires_grad_(False)
    student.__dict__["checkpoint_id"] = checkpoint_id
    return student


def _expected_files(folder: Path, config: CheckpointConfig) -> dict[str, files.FileRecord]:
    names = {files.HEAD_FILE}
    if config.student.lora is not None:
        names |= {files.ADAPTER_FILE, files.ADAPTER_CONFIG_FILE}
    if set(config.files) != names:
        raise CheckpointError(
            f"checkpoint {folder.name!r}: {files.CONFIG_FILE} lists the files {sorted(config.files)}, but its settings "
            f"need {sorted(names)}; {files.FETCH_AGAIN}"
        )
    return config.files


def _base(
    folder: Path, config: CheckpointConfig, backbone: Backbone | str | None, device: str, dtype: str
) -> tuple[Backbone, torch.dtype]:
    """The backbone at the checkpoint's depth, in float32 and ours to change if there are adapters; and the compute type."""
    depth, has_lora = config.student.layer, config.student.lora is not None
    if isinstance(backbone, Backbone):
        wanted = depth or config.backbone.layer_count
        if backbone.depth != wanted:
            raise CheckpointError(
                f"checkpoint {folder.name!r} reads layer {wanted} but the loaded backbone ends at layer {backbone.depth}; "
                f"load it with depth={wanted}"
            )
        place = backbone.device if device == "auto" else choose_device(device)
        compute = backbone.dtype if dtype == "auto" else choose_dtype(dtype, place)
        is_same = place == backbone.device and compute == backbone.dtype and not has_lora
        model = backbone.model if is_same else copy.deepcopy(backbone.model).to(place, torch.float32)
        return dataclasses.replace(backbone, model=model), compute
    compute = choose_dtype(dtype, choose_device(device))
    loaded_dtype = "float32" if has_lora else str(compute).removeprefix("torch.")
    try:
        return load_backbone(backbone or config.backbone.id, device=device, dtype=loaded_dtype, depth=depth), compute
    except BackboneError as error:
        if backbone is not None or config.backbone.id == EMBEDDED_BACKBONE:
            raise
        raise CheckpointError(f"checkpoint {folder.name!r}: {error}; or give its folder with --backbone DIR") from error


def _adapted(folder: Path, model: nn.Module, config: StudentConfig) -> nn.Module:
    """The backbone with the checkpoint's adapters attached; PEFT would load what fits and ignore the rest."""
    if config.lora is None:
        return model
    adapted = attach_lora(model, config.lora)
    tensors = files.read_tensors(folder, files.ADAPTER_FILE, _adapter_tensors(adapted))
    set_peft_model_state_dict(adapted, tensors)
    return adapted


def list_checkpoints() -> list[CheckpointInfo]:
    """All checkpoints under the roots, sorted by id; a broken one is listed with its error. Weights are not read."""
    infos = []
    for checkpoint_id, folder in files.checkpoint_folders().items():
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
