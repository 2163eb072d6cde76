"""Rankers held against each other on the same slates in one run: how right each is, and how long each takes.

They take turns at every slate, so that whatever else the machine does meets all of them alike. It knows rankers as functions
and nothing of how they are made.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from spd_core.errors import SpdError
from spd_core.frontier_report import QUALITIES, Family, FrontierReport, Quality, RankerResult
from spd_core.latency import Spread
from spd_core.metrics import MetricCollector, MetricRow, exclusion, positions_of, slate_metrics
from spd_core.slate import Ranking, Slate

WARMUP = 1
"""Slates that each ranker ranks first, uncounted."""


class Outcome(NamedTuple):
    """One ranking of one slate."""

    ranking: Ranking
    is_valid: bool | None = None
    """Whether it was a ranking as written; None where nothing is written."""


@dataclass(frozen=True)
class Contender:
    """A ranker and what it is."""

    name: str
    """Unique in a run, and readable."""
    family: Family
    rank: Callable[[Slate], Outcome]
    """From slate to ranking; all of it is timed."""
    about: Mapping[str, Any] = field(default_factory=dict)
    """Further fields of `RankerResult`: checkpoint, decoder, depth, layers, dtype, is_zero_shot."""


class Row(NamedTuple):
    """What is kept of one ranker's turn at one slate."""

    turn: int
    """Index of the slate."""
    slate_id: str
    ranker: str
    size: int
    """Number of candidates."""
    values: tuple[float, ...] = ()
    """Of `METRICS`; empty if it was refused."""
    ms: float = 0.0
    is_valid: bool | None = None
    refused: str | None = None
    """Why the ranker cannot rank the slate."""


def take_turns(
    contenders: Sequence[Contender], slates: Iterable[Slate], *, done: Collection[tuple[int, str]] = (), warmup: int = WARMUP
) -> Iterator[Row]:
    """Quality and wall time of each ranker on each slate: all rank a slate before the next one comes, another goes first.

    A ranker that cannot rank a slate has that as its last row and takes no further turns.

    Args:
        contenders: C rankers.
        slates: each with a label that tells orders apart.
        done: (turn, name) of rows that an earlier run has left; they are not measured again.
        warmup: slates that each ranker with anything to do ranks first, uncounted.
    """
    running, warm = list(contenders), 0
    for turn, slate in enumerate(slates):
        if not running:
            return
        first = turn % len(contenders)
        order = [c for c in (*contenders[first:], *contenders[:first]) if c in running and (turn, c.name) not in done]
        if order and warm < warmup:
            for contender in order:
                _refused_or(contender, slate)
            warm += 1
        for contender in order:
            row = measure_once(contender, slate, turn)
            if row.refused is not None:
                running.remove(contender)
            yield row


def measure_once(contender: Contender, slate: Slate, turn: int) -> Row:
    """Row of one ranking, timed by the wall clock from slate to ranking."""
    begin = time.perf_counter()
    outcome = _refused_or(contender, slate)
    ms = (time.perf_counter() - begin) * 1e3
    row = Row(turn, slate.slate_id, contender.name, len(slate.candidates))
    if isinstance(outcome, SpdError):
        return row._replace(refused=str(outcome))
    values = slate_metrics(slate, positions_of(outcome.ranking, slate))
    return row._replace(values=values, ms=ms, is_valid=outcome.is_valid)


def _refused_or(contender: Contender, slate: Slate) -> Outcome | SpdError:
    try:
        return contender.rank(slate)
    except SpdError as error:
        return error


def measurable(slates: Iterable[Slate], excluded: dict[str, int]) -> Iterator[Slate]:
    """The slates on which orders can be told apart; the others are counted in `excluded` by reason."""
    for slate in slates:
        reason = exclusion(slate)
        if reason:
            excluded[reason] = excluded.get(reason, 0) + 1
        else:
            yield slate


def summarise(contenders: Sequence[Contender], rows: Sequence[Row], **about: Any) -> FrontierReport:
    """The report of a run: means with 95 % intervals, medians, p95, and how many times slower than the fastest student.

    Args:
        contenders: of the run.
        rows: of `take_turns`, any order; rankers with a refused slate are left out.
        about: further fields of `FrontierReport`.

    Raises:
        SpdError: no slate was measured, or no student could rank every slate.
    """
    left_out = {row.ranker: row.refused for row in rows if row.refused is not None} | about.pop("left_out", {})
    kept: dict[str, list[Row]] = {}
    for row in sorted(rows, key=lambda row: row.turn):
        if row.ranker not in left_out:
            kept.setdefault(row.ranker, []).append(row)
    present = [contender for contender in contenders if contender.name in kept]
    medians = {name: float(np.median([row.ms for row in own])) for name, own in kept.items()}
    students = [contender.name for contender in present if contender.family == "student"]
    if not students:
        reasons = "; ".join(f"{name}: {reason}" for name, reason in left_out.items()) or "no slate has a usable label"
        raise SpdError(f"no student could rank every slate ({reasons}); there is nothing to compare with")
    fastest = min(students, key=lambda name: medians[name])
    results = [_result(contender, kept[contender.name], kept[fastest]) for contender in present]
    sizes = [row.size for row in kept[fastest]]
    return FrontierReport(
        candidates=(min(sizes), max(sizes)),
        fastest_student=fastest,
        rankers=tuple(sorted(results, key=lambda result: result.median_ms)),
        left_out=left_out,
        **about,
    )


def _result(contender: Contender, rows: Sequence[Row], reference: Sequence[Row]) -> RankerResult:
    collector = MetricCollector()
    collector.rows = [MetricRow(row.slate_id, row.size, "", row.values) for row in rows]
    intervals = collector.table(contender.name).intervals()
    times = Spread.of([row.ms for row in rows])
    judged = [row.is_valid for row in rows if row.is_valid is not None]
    return RankerResult(
        name=contender.name,
        family=contender.family,
        metrics={metric: Quality(**intervals[metric]._asdict()) for metric in QUALITIES},
        median_ms=times.median_ms,
        p95_ms=times.p95_ms,
        n=times.n,
        ratio=float(np.median([row.ms / other.ms for row, other in zip(rows, reference, strict=True)])),
        valid_rate=sum(judged) / len(judged) if judged else None,
        **contender.about,
    )
