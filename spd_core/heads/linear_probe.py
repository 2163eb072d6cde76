"""The linear probe: each candidate scored alone; what the backbone's readout knows without looking at the others."""

from __future__ import annotations

from torch import Tensor, nn

from spd_core.heads.standardize import Standardize


class LinearProbeHead(nn.Module):
    """Two linear layers a candidate, no look at the other candidates.

    The paper gives Linear(D, 512) and Linear(512, K) and no activation between; with none the two fold into one map.
    Source: SPD paper, section 3.2.
    """

    def __init__(self, hidden_size: int, positions: int, *, width: int = 512) -> None:
        super().__init__()
        self.standardize = Standardize(hidden_size)
        self.hidden = nn.Linear(hidden_size, width)
        self.score = nn.Linear(width, positions)

    def forward(self, states: Tensor, candidate_mask: Tensor | None, user_state: Tensor | None = None) -> Tensor:
        """Score matrix of each slate.

        Args:
            states: (B, N, D) float32.
            candidate_mask: ignored, as is `user_state`; both are accepted so that all heads are called alike.
            user_state: see `candidate_mask`.

        Returns:
            (B, N, K); row i depends on candidate i alone. Rows of padding are meaningless.
        """
        scores: Tensor = self.score(self.hidden(self.standardize(states)))
        return scores
