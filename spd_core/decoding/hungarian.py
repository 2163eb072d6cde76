"""The exact decoder: the assignment of candidates to positions with the largest total score."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import linear_sum_assignment

from spd_core.decoding.matrix import append_tail, own_square, validate_scores


def hungarian(scores: NDArray[np.float64]) -> NDArray[np.int64]:
    """Best assignment of candidates to positions as a whole (exact; Hungarian algorithm).

    Args:
        scores: (N, K) finite scores.

    Returns:
        (N,) ranking maximising the sum of M[i, position of i]. For K < N the K assigned candidates come first and the tail
        rule orders the rest. Equal optima: SciPy's choice, which on a constant matrix is the input order.

    Raises:
        ScoreMatrixError: a score is not finite.
    Source: SPD paper, eq. 1; scipy.optimize.linear_sum_assignment (modified Jonker-Volgenant).
    """
    square = own_square(validate_scores(scores))
    items, positions = linear_sum_assignment(square, maximize=True)
    head = items[np.argsort(positions)].astype(np.int64)  # with K < N rows are not 0..N-1, so both arrays are needed
    return append_tail(head, square) if len(head) < len(square) else head
