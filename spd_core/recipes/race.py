"""`race`: one slate ranked by a student in one pass and by a teacher token by token, recorded to be watched again."""

from __future__ import annotations

import json
import logging
from collections import Counter
from pathlib import Path
from typing import Annotated

import typer

from spd_core.checkpoints import load_student
from spd_core.datasets import read_slates
from spd_core.datasets.files import check_place, display_name
from spd_core.decoding import find_decoder
from spd_core.errors import SpdError
from spd_core.latency import describe_machine
from spd_core.pipeline import rank_slate
from spd_core.race import compare_rankings, timing_of
from spd_core.race_record import RaceRecord, new_record, write_record
from spd_core.recipes import CheckpointOption, DecoderOption, DeviceOption, DtypeOption, JsonOption
from spd_core.recipes.rankers import STUDENT, TEACHER, check_mode, check_rankers
from spd_core.recipes.slate_sizes import size_warnings
from spd_core.slate import Slate
from spd_core.teacher_checkpoints import load_teacher
from spd_core.teachers.answers import TokenEvent
from spd_core.words import plural

logger = logging.getLogger(__name__)

WARMUP_CANDIDATES = 2


def race(
    slates: str | Path,
    out: str | Path,
    *,
    checkpoint: str,
    teacher: str,
    slate_id: str | None = None,
    mode: str = "constrained",
    decoder: str = "hungarian",
    device: str = "auto",
    dtype: str = "auto",
) -> RaceRecord:
    """Record of one race, also written to `out`; both models have run once before, on the slate's first candidates.

    Args:
        slates: file to take the slate from.
        out: JSON file; replaced only when complete.
        checkpoint, device, dtype: of `load_student`.
        teacher, mode: of `load_teacher`.
        slate_id: which one; None takes the first.
        decoder: key of `DECODERS`.

    Raises:
        SpdError: no such slate, a slate that one of them cannot rank, or a bad option.
    """
    check_place(out)
    find_decoder(decoder)
    check_rankers([f"{STUDENT}:{checkpoint}", f"{TEACHER}:{teacher}"])  # a wrong name is told before a model is loaded
    check_mode(mode)
    slate = _find_slate(slates, slate_id)
    student = load_student(checkpoint, device=device, dtype=dtype)
    writer = load_teacher(teacher, mode=mode, device=device, dtype=dtype)
    for line in size_warnings([checkpoint, teacher], Counter([len(slate.candidates)])):
        logger.warning("%s", line)
    short = Slate("warm-up", slate.user, slate.candidates[:WARMUP_CANDIDATES])
    rank_slate(student, slate, decoder=decoder)  # first passes compile kernels and fill caches; they are not shown
    writer.answer(short)
    result = rank_slate(student, slate, decoder=decoder)
    events: list[TokenEvent] = []
    answer = writer.answer(slate, on_token=events.append)
    record = new_record(slate, result.to_json(), answer, events, describe_machine(student))
    write_record(out, record)
    return record


def _find_slate(slates: str | Path, slate_id: str | None) -> Slate:
    for slate in read_slates(slates):
        if slate_id is None or slate.slate_id == slate_id:
            return slate
    raise SpdError(f"{display_name(slates)}: holds no slate {slate_id!r}; check --slate-id")


def summary_of(record: RaceRecord) -> dict[str, str | int | float | None]:
    """The figures of a race in one line."""
    timing = timing_of(record.student.ms, record.answer)
    tau = compare_rankings(record.slate, record.answer.ranking, record.student.order).kendall_tau
    return {
        "slate_id": record.slate.slate_id,
        "student_ms": round(timing.student_ms, 3),
        "teacher_ms": round(timing.teacher_ms, 3),
        "token_ms": None if timing.token_ms is None else round(timing.token_ms, 3),
        "tokens": record.answer.tokens,
        "passes": record.answer.passes,
        "speed_up": round(timing.teacher_ms / timing.student_ms, 2),
        "kind": record.answer.kind,
        "kendall_tau": None if len(record.slate.candidates) == 1 else round(tau, 4),
    }


def command(
    slates: Annotated[str, typer.Argument(help="File to take the slate from: JSON lines or CSV, .gz or not.")],
    checkpoint: CheckpointOption,
    teacher: Annotated[str, typer.Option(help="Id of a teacher under sample_data/checkpoints, or its folder.")],
    out: Annotated[str, typer.Option(help="Where the record goes; the app replays sample_data/results/race-*.json.")],
    slate_id: Annotated[str | None, typer.Option(help="Which slate; default: the first.")] = None,
    mode: Annotated[str, typer.Option(help="constrained (only unused numbers) or free (whatever it says).")] = "constrained",
    decoder: DecoderOption = "hungarian",
    device: DeviceOption = "auto",
    dtype: DtypeOption = "auto",
    as_json: JsonOption = False,
) -> None:
    """Race a student against a teacher on one slate and record it."""
    record = race(
        slates,
        out,
        checkpoint=checkpoint,
        teacher=teacher,
        slate_id=slate_id,
        mode=mode,
        decoder=decoder,
        device=device,
        dtype=dtype,
    )
    facts = summary_of(record)
    text = (
        f"slate {facts['slate_id']}: student {facts['student_ms']} ms in 1 pass, teacher {facts['teacher_ms']} ms in "
        f"{plural(record.answer.passes, 'pass')} ({facts['kind']}), {facts['speed_up']} times slower; written to {out}"
    )
    typer.echo(json.dumps(facts | {"out": str(out)}) if as_json else text)
