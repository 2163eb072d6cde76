"""Greedy decoding: the largest score still possible is taken first."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from spd_core.decoding.matrix import append_tail, own_square, validate_scores


def greedy(scores: NDArray[np.float64]) -> NDArray[np.int64]:
    """Largest score first: take the best free pair of candidate and position, again and again.

    Args:
        scores: (N, K) finite scores.

    Returns:
        (N,) ranking; its total is at least half the best one for non-negative scores. Ties go to the lower candidate index,
        then the lower position. K < N: tail rule.

    Raises:
        ScoreMatrixError: a score is not finite.
    """
    square = own_square(validate_scores(scores))
    count, columns = square.shape
    head = np.full(columns, -1, dtype=np.int64)
    placed = np.zeros(count, dtype=bool)
    for cell in np.argsort(-square, axis=None, kind="stable"):
        item, position = divmod(int(cell), columns)
        if head[position] < 0 and not placed[item]:
            head[position], placed[item] = item, True
    return append_tail(head, square) if columns < count else head
