"""Sorting by expected position: each candidate alone, no assignment."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from spd_core.decoding.matrix import expected_positions, validate_scores


def expected_position(scores: NDArray[np.float64]) -> NDArray[np.int64]:
    """Sort by the mean position under each row's softmax; no assignment problem is solved.

    Args:
        scores: (N, K) finite scores.

    Returns:
        (N,) ranking; ties by input index.

    Raises:
        ScoreMatrixError: a score is not finite.
    """
    return np.argsort(expected_positions(validate_scores(scores)), kind="stable").astype(np.int64)
