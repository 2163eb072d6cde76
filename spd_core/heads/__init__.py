"""Scoring heads: readout states in, score matrix out. A new head is one file and one line in `HEADS`."""

from __future__ import annotations

from typing import Any

from torch import nn

from spd_core.errors import SpdError, choices
from spd_core.heads.linear_probe import LinearProbeHead
from spd_core.heads.self_attention import SelfAttentionHead
from spd_core.heads.slot_query import SlotQueryHead

HEADS: dict[str, type[nn.Module]] = {
    "linear_probe": LinearProbeHead,
    "self_attention": SelfAttentionHead,
    "slot_query": SlotQueryHead,
}


def build_head(name: str, hidden_size: int, positions: int, *, width: int, user_token: bool) -> Any:
    """A freshly initialised head.

    Args:
        name: key of `HEADS`.
        hidden_size: D of the backbone.
        positions: K, columns of the score matrix.
        width: inner width of the head.
        user_token: whether the mean state of the user context joins the candidates; only for heads that attend.

    Raises:
        SpdError: unknown name, K < 1, or a user token for a head that scores each item alone.
    """
    if name not in HEADS:
        raise SpdError(choices("head", name, HEADS))
    if positions < 1:
        raise SpdError(f"head {name!r}: K is {positions}; it must be at least 1")
    if name == "linear_probe":
        if user_token:
            raise SpdError("head 'linear_probe' scores each item alone and cannot take a user token; set user_token = false")
        return LinearProbeHead(hidden_size, positions, width=width)
    return HEADS[name](hidden_size, positions, width=width, user_token=user_token)
