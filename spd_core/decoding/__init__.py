"""Decoders: one score matrix in, one ranking out. A new decoder is one file and one line in `DECODERS`."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from spd_core.decoding.expected_position import expected_position
from spd_core.decoding.first_column import first_column
from spd_core.decoding.greedy import greedy
from spd_core.decoding.greedy_by_position import greedy_by_position
from spd_core.decoding.hungarian import hungarian
from spd_core.decoding.matrix import to_positions, to_ranking, validate_scores
from spd_core.decoding.sinkhorn_argmax import sinkhorn_argmax
from spd_core.errors import SpdError, choices

Decoder = Callable[[NDArray[np.float64]], NDArray[np.int64]]

DECODERS: dict[str, Decoder] = {
    "hungarian": hungarian,
    "greedy": greedy,
    "greedy_by_position": greedy_by_position,
    "expected_position": expected_position,
    "first_column": first_column,
    "sinkhorn_argmax": sinkhorn_argmax,
}


def find_decoder(name: str) -> Decoder:
    """The decoder of that name.

    Raises:
        SpdError: no decoder has that name; the message lists the names.
    """
    if name not in DECODERS:
        raise SpdError(choices("decoder", name, DECODERS))
    return DECODERS[name]


def decode_batch(scores: NDArray[np.floating], candidate_mask: NDArray[np.bool_], decoder: str) -> NDArray[np.int64]:
    """Rankings of a padded batch.

    Args:
        scores: (B, N, K).
        candidate_mask: (B, N), True where real; real candidates come first in each row.
        decoder: key of `DECODERS`.

    Returns:
        (B, N) int64, `ranking[b, r]` = candidate index at rank r; -1 where padded.

    Raises:
        ScoreMatrixError: a real entry is not finite.
    """
    decode = find_decoder(decoder)
    rankings = np.full(candidate_mask.shape, -1, dtype=np.int64)
    for row, mask in enumerate(candidate_mask):
        count = int(mask.sum())
        rankings[row, :count] = decode(np.asarray(scores[row, :count], dtype=np.float64))
    return rankings


__all__ = ["DECODERS", "Decoder", "decode_batch", "find_decoder", "to_positions", "to_ranking", "validate_scores"]
