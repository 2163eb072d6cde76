"""The views of one score matrix that a heatmap can draw: raw, double-centred, Sinkhorn as probability or as logarithm.

The assignment does not change when a constant is added to a row or a column, so the raw view can mislead; the
double-centred view removes exactly those constants.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from spd_core.decoding.plain_sort import double_centred, leading_share
from spd_core.errors import SpdError, choices
from spd_core.sinkhorn import log_sinkhorn


@dataclass(frozen=True)
class Layer:
    """How one view is named, explained and colored."""

    title: str
    meaning: str
    is_diverging: bool
    """Colored from a middle at zero instead of from low to high."""


LAYERS: dict[str, Layer] = {
    "probability": Layer("Sinkhorn", "Probability of each position after Sinkhorn at this temperature.", False),
    "log": Layer("Sinkhorn, log", "Logarithm of the Sinkhorn probability: small values stay visible.", False),
    "centred": Layer("Double-centred", "Raw scores less the mean of their row and column: what the assignment sees.", True),
    "raw": Layer("Raw", "Scores as the head gives them.", False),
}


@dataclass(frozen=True)
class MatrixViews:
    """All views of one score matrix."""

    values: dict[str, NDArray[np.float64]]
    """By key of `LAYERS`; raw has the columns asked for, the others the slate's own C = min(N, K)."""
    residual: float
    """Largest distance of a Sinkhorn row sum from its target."""


def matrix_views(matrix: NDArray[np.floating], *, tau: float, iterations: int, all_columns: bool = False) -> MatrixViews:
    """Every view of one slate's score matrix.

    Args:
        matrix: (N, K) finite scores.
        tau: Sinkhorn temperature > 0.
        iterations: Sinkhorn rounds >= 1.
        all_columns: raw shows all K columns instead of the C = min(N, K) that the slate uses.

    Returns:
        `MatrixViews`.

    Raises:
        ScoreMatrixError: tau or iterations out of range.
    """
    scores = np.asarray(matrix, dtype=np.float64)
    own = scores[:, : scores.shape[0]]
    relaxed = log_sinkhorn(torch.from_numpy(scores)[None], tau=tau, iterations=iterations)
    log_assignment = relaxed.log_assignment[0].numpy()
    values = {
        "raw": scores if all_columns else own,
        "centred": double_centred(own),
        "probability": np.exp(log_assignment),
        "log": log_assignment,
    }
    return MatrixViews(values, float(relaxed.residual[0]))


def find_layer(name: str) -> Layer:
    """The layer of that name.

    Raises:
        SpdError: no layer has that name; the message lists the names.
    """
    if name not in LAYERS:
        raise SpdError(choices("layer", name, LAYERS))
    return LAYERS[name]


__all__ = ["LAYERS", "Layer", "MatrixViews", "double_centred", "find_layer", "leading_share", "matrix_views"]
