"""Sorting by the first column: the scores for position 1 alone."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from spd_core.decoding.matrix import validate_scores


def first_column(scores: NDArray[np.float64]) -> NDArray[np.int64]:
    """Sort by the score for position 1 and ignore the other columns.

    Args:
        scores: (N, K) finite scores.

    Returns:
        (N,) ranking, largest score first; ties by input index.

    Raises:
        ScoreMatrixError: a score is not finite.
    """
    return np.argsort(-validate_scores(scores)[:, 0], kind="stable").astype(np.int64)
