"""The result file of one cell: its settings, what it cost, and a value a held-out slate for every metric and decoder.

Values a slate are kept, so that any two cells can be compared slate by slate long after both were trained.
"""

from __future__ import annotations

import base64
import binascii
import zlib
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, Field

from spd_core.datasets.files import write_aside
from spd_core.errors import SpdError, choices
from spd_core.metrics import Interval
from spd_core.result_files import read_result

SCHEMA_VERSION = 1
FACTORS: dict[str, tuple[str, ...]] = {
    "head": ("linear_probe", "self_attention", "slot_query"),
    "signal": ("clicks", "teacher"),
    "backbone": ("frozen", "lora"),
}
"""What a cell of the cube is a combination of: 3 x 2 x 2 cells."""
DECODERS_KEPT = ("hungarian", "expected_position", "first_column")
"""Decoders of the same matrices whose values are kept; clicks teach the first column alone, so the decoder may matter."""
_RECORD = ConfigDict(frozen=True, extra="forbid")


class Factors(BaseModel):
    """Place of a cell in the cube."""

    model_config = _RECORD

    head: Literal["linear_probe", "self_attention", "slot_query"]
    signal: Literal["clicks", "teacher"]
    backbone: Literal["frozen", "lora"]

    @property
    def key(self) -> tuple[str, str, str]:
        """(head, signal, backbone)."""
        return (self.head, self.signal, self.backbone)


class Source(BaseModel):
    """The held-out slates that a cell was measured on; two cells with equal sources can be compared slate by slate."""

    model_config = _RECORD

    file: str = Field(min_length=1)
    """As the plan names it."""
    sha256: str
    n: int = Field(ge=1)
    """Slates measured."""
    slates_sha256: str
    """Hash of their ids, in order."""
    excluded: dict[str, int]
    """Slates left out, by reason."""


class Stage(BaseModel):
    """One stage of a training run and what it cost."""

    model_config = _RECORD

    name: Literal["head", "lora"]
    slates: int = Field(ge=1)
    """Different slates it could see."""
    seen: int
    """Slates seen, counting repeats."""
    steps: int
    minutes: float
    """Wall time, on the machine that the result names."""


class CurvePoint(BaseModel):
    """One validation while training."""

    model_config = _RECORD

    stage: Literal["head", "lora"]
    seen: int
    """Slates seen so far in this stage."""
    n: int = Field(ge=1)
    """Slates looked at: the first ones of the source."""
    auc: float
    loss_nats: float | None
    """Mean training loss since the validation before."""


class SeedRun(BaseModel):
    """One training run of a cell."""

    model_config = _RECORD

    seed: int
    stages: tuple[Stage, ...]
    curve: tuple[CurvePoint, ...]
    values: dict[str, dict[str, str]]
    """Decoder -> metric -> a value a slate of the source, as `pack_values` writes them."""


class CellResult(BaseModel):
    """All that is known of one cell."""

    model_config = _RECORD

    schema_version: Literal[1] = 1
    plan: str
    cell: str = Field(min_length=1)
    factors: Factors
    changes: dict[str, Any]
    """Settings of the student that differ from the cell's place in the cube; empty in the cube itself."""
    settings: dict[str, Any]
    """Everything that decides the runs beside the seed."""
    data: dict[str, str]
    """SHA-256 of each training file."""
    source: Source
    runs: tuple[SeedRun, ...] = Field(min_length=1)
    metrics: dict[str, dict[str, dict[str, float]]]
    """Decoder -> metric -> mean over slates (of the mean over seeds), bounds of its 95 % interval, n."""
    date: str
    machine: dict[str, str | int]
    commit: str | None = None
    """Of the code, if it is known."""

    @property
    def seeds(self) -> tuple[int, ...]:
        """Of the runs."""
        return tuple(run.seed for run in self.runs)

    def interval(self, decoder: str, metric: str) -> Interval:
        """Mean with its 95 % interval over slates.

        Raises:
            SpdError: unknown decoder or metric.
        """
        row = self.metrics[_known("decoder", decoder, self.metrics)]
        entry = row[_known("metric", metric, row)]
        return Interval(entry["mean"], entry["low"], entry["high"], int(entry["n"]))

    def by_seed(self, decoder: str, metric: str, seeds: Collection[int] | None = None) -> NDArray[np.float64]:
        """(runs, n) values of each slate in each run, or in those of the given seeds.

        Raises:
            SpdError: unknown decoder or metric, or damaged values.
        """
        rows = []
        for run in self.runs:
            if seeds is not None and run.seed not in seeds:
                continue
            row = run.values[_known("decoder", decoder, run.values)]
            rows.append(unpack_values(row[_known("metric", metric, row)], self.source.n, self.cell))
        return np.stack(rows)

    def values(self, decoder: str, metric: str, seeds: Collection[int] | None = None) -> NDArray[np.float64]:
        """(n,) values of the slates, each the mean over the seeds or the given ones; errors as in `by_seed`."""
        means: NDArray[np.float64] = self.by_seed(decoder, metric, seeds).mean(axis=0)
        return means


def shared_seeds(results: Collection[CellResult]) -> frozenset[int] | None:
    """Seeds that all results have, so that no difference of cells is one of seeds; None (all of each) if they share none."""
    shared = frozenset.intersection(*(frozenset(result.seeds) for result in results)) if results else frozenset()
    return shared or None


def cell_name(head: str, signal: str, backbone: str) -> str:
    """Name of a cell of the cube, and of its file: ``self_attention-teacher-lora``."""
    return f"{head}-{signal}-{backbone}"


def pack_values(values: Sequence[float] | NDArray[np.float64]) -> str:
    """Numbers as short text: float32, packed, base64; a metric has few different values, so a thousand take a kilobyte."""
    return base64.b64encode(zlib.compress(np.asarray(values, dtype="<f4").tobytes(), 9)).decode("ascii")


def unpack_values(text: str, count: int, where: str) -> NDArray[np.float64]:
    """(count,) numbers that `pack_values` wrote.

    Raises:
        SpdError: damaged, or not `count` finite numbers; `where` opens the message.
    """
    try:
        numbers = np.frombuffer(zlib.decompress(base64.b64decode(text, validate=True)), dtype="<f4").astype(np.float64)
    except (binascii.Error, zlib.error, ValueError):
        raise SpdError(f"{where}: its values a slate are damaged; delete the file and run ablate again") from None
    if len(numbers) != count or not np.isfinite(numbers).all():
        raise SpdError(
            f"{where}: holds {len(numbers)} values for {count} slates, or one is not finite; delete the file and run "
            "ablate again"
        )
    return numbers


def write_cell(folder: Path, result: CellResult) -> Path:
    """File of the result, written whole or not at all."""
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / f"{result.cell}.json"
    write_aside(file, [result.model_dump_json(indent=1).encode(), b"\n"])
    return file


def read_cell(file: Path) -> CellResult:
    """A cell's result.

    Raises:
        SpdError: missing, not JSON, or lacking something that every result has, such as its n or source.
    """
    return read_result(file, CellResult, again="delete the file and run ablate again")


def read_cells(folder: Path) -> dict[str, CellResult]:
    """Results in a folder by cell; empty if there is no folder.

    Raises:
        SpdError: a damaged file, or a file that holds another cell than its name says.
    """
    results = {}
    for file in sorted(folder.glob("*.json")):
        result = read_cell(file)
        if file.stem != result.cell:
            raise SpdError(f"{file.name}: holds cell {result.cell!r}; rename it to {result.cell}.json")
        results[result.cell] = result
    return results


def _known(kind: str, name: str, known: dict[str, Any]) -> str:
    if name not in known:
        raise SpdError(choices(kind, name, known))
    return name
