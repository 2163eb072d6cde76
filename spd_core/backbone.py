"""The language model: found or prepared on disk, loaded for the machine at hand, read out at the candidates.

It knows prefill and readout. It has no LM head on the student's path, knows no score matrix, and never goes to the network
unless a hub id is asked for that is not on disk.
"""

from __future__ import annotations

import logging
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from transformers import AutoModel, AutoTokenizer

from spd_core.backbone_files import find_backbone, fingerprint_folder
from spd_core.errors import BackboneError, choices
from spd_core.readouts import gather_readout
from spd_core.tokenization import SlateBatch

logger = logging.getLogger(__name__)

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}


@dataclass(frozen=True)
class Backbone:
    """A loaded decoder-only language model without LM head, cut after `depth` layers."""

    model: nn.Module
    tokenizer: Any
    backbone_id: str
    fingerprint: str
    """Hash of weights and tokenizer; a checkpoint is bound to it."""
    depth: int
    layer_count: int
    """Layers of the uncut model."""

    @property
    def hidden_size(self) -> int:
        """D, the width of one hidden state."""
        return int(self.model.config.hidden_size)  # type: ignore[union-attr, arg-type]

    @property
    def max_tokens(self) -> int:
        """Longest prompt the model was made for."""
        return int(self.model.config.max_position_embeddings)  # type: ignore[union-attr, arg-type]

    @property
    def device(self) -> torch.device:
        """Where the weights are."""
        return next(self.model.parameters()).device

    @property
    def dtype(self) -> torch.dtype:
        """Type that the forward pass computes in."""
        return next(self.model.parameters()).dtype


def choose_device(device: str = "auto") -> torch.device:
    """The device to run on: ``auto`` takes CUDA where there is one.

    Raises:
        BackboneError: unknown name, or CUDA was asked for and there is none.
    """
    if device not in ("auto", "cpu", "cuda") and not device.startswith("cuda:"):
        raise BackboneError(choices("device", device, ["auto", "cpu", "cuda"]))
    if device.startswith("cuda") and not torch.cuda.is_available():
        raise BackboneError(f"device {device!r} was asked for but PyTorch sees no CUDA GPU; use --device cpu")
    if device == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    return torch.device(device)


def choose_dtype(dtype: str, device: torch.device) -> torch.dtype:
    """The compute type: ``auto`` takes bfloat16 where the hardware multiplies it natively, else float32.

    Raises:
        BackboneError: unknown name.
    """
    if dtype == "auto":
        native = torch.cuda.is_bf16_supported() if device.type == "cuda" else cpu_multiplies_bf16()
        return torch.bfloat16 if native else torch.float32
    if dtype not in DTYPES:
        raise BackboneError(choices("dtype", dtype, ["auto", *DTYPES]))
    return DTYPES[dtype]


def cpu_multiplies_bf16() -> bool:
    """True where the CPU has bfloat16 matrix instructions (AMX or AVX512-BF16); elsewhere float32 is faster."""
    return bool(torch.cpu._is_amx_tile_supported() or torch.cpu._is_avx512_bf16_supported())


def load_tokenizer(folder: Path) -> Any:
    """Fast tokenizer of a backbone folder that splits special tokens inside text and has a pad token.

    Raises:
        BackboneError: the folder has no fast tokenizer.
    """
    tokenizer = AutoTokenizer.from_pretrained(folder, local_files_only=True)
    if getattr(tokenizer, "backend_tokenizer", None) is None:
        raise BackboneError(f"backbone {folder.name}: has no fast tokenizer (tokenizer.json); choose another model")
    if tokenizer.pad_token_id is None:
        tokenizer.pad_token = tokenizer.eos_token
    tokenizer.backend_tokenizer.no_truncation()
    tokenizer.split_special_tokens = True  # each call of the wrapper sets the next line's flag to this one's value
    tokenizer.backend_tokenizer.encode_special_tokens = True
    return tokenizer


def load_backbone(
    backbone: str | None = None, *, device: str = "auto", dtype: str = "auto", depth: int | None = None
) -> Backbone:
    """A backbone ready for inference: eval mode, no gradients, cut after `depth` layers.

    Args:
        backbone: hub id or local folder; None is the embedded model.
        device: ``auto``, ``cpu`` or ``cuda``.
        dtype: ``auto``, ``float32``, ``bfloat16`` or ``float16``.
        depth: layers kept; None keeps all and the final norm. A cut backbone ends without the final norm, which was
            made for the last layer's scale.

    Raises:
        BackboneError: not found, not a decoder this code can cut, or a bad option.
    """
    folder = find_backbone(backbone)
    place = choose_device(device)
    model = AutoModel.from_pretrained(folder, dtype=choose_dtype(dtype, place), local_files_only=True)
    layer_count = len(decoder_layers(model))
    kept = layer_count if depth is None else depth
    cut_depth(model, kept)
    model.requires_grad_(False).eval().to(place)
    return Backbone(
        model=model,
        tokenizer=load_tokenizer(folder),
        backbone_id=backbone_name(backbone, folder),
        fingerprint=fingerprint_folder(folder),
        depth=kept,
        layer_count=layer_count,
    )


def backbone_name(backbone: str | None, folder: Path) -> str:
    """Name shown and written into checkpoints: a hub id stays, a local path becomes its folder's name."""
    if backbone is None or (os.path.sep in backbone and Path(backbone).exists()):
        return folder.name
    return backbone


def decoder_layers(model: nn.Module) -> nn.ModuleList:
    """The list of decoder layers of a Hugging Face base model.

    Raises:
        BackboneError: the model keeps its layers elsewhere.
    """
    layers = getattr(model, "layers", None)
    if not isinstance(layers, nn.ModuleList):
        raise BackboneError(
            f"backbone of type {type(model).__name__} has no `layers`; choose a decoder such as Llama or Qwen3"
        )
    return layers


def cut_depth(model: nn.Module, depth: int) -> None:
    """Keep the first `depth` layers of `model`; a real cut also drops the final norm.

    Raises:
        BackboneError: `depth` is not between 1 and the number of layers.
    """
    layers = decoder_layers(model)
    count = len(layers)
    if not 1 <= depth <= count:
        raise BackboneError(f"layer {depth} was asked for but the backbone has layers 1 to {count}")
    if depth == count:
        return
    model.layers = layers[:depth]
    model.norm = nn.Identity()
    config: Any = model.config
    config.num_hidden_layers = depth
    if getattr(config, "layer_types", None):
        config.layer_types = config.layer_types[:depth]


def base_states(model: nn.Module, input_ids: Tensor) -> Tensor:
    """(B, T, D) states of prompts without padding, in the model's dtype; `input_ids` (B, T)."""
    states: Tensor = model(input_ids=input_ids, use_cache=False).last_hidden_state
    return states


def prefill(model: nn.Module, batch: SlateBatch) -> Tensor:
    """Hidden states of one forward pass over the prompts.

    Args:
        model: base model (or its PEFT wrapper) that returns `last_hidden_state`.
        batch: B prompts on the model's device, padded on either side.

    Returns:
        (B, T, D) in the model's dtype; values at padding are meaningless.
    """
    if bool(batch.attention_mask.all()):
        return base_states(model, batch.input_ids)
    position_ids = (batch.attention_mask.long().cumsum(dim=1) - 1).clamp_min(0)  # (B, T): counts real tokens only
    return model(
        input_ids=batch.input_ids,
        attention_mask=batch.attention_mask.long(),
        position_ids=position_ids,
        use_cache=False,
    ).last_hidden_state


def candidate_states(backbone: Backbone, batch: SlateBatch, readout: str = "last") -> Tensor:
    """(B, N, D) float32 readout states of one prefill; the whole of the method's backbone side.

    Source: SPD paper, section 3 (readout at each candidate's last description token).
    """
    return gather_readout(prefill(backbone.model, batch.to(backbone.device)), batch.to(backbone.device), readout)
