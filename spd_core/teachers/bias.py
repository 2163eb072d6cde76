"""How far rankings follow the order in which the candidates were shown: a pull that has nothing to do with the user.

Knows orders and places, not who ranked. What is too far is said here; what follows from it, by the gate.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from spd_core.metrics import Interval, mean_interval
from spd_core.slate import Slate

MAX_INPUT_TAU = 0.3
"""Largest |Kendall tau| of ranking and input order. RankVicuna-7B shows -.001 on the 2,417 shuffled slates of `search`, who
copies shows 1; here counting teachers that leave many ties to the input order lie above (popularity on `beauty`: .58)."""
MAX_TOP_RATIO = 3.0
"""How many times as often as expected one place of the input may hold the first choice."""
TOP_P_VALUE = 0.001
"""The first choice's places are not looked at unless a chi-square test finds them uneven at this level."""
MIN_EXPECTED = 5.0
"""Expected count of a cell of that test; rarer places are counted together (Cochran's rule)."""


@dataclass(frozen=True)
class InputReport:
    """How rankings agree with the order in which the candidates were shown."""

    tau: Interval
    """Kendall tau of ranking and input order, mean over slates: 0 none, 1 the input order, -1 its reverse."""
    top_place: int
    """Place in the input, from 1, that is the first choice most often compared with what is expected of it."""
    top_share: float
    """How often the first choice stands there."""
    expected_share: float
    """The larger of chance and how often a click stands there."""
    p_value: float | None
    """Of first choices spread over places as by chance (chi-square); None with too few slates to tell."""

    @property
    def names_one_place(self) -> bool:
        """True where one place is the first choice far too often."""
        is_uneven = self.p_value is not None and self.p_value < TOP_P_VALUE
        return is_uneven and self.top_share > MAX_TOP_RATIO * self.expected_share

    @property
    def words(self) -> str:
        """The pull of the input order in words."""
        found = []
        if abs(self.tau.mean) > MAX_INPUT_TAU:
            found.append("follows the input order" if self.tau.mean > 0 else "reverses the input order")
        if self.names_one_place:
            found.append(
                f"puts place {self.top_place} of the input first on {self.top_share:.0%} of slates, where "
                f"{self.expected_share:.0%} are expected"
            )
        return " and ".join(found) or "no position bias seen"


@dataclass(frozen=True)
class TwinReport:
    """What became of pairs of candidates that read the same; they can be told apart by their place alone."""

    pairs: int
    mean_gap: float
    """Other candidates ranked between the two."""
    chance_gap: float
    """The same for random rankings."""
    earlier_first_share: float
    """How often the one shown earlier is ranked higher."""


def input_report(taus: Sequence[float], tops: Sequence[tuple[int, int]], clicked: Sequence[int]) -> InputReport:
    """Report on S >= 1 rankings of two candidates or more.

    Args:
        taus: (S,) Kendall tau of each ranking and its input order.
        tops: (S,) pairs: place in the input of the first choice, 0 first, and number of candidates.
        clicked: places in the input of all clicks, 0 first; none where nothing is known.
    """
    sizes = np.array([size for _, size in tops])
    width = int(sizes.max())
    counts = np.bincount([place for place, _ in tops], minlength=width)  # (places,)
    by_chance = np.array([float((1 / sizes[sizes > place]).sum()) for place in range(width)])
    clicks = np.bincount(np.asarray(clicked, dtype=np.int64), minlength=width)[:width] / max(len(clicked), 1)
    expected = np.maximum(by_chance / len(tops), clicks)
    top = int(np.argmax(counts / len(tops) / expected))
    return InputReport(
        tau=mean_interval(taus),
        top_place=top + 1,
        top_share=float(counts[top] / len(tops)),
        expected_share=float(expected[top]),
        p_value=uneven(counts, by_chance),
    )


def uneven(counts: NDArray[np.int64], expected: NDArray[np.float64]) -> float | None:
    """p-value of the chi-square test that counts come from `expected`; None if fewer than two cells are full enough."""
    rare = expected < MIN_EXPECTED
    cells = [(counts[place], expected[place]) for place in np.flatnonzero(~rare)]
    if expected[rare].sum() >= MIN_EXPECTED:
        cells.append((counts[rare].sum(), expected[rare].sum()))
    if len(cells) < 2:
        return None
    seen, due = np.asarray(cells, dtype=np.float64).T
    return float(stats.chisquare(seen, due * seen.sum() / due.sum()).pvalue)


def twin_gaps(slate: Slate, positions: Sequence[int]) -> Iterator[tuple[int, float, bool]]:
    """(gap, gap by chance, whether the earlier one is higher) of each two neighbours among candidates that read the same."""
    seen: dict[tuple[str | None, ...], int] = {}
    for index, item in enumerate(slate.candidates):
        key = (item.title, item.brand, item.category)
        if key in seen:
            one, other = positions[seen[key]], positions[index]
            yield abs(one - other) - 1, (len(positions) - 2) / 3, one < other
        seen[key] = index
