"""Every decoder on one score matrix: orders, totals, regret, time, and whether a plain sort gives the same order."""

from __future__ import annotations

import time
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from spd_core.decoding import DECODERS, Decoder
from spd_core.decoding.hungarian import hungarian
from spd_core.decoding.matrix import complete_square
from spd_core.decoding.plain_sort import same_sort

REPEATS = 5
"""Runs of which the median time counts; enough to pass over the first one and a hiccup."""


@dataclass(frozen=True, eq=False)
class DecodedOrder:
    """What one decoder makes of a score matrix."""

    decoder: str
    """Key of `DECODERS`."""
    ranking: NDArray[np.int64]
    """(N,) candidate index at each rank."""
    total: float
    """Sum of the scores of the candidates at their positions: what the Hungarian decoder maximises."""
    regret: float
    """Best total less this one; 0 for the Hungarian decoder, never negative."""
    same_sort: str | None
    """Which plain sort gives the very same order, in words; None if none does."""
    time_ms: float
    """Median time of decoding alone."""


def compare_decoders(scores: NDArray[np.floating]) -> tuple[DecodedOrder, ...]:
    """What each decoder makes of the same score matrix, in the order of `DECODERS`.

    Args:
        scores: (N, K) finite scores, N <= K; only the first N columns count.

    Raises:
        ScoreMatrixError: a score is not finite, or N > K.
    """
    matrix = complete_square(scores)
    best = total_of(matrix, hungarian(matrix))
    orders = []
    for name, decode in DECODERS.items():
        ranking, time_ms = _timed(decode, matrix)
        total = total_of(matrix, ranking)
        orders.append(DecodedOrder(name, ranking, total, max(0.0, best - total), same_sort(matrix, ranking), time_ms))
    return tuple(orders)


def total_of(scores: NDArray[np.float64], ranking: NDArray[np.int64]) -> float:
    """Sum of M[candidate at rank r, r] over all ranks, of (N, K) scores with N <= K.

    Source: SPD paper, eq. 1.
    """
    return float(scores[ranking, np.arange(len(ranking))].sum())


def _timed(decode: Decoder, matrix: NDArray[np.float64]) -> tuple[NDArray[np.int64], float]:
    times = []
    for _ in range(REPEATS):
        begin = time.perf_counter()
        ranking = decode(matrix)
        times.append((time.perf_counter() - begin) * 1e3)
    return ranking, float(np.median(times))
