"""The record of a measurement on disk, as `bench --out` writes it; each number is checked as it is read.

Records of earlier versions lack capacity, contests, and when and of what they were made; what they have is read.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, model_validator

from spd_core.capacity import MATRIX_KINDS
from spd_core.latency import STAGES, LatencyReport, Spread
from spd_core.race import SpeedUp
from spd_core.recipes.bench_passes import PASS_TITLES
from spd_core.result_files import peek, read_result
from spd_core.teachers.autoregressive import LocalMode
from spd_core.teachers.ordinals import AnswerKind

KIND: Literal["bench"] = "bench"
VERSION: Literal[1] = 1
MAKE = (
    "python -m spd_core bench --checkpoint beauty-spd --capacity --teacher beauty-teacher "
    "--out sample_data/results/bench-NAME.json"
)
TELLING = {"stages", "total", "bare_prefill", "machine"}
"""Fields by which a record of an earlier version, which does not name its kind, is told from those of other commands."""
LEEWAY = 1e-6
"""Relative difference at which a ratio contradicts the times it was made of; both are written in full."""


class StoredSpread(BaseModel):
    """Repeated measurements of one duration."""

    model_config = ConfigDict(frozen=True, allow_inf_nan=False)
    median_ms: float = Field(ge=0)
    p95_ms: float = Field(ge=0)
    n: int = Field(ge=1)
    samples_ms: tuple[Annotated[float, Field(ge=0)], ...] = ()
    """Empty, or n of them."""

    @model_validator(mode="after")
    def _check_order(self) -> Self:
        if self.p95_ms < self.median_ms:
            raise ValueError("p95_ms is below median_ms")
        if self.samples_ms and len(self.samples_ms) != self.n:
            raise ValueError(f"n is {self.n} but there are {len(self.samples_ms)} samples_ms")
        return self

    def spread(self) -> Spread:
        """The same as the core knows it."""
        return Spread(self.median_ms, self.p95_ms, self.n, self.samples_ms)


def _above_zero(spread: StoredSpread) -> StoredSpread:
    if spread.median_ms <= 0:
        raise ValueError("median_ms of a whole ranking must be above 0")
    return spread


Elapsed = Annotated[StoredSpread, AfterValidator(_above_zero)]


class StoredMachine(BaseModel):
    """What everything ran on."""

    model_config = ConfigDict(frozen=True)
    cpu: str
    cores: int = Field(ge=1)
    threads: int = Field(ge=1)
    device: str
    dtype: str
    torch: str
    prefill: str | None = None
    """``compiled``, or None where it ran as every command runs it."""


class StoredCost(BaseModel):
    """What one way of decoding cost a teacher on one slate."""

    model_config = ConfigDict(frozen=True, allow_inf_nan=False)
    teacher: str
    mode: LocalMode
    total: Elapsed
    tokens: int = Field(ge=0)
    passes: int = Field(ge=1)
    kind: AnswerKind
    token_ms: float | None = Field(default=None, ge=0)
    """None where there was one pass."""
    speed_up: float = Field(gt=0)


class StoredContest(BaseModel):
    """One slate, ranked by the student and by a teacher in each mode, in turns."""

    model_config = ConfigDict(frozen=True)
    slate_id: str
    candidates: int = Field(ge=1)
    prompt_tokens: int = Field(ge=1)
    student: Elapsed
    teachers: tuple[StoredCost, ...] = Field(min_length=1)

    @model_validator(mode="after")
    def _check_turns(self) -> Self:
        for cost in self.teachers:
            if cost.total.n != self.student.n:
                raise ValueError(f"the student ran {self.student.n} times but the {cost.mode} teacher {cost.total.n} times")
            if not math.isclose(cost.speed_up, self.speed_up(cost).direct, rel_tol=LEEWAY):
                raise ValueError(f"speed_up {cost.speed_up} of the {cost.mode} teacher is not the ratio of the median times")
        return self

    def speed_up(self, cost: StoredCost) -> SpeedUp:
        """How many times faster the student is than one of `teachers`."""
        return SpeedUp(self.student.median_ms, cost.total.median_ms, cost.token_ms, cost.total.n)


class StoredRate(BaseModel):
    """Throughput at one batch size."""

    model_config = ConfigDict(frozen=True, allow_inf_nan=False)
    batch: int = Field(ge=1)
    slates_per_s: float = Field(gt=0)
    time: Elapsed


def _known_kind(kind: str) -> str:
    if kind not in MATRIX_KINDS:
        raise ValueError(f"must be one of {', '.join(MATRIX_KINDS)}")
    return kind


def _known_way(name: str) -> str:
    if name not in PASS_TITLES:
        raise ValueError(f"must be one of {', '.join(PASS_TITLES)}")
    return name


class StoredSolverTime(BaseModel):
    """The exact assignment of N x N matrices of one kind."""

    model_config = ConfigDict(frozen=True)
    kind: Annotated[str, AfterValidator(_known_kind)]
    """Key of `MATRIX_KINDS`."""
    candidates: int = Field(ge=1)
    time: Elapsed


class StoredCapacity(BaseModel):
    """What the machine can do, and how much of it a ranking uses."""

    model_config = ConfigDict(frozen=True, allow_inf_nan=False)
    gemm_tflops: float = Field(gt=0)
    prefill_gflop: float = Field(gt=0)
    prefill_tflops: float = Field(gt=0)
    batches: tuple[StoredRate, ...] = ()
    solver: tuple[StoredSolverTime, ...] = ()
    peak_memory_mib: float = Field(gt=0)

    @property
    def peak_share(self) -> float:
        """Share of the matrix product peak that the bare prefill reaches."""
        return self.prefill_tflops / self.gemm_tflops


class StoredPass(BaseModel):
    """One way of running the prefill of one prompt."""

    model_config = ConfigDict(frozen=True, allow_inf_nan=False)
    name: Annotated[str, AfterValidator(_known_way)]
    """Key of `PASS_TITLES`."""
    candidates: int = Field(ge=1)
    tokens: int = Field(ge=1)
    time: Elapsed
    gain: float = Field(gt=0)
    tflops: float = Field(gt=0)
    difference: float = Field(ge=0)


class BenchReport(BaseModel):
    """What `bench` measured of one student on one slate, and what else was asked for."""

    model_config = ConfigDict(frozen=True, allow_inf_nan=False)
    kind: Literal["bench"] = KIND
    version: Literal[1] = VERSION
    date: str | None = Field(default=None, pattern=r"^\d{4}-\d{2}-\d{2}$")
    commit: str | None = None
    checkpoint: str | None = None
    file: str | None = None
    slate_id: str
    candidates: int = Field(ge=1)
    tokens: int = Field(ge=1)
    warmup: int = Field(ge=0)
    stages: dict[str, StoredSpread]
    total: Elapsed
    bare_prefill: Elapsed
    ratio: float = Field(gt=0)
    assignment_share: float = Field(ge=0)
    decoder: str
    machine: StoredMachine
    capacity: StoredCapacity | None = None
    contests: tuple[StoredContest, ...] = ()
    passes: tuple[StoredPass, ...] = ()

    @model_validator(mode="after")
    def _check_stages(self) -> Self:
        if set(self.stages) != set(STAGES):
            raise ValueError(f"stages must be exactly {', '.join(STAGES)}")
        if any(spread.n != self.total.n for spread in (*self.stages.values(), self.bare_prefill)):
            raise ValueError("all stages and the bare prefill must be measured as often as the total")
        return self

    def latency(self) -> LatencyReport:
        """The stages as the core knows them, in order."""
        return LatencyReport(
            slate_id=self.slate_id,
            candidates=self.candidates,
            tokens=self.tokens,
            warmup=self.warmup,
            stages={stage: self.stages[stage].spread() for stage in STAGES},
            total=self.total.spread(),
            bare_prefill=self.bare_prefill.spread(),
            ratio=self.ratio,
            assignment_share=self.assignment_share,
            decoder=self.decoder,
            machine=self.machine.model_dump(exclude_none=True),
        )


def read_bench(path: Path) -> BenchReport:
    """The report in a file that `bench` wrote.

    Raises:
        SpdError: no such file, or it is not such a report; the message names the first thing that is wrong.
    """
    return read_result(path, BenchReport, again="make it again with `python -m spd_core bench`")


def read_if_bench(path: Path) -> BenchReport | None:
    """The report in a file; None where the file is of another command, or of `bench --preset`.

    Raises:
        SpdError: its name begins with ``bench``, or it looks like such a report, and it is damaged.
    """
    content = peek(path)
    if content.get("kind") == KIND or set(content) >= TELLING:
        return read_bench(path)
    return read_bench(path) if path.name.startswith("bench") and "preset" not in content else None
