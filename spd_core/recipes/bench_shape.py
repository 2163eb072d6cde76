"""`bench --preset`: a published architecture with random weights, measured on the machine at hand within minutes.

The student on each speed path, the bare prefill, and writing the same ranking token by token, all in one run and at each
batch size. It needs no network, no checkpoint and no tokenizer file. What cannot be measured here is named with its reason.
"""

from __future__ import annotations

import datetime
import logging
import platform
import re
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from importlib.metadata import version
from pathlib import Path

import numpy as np
import torch

from spd_core.backbone import prefill
from spd_core.capacity import GEMM_SIZES, gemm_peak_tflops, peak_memory_mib, prefill_gflop
from spd_core.errors import SpdError
from spd_core.latency import STAGES, Ride, Spread, StageClock, describe_machine, encode_slate, ride_prompts
from spd_core.model import Student
from spd_core.recipes.bench_writing import measure_writing
from spd_core.recipes.shape_report import RideCost, ShapeReport, WritingCost
from spd_core.recipes.shapes import RandomModel, build_random_model, draw_slates, find_shape
from spd_core.slate import Slate
from spd_core.speed_paths import on_path, paths_on
from spd_core.tokenization import SlateBatch, collate_prompts
from spd_core.training.examples import select_candidates

logger = logging.getLogger(__name__)

BATCH_REPEATS = 10
"""Most rides measured of a batch of more than one slate."""
BATCH_TURNS = 2
"""Most answers measured of such a batch."""
BUDGET_S = 210.0
"""After which no further measurement is begun, so that a run ends within five minutes."""
DRIVER_FILE = Path("/proc/driver/nvidia/version")
FAILURES = (RuntimeError, OSError, ImportError, subprocess.SubprocessError, SpdError)
"""What a device, a compiler or a kernel that is not there raises; one measurement less, the others go on."""


def measure_shape(
    preset: str,
    *,
    device: str = "auto",
    dtype: str = "auto",
    repeats: int = 20,
    warmup: int = 3,
    turns: int = 3,
    budget_s: float = BUDGET_S,
) -> Iterator[ShapeReport]:
    """The report after each measurement, so that a run that is cut off still has one; the last is the whole.

    Args:
        preset: key of `SHAPES`.
        device, dtype: as everywhere.
        repeats: n >= 1 rides of one slate; of a batch at most `BATCH_REPEATS`.
        warmup: rides before them that are not counted.
        turns: answers written of one slate, >= 1; of a batch at most `BATCH_TURNS`.
        budget_s: seconds after which no measurement is begun.

    Raises:
        SpdError: a bad option.
    """
    if repeats < 1 or warmup < 0 or turns < 1:
        raise SpdError(f"repeats is {repeats}, warmup {warmup} and turns {turns}; measure at least 1 after 0 or more")
    shape, start = find_shape(preset), time.perf_counter()
    model = build_random_model(shape, device=device, dtype=dtype)
    report = _empty_report(model, warmup)
    for name, measure in _measurements(model, repeats=repeats, warmup=warmup, turns=turns):
        spent = time.perf_counter() - start
        if spent > budget_s:
            report = _without(report, name, f"not begun, as {spent:.0f} s of {budget_s:.0f} s were used")
        else:
            try:
                report = _with(report, measure())
            except FAILURES as error:
                report = _without(report, name, f"{type(error).__name__}: {str(error).strip().partition(chr(10))[0]}")
        spent = time.perf_counter() - start
        logger.info("%4.0f s  %s%s", spent, name, ": not measured" if name in report.missing else "")
        yield replace(report, seconds=spent, peak_memory_mib=peak_memory_mib(model.backbone.device))


def _with(report: ShapeReport, cost: RideCost | WritingCost) -> ShapeReport:
    if isinstance(cost, RideCost):
        return replace(report, rides=(*report.rides, cost))
    return replace(report, writing=(*report.writing, cost))


def _without(report: ShapeReport, name: str, reason: str) -> ShapeReport:
    return replace(report, missing={**report.missing, name: reason})


def _measurements(
    model: RandomModel, *, repeats: int, warmup: int, turns: int
) -> Iterator[tuple[str, Callable[[], RideCost | WritingCost]]]:
    """Name and function of each measurement; what needs a compiler, and what takes longest on a GPU, comes last."""
    student, device = model.student(), model.backbone.device
    slates = draw_slates(model.shape, max(model.shape.batches))

    def ride(path: str, batch: int) -> tuple[str, Callable[[], RideCost]]:
        n = repeats if batch == 1 else min(repeats, BATCH_REPEATS)
        return f"{path}, batch {batch}", partial(measure_rides, student, path, slates[:batch], repeats=n, warmup=warmup)

    def write(way: str, batch: int) -> tuple[str, Callable[[], WritingCost]]:
        n = turns if batch == 1 else min(turns, BATCH_TURNS)
        return f"{way}, batch {batch}", partial(measure_writing, model, way, slates[:batch], repeats=n)

    paths, batches = paths_on(device), model.shape.batches
    for path in paths:
        if path != "compiled":
            yield from (ride(path, batch) for batch in batches)
    for way in ("constrained", "free", "generate"):
        yield from (write(way, batch) for batch in batches if way != "constrained" or batch == 1)
    if "compiled" in paths:
        yield from (ride("compiled", batch) for batch in batches)
    yield write("generate static", 1)
    yield from (write("constrained", batch) for batch in batches if batch > 1)


def measure_rides(student: Student, path: str, slates: Sequence[Slate], *, repeats: int, warmup: int) -> RideCost:
    """Time per stage of ranking the slates in one pass on a path, rides and bare prefills in turn.

    Args:
        student: in eval mode; the path's scores are held against its own.
        path: key of `PATHS`.
        slates: B of them.
        repeats: n >= 1 rides measured.
        warmup: rides before them that are not counted.

    Raises:
        SpdError: a slate cannot be ranked, or the path cannot be taken.
    """
    runner = on_path(student, path)
    encoded = [encode_slate(student, slate) for slate in slates]
    on_device = collate_prompts(encoded, pad_id=student.backbone.tokenizer.pad_token_id).to(student.backbone.device)
    rides, bare = [], []
    for turn in range(warmup + repeats):
        if turn % 2:
            bare.append(_bare_prefill_ms(runner, on_device))
        rides.append(_ride(runner, slates))
        if not turn % 2:
            bare.append(_bare_prefill_ms(runner, on_device))
    times, bare = [ride.timings_ms for ride in rides[warmup:]], bare[warmup:]
    _ride(runner, [select_candidates(slate, range(len(slate.candidates))[::-1]) for slate in slates])
    scores, expected = (_ride(one, slates).scores for one in (runner, student))  # after others: nothing may linger
    return RideCost(
        path=path,
        batch=len(slates),
        tokens=max(len(prompt.input_ids) for prompt in encoded),
        stages={stage: Spread.of([ride[stage] for ride in times]) for stage in STAGES},
        total=Spread.of([ride["total"] for ride in times]),
        bare_prefill=Spread.of(bare),
        ratio=float(np.median([ride["total"] / alone for ride, alone in zip(times, bare, strict=True)])),
        score_gap=float(np.abs(scores - expected).max() / expected.std()),
    )


def _ride(student: Student, slates: Sequence[Slate]) -> Ride:
    clock = StageClock(student.backbone.device)
    return ride_prompts(student, [encode_slate(student, slate) for slate in slates], "hungarian", clock)


def _bare_prefill_ms(student: Student, batch: SlateBatch) -> float:
    clock = StageClock(student.backbone.device)
    with torch.inference_mode():
        prefill(student.model, batch)
    clock.mark("prefill")
    return clock.read()["prefill"]


def _empty_report(model: RandomModel, warmup: int) -> ShapeReport:
    shape, backbone, student = model.shape, model.backbone, model.student()
    tokens = len(encode_slate(student, draw_slates(shape, 1)[0]).input_ids)
    sizes = (*GEMM_SIZES, 8192) if backbone.device.type == "cuda" else (256,)
    return ShapeReport(
        preset=shape.name,
        source=shape.source,
        candidates=shape.candidates,
        parameters=sum(weight.numel() for weight in model.language_model.parameters()),
        gemm_tflops=gemm_peak_tflops(backbone.device, backbone.dtype, sizes=sizes),
        prefill_gflop=prefill_gflop(backbone, tokens),
        warmup=warmup,
        machine=describe_machine(student) | software_facts(),
        date=datetime.date.today().isoformat(),
    )


def software_facts() -> dict[str, str | int]:
    """What times depend on beside the machine: versions of Python, transformers, CUDA and the GPU's driver."""
    facts: dict[str, str | int] = {"python": platform.python_version(), "transformers": version("transformers")}
    if torch.version.cuda:
        facts["cuda"] = torch.version.cuda
    found = re.search(r"\b\d+\.\d+(\.\d+)?\b", DRIVER_FILE.read_text("utf-8")) if DRIVER_FILE.is_file() else None
    return facts | ({"driver": found[0]} if found else {})
