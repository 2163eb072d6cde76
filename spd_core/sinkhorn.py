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


class SinkhornPath(NamedTuple):
    """Every iteration of the Sinkhorn operator, not only the last."""

    log_assignments: Tensor
    """(L, B, N, C) log-probabilities after each of the L rounds; the last is what `log_sinkhorn` gives."""
    residuals: Tensor
    """(L, B) largest |row sum - target| after each round."""


class _Problem(NamedTuple):
    """What every round needs to know."""

    start: Tensor
    """(B, N, C) scores / tau; a finite floor outside a slate's own square."""
    mask: Tensor
    """(B, N, C) bool."""
    candidate_mask: Tensor
    """(B, N) bool."""
    log_row_sum: Tensor
    """(B, 1, 1) log of the sum that each row is scaled to; 0 unless n > K."""


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
    problem = _problem(scores, candidate_mask, tau, iterations)
    log_s = problem.start
    for _ in range(iterations):
        log_s = _round(log_s, problem)
    return SinkhornResult(torch.where(problem.mask, log_s, -torch.inf), _residual(log_s, problem))


def sinkhorn_path(
    scores: Tensor, candidate_mask: Tensor | None = None, *, tau: float = 1.0, iterations: int = 20
) -> SinkhornPath:
    """The relaxed assignment after each round of normalising rows and columns, and how far each is from its goal.

    A constant added to a row of the scores changes no round. One added to a column changes the way and not the limit: the
    rows are normalised first.

    Args:
        scores, candidate_mask, tau, iterations: as in `log_sinkhorn`; memory grows with `iterations`.

    Raises:
        ScoreMatrixError: tau or iterations out of range.
    Source: SPD paper, eq. 2.
    """
    problem = _problem(scores, candidate_mask, tau, iterations)
    log_s = problem.start
    rounds, residuals = [], []
    for _ in range(iterations):
        log_s = _round(log_s, problem)
        rounds.append(torch.where(problem.mask, log_s, -torch.inf))
        residuals.append(_residual(log_s, problem))
    return SinkhornPath(torch.stack(rounds), torch.stack(residuals))


def _problem(scores: Tensor, candidate_mask: Tensor | None, tau: float, iterations: int) -> _Problem:
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
    log_row_sum = torch.log(counts.clamp(max=positions) / counts)
    # A finite floor instead of -inf keeps logsumexp and its gradient free of NaN in rows that are all padding.
    start = torch.where(mask, scores[:, :, :columns] / tau, torch.full_like(scores[:, :, :columns], -1e30))
    return _Problem(start, mask, candidate_mask, log_row_sum)


def _round(log_s: Tensor, problem: _Problem) -> Tensor:
    """(B, N, C): rows normalised, then columns."""
    mask = problem.mask
    log_s = torch.where(mask, log_s - torch.logsumexp(log_s, dim=2, keepdim=True) + problem.log_row_sum, log_s)
    return torch.where(mask, log_s - torch.logsumexp(log_s, dim=1, keepdim=True), log_s)


def _residual(log_s: Tensor, problem: _Problem) -> Tensor:
    """(B,) largest |row sum - target| over the real candidates."""
    row_sum = torch.where(problem.mask, log_s, -torch.inf).exp().sum(dim=2)  # (B, N)
    error = (row_sum - problem.log_row_sum[:, :, 0].exp()).abs()
    return torch.where(problem.candidate_mask, error, 0.0).amax(dim=1)
