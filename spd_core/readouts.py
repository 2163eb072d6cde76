"""Which hidden states of a prompt stand for its candidates and for its user. It knows states and spans, not the model."""

from __future__ import annotations

import torch
from torch import Tensor

from spd_core.errors import BackboneError, choices
from spd_core.tokenization import SlateBatch

READOUTS: dict[str, str] = {
    "last": "state at the last token of the candidate's description (the paper's choice)",
    "newline": "state at the token that closes the candidate's line",
    "mean": "mean of the states over the tokens of the candidate's description",
}


def gather_readout(hidden: Tensor, batch: SlateBatch, readout: str) -> Tensor:
    """One state a candidate.

    Args:
        hidden: (B, T, D) of `prefill`.
        batch: the same batch.
        readout: key of `READOUTS`.

    Returns:
        (B, N, D) float32; rows of padding candidates are those of token 0 and must be masked by the reader.

    Raises:
        BackboneError: unknown readout.
    """
    if readout not in READOUTS:
        raise BackboneError(choices("readout", readout, READOUTS))
    if readout == "mean":
        tokens = torch.arange(hidden.shape[1], device=hidden.device)
        inside = (tokens >= batch.span_start[..., None]) & (tokens <= batch.readout_index[..., None])  # (B, N, T)
        weights = inside.float() / inside.sum(dim=2, keepdim=True)
        return torch.bmm(weights, hidden.float())
    index = batch.readout_index if readout == "last" else batch.close_index
    return hidden.gather(1, index[..., None].expand(-1, -1, hidden.shape[2])).float()


def gather_user_state(hidden: Tensor, batch: SlateBatch) -> Tensor:
    """(B, D) float32 mean state over the tokens of history and query; zeros for a user with neither."""
    weights = batch.context_mask.float()
    weights = weights / weights.sum(dim=1, keepdim=True).clamp_min(1.0)
    return torch.bmm(weights[:, None], hidden.float())[:, 0]
