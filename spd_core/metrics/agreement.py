"""How alike two rankings of the same slate are, whoever is right.

Each function takes two (N,) arrays of positions: `position[i]` is the rank of candidate i, 0 first.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike
from scipy import stats

from spd_core.errors import SpdError

PERSISTENCE = 0.9
"""Of `rbo`: chance to look one rank further; at .9 the first ten ranks carry 86 % of the weight (Webber et al. 2010)."""


def kendall_tau(first: ArrayLike, second: ArrayLike) -> float:
    """Pairs of candidates in the same order less pairs in opposite order, as a share of all; 1 same, -1 reversed.

    Args:
        first: (N,) distinct positions.
        second: (N,) distinct positions of the same candidates.

    Returns:
        In -1..1; NaN for a single candidate, which makes no pair.
    """
    return float(stats.kendalltau(first, second).statistic) if np.size(first) > 1 else float("nan")


def rbo(first: ArrayLike, second: ArrayLike, persistence: float = PERSISTENCE) -> float:
    """Rank-biased overlap: how much the top of one ranking is also the top of the other; early ranks weigh more.

    The extrapolated form for two lists of the same N candidates: p^N + (1 - p) / p * sum over d of p^d overlap(d) / d.

    Args:
        first: (N,) distinct positions.
        second: (N,) distinct positions of the same candidates.
        persistence: p, above 0 and below 1; the smaller, the more the first ranks weigh.

    Returns:
        Above 0, and 1 for equal rankings (also for a single candidate).

    Raises:
        SpdError: `persistence` is out of range.

    Source: Webber, Moffat & Zobel, A similarity measure for indefinite rankings, TOIS 2010, eq. 23.
    """
    if not 0 < persistence < 1:
        raise SpdError(f"persistence is {persistence!r}; it must be above 0 and below 1")
    later = np.maximum(np.asarray(first), np.asarray(second))  # depth at which a candidate is in both tops, less 1
    depths = np.arange(1, later.size + 1)
    overlap = np.cumsum(np.bincount(later, minlength=later.size)) / depths  # (N,) share at each depth
    weights = persistence**depths
    return float(weights[-1] + (1 - persistence) / persistence * (weights @ overlap))


def top_k_overlap(first: ArrayLike, second: ArrayLike, k: int) -> float:
    """Share of the first `k` candidates of one ranking that are among the first `k` of the other; 1 if N <= k."""
    in_both = (np.asarray(first) < k) & (np.asarray(second) < k)
    return float(in_both.sum()) / min(k, in_both.size)
