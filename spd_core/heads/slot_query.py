"""The slot-query head: one learned query a rank position looks for its candidate."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from spd_core.heads.padding import padding_mask
from spd_core.heads.standardize import Standardize


class SlotQueryHead(nn.Module):
    """K learned position queries cross-attend to the candidates; query times candidate is the score.

    The paper gives about 4.0 M parameters at D = 1024, K = 50; two cross-attention layers of width 512 with a feed-forward
    of 512 and a key projection give 3.97 M.
    Source: SPD paper, section 3.2.
    """

    def __init__(
        self,
        hidden_size: int,
        positions: int,
        *,
        width: int = 512,
        layers: int = 2,
        dropout: float = 0.1,
        user_token: bool = False,
    ) -> None:
        super().__init__()
        self.standardize = Standardize(hidden_size)
        self.project = nn.Linear(hidden_size, width)
        self.project_user = nn.Linear(hidden_size, width) if user_token else None
        self.slots = nn.Parameter(torch.randn(positions, width) * 0.5)
        self.layers = nn.ModuleList(CrossAttentionLayer(width, dropout) for _ in range(layers))
        self.key = nn.Linear(width, width)

    def forward(self, states: Tensor, candidate_mask: Tensor | None, user_state: Tensor | None = None) -> Tensor:
        """Score matrix of each slate; arguments and result as for the self-attention head."""
        items = self.project(self.standardize(states))  # (B, N, width)
        attended = items
        if self.project_user is not None:
            if user_state is None:
                raise TypeError("this head was built with a user token; pass user_state")
            user = self.project_user(self.standardize(user_state))
            attended = torch.cat([items, user[:, None]], dim=1)  # (B, N + 1, width)
        padding = padding_mask(candidate_mask, attended.shape[1])
        slots = self.slots.expand(len(items), -1, -1)  # (B, K, width)
        for layer in self.layers:
            slots = layer(slots, attended, padding)
        keys = self.key(items)  # (B, N, width)
        return keys @ slots.transpose(1, 2) / math.sqrt(keys.shape[2])


class CrossAttentionLayer(nn.Module):
    """Slots that have looked at the items: pre-norm cross-attention and a feed-forward, both residual."""

    def __init__(self, width: int, dropout: float) -> None:
        super().__init__()
        self.norm_slots = nn.LayerNorm(width)
        self.attention = nn.MultiheadAttention(width, width // 64, dropout, batch_first=True)
        self.feed_forward = nn.Sequential(
            nn.LayerNorm(width), nn.Linear(width, width), nn.GELU(), nn.Dropout(dropout), nn.Linear(width, width)
        )

    def forward(self, slots: Tensor, items: Tensor, padding: Tensor | None) -> Tensor:
        """(B, K, width) slots and (B, M, width) items with (B, M) padding True where not real -> (B, K, width)."""
        looked, _ = self.attention(self.norm_slots(slots), items, items, key_padding_mask=padding, need_weights=False)
        slots = slots + looked
        updated: Tensor = slots + self.feed_forward(slots)
        return updated
