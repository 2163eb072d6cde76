"""Training losses on the relaxed assignment: the teacher's whole ranking, or the clicked item alone."""

from __future__ import annotations

import torch
from torch import Tensor

from spd_core.sinkhorn import log_sinkhorn


def sinkhorn_cross_entropy(
    scores: Tensor, positions: Tensor, candidate_mask: Tensor, *, tau: float = 1.0, iterations: int = 20
) -> Tensor:
    """Cross-entropy of the teacher's permutation under the relaxed assignment, in nats per candidate.

    Args:
        scores: (B, N, K) score matrix, n <= K for each slate.
        positions: (B, N) int64, the teacher's rank of each candidate, 0 first; -1 where padded.
        candidate_mask: (B, N) bool, True where real.
        tau, iterations: of `log_sinkhorn`.

    Returns:
        Scalar: mean over slates of -1/n sum_i log S_L[i, positions[i]]. An untrained head stands at log n.
    Source: SPD paper, eq. 3 (there a sum over candidates; the mean keeps slates of different sizes comparable).
    """
    log_assignment, _ = log_sinkhorn(scores, candidate_mask, tau=tau, iterations=iterations)
    picked = log_assignment.gather(2, positions.clamp_min(0)[..., None])[..., 0]  # (B, N)
    per_slate = torch.where(candidate_mask, -picked, 0.0).sum(dim=1) / candidate_mask.sum(dim=1)
    return per_slate.mean()


def click_cross_entropy(
    scores: Tensor, clicked: Tensor, candidate_mask: Tensor, *, tau: float = 1.0, iterations: int = 20
) -> Tensor:
    """Cross-entropy of "a clicked item takes position 1" under the relaxed assignment, in nats per slate.

    Args:
        scores: (B, N, K) score matrix.
        clicked: (B, N) bool, True at clicked items; slates without a click add nothing.
        candidate_mask: (B, N) bool, True where real.
        tau, iterations: of `log_sinkhorn`.

    Returns:
        Scalar: mean over slates with a click of -log sum_{clicked} S_L[i, 0]; 0 if there is none.
    Source: SPD paper, section 4 (click-label variant supervises only position 1).
    """
    log_assignment, _ = log_sinkhorn(scores, candidate_mask, tau=tau, iterations=iterations)
    clicked = clicked & candidate_mask
    first = torch.where(clicked, log_assignment[:, :, 0], torch.full_like(log_assignment[:, :, 0], -1e30))
    has_click = clicked.any(dim=1)
    per_slate = -torch.logsumexp(first, dim=1)
    return torch.where(has_click, per_slate, 0.0).sum() / has_click.sum().clamp_min(1)
