"""What an evaluation collects, and the report and the table that it becomes.

Knows rankings by name and their slates, not who ranked or where slates come from.
"""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from spd_core.datasets.files import display_name
from spd_core.metrics import MetricCollector, MetricRow, MetricTable
from spd_core.recipes.rankers import Ranked
from spd_core.recipes.shards import Shard, interleaved
from spd_core.slate import Slate
from spd_core.teachers.ordinals import KINDS

GROUP_KEYS = ("same_day_as_history",)
"""Slate keys (true, or a number above 0: yes) that split the report: easier and harder parts must not hide in one mean."""


@dataclasses.dataclass
class Evaluation:
    """Collected rows of every ranker, the kinds of what was written, and the groups that slates fall into."""

    collectors: dict[str, MetricCollector]
    kinds: dict[str, Counter[str]] = dataclasses.field(default_factory=dict)
    """Name of a ranker that writes -> answers by kind."""
    groups: dict[str, dict[str, str]] = dataclasses.field(default_factory=dict)
    """Key -> slate id -> value."""

    def add(self, slate: Slate, ranked: Ranked) -> None:
        """Measure one ranking of a slate."""
        self.collectors[ranked.name].add(slate, ranked.ranking)
        if ranked.kind is not None:
            self.kinds.setdefault(ranked.name, Counter())[ranked.kind] += 1

    def note_groups(self, slate: Slate) -> None:
        """Remember the slate's value of each group key it has."""
        for key in GROUP_KEYS:
            if key in slate.extra:
                self.groups.setdefault(key, {})[slate.slate_id] = "yes" if slate.extra[key] else "no"

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
        for key in GROUP_KEYS:
            merged = {k: v for part in gather_object([self.groups.get(key, {})]) for k, v in part.items()}
            if merged:
                self.groups[key] = merged

    def answers(self) -> dict[str, dict[str, Any]]:
        """For each ranker that writes: ``n`` answers, ``valid_rate``, and ``kinds`` with all of `KINDS`."""
        return {
            name: {"n": counts.total(), "valid_rate": counts["ok"] / counts.total(), "kinds": {k: counts[k] for k in KINDS}}
            for name, counts in self.kinds.items()
        }


def make_report(
    evaluation: Evaluation, main_name: str, provenance: Mapping[str, Any], *, slates: str, checkpoint: str | None
) -> dict[str, Any]:
    """JSON-ready report, see `evaluate_file`."""
    tables = {name: collector.table(name) for name, collector in evaluation.collectors.items()}
    main = tables[main_name]
    rankers = {name: intervals_of(table) for name, table in tables.items()}
    answers = evaluation.answers()
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
        "groups": {key: group_metrics(main, values) for key, values in evaluation.groups.items()},
        "excluded": {reason: list(ids) for reason, ids in main.excluded.items()},
        "warnings": [*main.warnings(), *repaired_warnings(answers)],
        "provenance": provenance.get(main_name, {}),
        "ranker_provenance": {name: facts for name, facts in provenance.items() if name != main_name},
    }


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


def group_metrics(table: MetricTable, values: Mapping[str, str]) -> dict[str, Any]:
    """Value of the group key -> metrics of its slates."""
    result = {}
    for value in sorted(set(values.values())):
        chosen = np.array([values.get(slate_id) == value for slate_id in table.slate_ids])
        if chosen.any():
            part = dataclasses.replace(
                table,
                slate_ids=tuple(np.array(table.slate_ids, dtype=object)[chosen]),
                values={metric: numbers[chosen] for metric, numbers in table.values.items()},
            )
            result[value] = intervals_of(part)
    return result


def format_report(report: Mapping[str, Any]) -> str:
    """The report as a table for the terminal."""
    metrics = list(report["metrics"])
    subject = report["checkpoint"] or report["decoder"]
    lines = [f"{subject} on {report['file']}: n = {report['n']}, 95 % bootstrap intervals", ""]
    groups = {f"{key} = {value}": row for key, rows in report["groups"].items() for value, row in rows.items()}
    shown = report["rankers"] | groups
    width = max(20, 2 + max(len(name) for name in shown))
    lines.append(f"{'ranker':<{width}}" + "".join(f"{metric:>24}" for metric in metrics))
    for name, row in shown.items():
        cells = (f"{row[m]['mean']:.4f} ({row[m]['low']:.3f}-{row[m]['high']:.3f})" for m in metrics)
        lines.append(f"{name:<{width}}" + "".join(f"{cell:>24}" for cell in cells))
    if report["answers"]:
        lines += ["", f"{'answers as written':<{width}}{'n':>8}{'valid':>10}" + "".join(f"{kind:>14}" for kind in KINDS)]
    for name, row in report["answers"].items():
        counts = "".join(f"{row['kinds'][kind]:>14}" for kind in KINDS)
        lines.append(f"{name:<{width}}{row['n']:>8}{row['valid_rate']:>10.1%}" + counts)
    return "\n".join([*lines, "", *report["warnings"]]).rstrip()
