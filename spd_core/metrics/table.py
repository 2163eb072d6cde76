"""Rankings of many slates measured at once: a value a slate and metric, and which slates were left out and why.

Slates and rankings are taken one at a time; only numbers and ids are kept.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from spd_core.errors import SpdError, choices
from spd_core.metrics.bootstrap import Difference, Interval, mean_interval, paired_difference
from spd_core.metrics.per_slate import ndcg_at, pair_auc, positions_of, recall_at, reciprocal_rank
from spd_core.slate import Ranking, Slate
from spd_core.words import plural

METRICS = ("AUC", "Recall@1", "Recall@10", "NDCG@1", "NDCG@10", "MRR")
RECALL_DEPTHS = {"Recall@1": 1, "Recall@10": 10}

EXCLUSIONS: Mapping[str, str] = {
    "no_relevant": "no candidate is relevant, so that no order is better than another",
    "all_relevant": "all candidates are relevant, so that no order is better than another",
    "no_gain": "a candidate is labelled but none is graded above 0, so that NDCG is not defined",
}
"""Reason -> what it means; slates left out of all metrics, so that each metric is a mean over the same slates."""


@dataclass(frozen=True)
class MetricTable:
    """Metric values of each slate, in the order of the slates, and the slates left out."""

    name: str
    """Who ranked."""
    slate_ids: tuple[str, ...]
    values: Mapping[str, NDArray[np.float64]]
    """Metric -> (n,) values, aligned with `slate_ids`."""
    excluded: Mapping[str, tuple[str, ...]]
    """Reason -> ids of the slates left out; each reason of `EXCLUSIONS` is there."""
    trivial: Mapping[str, int]
    """Metric -> on how many slates it is 1 for any order, such as Recall@10 of 10 candidates; only where above 0."""

    def __len__(self) -> int:
        """Number of slates that were measured."""
        return len(self.slate_ids)

    def intervals(self, *, seed: int = 0) -> dict[str, Interval]:
        """Mean and 95 % interval of each metric.

        Raises:
            SpdError: every slate was left out; lists how many for which reason.
        """
        if not self.slate_ids:
            counts = ", ".join(f"{reason}: {len(ids)}" for reason, ids in self.excluded.items())
            raise SpdError(
                f"no slate can be measured ({counts}); give slates of at least two candidates with a label on some, not all"
            )
        return {metric: mean_interval(values, seed=seed) for metric, values in self.values.items()}

    def warnings(self) -> list[str]:
        """One line for each thing that a reader of the figures should know."""
        lines = [
            f"{metric} is 1 for any order on {count} of {len(self)} slates: they have no more than "
            f"{RECALL_DEPTHS[metric]} candidates"
            for metric, count in self.trivial.items()
        ]
        return lines + [
            f"{plural(len(ids), 'slate')} left out ({reason}): {EXCLUSIONS[reason]}"
            for reason, ids in self.excluded.items()
            if ids
        ]

    def compare(self, other: MetricTable, metric: str, *, seed: int = 0) -> Difference:
        """Mean difference, this table's metric less the other's, over the same slates.

        Raises:
            SpdError: the metric is unknown, or the tables are not of the same slates in the same order.
        """
        if metric not in self.values:
            raise SpdError(choices("metric", metric, self.values))
        if self.slate_ids != other.slate_ids:
            sizes = f"{len(self)} slates of {self.name!r} against {len(other)} of {other.name!r}"
            raise SpdError(f"{sizes} are not the same slates in the same order; evaluate both on one file")
        return paired_difference(self.values[metric], other.values[metric], seed=seed)


def evaluate_rankings(slates: Iterable[Slate], rankings: Iterable[Ranking]) -> MetricTable:
    """Metrics of each slate under its ranking.

    Args:
        slates: with a label or grades; the label decides what is relevant, grades (else the label) the gains.
        rankings: one a slate, in the same order, each holding the slate's candidates once.

    Raises:
        SlateError: a ranking does not fit its slate.
        SpdError: there are more slates than rankings or the other way round.
    """
    collector = MetricCollector()
    name = ""
    for slate, ranking in _pairs(slates, rankings):
        name = name or ranking.name
        collector.add(slate, ranking)
    return collector.table(name)


class MetricRow(NamedTuple):
    """What is kept of one measured slate."""

    slate_id: str
    size: int
    """Number of candidates."""
    reason: str
    """Key of `EXCLUSIONS`, or empty."""
    values: tuple[float, ...]
    """Of `METRICS`; empty if left out."""


class MetricCollector:
    """Metric rows of slates as they come; `rows` of several processes may be joined before `table`."""

    def __init__(self) -> None:
        self.rows: list[MetricRow] = []

    def add(self, slate: Slate, ranking: Ranking) -> None:
        """Measure one slate.

        Raises:
            SlateError: the ranking does not fit its slate.
        """
        positions, reason = positions_of(ranking, slate), exclusion(slate)
        values = () if reason else slate_metrics(slate, positions)
        self.rows.append(MetricRow(slate.slate_id, len(positions), reason, values))

    def table(self, name: str) -> MetricTable:
        """Table of all rows so far."""
        kept = [row for row in self.rows if not row.reason]
        columns = np.array([row.values for row in kept], dtype=np.float64).reshape(len(kept), len(METRICS)).T
        trivial = {metric: sum(row.size <= depth for row in kept) for metric, depth in RECALL_DEPTHS.items()}
        return MetricTable(
            name=name,
            slate_ids=tuple(row.slate_id for row in kept),
            values=dict(zip(METRICS, columns, strict=True)),
            excluded={reason: tuple(row.slate_id for row in self.rows if row.reason == reason) for reason in EXCLUSIONS},
            trivial={metric: count for metric, count in trivial.items() if count},
        )


def exclusion(slate: Slate) -> str:
    """Reason why a slate cannot be measured, a key of `EXCLUSIONS`; empty if it can."""
    relevant = slate.relevant()
    if not any(relevant):
        return "no_relevant"
    if all(relevant):
        return "all_relevant"
    return "" if max(slate.gains()) > 0 else "no_gain"


def slate_metrics(slate: Slate, positions: NDArray[np.int64]) -> tuple[float, ...]:
    """Values of `METRICS` for one slate that `exclusion` does not name; `positions` is (N,), 0 first."""
    relevant, gains = slate.relevant(), slate.gains()
    return (
        pair_auc(relevant, positions),
        recall_at(relevant, positions, 1),
        recall_at(relevant, positions, 10),
        ndcg_at(gains, positions, 1),
        ndcg_at(gains, positions, 10),
        reciprocal_rank(relevant, positions),
    )


def _pairs(slates: Iterable[Slate], rankings: Iterable[Ranking]) -> Iterable[tuple[Slate, Ranking]]:
    remaining = iter(rankings)
    count = 0
    for slate in slates:
        ranking = next(remaining, None)
        if ranking is None:
            raise SpdError(f"slate {slate.slate_id!r} has no ranking: only {count} rankings were given")
        yield slate, ranking
        count += 1
    if next(remaining, None) is not None:
        raise SpdError(f"more rankings than slates: only {count} slates were given")
