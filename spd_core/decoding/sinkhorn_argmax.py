"""Sinkhorn, then the likeliest position of each candidate: what the training loss looks at, made a valid ranking.

It knows no checkpoint: temperature and iterations are the ones that training uses by default.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from spd_core.decoding.matrix import append_tail, expected_positions, own_square, validate_scores

TAU = 1.0
ITERATIONS = 20
"""Both as in training by default. Colder, and with more iterations, the result approaches the Hungarian one."""
TIE_DECIMALS = 9
"""Expected positions that agree to so many decimals count as equal; what differs below comes from rounding."""


def sinkhorn_argmax(scores: NDArray[np.float64]) -> NDArray[np.int64]:
    """Likeliest position of each candidate after Sinkhorn; who claims the same one queues by expected position.

    The repair is that queue: candidates behind a crowded position move down, and nobody overtakes.

    Args:
        scores: (N, K) finite scores.

    Returns:
        (N,) ranking; ties by input index. K < N: tail rule.

    Raises:
        ScoreMatrixError: a score is not finite.
    """
    square = own_square(validate_scores(scores))
    count, columns = square.shape
    log_assignment = log_sinkhorn_of(square)
    expected = expected_positions(log_assignment).round(TIE_DECIMALS)
    claimed = log_assignment.round(TIE_DECIMALS).argmax(axis=1)  # the lowest position of equal ones
    queue = np.lexsort((expected, claimed)).astype(np.int64)  # stable: last key first, then input index
    return append_tail(queue[:columns], square) if columns < count else queue


def log_sinkhorn_of(square: NDArray[np.float64], *, tau: float = TAU, iterations: int = ITERATIONS) -> NDArray[np.float64]:
    """(N, C) log-probabilities of one slate's relaxed assignment; `spd_core.sinkhorn.log_sinkhorn` without PyTorch.

    Args:
        square: (N, C) finite scores, C <= N.
        tau: temperature > 0.
        iterations: rounds of normalising rows, then columns; with the columns last, what rows sum to cancels out.
    """
    log_s = square / tau
    for _ in range(iterations):
        log_s = log_s - _log_sum(log_s, axis=1)
        log_s = log_s - _log_sum(log_s, axis=0)
    return np.asarray(log_s, dtype=np.float64)


def _log_sum(values: NDArray[np.float64], *, axis: int) -> NDArray[np.float64]:
    top = values.max(axis=axis, keepdims=True)
    result: NDArray[np.float64] = top + np.log(np.exp(values - top).sum(axis=axis, keepdims=True))
    return result
