"""What the temperature does to a relaxed assignment: where each item's most likely position changes, and how sure it is.

It looks at converged assignments only; at temperatures where Sinkhorn does not converge in `MOST_ROUNDS` it says so and
draws no conclusion. It works on one slate's score matrix.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from spd_core.errors import ScoreMatrixError
from spd_core.sinkhorn import log_sinkhorn

TEMPERATURES = tuple(float(tau) for tau in np.logspace(-1, 2, 37))
"""Grid on which flips are looked for: twelve temperatures a decade, from .1 to 100."""
ROUND_STEPS = (10, 20, 70, 200, 300)
"""Rounds tried in turn; a temperature that has converged is not run again."""
MOST_ROUNDS = sum(ROUND_STEPS)
CONVERGED = 1e-3
"""Largest row-sum error that counts as converged; a thousandth of a row's mass."""
HALVINGS = 4
"""Bisections of a grid step: a ratio of 1.21 between two temperatures shrinks to 1.012; then a straight line."""
TINY = 1e-300
"""Least sum divided by: a row whose shares have all underflowed comes back step by step."""
TIE = 1e-9
"""Probabilities this close are a tie, which the earlier position wins; rounding would decide it otherwise."""


class Flip(NamedTuple):
    """A temperature at which the most likely position of one item changes."""

    item: int
    """Index in the input, 0 first."""
    tau: float
    colder: int
    """Most likely position just below `tau`, 0 first."""
    warmer: int
    """Most likely position just above it."""


@dataclass(frozen=True, eq=False)
class TemperatureSweep:
    """Most likely positions of all items over a grid of temperatures."""

    taus: NDArray[np.float64]
    """(G,) rising."""
    places: NDArray[np.int64]
    """(G, N) most likely position of each item; -1 where Sinkhorn has not converged."""
    log_assignments: NDArray[np.float32]
    """(G, N, C) log of the relaxed assignment after as many rounds as it needed or was given."""
    residuals: NDArray[np.float64]
    """(G,) largest row-sum error that was left."""
    effective_positions: NDArray[np.float64]
    """(G,) exp of the mean row entropy; NaN where not converged."""
    flips: tuple[Flip, ...]
    """By item, then by temperature, warmest first."""

    @property
    def coldest(self) -> float:
        """Lowest temperature of the grid from which on everything above has converged; NaN if there is none."""
        failed = np.flatnonzero(self.residuals > CONVERGED)
        first = 0 if not failed.size else int(failed[-1]) + 1
        return float(self.taus[first]) if first < len(self.taus) else float("nan")


def row_entropy(log_assignment: NDArray[np.floating]) -> NDArray[np.float64]:
    """(N,) entropy of each item over the positions in nats: 0 is certain, log C is no idea.

    Args:
        log_assignment: (N, C) log of a relaxed assignment; each row is scaled to sum 1 first, so that one that has not
            converged is read as a distribution too.
    Source: Shannon, A mathematical theory of communication (1948).
    """
    logs = np.asarray(log_assignment, dtype=np.float64)
    peak = logs.max(axis=1, keepdims=True)
    weights = np.exp(logs - peak)
    total = weights.sum(axis=1, keepdims=True)
    shares = weights / total
    surprise = np.where(weights > 0, peak + np.log(total) - logs, 0.0)
    return np.maximum((shares * surprise).sum(axis=1), 0.0)


def most_likely(log_assignment: NDArray[np.floating]) -> NDArray[np.int64]:
    """(..., N) most likely position of each item, 0 first; of positions that tie within `TIE` the earliest."""
    shares = np.exp(np.asarray(log_assignment, dtype=np.float64))
    return np.argmax(shares >= shares.max(axis=-1, keepdims=True) - TIE, axis=-1)


def sweep_temperatures(
    matrix: NDArray[np.floating], taus: Sequence[float] | NDArray[np.floating] = TEMPERATURES
) -> TemperatureSweep:
    """Most likely position of every item at every temperature, and each temperature at which one of them changes.

    A change is found between neighbours of the grid and then narrowed by bisection; two that undo each other within one
    step of the grid stay unseen, and of several the coldest is kept. Cold, the most likely positions are the Hungarian
    ranking; warm, they are the largest double-centred score of each row.

    Args:
        matrix: (N, K) finite scores; the first min(N, K) columns are used.
        taus: (G,) temperatures > 0, two or more, rising.

    Returns:
        `TemperatureSweep`; no flips next to temperatures at which Sinkhorn has not converged.

    Raises:
        ScoreMatrixError: fewer than two temperatures, not rising, or one that is not finite and above 0.
    Source: bisection of the argmax of eq. 2 of the SPD paper over tau; our own.
    """
    grid = np.asarray(taus, dtype=np.float64)
    if grid.size < 2 or not (np.isfinite(grid).all() and grid[0] > 0 and (np.diff(grid) > 0).all()):
        raise ScoreMatrixError("temperatures must be two or more finite numbers above 0 in rising order")
    scores = np.asarray(matrix, dtype=np.float64)
    logs, residuals = _converged(scores, grid)
    is_sound = residuals <= CONVERGED
    places = np.where(is_sound[:, None], most_likely(logs), -1)
    entropy = np.array([row_entropy(one).mean() for one in logs])
    return TemperatureSweep(
        taus=grid,
        places=places,
        log_assignments=logs.astype(np.float32),
        residuals=residuals,
        effective_positions=np.where(is_sound, np.exp(entropy), np.nan),
        flips=tuple(sorted(_flips(scores, grid, logs, places), key=lambda flip: (flip.item, -flip.tau))),
    )


def _flips(
    scores: NDArray[np.float64], grid: NDArray[np.float64], logs: NDArray[np.float64], places: NDArray[np.int64]
) -> list[Flip]:
    """A flip wherever an item's place differs between two converged neighbours of the grid, its temperature narrowed."""
    is_known = (places[:-1] >= 0) & (places[1:] >= 0)
    steps, items = np.nonzero(is_known & (places[:-1] != places[1:]))
    colder, warmer = places[steps, items], places[steps + 1, items].copy()
    ends = np.log(np.stack([grid[steps], grid[steps + 1]], axis=1))  # (F, 2)
    rows = np.stack([logs[steps, items], logs[steps + 1, items]], axis=1)  # (F, 2, C) the items' rows at both ends
    for _ in range(HALVINGS if len(steps) else 0):
        middles, of_flip = np.unique(ends.mean(axis=1), return_inverse=True)
        middle_rows = _converged(scores, np.exp(middles))[0][of_flip, items]  # (F, C)
        place = most_likely(middle_rows)
        side = (place != colder).astype(int)
        warmer = np.where(side == 1, place, warmer)  # a third place on the way: then the coldest change is the one kept
        index = np.arange(len(steps))
        ends[index, side], rows[index, side] = ends.mean(axis=1), middle_rows
    lead = np.take_along_axis(rows, colder[:, None, None], axis=2) - np.take_along_axis(rows, warmer[:, None, None], axis=2)
    share = _crossing(lead[:, 0, 0], lead[:, 1, 0])
    taus = np.exp(ends[:, 0] + share * (ends[:, 1] - ends[:, 0]))
    return [Flip(*row) for row in zip(items.tolist(), taus.tolist(), colder.tolist(), warmer.tolist(), strict=True)]


def _crossing(first: NDArray[np.float64], second: NDArray[np.float64]) -> NDArray[np.float64]:
    """(F,) where between 0 and 1 a straight line from a lead above 0 to one below 0 meets 0; the middle of a tie."""
    fall = first - second
    return np.clip(np.divide(first, fall, out=np.full_like(first, 0.5), where=fall > 0), 0.0, 1.0)


def _converged(scores: NDArray[np.float64], taus: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """(G, N, C) log assignments and (G,) residuals, each temperature run for as many rounds as it needs or may have.

    After a first round in the log domain no entry is above 1, so that rounds can be products of a matrix and a vector,
    many times faster; what they gain is put back into the logs now and then, before anything can overflow.
    """
    square = torch.from_numpy(scores[:, : min(scores.shape)])
    begun = log_sinkhorn(square[None] / torch.from_numpy(taus)[:, None, None], tau=1.0, iterations=1)
    logs, residuals = begun.log_assignment.numpy(), begun.residual.numpy()
    for rounds in ROUND_STEPS:
        is_open = residuals > CONVERGED
        if is_open.any():
            logs[is_open], residuals[is_open] = _scaled(logs[is_open], rounds)
    return logs, residuals


def _scaled(logs: NDArray[np.float64], rounds: int) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """The log assignments (G, N, C) after further rounds, and the residuals (G,)."""
    shares, row_sum = np.exp(logs), logs.shape[2] / logs.shape[1]
    columns = np.ones((len(logs), logs.shape[2], 1))
    for _ in range(rounds):
        rows = row_sum / np.maximum(shares @ columns, TINY)  # (G, N, 1)
        columns = 1 / np.maximum(shares.transpose(0, 2, 1) @ rows, TINY)  # (G, C, 1)
    residuals = np.abs(rows * (shares @ columns) - row_sum).max(axis=(1, 2))
    return logs + np.log(rows) + np.log(columns).transpose(0, 2, 1), residuals
