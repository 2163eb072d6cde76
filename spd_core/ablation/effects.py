"""What each factor of the cube adds, and which depends on which: differences of the same slates, with intervals.

Cells are compared by the seeds that all of them have, so that none gains by a lucky one. The intervals are over slates and
say nothing of how much another seed would move.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations, product
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from spd_core.ablation.results import FACTORS
from spd_core.errors import SpdError
from spd_core.metrics import Difference, paired_difference

Key = tuple[str, str, str]
"""(head, signal, backbone)."""
Values = Mapping[Key, NDArray[np.float64]]
"""Cell -> (n,) value of each slate; cells that were not run are left out."""


class Contrast(NamedTuple):
    """Two levels of a factor."""

    factor: str
    high: str
    """What the effect is of."""
    low: str
    """What it is compared with."""


CONTRASTS = (
    Contrast("backbone", "lora", "frozen"),
    Contrast("signal", "teacher", "clicks"),
    Contrast("head", "self_attention", "linear_probe"),
    Contrast("head", "slot_query", "linear_probe"),
)


@dataclass(frozen=True)
class Effect:
    """How much one level of a factor is better than another, averaged over the cells of the other factors."""

    contrast: Contrast
    difference: Difference
    pairs: int
    """Pairs of cells that differ in this factor alone and were both run."""
    possible: int
    """Pairs that the cube has."""


@dataclass(frozen=True)
class Interaction:
    """How much the effect of one contrast depends on another, averaged over the levels of the third factor."""

    first: Contrast
    second: Contrast
    with_high: Difference
    """Effect of `first` at the high level of `second`."""
    with_low: Difference
    """Effect of `first` at the low level of `second`."""
    difference: Difference
    """The former less the latter; 0 where the effects just add up."""
    squares: int
    """Levels of the third factor at which all four cells were run."""
    possible: int


def main_effects(values: Values) -> list[Effect]:
    """Effect of each contrast for which at least one pair of cells was run.

    Args:
        values: (n,) values by cell, all of the same slates in the same order.

    Returns:
        In the order of `CONTRASTS`; each is the mean over slates of (high - low), averaged over the pairs.

    Raises:
        SpdError: cells with different numbers of slates.
    """
    found = []
    for contrast in CONTRASTS:
        others = [_moved(contrast, rest) for rest in _rests(contrast.factor)]
        pairs = [(high, low) for high, low in others if high in values and low in values]
        if pairs:
            above, below = (_mean([values[pair[side]] for pair in pairs]) for side in (0, 1))
            found.append(Effect(contrast, paired_difference(above, below), len(pairs), len(others)))
    return found


def interactions(values: Values) -> list[Interaction]:
    """How contrasts of two different factors depend on each other, where at least one full square of cells was run.

    Args:
        values: as in `main_effects`.

    Returns:
        `difference` of each is the mean over slates of (A1 B1 - A0 B1) - (A1 B0 - A0 B0), averaged over the squares.
        Where effects add up it is 0.

    Raises:
        SpdError: cells with different numbers of slates.
    """
    found = []
    for first, second in combinations(CONTRASTS, 2):
        if first.factor == second.factor:
            continue
        third = next(name for name in FACTORS if name not in (first.factor, second.factor))
        squares = [_square(first, second, {third: level}) for level in FACTORS[third]]
        full = [square for square in squares if all(key in values for key in square)]
        if full:
            corners = [_mean([values[square[corner]] for square in full]) for corner in range(4)]
            found.append(_interaction(first, second, corners, len(full), len(squares)))
    return found


def decoder_effects(
    values: Mapping[str, Values], *, first: str = "first_column", second: str = "hungarian"
) -> dict[str, Difference]:
    """For each signal, what reading the same matrices with another decoder adds, averaged over that signal's cells.

    Args:
        values: decoder -> values by cell, as in `main_effects`.
        first, second: decoders; the difference is first less second.

    Returns:
        Signal -> difference; a signal of which no cell was run is left out.
    """
    found = {}
    for signal in FACTORS["signal"]:
        keys = [key for key in values[first] if key[1] == signal and key in values[second]]
        if keys:
            one, other = (_mean([values[name][key] for key in keys]) for name in (first, second))
            found[signal] = paired_difference(one, other)
    return found


def _interaction(
    first: Contrast, second: Contrast, corners: Sequence[NDArray[np.float64]], full: int, possible: int
) -> Interaction:
    """Corners: (high, high), (low, high), (high, low), (low, low) of first and second."""
    both, only_second, only_first, neither = corners
    return Interaction(
        first=first,
        second=second,
        with_high=paired_difference(both, only_second),
        with_low=paired_difference(only_first, neither),
        difference=paired_difference(both - only_second, only_first - neither),
        squares=full,
        possible=possible,
    )


def _square(first: Contrast, second: Contrast, rest: Mapping[str, str]) -> list[Key]:
    levels = [(first.high, second.high), (first.low, second.high), (first.high, second.low), (first.low, second.low)]
    return [_key({first.factor: one, second.factor: other, **rest}) for one, other in levels]


def _rests(factor: str) -> list[dict[str, str]]:
    """All combinations of levels of the other factors."""
    names = [name for name in FACTORS if name != factor]
    return [dict(zip(names, levels, strict=True)) for levels in product(*(FACTORS[name] for name in names))]


def _moved(contrast: Contrast, rest: Mapping[str, str]) -> tuple[Key, Key]:
    return _key({**rest, contrast.factor: contrast.high}), _key({**rest, contrast.factor: contrast.low})


def _key(levels: Mapping[str, str]) -> Key:
    return levels["head"], levels["signal"], levels["backbone"]


def _mean(rows: Sequence[NDArray[np.float64]]) -> NDArray[np.float64]:
    lengths = {len(row) for row in rows}
    if len(lengths) > 1:
        raise SpdError(f"cells hold {sorted(lengths)} slates; only cells measured on the same slates can be compared")
    means: NDArray[np.float64] = np.mean(rows, axis=0)
    return means
