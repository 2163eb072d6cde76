"""The self-attention head, the paper's winner: candidates look at each other before they are scored."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from spd_core.heads.padding import padding_mask
from spd_core.heads.standardize import Standardize


class SelfAttentionHead(nn.Module):
    """Transformer encoder over the candidates, then one score per rank position.

    No positional encoding: permuting the candidates permutes the rows and nothing else. The paper gives L = 2 layers and
    about 4.2 M parameters at D = 1024, K = 50; an inner width of 512 with a feed-forward of 1.5 x 512 gives 4.23 M.
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
        self.layers = nn.ModuleList(
            nn.TransformerEncoderLayer(
                width, width // 64, width * 3 // 2, dropout, activation="gelu", batch_first=True, norm_first=True
            )
            for _ in range(layers)
        )
        self.score = nn.Linear(width, positions)

    def forward(self, states: Tensor, candidate_mask: Tensor | None, user_state: Tensor | None = None) -> Tensor:
        """Score matrix of each slate.

        Args:
            states: (B, N, D) float32.
            candidate_mask: (B, N) bool, True where real; padding is never attended to. None: all real, which is faster.
            user_state: (B, D) float32, needed if the head was built with a user token.

        Returns:
            (B, N, K); rows of padding are meaningless.
        """
        items = self.project(self.standardize(states))  # (B, N, width)
        count = items.shape[1]
        if self.project_user is not None:
            if user_state is None:
                raise TypeError("this head was built with a user token; pass user_state")
            user = self.project_user(self.standardize(user_state))
            items = torch.cat([items, user[:, None]], dim=1)  # (B, N + 1, width)
        padding = padding_mask(candidate_mask, items.shape[1])
        for layer in self.layers:
            items = layer(items, src_key_padding_mask=padding)
        scores: Tensor = self.score(items[:, :count])
        return scores
