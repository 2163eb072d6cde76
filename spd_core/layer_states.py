"""The hidden states of a backbone after every layer, and the readouts taken from them.

One prompt at a time: the states of all layers are held at once.
"""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from spd_core.readouts import gather_readout
from spd_core.tokenization import SlateBatch


def base_model(model: nn.Module) -> nn.Module:
    """The Hugging Face model itself, without the wrapper that holds adapters; those within it stay."""
    base: nn.Module = model.get_base_model() if hasattr(model, "get_base_model") else model  # type: ignore[operator]
    return base


def hidden_by_layer(model: nn.Module, batch: SlateBatch) -> tuple[Tensor, ...]:
    """L + 1 times (B, T, D): the token embeddings, then the states after each of the L layers.

    The last entry is what `prefill` returns; in a backbone that is not cut it has passed the final norm.

    Args:
        model: in eval mode, or its PEFT wrapper.
        batch: prompts without padding, on the model's device.
    """
    with torch.inference_mode():
        return tuple(model(input_ids=batch.input_ids, use_cache=False, output_hidden_states=True).hidden_states)


def readouts_by_layer(hidden: tuple[Tensor, ...], batch: SlateBatch, readout: str) -> NDArray[np.float32]:
    """(L + 1, N, D) the readout of each candidate of one prompt, taken after every layer as the head takes it from the last.

    Args:
        hidden: of `hidden_by_layer` for a batch of one prompt.
        batch: the same batch.
        readout: key of `READOUTS`.

    Raises:
        BackboneError: unknown readout.
    """
    with torch.inference_mode():
        return torch.stack([gather_readout(states, batch, readout)[0].cpu() for states in hidden]).numpy()
