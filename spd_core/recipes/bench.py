"""`bench`: what a ranking costs on this machine, stage by stage, beside the bare prefill of the same token ids.

With a teacher it also lets the student and the teacher rank the same slates in turn; with a preset it needs no checkpoint.
The last line is one JSON object.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from typing import Annotated, Any

import typer

from spd_core.capacity import Capacity
from spd_core.datasets.files import check_place, write_aside
from spd_core.errors import SpdError
from spd_core.latency import LatencyReport, Spread
from spd_core.recipes import BackboneOption, DecoderOption, DeviceOption, DtypeOption, JsonOption
from spd_core.recipes.bench_passes import write_passes
from spd_core.recipes.bench_run import DEFAULT_SLATES, BenchRun, bench
from spd_core.recipes.bench_shape import measure_shape
from spd_core.recipes.bench_teacher import SIZES, write_contests
from spd_core.recipes.busy import warn_of_other_work
from spd_core.recipes.shape_report import ShapeReport, write_shape_report
from spd_core.recipes.shapes import SHAPES


def bench_shape(preset: str, *, out: str | None = None, **options: Any) -> ShapeReport:
    """A published architecture with random weights, on every speed path and beside writing token by token.

    Args:
        preset: key of `SHAPES`.
        out: file for the report, written anew after each measurement, so that a run that is cut off leaves one.
        **options: of `measure_shape`.

    Raises:
        SpdError: a bad option, or not one ride could be measured.
    """
    for report in measure_shape(preset, **options):
        if out is not None:
            write_aside(out, [_json_line(report.to_json()).encode() + b"\n"])
    if not report.rides:
        name, reason = next(iter(report.missing.items()))
        raise SpdError(f"preset {preset!r}: no ride could be measured; {name}: {reason}")
    return report


def _json_line(record: dict[str, Any]) -> str:
    return json.dumps(record, separators=(",", ":"))


def write_run(run: BenchRun) -> Iterator[str]:
    """Lines of tables for people."""
    yield from write_report(run.latency, run.checkpoint)
    if run.capacity is not None:
        yield ""
        yield from write_capacity(run.capacity)
    if run.passes:
        yield ""
        yield from write_passes(run.passes, run.capacity.gemm_tflops if run.capacity else None)
    if run.contests:
        yield ""
        yield from write_contests(run.contests)


def write_report(report: LatencyReport, checkpoint: str) -> Iterator[str]:
    """Lines of a table for people."""
    machine = report.machine
    yield f"slate {report.slate_id}: {report.candidates} candidates, {report.tokens} tokens; checkpoint {checkpoint}"
    yield f"{machine['cpu']}, {machine['threads']} threads, {machine['device']} {machine['dtype']}, torch {machine['torch']}"
    yield "compiled prefill" if "prefill" in machine else "prefill as every command runs it"
    yield f"n = {report.total.n} rides after {report.warmup} to warm up"
    yield f"{'stage':<14}{'median ms':>11}{'p95 ms':>11}{'share':>8}"
    rows: list[tuple[str, Spread]] = [*report.stages.items(), ("total", report.total), ("bare prefill", report.bare_prefill)]
    for name, spread in rows:
        share = spread.median_ms / report.total.median_ms
        yield f"{name:<14}{spread.median_ms:>11.3f}{spread.p95_ms:>11.3f}{share:>8.1%}"
    yield f"total / bare prefill {report.ratio:.3f}; {report.decoder} {report.assignment_share:.2%} of the total"


def write_capacity(room: Capacity) -> Iterator[str]:
    """Lines of a table for people."""
    yield f"matrix product peak {room.gemm_tflops:.2f} TFLOP/s; memory at most {room.peak_memory_mib:.0f} MiB"
    share = f"{room.peak_share:.0%} of the peak"
    yield f"bare prefill {room.prefill_gflop:.0f} GFLOP at {room.prefill_tflops:.2f} TFLOP/s, {share}"
    for rate in room.batches:
        yield f"batch {rate.batch:>3}: {rate.slates_per_s:7.2f} slates/s (median of {rate.time.n})"
    for solver in room.solver:
        name = f"assignment, N = {solver.candidates:>4}, {solver.kind:<12}"
        yield f"{name}{solver.time.median_ms:>11.3f} ms (median of {solver.time.n})"


def command(
    checkpoint: Annotated[str | None, typer.Option(help="Id under sample_data/checkpoints, or a folder.")] = None,
    preset: Annotated[str | None, typer.Option(help=f"Instead of a checkpoint, random weights: {', '.join(SHAPES)}.")] = None,
    slates: Annotated[str, typer.Option(help="File to take the slate from; default: the sample slates.")] = str(
        DEFAULT_SLATES
    ),
    slate_id: Annotated[str | None, typer.Option(help="Which slate; default: the largest that fits.")] = None,
    n: Annotated[int, typer.Option("--n", help="Rides measured.")] = 20,
    warmup: Annotated[int, typer.Option(help="Rides before them that are not counted.")] = 3,
    decoder: DecoderOption = "hungarian",
    teacher: Annotated[str | None, typer.Option(help="Checkpoint of a teacher to race, constrained and free.")] = None,
    size: Annotated[list[int] | None, typer.Option(help="Candidates of a raced slate; may be given often.")] = None,
    turns: Annotated[int, typer.Option(help="Races measured of each size.")] = 5,
    capacity: Annotated[
        bool, typer.Option("--capacity", help="Also matrix product peak, batch throughput, solver times, memory.")
    ] = False,
    compiled: Annotated[
        bool, typer.Option("--compile", help="Rank with the compiled prefill, as the app does once it is ready; CPU only.")
    ] = False,
    backbone: BackboneOption = None,
    device: DeviceOption = "auto",
    dtype: DtypeOption = "auto",
    out: Annotated[str | None, typer.Option(help="File for the JSON line.")] = None,
    as_json: JsonOption = False,
) -> None:
    """Time each stage from tokens to ranking on this machine."""
    if out is not None:
        check_place(out)
    warn_of_other_work()
    if preset is not None and checkpoint is None:
        if compiled or capacity or teacher is not None:
            raise SpdError("--compile, --capacity and --teacher go with --checkpoint; a shape has speed paths of its own")
        shape = bench_shape(preset, out=out, device=device, dtype=dtype, repeats=n, warmup=warmup, turns=turns)
        return _print(shape.to_json(), write_shape_report(shape), as_json)
    if checkpoint is None or preset is not None:
        raise SpdError("give either --checkpoint, an id or folder, or --preset, a shape with random weights")
    run = bench(
        checkpoint,
        slates,
        slate_id=slate_id,
        n=n,
        warmup=warmup,
        decoder=decoder,
        capacity=capacity,
        compiled=compiled,
        teacher=teacher,
        sizes=size or SIZES,
        turns=turns,
        backbone=backbone,
        device=device,
        dtype=dtype,
    )
    if out is not None:
        write_aside(out, [_json_line(run.to_json()).encode() + b"\n"])
    _print(run.to_json(), write_run(run), as_json)


def _print(record: dict[str, Any], lines: Iterable[str], as_json: bool) -> None:
    if not as_json:
        typer.echo("\n".join(lines))
    typer.echo(_json_line(record))
