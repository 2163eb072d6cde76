"""`frontier`: quality and latency of students, teacher, one-pass language-model rankers and floors on the same slates.

One run, one machine, all in turns. Every ranking is written down as it comes, so that a killed run goes on where it stopped.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import IO, Annotated, Any

import typer

from spd_core.checkpoint_files import CONFIG_FILE, find_checkpoint
from spd_core.checkpoints import load_student
from spd_core.datasets import read_slates
from spd_core.datasets.files import STANDARD_INPUT, check_place, display_name, write_aside
from spd_core.errors import SpdError
from spd_core.frontier import WARMUP, Contender, Row, measurable, summarise, take_turns
from spd_core.frontier_report import QUALITIES, FrontierReport
from spd_core.latency import describe_machine
from spd_core.recipes import BackboneOption, DeviceOption, JsonOption
from spd_core.recipes.busy import warn_of_other_work
from spd_core.recipes.frontier_rankers import floor_rankers, student_rankers, teacher_rankers, zero_shot_rankers
from spd_core.recipes.label_files import file_hash, open_part
from spd_core.recipes.progress import with_progress
from spd_core.recipes.provenance import source_commit
from spd_core.recipes.shards import Shard
from spd_core.slate import Slate
from spd_core.teacher_checkpoints import ZERO_SHOT
from spd_core.words import plural

DTYPES = ("float32", "bfloat16")
LIMIT = 200
"""Slates by default: intervals of about .04 AUC either side (on 1,000 beauty slates they are .017)."""


@dataclass(frozen=True)
class Plan:
    """What is measured."""

    slates: str
    """Slate file with labels or grades."""
    checkpoints: Sequence[str]
    """Students."""
    teacher: str | None = None
    """Checkpoint of an autoregressive teacher, or `zero-shot`."""
    dtypes: Sequence[str] = DTYPES
    """Of the students; all else computes in what the machine does best."""
    limit: int = LIMIT
    """First slates with a usable label."""
    fit: Sequence[str] = ()
    """Slate files whose histories the floors count; none takes `slates`."""
    catalogue: str | None = None
    """Items for the floors."""
    backbone: str | None = None
    device: str = "auto"

    def __post_init__(self) -> None:
        if self.slates == STANDARD_INPUT:
            raise SpdError("frontier reads its slates more than once; give a file instead of standard input")
        if not self.checkpoints:
            raise SpdError("got 0 students; name at least one with --checkpoint")


def run_frontier(plan: Plan, out: str | Path) -> FrontierReport:
    """Report of a run, written to `out`; a run of the same plan that was stopped goes on.

    Args:
        plan: what is measured.
        out: file of the report; until it is complete, its rankings lie beside it in `<out>.part`.

    Raises:
        SpdError: a bad option, no usable slate, or a part that was begun with another plan or on another machine.
    """
    check_place(Path(out))
    warn_of_other_work()
    excluded: dict[str, int] = {}
    slates = list(itertools.islice(measurable(read_slates(plan.slates), excluded), plan.limit))
    lineup = build_lineup(plan)
    contenders = lineup.contenders
    place = {"file": display_name(plan.slates), "file_sha256": file_hash(Path(plan.slates)), "machine": lineup.machine}
    part = Path(out).with_name(f"{Path(out).name}.part")
    with open_part(part, place | settings_of(plan, contenders), together=1, total=10**9) as (stream, kept):
        rows = list(read_rows(stream, kept))
        rows += measure_rest(contenders, slates, rows, stream)
    made = {"date": datetime.now(UTC).date().isoformat(), "commit": source_commit(), "warmup": WARMUP}
    report = summarise(contenders, rows, excluded=excluded, left_out=lineup.left_out, **place, **made)
    write_aside(out, [report.model_dump_json(indent=1).encode() + b"\n"])
    part.unlink()
    return report


@dataclass(frozen=True)
class Lineup:
    """Who takes part."""

    contenders: Sequence[Contender]
    left_out: Mapping[str, str]
    """Ranker that this backbone cannot make -> why."""
    machine: Mapping[str, str | int]


def build_lineup(plan: Plan) -> Lineup:
    """All rankers of a plan, models loaded and floors fitted.

    Raises:
        SpdError: a bad option, or two rankers of one name.
    """
    pairs = itertools.product(plan.checkpoints, plan.dtypes)
    students = [load_student(name, backbone=plan.backbone, device=plan.device, dtype=dtype) for name, dtype in pairs]
    contenders = [contender for student in students for contender in student_rankers(student)]
    if plan.teacher is not None:
        contenders += teacher_rankers(plan.teacher, students[0], backbone=plan.backbone)
    asked, left_out = zero_shot_rankers(students[0], backbone=plan.backbone)
    contenders += [*asked, *floor_rankers(plan.fit or [plan.slates], plan.catalogue)]
    names = [contender.name for contender in contenders]
    for name in names:
        if names.count(name) > 1:
            raise SpdError(f"two rankers are named {name!r}; give each checkpoint and dtype once")
    machine = {key: value for key, value in describe_machine(students[0]).items() if key != "dtype"}
    return Lineup(contenders, left_out, machine)


def measure_rest(
    contenders: Sequence[Contender], slates: Sequence[Slate], rows: Sequence[Row], stream: IO[bytes]
) -> list[Row]:
    """Rows that were still missing, each handed to the system as it comes: a kill takes no row that was written.

    Args:
        contenders: of the run.
        slates: of the run.
        rows: of earlier runs.
        stream: open for appending.
    """
    refused = {row.ranker for row in rows if row.refused is not None}
    done = {(row.turn, row.ranker) for row in rows}
    running = [contender for contender in contenders if contender.name not in refused]
    fresh: list[Row] = []

    def turns() -> Iterator[int]:
        for turn, group in itertools.groupby(take_turns(running, slates, done=done), key=lambda row: row.turn):
            for row in group:
                stream.write(json.dumps(row._asdict(), allow_nan=False).encode() + b"\n")
                stream.flush()
                fresh.append(row)
            yield turn

    complete = sum(all((turn, contender.name) in done for contender in running) for turn in range(len(slates)))
    for _ in with_progress(turns(), Shard(0, 1, "auto"), done=complete, total=len(slates)):
        pass
    return fresh


def read_rows(stream: IO[bytes], count: int) -> Iterator[Row]:
    """The first `count` rows of a part that opens with its settings."""
    stream.seek(0)
    for line in itertools.islice(stream, 1, 1 + count):
        record = json.loads(line)
        yield Row(**record | {"values": tuple(record["values"])})


def settings_of(plan: Plan, contenders: Sequence[Contender]) -> dict[str, Any]:
    """What a part must agree with to be gone on with, as JSON gives it back."""
    names = [*plan.checkpoints, *([plan.teacher] if plan.teacher and plan.teacher != ZERO_SHOT else [])]
    folders = [find_checkpoint(name) for name in names]
    return {
        "limit": plan.limit,
        "rankers": [contender.name for contender in contenders],
        "weights": {folder.name: file_hash(folder / CONFIG_FILE) for folder in folders},
        "fit": [display_name(name) for name in plan.fit or [plan.slates]],
        "catalogue": plan.catalogue and display_name(plan.catalogue),
        "warmup": WARMUP,
    }


def format_report(report: FrontierReport) -> str:
    """The report as a table for the terminal."""
    first, last = report.candidates
    size = f"{first}" if first == last else f"{first} to {last}"
    width = max(len(ranker.name) for ranker in report.rankers) + 2
    lines = [
        f"{report.file}: n = {report.slates} slates of {size} candidates, 95 % bootstrap intervals; one slate at a time",
        ", ".join(f"{key} {value}" for key, value in report.machine.items()),
        "",
        f"{'ranker':<{width}}"
        + "".join(f"{metric:>22}" for metric in QUALITIES)
        + f"{'median ms':>12}{'p95 ms':>12}{'x':>9}",
    ]
    for ranker in report.rankers:
        cells = (ranker.metrics[metric] for metric in QUALITIES)
        quality = "".join(f"{f'{q.mean:.4f} ({q.low:.3f}-{q.high:.3f})':>22}" for q in cells)
        lines.append(f"{ranker.name:<{width}}{quality}{ranker.median_ms:>12.2f}{ranker.p95_ms:>12.2f}{ranker.ratio:>9.3g}")
    lines += ["", f"x: times as long as {report.fastest_student}, median over slates"]
    lines += [f"left out: {name}: {reason}" for name, reason in report.left_out.items()]
    return "\n".join(
        [*lines, *(f"{plural(count, 'slate')} left out ({reason})" for reason, count in report.excluded.items())]
    )


def command(
    slates: Annotated[str, typer.Argument(help="Slates with labels or grades: JSON lines or CSV, .gz or not.")],
    checkpoint: Annotated[list[str], typer.Option(help="Student: id or folder; may be given often.")],
    out: Annotated[str, typer.Option(help="Report as JSON; the app shows sample_data/results/frontier-*.json.")],
    teacher: Annotated[str | None, typer.Option(help="Checkpoint of an autoregressive teacher, or zero-shot.")] = None,
    dtype: Annotated[
        list[str] | None, typer.Option(help=f"Of the students, repeatable; default: {', '.join(DTYPES)}.")
    ] = None,
    limit: Annotated[int, typer.Option(min=1, help="First slates with a usable label.")] = LIMIT,
    fit: Annotated[list[str] | None, typer.Option(help="Slates whose histories the floors count, repeatable.")] = None,
    catalogue: Annotated[str | None, typer.Option(help="Items, one JSON object a line, for the floors.")] = None,
    backbone: BackboneOption = None,
    device: DeviceOption = "auto",
    as_json: JsonOption = False,
) -> None:
    """Measure quality and latency of all kinds of rankers on the same slates in one run."""
    plan = Plan(
        slates=slates,
        checkpoints=checkpoint,
        teacher=teacher,
        dtypes=dtype or DTYPES,
        limit=limit,
        fit=fit or (),
        catalogue=catalogue,
        backbone=backbone,
        device=device,
    )
    report = run_frontier(plan, out)
    typer.echo(report.model_dump_json() if as_json else format_report(report))
