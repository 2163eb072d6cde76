"""What all decoders share: checking a score matrix, the tail rule, and the two ways to write a permutation."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from spd_core.errors import ScoreMatrixError


def validate_scores(scores: NDArray[np.floating]) -> NDArray[np.float64]:
    """`scores` as (N, K) float64.

    Raises:
        ScoreMatrixError: not two-dimensional, no candidate or no position, or an entry is NaN or infinite; the message
            names the first such item and position, both counted from 1.
    """
    matrix = np.asarray(scores, dtype=np.float64)
    if matrix.ndim != 2 or 0 in matrix.shape:
        raise ScoreMatrixError(f"score matrix has shape {matrix.shape}; it must be (candidates, positions), neither 0")
    bad = np.argwhere(~np.isfinite(matrix))
    if len(bad):
        item, position = bad[0]
        raise ScoreMatrixError(
            f"score of item {item + 1} for position {position + 1} is {matrix[item, position]}; "
            f"{len(bad)} of {matrix.size} scores are not finite, so no ranking can be decoded; check the checkpoint"
        )
    return matrix


def own_square(scores: NDArray[np.float64]) -> NDArray[np.float64]:
    """(N, min(N, K)): the columns that a slate of N candidates uses."""
    return scores[:, : scores.shape[0]]


def complete_square(scores: NDArray[np.floating]) -> NDArray[np.float64]:
    """(N, N) finite scores of a slate with a position for every candidate.

    Raises:
        ScoreMatrixError: a score is not finite, or there are more candidates than positions.
    """
    matrix = validate_scores(scores)
    count, columns = matrix.shape
    if count > columns:
        raise ScoreMatrixError(f"score matrix has {count} candidates but {columns} positions; a position for each is needed")
    return matrix[:, :count]


def expected_positions(scores: NDArray[np.float64]) -> NDArray[np.float64]:
    """(N,) mean position of each candidate, 0 first, under the row-softmax over the slate's own columns."""
    square = own_square(scores)
    weights = np.exp(square - square.max(axis=1, keepdims=True))
    mean: NDArray[np.float64] = weights @ np.arange(square.shape[1]) / weights.sum(axis=1)
    return mean


def append_tail(head: NDArray[np.int64], scores: NDArray[np.float64]) -> NDArray[np.int64]:
    """A full ranking: `head` (K,) first, the candidates not in it after, by expected position, ties by input index.

    This is the tail rule for top-K decoding (K < N); the paper leaves it open.
    """
    order = np.argsort(expected_positions(scores), kind="stable")
    return np.concatenate([head, order[~np.isin(order, head)]]).astype(np.int64)


def to_positions(ranking: NDArray[np.integer]) -> NDArray[np.int64]:
    """(N,) `position[i]` = rank of candidate i, from `ranking[r]` = candidate at rank r; its own inverse."""
    return _inverse(ranking, "ranking")


def to_ranking(positions: NDArray[np.integer]) -> NDArray[np.int64]:
    """(N,) `ranking[r]` = candidate at rank r, from `position[i]` = rank of candidate i."""
    return _inverse(positions, "positions")


def _inverse(permutation: NDArray[np.integer], name: str) -> NDArray[np.int64]:
    values = np.asarray(permutation, dtype=np.int64)
    if not np.array_equal(np.sort(values), np.arange(len(values))):
        raise ScoreMatrixError(f"{name} {values.tolist()} is not a permutation of 0 to {len(values) - 1}")
    inverse = np.empty_like(values)
    inverse[values] = np.arange(len(values))
    return inverse
