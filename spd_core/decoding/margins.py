"""How sure a ranking is: the score that a swap would cost, and matrices that hold no ranking or more than one."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from spd_core.decoding.health import NO_INFORMATION, ONE_SCORE, judge
from spd_core.decoding.plain_sort import CONSTANT_TOLERANCE, LEADING, sort_gains

NO_ORDER = f"{NO_INFORMATION}: the score matrix prefers no order, so the one shown means nothing"


def swap_margins(scores: NDArray[np.floating], ranking: NDArray[np.int64]) -> NDArray[np.float64]:
    """(N,) total score lost if the items at ranks r and r + 1 changed places; NaN at the last rank.

    `scores` is (N, K) with N <= K, `ranking` (N,) the candidate index at each rank.
    """
    ranked = np.asarray(scores, dtype=np.float64)[ranking]  # row r is the item at rank r
    rank = np.arange(len(ranking) - 1)
    kept = ranked[rank, rank] + ranked[rank + 1, rank + 1]
    return np.append(kept - ranked[rank, rank + 1] - ranked[rank + 1, rank], np.nan)


def matrix_warnings(scores: NDArray[np.floating], margins: NDArray[np.float64], decoder: str) -> tuple[str, ...]:
    """What a reader must know about a score matrix before they trust its ranking; empty if nothing.

    Args:
        scores: (N, K) with N <= K.
        margins: of `swap_margins`.
        decoder: key of `DECODERS`. The assignment ignores constants added to a row, the other decoders do not.
    """
    count = len(scores)
    square = np.asarray(scores, dtype=np.float64)[:, :count]
    if count == 1:
        return ()
    return _of_assignment(square, margins) if decoder == "hungarian" else _of_sort(square)


def _of_assignment(square: NDArray[np.float64], margins: NDArray[np.float64]) -> tuple[str, ...]:
    gain = sort_gains(square)[LEADING]
    verdict = judge(square, gain)
    if verdict == NO_INFORMATION:
        return (NO_ORDER,)
    warnings = []
    if ties := int((margins[:-1] == 0).sum()):
        warnings.append(f"exact tie: {ties} pairs of neighbours could change places at an equal total")
    if verdict == ONE_SCORE:
        warnings.append(f"{ONE_SCORE}: the solver only sorts, a sort by it reaches {gain:.1%} of the best assignment's gain")
    return tuple(warnings)


def _of_sort(square: NDArray[np.float64]) -> tuple[str, ...]:
    varying = np.abs(square - square.mean(axis=0)).max()
    if varying <= CONSTANT_TOLERANCE * max(1.0, float(np.abs(square).max())):
        return (NO_ORDER,)
    ties = len(square) - len(np.unique(square, axis=0))
    return (f"exact tie: {ties} candidates have the very scores of another one",) if ties else ()
