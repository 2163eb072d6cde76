"""Greedy decoding from the top: the first position takes its best candidate, then the second, and so on."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from spd_core.decoding.matrix import append_tail, own_square, validate_scores


def greedy_by_position(scores: NDArray[np.float64]) -> NDArray[np.int64]:
    """Position by position: each takes the best candidate that is left, and nothing is taken back.

    Args:
        scores: (N, K) finite scores.

    Returns:
        (N,) ranking; position 1 always gets its best candidate, late positions what is left. Ties go to the lower candidate
        index. K < N: tail rule.

    Raises:
        ScoreMatrixError: a score is not finite.
    """
    square = own_square(validate_scores(scores))
    count, columns = square.shape
    free = np.ones(count, dtype=bool)
    head = np.empty(columns, dtype=np.int64)
    for position in range(columns):
        head[position] = np.argmax(np.where(free, square[:, position], -np.inf))  # argmax takes the lowest index
        free[head[position]] = False
    return append_tail(head, square) if columns < count else head
