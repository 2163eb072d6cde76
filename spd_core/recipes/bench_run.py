"""All that `bench` measures of one student on one slate, both loaded once, with the day, the code and what it was of."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from spd_core.capacity import Capacity, measure_capacity
from spd_core.checkpoints import load_student
from spd_core.datasets import read_slates
from spd_core.datasets.files import display_name
from spd_core.errors import SpdError
from spd_core.latency import LatencyReport, measure_latency
from spd_core.quick_pass import quicken
from spd_core.recipes.bench_passes import PassTime, measure_passes
from spd_core.recipes.bench_report import KIND, VERSION
from spd_core.recipes.bench_teacher import SIZES, Contest, race_teacher, slates_of_sizes
from spd_core.recipes.provenance import made_here, student_facts
from spd_core.slate import Slate
from spd_core.teacher_checkpoints import load_teacher

DEFAULT_SLATES = Path(__file__).resolve().parents[2] / "sample_data" / "slates" / "shoppers.jsonl"


@dataclass(frozen=True)
class BenchRun:
    """What was measured in one run, and of what."""

    checkpoint: str
    """Id of the student."""
    file: str
    """Name of the file that the slate is from."""
    date: str
    """Of the run, UTC, as ISO writes it."""
    commit: str | None
    """Of the source; None where that is not known."""
    latency: LatencyReport
    capacity: Capacity | None = None
    """None where it was not asked for."""
    contests: tuple[Contest, ...] = ()
    """Empty without a teacher."""
    passes: tuple[PassTime, ...] = ()
    """Empty unless `capacity` was asked for, on a CPU."""

    def to_json(self) -> dict[str, Any]:
        """JSON object that `bench_report.read_bench` takes: the fields of `latency` lie beside the others."""
        record: dict[str, Any] = {
            "kind": KIND,
            "version": VERSION,
            "date": self.date,
            "commit": self.commit,
            "checkpoint": self.checkpoint,
            "file": self.file,
            **self.latency.to_json(),
        }
        if self.capacity is not None:
            record["capacity"] = self.capacity.to_json()
        if self.passes:
            record["passes"] = [row.to_json() for row in self.passes]
        if self.contests:
            record["contests"] = [contest.to_json() for contest in self.contests]
        return record


def bench(
    checkpoint: str,
    slates: str | Path = DEFAULT_SLATES,
    *,
    slate_id: str | None = None,
    n: int = 20,
    warmup: int = 3,
    decoder: str = "hungarian",
    capacity: bool = False,
    compiled: bool = False,
    teacher: str | None = None,
    sizes: Sequence[int] = SIZES,
    turns: int = 5,
    backbone: str | None = None,
    device: str = "auto",
    dtype: str = "auto",
) -> BenchRun:
    """Time per stage of ranking one slate, in rides that take turns with bare prefills, and what else is asked for.

    Args:
        checkpoint, backbone, device, dtype: of `load_student`.
        slates: file to take the slate from.
        slate_id: which one; None takes the one with the most candidates that the student can rank.
        n: measured rides.
        warmup: rides before them that are not counted.
        decoder: key of `DECODERS`.
        capacity: whether to measure what the machine can do beside it, and on a CPU other ways of running the prefill.
        compiled: whether the student takes the compiled prefill that the app takes once it is ready; CPU only.
        teacher: checkpoint of an autoregressive teacher to race, constrained and free; loaded last, so that it takes no
            part in the memory of what comes before.
        sizes: candidates N of the raced slates, which are the first ones of the slate.
        turns: races measured of each size.

    Raises:
        SpdError: a bad option, or no such slate.
    """
    loading: dict[str, Any] = {"backbone": backbone, "device": device, "dtype": dtype}
    student = load_student(checkpoint, **loading)
    slate = choose_slate(slates, slate_id, student.config.positions)
    raced = slates_of_sizes(slate, sizes) if teacher is not None else []
    is_compared = capacity and student.backbone.device.type == "cpu"
    count = len(slate.candidates)
    sized = slates_of_sizes(slate, [size for size in sizes if size <= count] or [count]) if is_compared else []
    if compiled:
        quicken(student)
    latency = measure_latency(student, slate, decoder=decoder, repeats=n, warmup=warmup)
    prefill_ms = latency.bare_prefill.median_ms
    room = measure_capacity(student, slate, prefill_ms=prefill_ms, tokens=latency.tokens) if capacity else None
    passes = measure_passes(student, sized, repeats=n) if sized else ()
    contests: tuple[Contest, ...] = ()
    if teacher is not None:
        contests = tuple(race_teacher(student, load_teacher(teacher, **loading), raced, repeats=turns))
    facts = student_facts(student, checkpoint)
    made = made_here({checkpoint: facts})
    return BenchRun(
        checkpoint=facts["checkpoint"],
        file=display_name(slates),
        date=made["date"],
        commit=made["commit"],
        latency=latency,
        capacity=room,
        contests=contests,
        passes=passes,
    )


def choose_slate(slates: str | Path, slate_id: str | None, positions: int) -> Slate:
    """The slate of that id, or the largest one of at most `positions` candidates.

    Raises:
        SpdError: there is none.
    """
    chosen: Slate | None = None
    for slate in read_slates(slates):
        if slate_id is not None and slate.slate_id != slate_id:
            continue
        if len(slate.candidates) <= positions and (chosen is None or len(slate.candidates) > len(chosen.candidates)):
            chosen = slate
    if chosen is None:
        wanted = "slate" if slate_id is None else f"slate {slate_id!r}"
        raise SpdError(f"{display_name(slates)}: holds no {wanted} of at most {positions} candidates (the student's K)")
    return chosen
