"""What an evaluation collects, and the report and the table that it becomes.

Knows rankings by name and their slates, not who ranked or where slates come from.
"""

from __future__ import annotations

import dataclasses
import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, Self

from spd_core.datasets.files import display_name
from spd_core.metrics import MetricCollector, MetricRow, MetricTable, attributes_of, slice_metrics, slice_order
from spd_core.metrics.slices import Value
from spd_core.recipes.provenance import made_here
from spd_core.recipes.ranker_kinds import Ranked
from spd_core.recipes.ranking_store import content_hash
from spd_core.recipes.shards import Shard, interleaved
from spd_core.slate import Slate
from spd_core.teachers.ordinals import KINDS
from spd_core.words import plural

GROUP_KEYS = ("same_day_as_history",)
"""Attributes that split the main ranker's figures in model cards too."""
COMPACT = ("slices", "per_slate")
"""Parts of a report that are written without line breaks."""
DIGITS = 6
"""Kept of a slate's metrics."""


class Facts(NamedTuple):
    """What is kept of a slate beside its metrics."""

    digest: str
    """First hex digits of `content_hash`, to find the slate again."""
    attributes: dict[str, Value]
    """Of `attributes_of`."""


@dataclasses.dataclass
class Evaluation:
    """Collected rows of every ranker, the kinds of what was written, and what the slates are."""

    collectors: dict[str, MetricCollector]
    kinds: dict[str, Counter[str]] = dataclasses.field(default_factory=dict)
    """Name of a ranker that writes -> answers by kind."""
    facts: dict[str, Facts] = dataclasses.field(default_factory=dict)
    """Slate id -> what it is."""

    @classmethod
    def of(cls, names: Iterable[str]) -> Self:
        """An empty one for rankers of those names."""
        return cls({name: MetricCollector() for name in names})

    def add(self, slate: Slate, entries: Iterable[Ranked]) -> None:
        """Measure the rankings of a slate."""
        self.facts[slate.slate_id] = Facts(content_hash(slate)[:16], attributes_of(slate))
        for ranked in entries:
            self.collectors[ranked.name].add(slate, ranked.ranking)
            if ranked.kind is not None:
                self.kinds.setdefault(ranked.name, Counter())[ranked.kind] += 1

    def gather(self, shard: Shard) -> None:
        """Join the rows of all processes in the order of the input."""
        if shard.count == 1:
            return
        from accelerate.utils import gather_object

        for name, collector in self.collectors.items():
            shares: list[list[MetricRow]] = gather_object([collector.rows])
            collector.rows = list(interleaved(shares))
            counted: Counter[str] = sum(gather_object([self.kinds.get(name, Counter())]), Counter())
            if counted:
                self.kinds[name] = counted
        self.facts = {slate_id: facts for part in gather_object([self.facts]) for slate_id, facts in part.items()}

    def answers(self) -> dict[str, dict[str, Any]]:
        """For each ranker that writes: ``n`` answers, ``valid_rate``, and ``kinds`` with all of `KINDS`."""
        return {
            name: {"n": counts.total(), "valid_rate": counts["ok"] / counts.total(), "kinds": {k: counts[k] for k in KINDS}}
            for name, counts in self.kinds.items()
        }

    def attributes(self, slate_ids: Sequence[str]) -> dict[str, list[Value]]:
        """Attribute -> its value for each of those slates; only attributes that split slates into kinds."""
        names = dict.fromkeys(name for slate_id in slate_ids for name in self.facts[slate_id].attributes)
        columns = {name: [self.facts[slate_id].attributes.get(name) for slate_id in slate_ids] for name in names}
        return {name: column for name, column in columns.items() if slice_order(column)}


def make_report(
    evaluation: Evaluation, main_name: str, provenance: Mapping[str, Any], *, slates: str, checkpoint: str | None
) -> dict[str, Any]:
    """JSON-ready report, see `evaluate_file`."""
    tables = {name: collector.table(name) for name, collector in evaluation.collectors.items()}
    main = tables[main_name]
    rankers = {name: intervals_of(table) for name, table in tables.items()}
    answers, attributes = evaluation.answers(), evaluation.attributes(main.slate_ids)
    slices = {name: slices_report(tables, column) for name, column in attributes.items()}
    groups = {key: slices[key] for key in GROUP_KEYS if key in slices}
    return {
        "file": display_name(slates),
        "checkpoint": None if checkpoint is None else Path(checkpoint).name,
        "decoder": main_name,
        "n": len(main),
        "metrics": rankers[main_name],
        "rankers": rankers,
        "differences": {
            name: {metric: main.compare(table, metric)._asdict() for metric in ("AUC", "Recall@1", "NDCG@10")}
            for name, table in tables.items()
            if name != main_name
        },
        "answers": answers,
        "groups": {key: {value: rows[main_name] for value, rows in found.items()} for key, found in groups.items()},
        "excluded": {reason: list(ids) for reason, ids in main.excluded.items()},
        "warnings": [*main.warnings(), *repaired_warnings(answers)],
        "provenance": provenance.get(main_name, {}),
        "ranker_provenance": {name: facts for name, facts in provenance.items() if name != main_name},
        **made_here(provenance),
        "slices": slices,
        "per_slate": {
            "slate_ids": list(main.slate_ids),
            "digests": [evaluation.facts[slate_id].digest for slate_id in main.slate_ids],
            "attributes": attributes,
            "values": {name: rounded_values(table) for name, table in tables.items()},
        },
    }


def report_bytes(report: Mapping[str, Any]) -> bytes:
    """The report as a file: its summary a figure a line, its long parts a line each."""
    summary = {key: value for key, value in report.items() if key not in COMPACT}
    lines = [json.dumps(summary, indent=1)[:-2]]
    lines += [f" {json.dumps(key)}: {json.dumps(report[key], separators=(',', ':'))}" for key in COMPACT if key in report]
    return (",\n".join(lines) + "\n}\n").encode()


def slices_report(tables: Mapping[str, MetricTable], column: Sequence[Value]) -> dict[str, dict[str, Any]]:
    """Slice -> ranker -> metric -> mean, bounds of the 95 % interval, n."""
    return {
        value: {name: {metric: interval._asdict() for metric, interval in row.items()} for name, row in rows.items()}
        for value, rows in slice_metrics(tables, column).items()
    }


def rounded_values(table: MetricTable) -> dict[str, list[float]]:
    """Metric -> its value on each slate."""
    return {metric: [round(value, DIGITS) for value in values.tolist()] for metric, values in table.values.items()}


def repaired_warnings(answers: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """One line for each ranker whose answers were not all valid as written."""
    return [
        f"{name}: {row['n'] - row['kinds']['ok']} of {row['n']} answers were not valid as written and count as repaired"
        for name, row in answers.items()
        if row["kinds"]["ok"] < row["n"]
    ]


def intervals_of(table: MetricTable) -> dict[str, dict[str, float]]:
    """Metric -> mean, bounds of the 95 % interval, n."""
    return {metric: interval._asdict() for metric, interval in table.intervals().items()}


def format_report(report: Mapping[str, Any]) -> str:
    """The report as tables for the terminal."""
    metrics, main = list(report["metrics"]), report["decoder"]
    subject = f" of {report['checkpoint']}" if report["checkpoint"] and ":" not in main else ""
    title = f"{plural(len(report['rankers']), 'ranker')} on {report['file']}: n = {report['n']}, 95 % bootstrap intervals"
    splits = {attribute: rows for attribute, rows in report["slices"].items() if len(rows) > 1}
    slices = {f"{key} = {value}": rows[main] for key, found in splits.items() for value, rows in found.items()}
    width = max(20, 2 + max(len(name) for name in [*report["rankers"], *slices]))
    lines = [title, "", *_metric_lines("ranker", report["rankers"], metrics, width)]
    if report["differences"]:
        lines += ["", f"{main}{subject} less each other, paired over the same slates:"]
        lines += _difference_lines(report["differences"], width)
    if slices:
        lines += ["", f"{main}{subject} by slices:", *_metric_lines("slice", slices, metrics, width)]
    if report["answers"]:
        lines += ["", f"{'answers as written':<{width}}{'n':>8}{'valid':>10}" + "".join(f"{kind:>14}" for kind in KINDS)]
    for name, row in report["answers"].items():
        counts = "".join(f"{row['kinds'][kind]:>14}" for kind in KINDS)
        lines.append(f"{name:<{width}}{row['n']:>8}{row['valid_rate']:>10.1%}" + counts)
    return "\n".join([*lines, "", *report["warnings"]]).rstrip()


def _difference_lines(rows: Mapping[str, Any], width: int) -> Iterator[str]:
    metrics = list(next(iter(rows.values())))
    yield f"{'ranker':<{width}}{'n':>8}" + "".join(f"{metric:>40}" for metric in metrics)
    for name, row in rows.items():
        cells = (f"{d['mean']:+.4f} ({d['low']:+.3f} to {d['high']:+.3f}), p {p_text(d['p_value'])}" for d in row.values())
        yield f"{name:<{width}}{row[metrics[0]]['n']:>8}" + "".join(f"{cell:>40}" for cell in cells)


def p_text(p_value: float) -> str:
    """A p-value behind its letter: ``= 0.031``, ``< 0.001``."""
    return "< 0.001" if p_value < 0.001 else f"= {p_value:.3f}"


def _metric_lines(title: str, rows: Mapping[str, Any], metrics: Sequence[str], width: int) -> Iterator[str]:
    yield f"{title:<{width}}{'n':>8}" + "".join(f"{metric:>24}" for metric in metrics)
    for name, row in rows.items():
        cells = (f"{row[m]['mean']:.4f} ({row[m]['low']:.3f}-{row[m]['high']:.3f})" for m in metrics)
        yield f"{name:<{width}}{row[metrics[0]]['n']:>8}" + "".join(f"{cell:>24}" for cell in cells)
