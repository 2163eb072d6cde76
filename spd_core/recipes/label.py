"""`label`: a teacher's ranking of each slate of a file, one JSON line a slate, and the gate's verdict on them.

Killed at any moment, the same command goes on and ends in the same label file. Under `accelerate launch` each process takes
its share.
"""

from __future__ import annotations

import itertools
import json
import logging
import time
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any

import typer

from spd_core.datasets import read_slates
from spd_core.datasets.files import STANDARD_INPUT, check_place, display_name
from spd_core.errors import SpdError, choices
from spd_core.recipes import BackboneOption, DeviceOption, DtypeOption, JsonOption
from spd_core.recipes.gate_text import format_gate
from spd_core.recipes.label_files import LabelFiles, append_labels, file_hash, open_part
from spd_core.recipes.progress import with_progress
from spd_core.recipes.rankers import Loading
from spd_core.recipes.shards import Shard, this_shard
from spd_core.recipes.slate_sizes import counted, size_warnings
from spd_core.recipes.source_teachers import REMOTE, TEACHER_FORMS, SourceTeacher, find_teacher
from spd_core.slate import Slate
from spd_core.teachers.gate import GateCollector
from spd_core.teachers.labelling import label_slates, read_labels
from spd_core.words import plural

logger = logging.getLogger(__name__)

LEAVABLE = ("thinking", "temperature")
"""Fields that a remote teacher sends unless told not to, and that some servers and models refuse."""


@dataclass(frozen=True)
class LabelSummary:
    """What one run of `label` did."""

    slates: int
    """Lines of the label file."""
    labelled: int
    """Of them, those that this process labelled now; the rest is from other processes and earlier runs."""
    seconds: float
    """Without loading."""
    teacher: str
    out: str
    gate: Mapping[str, Any]
    """Verdict of the gate."""
    warnings: tuple[str, ...]
    """What a reader of the labels should know."""
    process: int
    """Which process this is; the first speaks to the user."""


def label_file(
    slates: str,
    out: str | Path,
    *,
    teacher: str,
    mode: str | None = None,
    remote: Mapping[str, Any] | None = None,
    limit: int | None = None,
    loading: Loading | None = None,
) -> LabelSummary:
    """Summary of the run; `out` then holds a line a slate, in the order of `slates`, and the gate's verdict lies beside it.

    Args:
        slates: JSON lines or CSV, packed or not; read several times, so never the standard input.
        out: JSON lines.
        teacher: checkpoint of an autoregressive teacher, ``remote``, or a key of `TEACHERS`.
        mode: of an autoregressive teacher; None is constrained.
        remote: settings of the remote teacher.
        limit: first slates of the file; None takes all.
        loading: of the teacher.

    Raises:
        SpdError: a bad line or option, an output of another command, or a teacher that fails; what is done so far stays.
    """
    target = Path(out)
    check_place(target)
    if slates == STANDARD_INPUT:
        raise SpdError("standard input cannot be gone back to after a stop; give a file")
    if target.exists() and Path(slates).exists() and target.samefile(slates):
        raise SpdError(f"{out}: is the input; write the labels to another file")
    sizes: Counter[int] = Counter()
    total = sum(1 for _ in counted(first_slates(slates, limit), sizes))  # a bad line is found now, not after hours
    loading = loading or Loading()
    shard = this_shard(loading.device)
    loading = replace(loading, device=shard.device, fit=loading.fit or [slates])
    source = find_teacher(teacher, mode=mode, remote=remote or {}, loading=loading)
    warnings = size_warnings([] if source.checkpoint is None else [source.checkpoint], sizes)
    if shard.is_main:
        for line in warnings:
            logger.warning("%s", line)
    settings = run_settings(slates, limit, source, shard)
    files = LabelFiles(target, shard)
    begin, labelled = time.monotonic(), 0
    if files.verdict(settings) is None:
        labelled = label_share(files, source, settings, first_slates(slates, limit), total)
        shard.wait()
        if shard.is_main:
            files.finish()
            files.write_verdict(measure_gate(first_slates(slates, limit), target), settings)
    shard.wait()
    if shard.is_main:
        files.remove_parts()
    gate = files.verdict(settings) or {}
    name, seconds = source.teacher.name, time.monotonic() - begin
    return LabelSummary(total, labelled, seconds, name, str(out), gate, tuple(warnings), shard.index)


def label_share(
    files: LabelFiles, source: SourceTeacher, settings: Mapping[str, Any], slates: Iterable[Slate], total: int
) -> int:
    """Labels that this process added to its part, which is then complete."""
    shard = files.shard
    own = len(range(shard.index, total, shard.count))
    with open_part(shard.part(files.labels), settings, together=source.together, total=own) as (stream, kept):
        rest = itertools.islice(shard.take(slates), kept, None)
        labels = label_slates(source.teacher, rest, provenance=source.provenance, together=source.together)
        return append_labels(stream, with_progress(labels, shard, done=kept, total=own))


def run_settings(slates: str, limit: int | None, source: SourceTeacher, shard: Shard) -> dict[str, Any]:
    """Everything that decides what a run's files hold, ready for JSON."""
    return {
        "slates": display_name(slates),
        "slates_sha256": file_hash(Path(slates)),
        "limit": limit,
        "teacher": source.teacher.name,
        "mode": source.mode,
        "provenance": dict(source.provenance),
        "together": source.together,
        "processes": shard.count,
    }


def first_slates(slates: str, limit: int | None) -> Iterable[Slate]:
    """The first `limit` slates of a file; None takes all."""
    return itertools.islice(read_slates(slates), limit)


def measure_gate(slates: Iterable[Slate], labels: Path) -> dict[str, Any]:
    """The gate's report on a label file, a line a slate, ready for JSON."""
    collector = GateCollector()
    for slate, label in zip(slates, read_labels(labels), strict=True):
        collector.add(slate, label)
    return collector.report().to_json()


def command(
    slates: Annotated[str, typer.Argument(help="Slates as JSON lines or CSV, .gz or not.")],
    teacher: Annotated[str, typer.Option(help=f"Who ranks them: {', '.join(TEACHER_FORMS)}.")],
    out: Annotated[str, typer.Option(help="Where the labels go, one JSON line a slate; timings and gate lie beside it.")],
    mode: Annotated[str | None, typer.Option(help="constrained (default) or free, of an autoregressive teacher.")] = None,
    limit: Annotated[int | None, typer.Option(min=1, help="First slates of the file.")] = None,
    fit: Annotated[
        list[str] | None, typer.Option(help="Slates whose histories a counting teacher counts; repeatable.")
    ] = None,
    catalogue: Annotated[str | None, typer.Option(help="Items, one JSON object a line, for such a teacher.")] = None,
    base_url: Annotated[str | None, typer.Option(help="Remote: address, e.g. http://localhost:8000/v1.")] = None,
    model: Annotated[str | None, typer.Option(help="Remote: name under which the endpoint serves the model.")] = None,
    thinking: Annotated[bool | None, typer.Option(help="Remote: let the model think first.")] = None,
    reasoning_effort: Annotated[str | None, typer.Option(help="Remote: none, minimal, low, medium or high.")] = None,
    leave_out: Annotated[
        list[str] | None, typer.Option(help=f"Remote: field that is not sent, {' or '.join(LEAVABLE)}; repeatable.")
    ] = None,
    concurrency: Annotated[int | None, typer.Option(help="Remote: slates asked for at once.")] = None,
    max_tokens: Annotated[int | None, typer.Option(help="Remote: most tokens written for a slate.")] = None,
    tokens_field: Annotated[str | None, typer.Option(help="Remote: max_tokens or max_completion_tokens.")] = None,
    timeout_s: Annotated[float | None, typer.Option("--timeout", help="Remote: seconds of one try.")] = None,
    price_in: Annotated[float | None, typer.Option(help="Remote: price of a million prompt tokens.")] = None,
    price_out: Annotated[float | None, typer.Option(help="Remote: price of a million written tokens.")] = None,
    key_env: Annotated[str | None, typer.Option(help="Remote: environment variable that holds the key, or none.")] = None,
    backbone: BackboneOption = None,
    device: DeviceOption = "auto",
    dtype: DtypeOption = "auto",
    as_json: JsonOption = False,
) -> None:
    """Rank each slate with a teacher and judge whether students may learn from it; a rerun goes on after a kill."""
    remote = {
        "base_url": base_url,
        "model": model,
        "thinking": thinking,
        "reasoning_effort": reasoning_effort,
        "concurrency": concurrency,
        "max_tokens": max_tokens,
        "tokens_field": tokens_field,
        "timeout_s": timeout_s,
        "input_price": price_in,
        "output_price": price_out,
        "key_env": key_env,
    }
    given = {name: value for name, value in remote.items() if value is not None} | unsent(leave_out or [], thinking)
    if given and teacher != REMOTE:
        raise SpdError(f"{', '.join(sorted(given))}: only for --teacher {REMOTE}, not {teacher!r}")
    loading = Loading(backbone, device, dtype, fit or [], catalogue)
    summary = label_file(slates, out, teacher=teacher, mode=mode, remote=given, limit=limit, loading=loading)
    if summary.process == 0:
        typer.echo(json.dumps(vars(summary)) if as_json else format_summary(summary))


def unsent(fields: Iterable[str], thinking: bool | None) -> dict[str, None]:
    """Settings under which a remote teacher does not send these fields.

    Args:
        fields: of `LEAVABLE`.
        thinking: what was asked for; cannot be left out as well.

    Raises:
        SpdError: a field that must be sent, or that was given a value.
    """
    for field in fields:
        if field not in LEAVABLE:
            raise SpdError(choices("field to leave out", field, LEAVABLE))
    if thinking is not None and "thinking" in fields:
        raise SpdError("--leave-out thinking contradicts --thinking and --no-thinking; give one of them")
    return dict.fromkeys(fields)


def format_summary(summary: LabelSummary) -> str:
    """What was done, and the gate's verdict, for the terminal."""
    now = f"{summary.labelled} of them now in {summary.seconds:.1f} s"
    done = f"{plural(summary.slates, 'slate')} labelled by {summary.teacher}, {now}; written to {summary.out}"
    return "\n".join([done, *(f"warning: {line}" for line in summary.warnings), *format_gate(summary.gate)])
