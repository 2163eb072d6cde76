"""What `bench --preset` found: one record a measurement, the ratios between them, a table for people and one JSON object."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from spd_core.latency import Spread

REFERENCE = "fused"
"""The path that every other command takes; the others are compared with it."""


@dataclass(frozen=True)
class RideCost:
    """What ranking B slates in one pass costs on one speed path."""

    path: str
    batch: int
    """B."""
    tokens: int
    """T, of the longest prompt."""
    stages: Mapping[str, Spread]
    """Of `STAGES`, in order."""
    total: Spread
    """Slates to rankings."""
    bare_prefill: Spread
    """The backbone alone on ids that are already on the device, on the same path, in turn with the rides."""
    ratio: float
    """Median over the rides of total / bare prefill."""
    score_gap: float
    """Largest difference of a score from the reference path's, in standard deviations of that path's scores: rounding, and
    nothing else."""

    @property
    def slates_per_s(self) -> float:
        """Throughput at the median."""
        return self.batch / self.total.median_ms * 1e3


@dataclass(frozen=True)
class WritingCost:
    """What writing B rankings token by token costs one way."""

    way: str
    batch: int
    """B."""
    tokens: int
    """Written for each slate."""
    passes: int
    """Forward passes, the prefill included; the student makes one."""
    total: Spread
    """Slates to last token."""

    @property
    def slates_per_s(self) -> float:
        """Throughput at the median."""
        return self.batch / self.total.median_ms * 1e3


@dataclass(frozen=True)
class ShapeReport:
    """All measurements of one run, as far as it has come."""

    preset: str
    source: str
    """Where the architecture's dimensions are from."""
    candidates: int
    """N."""
    parameters: int
    """Of the language model, counted."""
    gemm_tflops: float
    """Best of square matrix products in the model's dtype, here."""
    prefill_gflop: float
    """Work of the prefill of one prompt of the longest length."""
    warmup: int
    machine: Mapping[str, str | int]
    date: str
    weights: str = "random"
    rides: tuple[RideCost, ...] = ()
    writing: tuple[WritingCost, ...] = ()
    missing: Mapping[str, str] = field(default_factory=dict)
    """Measurement -> why it was not made."""
    seconds: float = 0.0
    """The run has taken so far."""
    peak_memory_mib: float = 0.0

    def ratios(self) -> dict[str, dict[str, Any]]:
        """Batch size -> the fastest path, what each path gains on the reference, and how much longer writing takes.

        Writing is held against the fastest path and, because the library's own loop records nothing either, against the
        reference.
        """
        result = {}
        for batch in dict.fromkeys(ride.batch for ride in self.rides):
            medians = {ride.path: ride.total.median_ms for ride in self.rides if ride.batch == batch}
            fastest = min(medians, key=lambda path: medians[path])
            writing = {cost.way: cost.total.median_ms for cost in self.writing if cost.batch == batch}
            row: dict[str, Any] = {"fastest": fastest, "fastest_ms": medians[fastest]}
            row["writing_to_fastest"] = {way: time / medians[fastest] for way, time in writing.items()}
            if REFERENCE in medians:
                row["gain"] = {path: medians[REFERENCE] / time for path, time in medians.items()}
                row["writing_to_reference"] = {way: time / medians[REFERENCE] for way, time in writing.items()}
            result[str(batch)] = row
        return result

    def to_json(self) -> dict[str, Any]:
        """JSON object of all fields, ratios and throughputs; single samples are left out, numbers have 5 digits."""
        record = {f.name: getattr(self, f.name) for f in dataclasses.fields(self)}
        record["rides"] = [dataclasses.asdict(ride) | {"slates_per_s": ride.slates_per_s} for ride in self.rides]
        record["writing"] = [dataclasses.asdict(cost) | {"slates_per_s": cost.slates_per_s} for cost in self.writing]
        compact: dict[str, Any] = _compact(record | {"ratios": self.ratios()})
        return compact


def _compact(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {str(key): _compact(item) for key, item in value.items() if key != "samples_ms"}
    if isinstance(value, list | tuple):
        return [_compact(item) for item in value]
    return float(f"{value:.5g}") if isinstance(value, float) else value


def write_shape_report(report: ShapeReport) -> Iterator[str]:
    """Lines of a table for people."""
    machine = ", ".join(f"{name} {value}" for name, value in report.machine.items())
    yield f"{report.preset} ({report.source}), {report.parameters / 1e6:.0f} M parameters, RANDOM weights: times only"
    yield f"{machine}; {report.date}"
    yield f"N = {report.candidates}; matrix product peak {report.gemm_tflops:.4g} TFLOP/s; {report.seconds:.0f} s in all"
    for batch in dict.fromkeys(ride.batch for ride in report.rides):
        rides = [ride for ride in report.rides if ride.batch == batch]
        yield ""
        yield from _ride_table(report, rides)
        yield from _writing_table(report, batch)
    for name, reason in report.missing.items():
        yield f"not measured: {name}: {reason}"


def _ride_table(report: ShapeReport, rides: list[RideCost]) -> Iterator[str]:
    first = rides[0]
    yield (
        f"batch {first.batch}, longest prompt {first.tokens} tokens; median / p95 ms of {first.total.n} rides "
        f"after {report.warmup} to warm up"
    )
    yield f"{'stage':<16}" + "".join(f"{ride.path:>20}" for ride in rides)
    names = [*first.stages, "total", "bare prefill"]
    for name in names:
        cells = [ride.stages.get(name, ride.total if name == "total" else ride.bare_prefill) for ride in rides]
        yield f"{name:<16}" + "".join(f"{f'{cell.median_ms:.3f} / {cell.p95_ms:.3f}':>20}" for cell in cells)
    gain = report.ratios()[str(first.batch)].get("gain", {})
    peak = report.prefill_gflop * first.batch / report.gemm_tflops  # GFLOP / (TFLOP/s) = ms
    rows = {
        "total / bare": [f"{ride.ratio:.3f}" for ride in rides],
        "share of peak": [f"{peak / ride.bare_prefill.median_ms:.0%}" for ride in rides],
        "slates/s": [f"{ride.slates_per_s:.1f}" for ride in rides],
        f"gain on {REFERENCE}": [f"{gain[ride.path]:.2f}x" if gain else "" for ride in rides],
        "score gap": [f"{ride.score_gap:.2g} sd" for ride in rides],
    }
    for name, texts in rows.items():
        yield (f"{name:<16}" + "".join(f"{text:>20}" for text in texts)).rstrip()


def _writing_table(report: ShapeReport, batch: int) -> Iterator[str]:
    costs = [cost for cost in report.writing if cost.batch == batch]
    ratios = report.ratios()[str(batch)]
    if costs:
        titles = f"{'passes':>8}{'median ms':>12}{'p95 ms':>12}{'n':>4}{'ms/pass':>10}{'slates/s':>10}"
        yield f"{'token by token':<16}{titles}{'/ ' + ratios['fastest']:>14}{'/ ' + REFERENCE:>10}"
    for cost in costs:
        spread, like = cost.total, ratios.get("writing_to_reference", {}).get(cost.way)
        row = (
            f"{cost.way:<16}{cost.passes:>8}{spread.median_ms:>12.1f}{spread.p95_ms:>12.1f}{spread.n:>4}"
            f"{spread.median_ms / cost.passes:>10.2f}{cost.slates_per_s:>10.2f}"
            f"{ratios['writing_to_fastest'][cost.way]:>13.1f}x{'' if like is None else f'{like:.1f}x':>10}"
        )
        yield row.rstrip()
