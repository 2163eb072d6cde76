"""Where a scoring head looks: the attention maps of its own forward pass, layer by layer and head by head.

It knows no particular head. Whatever multi-head attention a head is built of is listened to while a copy of the head runs,
so the maps belong to exactly the scores that come out, and a shared head is never touched.
"""

from __future__ import annotations

import copy
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn


class HeadAttention(NamedTuple):
    """The scores of a head and the attention it paid on the way."""

    scores: Tensor
    """(B, N, K) score matrix of the same pass."""
    layers: tuple[Tensor, ...]
    """Of each attention layer in running order (B, H, Q, M): what share of its look each of Q readers gives to each of M
    candidates; a user token, where the head has one, is the last of the M. Empty for a head that does not attend."""


def head_attention(
    head: nn.Module, states: Tensor, candidate_mask: Tensor, user_state: Tensor | None = None
) -> HeadAttention:
    """Score matrices and attention maps of one pass of a head.

    Args:
        head: in eval mode; left untouched.
        states: (B, N, D) float32 readouts.
        candidate_mask: (B, N) bool, True where real; padding gets no attention.
        user_state: (B, D) float32 for a head with a user token.

    Returns:
        `HeadAttention`; each reader's shares sum to 1. Readers are the N candidates (and the user token) in a
        self-attention head and the K positions in a slot-query head; a linear probe has no layers.
    Source: Vaswani et al., Attention is all you need (2017), eq. 1.
    """
    own = copy.deepcopy(head).eval()
    maps: list[Tensor] = []

    def listen(module: nn.Module, inputs: tuple[Any, ...], options: dict[str, Any]) -> None:
        options = options | {"need_weights": True, "average_attn_weights": False}
        maps.append(nn.MultiheadAttention.forward(module, *inputs, **options)[1])  # type: ignore[arg-type]

    # A hook also turns off PyTorch's fused encoder layer, which would pass the attention module by.
    for module in own.modules():
        if isinstance(module, nn.MultiheadAttention):
            module.register_forward_pre_hook(listen, with_kwargs=True)
    with torch.inference_mode():
        scores = own(states, candidate_mask, user_state)
    return HeadAttention(scores, tuple(maps))
