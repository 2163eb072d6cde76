"""Figures of score matrices as they come, one slate at a time: health, agreement of decoders, firmness, metrics.

It keeps a few numbers a slate and running counts, never a matrix, and knows nothing of the model. Collectors of several
processes can be joined.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from spd_core.decoding import DECODERS, Decoder, to_positions
from spd_core.decoding.comparison import total_of
from spd_core.decoding.forced_ranks import COIN_TOSS, FIRM, LEANING, firmness, forced_ranks, sureness
from spd_core.decoding.health import MatrixHealth, matrix_health
from spd_core.decoding.matrix import own_square
from spd_core.decoding.plain_sort import LEADING, leading_sort
from spd_core.metrics import MetricCollector, MetricRow, exclusion, kendall_tau, slate_metrics
from spd_core.slate import Slate

RANKERS: dict[str, Decoder] = DECODERS | {LEADING: leading_sort}
"""Who reads each matrix: the decoders, and the one plain sort that is no decoder."""
REFERENCES = ("hungarian", "expected_position", "first_column", LEADING)
"""Whose orders the others are held against: the assignment, and each plain sort."""
SORTS = REFERENCES[1:]
TOPS = (1, 3, 5, 10)
"""Depths for which it is asked how firmly the first k stay the first k."""
WORDS = (FIRM, LEANING, COIN_TOSS)


class MatrixRow(NamedTuple):
    """What is kept of one slate's matrix."""

    size: int
    verdict: str
    """Key of `health.VERDICTS`."""
    health: dict[str, float]
    """Figure -> value; not finite where the figure is not defined."""
    words: tuple[int, ...]
    """Ranks of each of `WORDS`; empty for a matrix that cannot be decoded."""
    top_words: tuple[str, ...]
    """For each of `TOPS` below the size, how firm that set of candidates is, one of `WORDS`."""
    top_losses: tuple[float, ...]
    """For each of `TOPS` below the size, the total score lost by the best ranking with another set on top."""
    regrets: tuple[float, ...]
    """Of `RANKERS`."""
    gain: float
    """Best total less that of an average ranking: what there is to lose."""


@dataclass
class Agreement:
    """How the orders of one ranker compare with those of another, counted over slates."""

    slates: int = 0
    other_order: int = 0
    taus: list[float] = field(default_factory=lambda: [0.0, 0.0])
    """Sum and number of Kendall taus; a single candidate has none."""
    first: Counter[int] = field(default_factory=Counter)
    """Rank from 1 -> slates whose two orders differ there for the first time."""
    by_rank: Counter[int] = field(default_factory=Counter)
    """Rank from 1 -> slates in which another candidate stands there."""

    def add(self, ranking: NDArray[np.int64], reference: NDArray[np.int64]) -> None:
        """Count one slate's two rankings."""
        places = np.flatnonzero(ranking != reference) + 1
        self.slates += 1
        self.other_order += bool(len(places))
        self.by_rank.update(places.tolist())
        if len(places):
            self.first[int(places[0])] += 1
        if len(ranking) > 1:
            tau = kendall_tau(to_positions(ranking), to_positions(reference))
            self.taus = [self.taus[0] + tau, self.taus[1] + 1]

    def join(self, other: Self) -> None:
        """Take over the counts of another process."""
        self.slates += other.slates
        self.other_order += other.other_order
        self.taus = [mine + theirs for mine, theirs in zip(self.taus, other.taus, strict=True)]
        self.first += other.first
        self.by_rank += other.by_rank


class MatrixFigures:
    """Collector of the figures of many slates."""

    def __init__(self, *, tau: float) -> None:
        """Args: `tau`, the temperature of training, which makes losses into odds."""
        self.tau = tau
        self.rows: list[MatrixRow] = []
        self.metrics = {name: MetricCollector() for name in RANKERS}
        self.agreements = {name: {other: Agreement() for other in REFERENCES if other != name} for name in RANKERS}
        self.as_a_sort: Counter[str] = Counter()
        """Ranker -> slates on which its order is that of some plain sort."""
        self.sizes: Counter[int] = Counter()
        """Candidates -> slates that were decoded."""

    def add(self, slate: Slate, scores: NDArray[np.floating]) -> None:
        """Take in one slate with its (N, K) score matrix, N <= K; a matrix that is not finite is counted and left at that.

        Raises:
            ScoreMatrixError: N > K.
        """
        matrix = np.asarray(scores, dtype=np.float64)
        health = matrix_health(matrix, tau=self.tau)
        if health.not_finite:
            self.rows.append(MatrixRow(len(matrix), health.verdict, {}, (), (), (), (), 0.0))
            return
        square = own_square(matrix)
        rankings = {name: decode(square) for name, decode in RANKERS.items()}
        self.rows.append(self._row(square, health, rankings))
        self.sizes[len(square)] += 1
        self._compare(rankings)
        self._measure(slate, rankings)

    def join_counts(self, others: Iterable[Self]) -> None:
        """Take over the counts of collectors that saw other slates; rows are joined by whoever knows their order."""
        for other in others:
            self.as_a_sort += other.as_a_sort
            self.sizes += other.sizes
            for name, against in self.agreements.items():
                for reference, agreement in against.items():
                    agreement.join(other.agreements[name][reference])

    def _row(self, square: NDArray[np.float64], health: MatrixHealth, rankings: dict[str, NDArray[np.int64]]) -> MatrixRow:
        forced = forced_ranks(square)
        words = firmness(forced, tau=self.tau)
        best, average = total_of(square, rankings["hungarian"]), float(square.mean() * len(square))
        losses = tuple(forced.leaving_top(top) for top in TOPS if top < len(square))
        return MatrixRow(
            size=len(square),
            verdict=health.verdict,
            health=health_figures(health),
            words=tuple(words.count(word) for word in WORDS),
            top_words=tuple(sureness(loss, tau=self.tau) for loss in losses),
            top_losses=losses,
            regrets=tuple(max(0.0, best - total_of(square, ranking)) for ranking in rankings.values()),
            gain=best - average,
        )

    def _compare(self, rankings: dict[str, NDArray[np.int64]]) -> None:
        for name, ranking in rankings.items():
            for reference, agreement in self.agreements[name].items():
                agreement.add(ranking, rankings[reference])
            self.as_a_sort[name] += any(np.array_equal(ranking, rankings[sort]) for sort in SORTS)

    def _measure(self, slate: Slate, rankings: dict[str, NDArray[np.int64]]) -> None:
        reason = exclusion(slate)
        for name, ranking in rankings.items():
            values = () if reason else slate_metrics(slate, to_positions(ranking))
            self.metrics[name].rows.append(MetricRow(slate.slate_id, len(ranking), reason, values))


def health_figures(health: MatrixHealth) -> dict[str, float]:
    """Numbers of a verdict by the name that they have in a report; counts as shares of the candidates."""
    count = health.candidates
    return {
        "raw_share": health.raw_share,
        "centred_share": health.centred_share,
        "sort_gain": health.sort_gains[LEADING],
        "collisions": health.collisions / count,
        "near_ties": health.coin_tosses / count,
        "duplicates": health.duplicates / count,
        "row_spread": health.row_spread,
        "column_spread": health.column_spread,
        "second_best_gap": health.second_best_gap,
    }
