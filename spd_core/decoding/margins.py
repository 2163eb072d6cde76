"""How sure a ranking is: the score that a swap would cost, and matrices that hold no ranking or more than one."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

CONSTANT_TOLERANCE = 1e-6
"""Largest variation, relative to the scores, that counts as none: what float32 rounding leaves of a constant matrix."""


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
    varying = square - square.mean(axis=0)
    if decoder == "hungarian":
        varying = varying - varying.mean(axis=1, keepdims=True)
    if np.abs(varying).max() <= CONSTANT_TOLERANCE * max(1.0, float(np.abs(square).max())):
        return ("no ranking information: the score matrix prefers no order, so the one shown means nothing",)
    if decoder == "hungarian":
        ties = int((margins[:-1] == 0).sum())
        return (f"exact tie: {ties} pairs of neighbours could change places at an equal total",) if ties else ()
    ties = count - len(np.unique(square, axis=0))
    return (f"exact tie: {ties} candidates have the very scores of another one",) if ties else ()
