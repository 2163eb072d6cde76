"""How right one ranking of one slate is. Each function takes what is known and where each candidate was put.

Knows nothing of models or files. `position[i]` is the rank of candidate i, 0 first: no two candidates share one, so that
no metric here has to break ties.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from spd_core.slate import Ranking, Slate, check_permutation

NAN = float("nan")


def positions_of(ranking: Ranking, slate: Slate) -> NDArray[np.int64]:
    """(N,) position of each candidate of `slate`, in input order.

    Raises:
        SlateError: the ranking does not hold each candidate once.
    """
    check_permutation(ranking.permutation, slate.item_ids, f"slate {slate.slate_id!r}: ranking {ranking.name!r}")
    position_of = {item_id: position for position, item_id in enumerate(ranking.permutation)}
    return np.array([position_of[item_id] for item_id in slate.item_ids], dtype=np.int64)


def pair_auc(relevant: ArrayLike, positions: ArrayLike) -> float:
    """Share of (relevant, irrelevant) pairs of candidates that stand in the right order; .5 is chance.

    Args:
        relevant: (N,) bool.
        positions: (N,) distinct positions, 0 first.

    Returns:
        In 0..1; NaN where there is no such pair: nothing or everything is relevant.
    """
    flags, places = np.asarray(relevant, dtype=bool), np.asarray(positions)
    pairs = int(flags.sum()) * int((~flags).sum())
    right = int((places[flags][:, None] < places[~flags][None, :]).sum())
    return right / pairs if pairs else NAN


def recall_at(relevant: ArrayLike, positions: ArrayLike, k: int) -> float:
    """Share of the relevant candidates among the first `k`; NaN if nothing is relevant, 1 for any order if N <= k."""
    flags, places = np.asarray(relevant, dtype=bool), np.asarray(positions)
    return float((places[flags] < k).mean()) if flags.any() else NAN


def reciprocal_rank(relevant: ArrayLike, positions: ArrayLike) -> float:
    """1 / rank of the first relevant candidate, ranks from 1; NaN if nothing is relevant."""
    flags, places = np.asarray(relevant, dtype=bool), np.asarray(positions)
    return 1.0 / (1.0 + float(places[flags].min())) if flags.any() else NAN


def ndcg_at(gains: ArrayLike, positions: ArrayLike, k: int) -> float:
    """Discounted gain of the first `k`, as a share of the best that any order reaches.

    Gains count as they are (not 2^gain - 1) and are divided by log2(rank + 1), ranks from 1; negative ones count 0, as in
    trec_eval. With one relevant candidate of gain 1, NDCG@1 is Recall@1.

    Args:
        gains: (N,) float.
        positions: (N,) distinct positions, 0 first.
        k: number of positions looked at; more than N means all.

    Returns:
        In 0..1; NaN where no gain is above 0.

    Source: Järvelin & Kekäläinen, Cumulated gain-based evaluation of IR techniques, TOIS 2002.
    """
    worth = np.maximum(np.asarray(gains, dtype=np.float64), 0.0)
    discounts = 1.0 / np.log2(np.arange(2, len(worth) + 2))  # (N,) by position
    discounts[k:] = 0.0
    best = float(np.sort(worth)[::-1] @ discounts)
    return float(worth @ discounts[np.asarray(positions)]) / best if best > 0 else NAN
