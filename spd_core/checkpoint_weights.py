"""The backbone under a checkpoint, with its adapters: written to a folder and attached again, the same for every role."""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Set
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from peft import PeftModel, get_peft_model_state_dict, set_peft_model_state_dict
from torch import Tensor, nn

from spd_core import checkpoint_files as files
from spd_core.backbone import Backbone, choose_device, choose_dtype, load_backbone
from spd_core.backbone_files import EMBEDDED_BACKBONE
from spd_core.checkpoint_config import BackboneRecord, CheckpointRecord
from spd_core.errors import BackboneError, CheckpointError
from spd_core.model import LoraSettings, attach_lora

ADAPTER_FILES = (files.ADAPTER_FILE, files.ADAPTER_CONFIG_FILE)


@dataclass(frozen=True)
class Wish:
    """How the caller wants a checkpoint loaded; the arguments of `load_student`."""

    backbone: Backbone | str | None = None
    device: str = "auto"
    dtype: str = "auto"
    merge: bool = True


def record_of(backbone: Backbone) -> BackboneRecord:
    """What binds a checkpoint to a backbone."""
    return BackboneRecord(id=backbone.backbone_id, fingerprint=backbone.fingerprint, layer_count=backbone.layer_count)


def adapter_tensors(model: nn.Module) -> dict[str, Tensor]:
    """Adapter weights by PEFT's names."""
    tensors: dict[str, Tensor] = get_peft_model_state_dict(model, save_embedding_layers=False)
    return tensors


def write_adapter(model: nn.Module, backbone_id: str, folder: Path) -> None:
    """Write the adapters of a model as bfloat16, and PEFT's config of them without a path of this machine.

    Raises:
        CheckpointError: the adapters are merged already, or a weight is not finite.
    """
    if not isinstance(model, PeftModel):
        raise CheckpointError("the adapters are merged into their backbone; save it before merging")
    tensors = {name: tensor.to(torch.bfloat16) for name, tensor in adapter_tensors(model).items()}
    files.write_tensors(folder / files.ADAPTER_FILE, tensors)
    config: Any = copy.deepcopy(model.peft_config["default"])
    config.base_model_name_or_path = backbone_id
    config.inference_mode = True
    if not isinstance(config.target_modules, str):
        config.target_modules = sorted(config.target_modules)
    config.save_pretrained(str((folder / files.ADAPTER_CONFIG_FILE).parent))


def listed_files(folder: Path, config: CheckpointRecord, needed: Set[str]) -> dict[str, files.FileRecord]:
    """Records of a checkpoint's weight files.

    Raises:
        CheckpointError: the config lists other files than the settings need.
    """
    if set(config.files) != needed:
        raise CheckpointError(
            f"checkpoint {folder.name!r}: {files.CONFIG_FILE} lists the files {sorted(config.files)}, but its settings "
            f"need {sorted(needed)}; {files.FETCH_AGAIN}"
        )
    return config.files


def load_adapted(
    folder: Path, config: CheckpointRecord, wish: Wish, *, depth: int | None, lora: LoraSettings | None
) -> Backbone:
    """The checkpoint's backbone with its adapters merged or attached, in the wanted type on the wanted device.

    Args:
        folder, config: of the checkpoint, its files checked.
        wish: of the caller.
        depth: layers that the checkpoint reads; None is all.
        lora: settings of its adapters; None if it has none.

    Raises:
        CheckpointError: another backbone, another depth, or adapters that do not fit.
        BackboneError: the backbone is not on disk, or a bad device or dtype.
    """
    base, compute = _base(folder, config, wish, depth=depth, has_lora=lora is not None)
    if base.fingerprint != config.backbone.fingerprint:
        raise CheckpointError(
            f"checkpoint {folder.name!r} belongs to backbone {config.backbone.id!r} with fingerprint "
            f"{config.backbone.fingerprint}, but {base.backbone_id!r} has {base.fingerprint}; give the right --backbone"
        )
    if lora is not None:
        base = dataclasses.replace(base, model=_adapted(folder, base.model, lora))
        if wish.merge:
            base = dataclasses.replace(base, model=base.model.merge_and_unload(safe_merge=True))  # type: ignore[operator]
    base.model.to(compute)
    return base


def _base(
    folder: Path, config: CheckpointRecord, wish: Wish, *, depth: int | None, has_lora: bool
) -> tuple[Backbone, torch.dtype]:
    """The backbone at the checkpoint's depth, in float32 and ours to change if there are adapters; and the compute type."""
    backbone = wish.backbone
    if isinstance(backbone, Backbone):
        wanted = depth or config.backbone.layer_count
        if backbone.depth != wanted:
            raise CheckpointError(
                f"checkpoint {folder.name!r} reads layer {wanted} but the loaded backbone ends at layer {backbone.depth}; "
                f"load it with depth={wanted}"
            )
        place = backbone.device if wish.device == "auto" else choose_device(wish.device)
        compute = backbone.dtype if wish.dtype == "auto" else choose_dtype(wish.dtype, place)
        is_same = place == backbone.device and compute == backbone.dtype and not has_lora
        model = backbone.model if is_same else copy.deepcopy(backbone.model).to(place, torch.float32)
        return dataclasses.replace(backbone, model=model), compute
    compute = choose_dtype(wish.dtype, choose_device(wish.device))
    loaded_dtype = "float32" if has_lora else str(compute).removeprefix("torch.")
    try:
        loaded = load_backbone(backbone or config.backbone.id, device=wish.device, dtype=loaded_dtype, depth=depth)
    except BackboneError as error:
        if backbone is not None or config.backbone.id == EMBEDDED_BACKBONE:
            raise
        raise CheckpointError(f"checkpoint {folder.name!r}: {error}; or give its folder with --backbone DIR") from error
    return loaded, compute


def _adapted(folder: Path, model: nn.Module, lora: LoraSettings) -> nn.Module:
    """The backbone with the checkpoint's adapters attached; PEFT would load what fits and ignore the rest."""
    adapted = attach_lora(model, lora)
    set_peft_model_state_dict(adapted, files.read_tensors(folder, files.ADAPTER_FILE, adapter_tensors(adapted)))
    return adapted
