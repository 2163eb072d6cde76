"""The Sinkhorn operator: a score matrix relaxed to a doubly stochastic one, in the log domain.

It may not have converged: a cold temperature (tau well below the spread of the scores) or a near-tie needs many iterations,
and with fewer items than columns rows cannot sum to 1. So the residual is returned and shown, never assumed to be zero.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from spd_core.errors import ScoreMatrixError


class SinkhornResult(NamedTuple):
    """Relaxed assignment and how far it is from doubly stochastic."""

    log_assignment: Tensor
    """(B, N, C) log-probabilities, C = min(N, K); -inf outside a slate's own square."""
    residual: Tensor
    """(B,) largest |row sum - target|; the columns were normalised last and are exact."""


def square_mask(candidate_mask: Tensor, columns: int) -> Tensor:
    """(B, N, C) bool: True where a real candidate meets one of the first n positions of its own slate of n candidates."""
    counts = candidate_mask.sum(dim=1)  # (B,)
    positions = torch.arange(columns, device=candidate_mask.device)
    return candidate_mask[:, :, None] & (positions[None, None, :] < counts[:, None, None])


def log_sinkhorn(
    scores: Tensor, candidate_mask: Tensor | None = None, *, tau: float = 1.0, iterations: int = 20
) -> SinkhornResult:
    """Log of the relaxed assignment S_L: exp(M / tau), then rows and columns normalised in turn.

    Args:
        scores: (B, N, K) score matrix.
        candidate_mask: (B, N) bool, True where real; None means all real.
        tau: temperature, finite and > 0; small values approach the hard assignment and need more iterations.
        iterations: L >= 1 row-and-column rounds.

    Returns:
        `SinkhornResult`. For n <= K candidates the first n columns form a square problem with row and column sums 1. For
        n > K rows are scaled to K/n, the only sums that columns of 1 allow. One candidate gets log 1 = 0.

    Raises:
        ScoreMatrixError: tau or iterations out of range.
    Source: SPD paper, eq. 2; log-domain form as in Peyre and Cuturi, Computational Optimal Transport (2019), section 4.4.
    """
    if not (tau > 0 and tau < float("inf")):
        raise ScoreMatrixError(f"temperature tau is {tau}; it must be a finite number above 0")
    if iterations < 1:
        raise ScoreMatrixError(f"Sinkhorn iterations is {iterations}; it must be at least 1")
    batch, count, positions = scores.shape
    if candidate_mask is None:
        candidate_mask = torch.ones(batch, count, dtype=torch.bool, device=scores.device)
    columns = min(count, positions)
    mask = square_mask(candidate_mask, columns)
    counts = candidate_mask.sum(dim=1)[:, None, None].to(scores)  # (B, 1, 1)
    log_row_sum = torch.log(counts.clamp(max=positions) / counts)  # 0 unless n > K
    # A finite floor instead of -inf keeps logsumexp and its gradient free of NaN in rows that are all padding.
    log_s = torch.where(mask, scores[:, :, :columns] / tau, torch.full_like(scores[:, :, :columns], -1e30))
    for _ in range(iterations):
        log_s = torch.where(mask, log_s - torch.logsumexp(log_s, dim=2, keepdim=True) + log_row_sum, log_s)
        log_s = torch.where(mask, log_s - torch.logsumexp(log_s, dim=1, keepdim=True), log_s)
    row_sum = torch.where(mask, log_s, -torch.inf).exp().sum(dim=2)  # (B, N)
    error = torch.where(candidate_mask, (row_sum - log_row_sum[:, :, 0].exp()).abs(), 0.0)
    return SinkhornResult(torch.where(mask, log_s, -torch.inf), error.amax(dim=1))
