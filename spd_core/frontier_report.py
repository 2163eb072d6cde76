"""The record of a quality-against-latency run on disk: a point a ranker, and what it was measured on and with.

It knows no rankers and measures nothing; `frontier` makes it.
"""

from __future__ import annotations

from pathlib import Path
from typing import Literal, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

from spd_core.result_files import read_result

Family = Literal["student", "teacher", "first_token", "pointwise", "floor"]
QUALITIES = ("AUC", "Recall@1", "NDCG@10")
"""Metrics that are kept, of `METRICS`."""
SCHEMA_VERSION: Literal[1] = 1


class Quality(BaseModel):
    """A mean over slates with its 95 % interval."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)
    mean: float = Field(ge=0, le=1)
    low: float = Field(ge=0, le=1)
    high: float = Field(ge=0, le=1)
    n: int = Field(ge=1)


class RankerResult(BaseModel):
    """One ranker's point of the frontier."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)
    name: str
    family: Family
    checkpoint: str | None = None
    decoder: str | None = None
    depth: int | None = None
    """Layers that are read."""
    layers: int | None = None
    """Layers of the uncut backbone."""
    dtype: str | None = None
    is_zero_shot: bool = False
    metrics: dict[str, Quality]
    """Keys of `QUALITIES`."""
    median_ms: float = Field(gt=0)
    p95_ms: float = Field(gt=0)
    n: int = Field(ge=1)
    """Slates, of quality and latency alike."""
    ratio: float = Field(gt=0)
    """Median over slates of this ranker's ms / the fastest student's ms."""
    valid_rate: float | None = Field(default=None, ge=0, le=1)
    """Share of answers that were rankings as written; None where nothing is written."""


class FrontierReport(BaseModel):
    """Quality and latency of all rankers of one run."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)
    schema_version: Literal[1] = SCHEMA_VERSION
    file: str
    file_sha256: str
    candidates: tuple[int, int]
    """Fewest and most candidates of a slate."""
    excluded: dict[str, int]
    """Reason -> slates left out of quality and latency."""
    date: str
    commit: str | None
    machine: dict[str, str | int]
    warmup: int
    fastest_student: str
    """Name of the student with the smallest median."""
    rankers: tuple[RankerResult, ...] = Field(min_length=1)
    """Fastest first."""
    left_out: dict[str, str]
    """Ranker that could not take part -> why."""

    @model_validator(mode="after")
    def _check_names(self) -> Self:
        names = [ranker.name for ranker in self.rankers]
        if len(set(names)) < len(names) or self.fastest_student not in names:
            raise ValueError("names must be unique and hold the fastest student")
        if any(set(ranker.metrics) != set(QUALITIES) for ranker in self.rankers):
            raise ValueError(f"each ranker needs exactly the metrics {', '.join(QUALITIES)}")
        return self

    @property
    def slates(self) -> int:
        """n, slates that every ranker has ranked."""
        return self.rankers[0].n


def read_report(path: Path) -> FrontierReport:
    """The report in a file that `frontier` wrote.

    Raises:
        SpdError: no such file, or it is not such a report; the message names the first thing that is wrong.
    """
    return read_result(path, FrontierReport, again="make it again with `python -m spd_core frontier`")
