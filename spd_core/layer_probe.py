"""Which layer already knows the ranking: a linear read of the rank from the readouts of each layer, judged on slates it
has not seen.

What a linear read finds is there; what it does not find may be there in another form. It knows arrays, not the model.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from spd_core.errors import SpdError
from spd_core.metrics.bootstrap import Interval, mean_interval

FOLDS = 5
STRENGTHS = tuple(float(strength) for strength in np.logspace(-3, 3, 13))
"""Ridge penalties tried, in units of the mean variance of a feature times the number of rows."""
KNOWS = 0.9
"""Share of the best layer's Kendall tau from which on a layer is said to know the ranking."""


class LayerScore(NamedTuple):
    """How well the rank can be read from one layer, over the held-out slates."""

    layer: int
    """0 is the token embeddings."""
    kendall_tau: Interval
    """Of the rank read and the student's own, 1 the same order, 0 unrelated."""
    spearman: Interval

    def to_json(self) -> dict[str, Any]:
        """JSON object with both intervals."""
        return {"layer": self.layer, "kendall_tau": self.kendall_tau._asdict(), "spearman": self.spearman._asdict()}


def probe_layers(
    readouts: Sequence[NDArray[np.floating]], positions: Sequence[NDArray[np.integer]], *, folds: int = FOLDS, seed: int = 0
) -> tuple[LayerScore, ...]:
    """How well a ridge regression reads each candidate's rank from each layer, on slates left out of its fit.

    Within each slate the readouts are taken less their mean, and so are the ranks, scaled to -1..1: a ranking is about
    differences. Features are divided by their deviation over the fitted slates; the penalty is chosen on those slates by
    generalised cross-validation.

    Args:
        readouts: of each slate (L + 1, N, D), N >= 2; N may differ.
        positions: of each slate (N,) rank of each candidate in the student's ranking, 0 first.
        folds: parts into which whole slates are dealt, 2 to the number of slates.
        seed: of the deal.

    Returns:
        A score a layer; each slate is held out once, so n of the intervals is the number of slates. A layer from which
        nothing can be read (all readouts alike) scores 0.

    Raises:
        SpdError: fewer slates than folds, fewer than two folds, or a slate with fewer than two candidates.
    Source: linear probes as in Alain and Bengio, Understanding intermediate layers (2016); penalty as in Golub, Heath and
        Wahba, Generalized cross-validation (1979).
    """
    if not 2 <= folds <= len(readouts):
        raise SpdError(f"{len(readouts)} slates and {folds} folds; give at least 2 folds and a slate for each")
    if any(len(places) < 2 for places in positions):
        raise SpdError("a slate has one candidate and so no order to read; leave it out")
    targets = [_target(places) for places in positions]
    fold_of = np.random.default_rng(seed).permutation(len(readouts)) % folds
    scores = []
    for layer in range(len(readouts[0])):
        features = [_centred(one[layer]) for one in readouts]
        pairs = np.zeros((len(readouts), 2))
        for slate, read in _held_out(features, targets, fold_of):
            pairs[slate] = _agreement(read, targets[slate])
        scores.append(LayerScore(layer, mean_interval(pairs[:, 0], seed=seed), mean_interval(pairs[:, 1], seed=seed)))
    return tuple(scores)


def first_to_know(taus: Sequence[float], share: float = KNOWS) -> int:
    """The first layer whose Kendall tau reaches `share` of the best layer's; -1 where no layer is above 0."""
    best = max(taus, default=0.0)
    return next((layer for layer, tau in enumerate(taus) if tau >= share * best), -1) if best > 0 else -1


def _target(places: NDArray[np.integer]) -> NDArray[np.float64]:
    """(N,) 1 for the first rank down to -1 for the last."""
    return 1.0 - 2.0 * np.asarray(places, dtype=np.float64) / (len(places) - 1)


def _centred(rows: NDArray[np.floating]) -> NDArray[np.float64]:
    values = np.asarray(rows, dtype=np.float64)
    centred: NDArray[np.float64] = values - values.mean(axis=0)
    return centred


def _held_out(
    features: list[NDArray[np.float64]], targets: list[NDArray[np.float64]], fold_of: NDArray[np.int64]
) -> Iterator[tuple[int, NDArray[np.float64]]]:
    """(slate, what was read from it) for every slate, by a fit that has not seen it."""
    for fold in range(int(fold_of.max()) + 1):
        fitted = [index for index, own in enumerate(fold_of) if own != fold]
        rows = np.concatenate([features[index] for index in fitted])
        weights = _ridge(rows, np.concatenate([targets[index] for index in fitted]))
        for index in np.flatnonzero(fold_of == fold):
            yield int(index), features[index] @ weights


def _ridge(rows: NDArray[np.float64], target: NDArray[np.float64]) -> NDArray[np.float64]:
    """(D,) weights of the penalty with the least generalised cross-validation error."""
    scale = rows.std(axis=0)
    scale = np.where(scale > 1e-9 * max(float(scale.max()), 1e-300), scale, np.inf)  # a feature that never moves counts 0
    scaled = rows / scale
    values, vectors = np.linalg.eigh(scaled.T @ scaled)
    values = np.maximum(values, 0.0)
    along = vectors.T @ (scaled.T @ target)  # (D,)
    count, total = len(rows), float(target @ target)
    best, kept = np.inf, np.zeros_like(along)
    for strength in STRENGTHS:
        penalty = strength * count
        shrunk = along / (values + penalty)
        left = total - 2 * float(shrunk @ along) + float(shrunk**2 @ values)
        error = left / max(count - float((values / (values + penalty)).sum()), 1e-9) ** 2
        if error < best:
            best, kept = error, shrunk
    weights: NDArray[np.float64] = (vectors @ kept) / scale
    return weights


def _agreement(read: NDArray[np.float64], target: NDArray[np.float64]) -> tuple[float, float]:
    """Kendall tau and Spearman's rho of two orders; 0 where nothing was read."""
    if float(np.ptp(read)) <= 1e-12:
        return 0.0, 0.0
    return float(stats.kendalltau(read, target).statistic), float(stats.spearmanr(read, target).statistic)
