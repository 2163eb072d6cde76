"""Sorting by one number per candidate, and how much of the best assignment such a sort already reaches.

A score matrix may hold N x N different wishes or, written out N times, a single score per candidate; then solving an
assignment problem is only a slow way to sort. The share of energy in the first singular value does not tell the two apart:
on matrices of a head trained on frozen states, with a share above .95, the sort still missed a sixth of the gain. So the
gain itself is measured.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import linear_sum_assignment

from spd_core.decoding.expected_position import expected_position
from spd_core.decoding.first_column import first_column
from spd_core.decoding.matrix import own_square
from spd_core.decoding.spectrum import leading_vectors, singular_values

CONSTANT_TOLERANCE = 1e-6
"""Largest variation, relative to the scores, that counts as none: what float32 rounding leaves of a constant matrix."""


def double_centred(matrix: NDArray[np.floating]) -> NDArray[np.float64]:
    """`matrix` less its row means and column means, plus the overall mean; every row and column then sums to 0.

    Args:
        matrix: (N, C) finite scores.

    Returns:
        (N, C) float64; all zeros for a matrix that is constant up to row and column constants.
    """
    values = np.asarray(matrix, dtype=np.float64)
    centred: NDArray[np.float64] = values - values.mean(axis=1, keepdims=True) - values.mean(axis=0) + values.mean()
    return centred


def is_flat(matrix: NDArray[np.floating]) -> bool:
    """Whether a matrix is constant up to row and column constants: every assignment then has the same total.

    Args:
        matrix: (N, C) finite scores.
    """
    scale = max(1.0, float(np.abs(matrix).max()))
    return float(np.abs(double_centred(matrix)).max()) <= CONSTANT_TOLERANCE * scale


def leading_share(matrix: NDArray[np.floating]) -> float:
    """Share of the double-centred matrix's energy in its first singular value, 0 to 1; 0 if nothing is left after centring.

    At 1 the matrix holds one score per candidate, and the solver only sorts.
    """
    energy = singular_values(double_centred(matrix)) ** 2
    scale = float(np.square(np.asarray(matrix, dtype=np.float64)).sum())
    return float(energy[0] / energy.sum()) if energy.sum() > 1e-12 * max(1.0, scale) else 0.0


def leading_sort(scores: NDArray[np.floating]) -> NDArray[np.int64]:
    """Sort by the one score per candidate that explains most: the first singular vector after double-centring.

    Args:
        scores: (N, K) finite scores, N <= K.

    Returns:
        (N,) ranking; candidates sorted by their score meet positions sorted by theirs, the best assignment of that part.
    """
    left, right = leading_vectors(double_centred(own_square(np.asarray(scores, dtype=np.float64))))
    ranking = np.empty(len(left), dtype=np.int64)
    ranking[np.argsort(-right, kind="stable")] = np.argsort(-left, kind="stable")
    return ranking


LEADING = "first singular score"
PLAIN_SORTS = {
    "expected position": expected_position,
    "first column": first_column,
    LEADING: leading_sort,
}
"""What counts as a plain sort: name in words -> (N, K) scores to (N,) ranking, a number per candidate and no more."""


def same_sort(scores: NDArray[np.float64], ranking: NDArray[np.int64]) -> str | None:
    """Name of a plain sort with that very order, the first of `PLAIN_SORTS`; None if there is none. N <= K."""
    matches = (name for name, sort in PLAIN_SORTS.items() if np.array_equal(sort(scores), ranking))
    return next(matches, None)


def sort_gains(scores: NDArray[np.floating]) -> dict[str, float]:
    """How much of the best assignment's gain over an average ranking each plain sort reaches.

    Args:
        scores: (N, K) finite scores, N <= K.

    Returns:
        Name of `PLAIN_SORTS` -> gain: 1 where the sort is as good as the assignment, also for a flat matrix and one
        candidate; 0 where it is no better than chance.
    """
    matrix = own_square(np.asarray(scores, dtype=np.float64))
    if is_flat(matrix):
        return dict.fromkeys(PLAIN_SORTS, 1.0)
    places = np.arange(len(matrix))
    centred = double_centred(matrix)  # the mean total over all rankings is 0 here
    best = float(centred[linear_sum_assignment(centred, maximize=True)].sum())
    return {name: min(1.0, float(centred[sort(matrix), places].sum()) / best) for name, sort in PLAIN_SORTS.items()}
