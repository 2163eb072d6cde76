"""`evaluate`: how good rankings of a slate file are, with intervals; one pass of the student, every decoder and floor on it.

Slates stream through; a few numbers a slate are kept. Under `accelerate launch` each process takes its share.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from numpy.typing import NDArray

from spd_core.checkpoint_files import find_checkpoint
from spd_core.checkpoints import load_student
from spd_core.datasets import read_slates
from spd_core.datasets.files import display_name, write_aside
from spd_core.decoding import DECODERS, find_decoder
from spd_core.errors import SpdError, choices
from spd_core.metrics import MetricCollector, MetricRow, MetricTable
from spd_core.model import Student
from spd_core.pipeline import score_slates
from spd_core.recipes import BackboneOption, CheckpointOption, DeviceOption, DtypeOption, JsonOption
from spd_core.recipes.model_card import record_report
from spd_core.recipes.preset import data_file
from spd_core.recipes.progress import with_progress
from spd_core.recipes.shards import Shard, interleaved, this_shard
from spd_core.recipes.training_data import read_items
from spd_core.slate import Ranking, Slate
from spd_core.teachers import TEACHERS, Teacher

GROUP_KEYS = ("same_day_as_history",)
"""Slate keys (true, or a number above 0: yes) that split the report: easier and harder parts must not hide in one mean."""


@dataclasses.dataclass
class Evaluation:
    """Collected rows of every ranker, and the groups that slates fall into."""

    collectors: dict[str, MetricCollector]
    groups: dict[str, dict[str, str]] = dataclasses.field(default_factory=dict)
    """Key -> slate id -> value."""

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

        for collector in self.collectors.values():
            shares: list[list[MetricRow]] = gather_object([collector.rows])
            collector.rows = list(interleaved(shares))
        for key in GROUP_KEYS:
            merged = {k: v for part in gather_object([self.groups.get(key, {})]) for k, v in part.items()}
            if merged:
                self.groups[key] = merged


def evaluate_file(
    slates: str,
    *,
    checkpoint: str,
    decoders: Sequence[str] = ("hungarian",),
    floors: Mapping[str, Teacher] | None = None,
    backbone: str | None = None,
    device: str = "auto",
    dtype: str = "auto",
) -> dict[str, Any]:
    """Report on one slate file.

    Args:
        slates: JSON lines or CSV with labels or grades.
        checkpoint, backbone, device, dtype: of `load_student`.
        decoders: keys of `DECODERS`; the first is the one that the report is about.
        floors: rankers to stand beside the student, by name.

    Returns:
        JSON-ready report: ``metrics`` and ``n`` of the first decoder, ``rankers`` with all, ``differences`` of the first
        decoder less each other ranker (paired), ``groups``, ``excluded`` slates by reason, ``warnings``.

    Raises:
        SpdError: a bad line or option, or no slate that can be measured.
    """
    for name in decoders:
        find_decoder(name)
    shard = this_shard(device)
    student = load_student(checkpoint, backbone=backbone, device=shard.device, dtype=dtype)
    evaluation = Evaluation({name: MetricCollector() for name in (*decoders, *(floors or {}))})
    for slate, scores in with_progress(score_slates(student, shard.take(read_slates(slates))), shard):
        for name in decoders:
            evaluation.collectors[name].add(slate, decode(slate, scores, name))
        for name, floor in (floors or {}).items():
            evaluation.collectors[name].add(slate, floor.rank(slate))
        evaluation.note_groups(slate)
    evaluation.gather(shard)
    return make_report(evaluation, student, slates=slates, checkpoint=checkpoint, decoder=decoders[0])


def decode(slate: Slate, scores: NDArray[np.float32], decoder: str) -> Ranking:
    """Ranking of a slate by one decoder of its score matrix."""
    order = find_decoder(decoder)(scores.astype(np.float64))
    return Ranking(decoder, tuple(slate.item_ids[index] for index in order))


def make_report(evaluation: Evaluation, student: Student, *, slates: str, checkpoint: str, decoder: str) -> dict[str, Any]:
    """JSON-ready report, see `evaluate_file`."""
    tables = {name: collector.table(name) for name, collector in evaluation.collectors.items()}
    main = tables[decoder]
    rankers = {name: intervals_of(table) for name, table in tables.items()}
    return {
        "file": display_name(slates),
        "checkpoint": Path(checkpoint).name,
        "decoder": decoder,
        "n": len(main),
        "metrics": rankers[decoder],
        "rankers": rankers,
        "differences": {
            name: {metric: main.compare(table, metric)._asdict() for metric in ("AUC", "Recall@1", "NDCG@10")}
            for name, table in tables.items()
            if name != decoder
        },
        "groups": {key: group_metrics(main, values) for key, values in evaluation.groups.items()},
        "excluded": {reason: list(ids) for reason, ids in main.excluded.items()},
        "warnings": main.warnings(),
        "provenance": {
            "backbone": student.backbone.backbone_id,
            "dtype": str(student.backbone.dtype).removeprefix("torch."),
            "device": student.backbone.device.type,
            "template_hash": student.template.hash,
        },
    }


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


def fit_floors(names: Sequence[str], fit: Sequence[str], catalogue: str | None) -> dict[str, Teacher]:
    """Rankers without a language model by name, fitted on the histories of the slate files `fit`.

    Raises:
        SpdError: unknown name, or a missing file.
    """
    for name in names:
        if name not in TEACHERS:
            raise SpdError(choices("ranker", name, TEACHERS))
    if not names:
        return {}
    seen = [slate for name in fit for slate in read_slates(data_file(name))]
    items = list(read_items(data_file(catalogue))) if catalogue else []
    return {name: TEACHERS[name](seen, items) for name in names}


def format_report(report: Mapping[str, Any]) -> str:
    """The report as a table for the terminal."""
    metrics = list(report["metrics"])
    lines = [f"{report['checkpoint']} on {report['file']}: n = {report['n']}, 95 % bootstrap intervals", ""]
    lines.append(f"{'ranker':<20}" + "".join(f"{metric:>24}" for metric in metrics))
    groups = {f"{key} = {value}": row for key, rows in report["groups"].items() for value, row in rows.items()}
    for name, row in (report["rankers"] | groups).items():
        cells = (f"{row[m]['mean']:.4f} ({row[m]['low']:.3f}-{row[m]['high']:.3f})" for m in metrics)
        lines.append(f"{name:<20}" + "".join(f"{cell:>24}" for cell in cells))
    return "\n".join([*lines, "", *report["warnings"]]).rstrip()


def command(
    slates: Annotated[str, typer.Argument(help="Slates with labels or grades: JSON lines or CSV, .gz or not.")],
    checkpoint: CheckpointOption,
    out: Annotated[str | None, typer.Option(help="Report as JSON.")] = None,
    decoder: Annotated[list[str] | None, typer.Option(help=f"{', '.join(DECODERS)}, or all; may be given often.")] = None,
    ranker: Annotated[list[str] | None, typer.Option(help=f"To stand beside it: {', '.join(TEACHERS)}.")] = None,
    fit: Annotated[
        list[str] | None, typer.Option(help="Slates whose histories the rankers count; may be given often.")
    ] = None,
    catalogue: Annotated[str | None, typer.Option(help="Items, one JSON object a line, for the rankers.")] = None,
    backbone: BackboneOption = None,
    device: DeviceOption = "auto",
    dtype: DtypeOption = "auto",
    card: Annotated[bool, typer.Option("--card", help="Write the figures into the checkpoint's model card too.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Measure a checkpoint on slates with labels."""
    decoders = list(DECODERS) if decoder == ["all"] else decoder or ["hungarian"]
    floors = fit_floors(ranker or [], fit or [slates], catalogue)
    report = evaluate_file(
        slates, checkpoint=checkpoint, decoders=decoders, floors=floors, backbone=backbone, device=device, dtype=dtype
    )
    if this_shard(device).is_main:
        if out is not None:
            write_aside(out, [json.dumps(report, indent=1).encode() + b"\n"])
        if card:
            record_report(find_checkpoint(checkpoint), report)
        typer.echo(json.dumps(report) if as_json else format_report(report))
