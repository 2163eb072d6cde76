"""How far a mean over slates, or a difference of two means, may be off: percentile bootstrap over slates.

Slates are drawn again with replacement; that says how much the figure depends on which slates were at hand, and nothing
of how much it depends on the seed of a training run.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from spd_core.errors import SpdError

RESAMPLES = 4_000
"""Draws: an interval's ends then move by about 2 % of its width from seed to seed, and p-values end at .0005."""
LEVEL = 0.95
NUMBERS_AT_ONCE = 2_000_000
"""Bound on the memory of a block of draws: 16 MB of indices."""


class Interval(NamedTuple):
    """A mean over slates with its 95 % interval."""

    mean: float
    low: float
    high: float
    n: int


class Difference(NamedTuple):
    """A mean difference over the same slates, first less second, with its 95 % interval and two-sided p-value."""

    mean: float
    low: float
    high: float
    n: int
    p_value: float


def mean_interval(values: ArrayLike, *, seed: int = 0) -> Interval:
    """Mean of per-slate values with the 95 % percentile bootstrap interval.

    Args:
        values: (n,) finite numbers, one a slate.
        seed: of the draws; the same seed and values give the same interval.

    Raises:
        SpdError: there are no values, or one is not finite.
    """
    numbers = _checked(values)
    low, high = _bounds(_resampled_means(numbers, seed))
    return Interval(float(numbers.mean()), low, high, len(numbers))


def mean_intervals(columns: NDArray[np.float64], *, seed: int = 0) -> list[Interval]:
    """`mean_interval` of each column, with the same draws for all: many at the price of few.

    Args:
        columns: (n, C) finite numbers, a row a slate.
        seed: of the draws.

    Returns:
        C intervals; the same as of each column alone, up to rounding.

    Raises:
        SpdError: there are no rows, or a number is not finite.
    """
    _checked(columns)
    count = len(columns)
    means = np.concatenate(
        [
            np.bincount((indices + np.arange(len(indices))[:, None] * count).ravel(), minlength=len(indices) * count)
            .reshape(-1, count)
            .astype(np.float64)
            @ columns
            / count
            for indices in _draws(count, seed)
        ]
    )
    low, high = np.quantile(means, [(1 - LEVEL) / 2, (1 + LEVEL) / 2], axis=0)
    ends = zip(columns.mean(axis=0), low, high, strict=True)
    return [Interval(float(mean), float(lower), float(upper), count) for mean, lower, upper in ends]


def paired_difference(first: ArrayLike, second: ArrayLike, *, seed: int = 0) -> Difference:
    """Mean of first less second over the same slates, its 95 % interval, and how likely such a difference is by chance.

    Args:
        first: (n,) finite numbers, one a slate.
        second: (n,) finite numbers of the same slates in the same order.
        seed: of the draws.

    Returns:
        `p_value`: twice the share of draws whose mean is on the other side of 0 or on it, at least 2 / (draws + 1), at
        most 1; 1 where the two never differ.

    Raises:
        SpdError: the lengths differ, there are no values, or one is not finite.
    """
    ours, theirs = _checked(first), _checked(second)
    if len(ours) != len(theirs):
        raise SpdError(f"{len(ours)} values against {len(theirs)}; a paired comparison needs the same slates")
    differences = ours - theirs
    means = _resampled_means(differences, seed)
    low, high = _bounds(means)
    beyond = min(int((means <= 0).sum()), int((means >= 0).sum()))
    p_value = min(1.0, 2.0 * (beyond + 1) / (len(means) + 1))
    return Difference(float(differences.mean()), low, high, len(differences), p_value)


def _checked(values: ArrayLike) -> NDArray[np.float64]:
    numbers = np.asarray(values, dtype=np.float64).ravel()
    if not numbers.size:
        raise SpdError("no slates to average: each was left out; see the reasons beside the counts")
    if not np.isfinite(numbers).all():
        index = int(np.flatnonzero(~np.isfinite(numbers))[0])
        raise SpdError(f"value {index} is {numbers[index]}; leave out slates on which the metric is not defined")
    return numbers


def _resampled_means(numbers: NDArray[np.float64], seed: int) -> NDArray[np.float64]:
    """(RESAMPLES,) means of draws with replacement."""
    return np.concatenate([numbers[indices].mean(axis=1) for indices in _draws(len(numbers), seed)])


def _draws(count: int, seed: int) -> Iterator[NDArray[np.int64]]:
    """(b, count) indices of slates, RESAMPLES rows in all, in blocks so that memory stays bounded."""
    generator = np.random.default_rng(seed)
    block = max(1, NUMBERS_AT_ONCE // count)
    for start in range(0, RESAMPLES, block):
        yield generator.integers(count, size=(min(block, RESAMPLES - start), count))


def _bounds(means: NDArray[np.float64]) -> tuple[float, float]:
    low, high = np.quantile(means, [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
    return float(low), float(high)
