"""How much several rankings of the same items differ, and whether their input order is the reason.

Each function takes (R, N) arrays of positions: `position[r, i]` is the rank of candidate i in ranking r, 0 first.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray


class PositionEffect(NamedTuple):
    """What being shown later does to the rank of one and the same item."""

    slope: float
    """Places lower in the ranking for each place later in the input: 0 none, 1 the input order comes back."""
    error: float
    """Standard error of the slope; a slope within two of them may be chance."""
    correlation: float
    """Of place and rank, each less the item's own mean; 0 where no rank changes."""


def mean_pairwise_tau(positions: NDArray[np.integer]) -> float:
    """Kendall tau of two rankings of the same items, mean over all pairs of R >= 2 rankings; NaN for one item.

    Args:
        positions: (R, N) rank of each item in each ranking.

    Source: Kendall, A new measure of rank correlation, Biometrika 1938; without ties.
    """
    runs, count = positions.shape
    if count < 2:
        return float("nan")
    one, other = np.triu_indices(count, k=1)
    signs = np.sign(positions[:, one] - positions[:, other]).astype(np.float64)  # (R, pairs of items)
    agreement = signs @ signs.T / len(one)  # (R, R) tau of each two rankings
    return float((agreement.sum() - runs) / (runs * (runs - 1)))


def input_pull(places: NDArray[np.integer], positions: NDArray[np.integer]) -> PositionEffect:
    """How many places lower an item comes out for each place later that it is shown, compared with itself alone.

    Args:
        places: (R, N) place in the input of each item in each shuffle.
        positions: (R, N) its rank there.

    Returns:
        A slope of 0 where no rank changes or nothing can be shuffled. The error takes shuffles as independent.
    """
    shown, came = places - places.mean(axis=0), positions - positions.mean(axis=0)
    cross, square = (shown * came).sum(axis=1), (shown**2).sum(axis=1)  # (R,)
    if not square.any() or not came.any():
        return PositionEffect(0.0, 0.0, 0.0)
    runs, slope = len(places), float(cross.sum() / square.sum())
    error = math.sqrt(float(((cross - slope * square) ** 2).sum()) * runs / (runs - 1)) / float(square.sum())
    return PositionEffect(slope, error, float(cross.sum() / math.sqrt(float(square.sum() * (came**2).sum()))))
