"""The ride from slates to rankings with a stopwatch at every stage, and the measurement made of many such rides.

Every ranking takes this one path, so what is measured is what is used. It does not dress the result up; `pipeline` does.
"""

from __future__ import annotations

import os
import platform
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from spd_core.decoding import find_decoder
from spd_core.errors import ScoreMatrixError, SlateError, SpdError
from spd_core.model import Student
from spd_core.prompts import build_prompt
from spd_core.slate import Slate
from spd_core.tokenization import EncodedPrompt, SlateBatch, collate_prompts, encode_prompt

DEVICE_STAGES = ("transfer", "prefill", "gather", "head", "copy_back")
STAGES = ("tokenize", *DEVICE_STAGES, "assignment")


class StageClock:
    """Milliseconds between marks; on a GPU the device's stages are timed by CUDA events, so that nothing waits for them."""

    def __init__(self, device: torch.device) -> None:
        self.is_cuda = device.type == "cuda"
        self.marks: list[tuple[str, float, Any]] = []
        self.mark("start")

    def mark(self, stage: str) -> None:
        """End `stage` here and start the next one."""
        event = None
        if self.is_cuda:
            event = torch.cuda.Event(enable_timing=True)
            event.record()
        self.marks.append((stage, time.perf_counter(), event))

    def read(self) -> dict[str, float]:
        """Duration of each stage in ms and their `total`, by the wall clock from first to last mark."""
        if self.is_cuda:
            self.marks[-1][2].synchronize()
        timings: dict[str, float] = {}
        for (_, begin, before), (stage, end, after) in zip(self.marks, self.marks[1:], strict=False):
            on_device = self.is_cuda and stage in DEVICE_STAGES
            timings[stage] = before.elapsed_time(after) if on_device else (end - begin) * 1e3
        timings["total"] = (self.marks[-1][1] - self.marks[0][1]) * 1e3
        return timings


@dataclass(frozen=True, eq=False)
class Ride:
    """What one pass over B prompts gave."""

    batch: SlateBatch
    """On the CPU."""
    scores: NDArray[np.float32]
    """(B, N, K); rows of padding candidates are meaningless."""
    rankings: tuple[NDArray[np.int64], ...]
    """A ranking a slate, unpadded."""
    timings_ms: dict[str, float]
    """Of `STAGES`, for the whole batch, and their total."""


def encode_slate(student: Student, slate: Slate) -> EncodedPrompt:
    """Token ids of a slate's prompt in the student's own wording.

    Raises:
        SlateError: more candidates than the student has positions; the message gives both numbers.
        PromptError: a candidate gives no token.
    """
    count, positions = len(slate.candidates), student.config.positions
    if count > positions:
        raise SlateError(
            f"slate {slate.slate_id!r} has {count} candidates but the student ranks at most {positions} (its K); "
            f"give fewer candidates or a student trained with a larger K"
        )
    return encode_prompt(build_prompt(slate, student.template), student.backbone.tokenizer)


def ride_prompts(student: Student, encoded: Sequence[EncodedPrompt], decoder: str, clock: StageClock) -> Ride:
    """One pass from token ids to rankings: collate, transfer, prefill, gather, head, copy back, assignment.

    Args:
        student: in eval mode.
        encoded: B >= 1 prompts of `encode_slate`.
        decoder: key of `DECODERS`.
        clock: started before the prompts were encoded.

    Raises:
        PromptError: a prompt is longer than the model's context.
        ScoreMatrixError: a score is not finite; the message names slate, item and position.
        SpdError: unknown decoder, or the student is in training mode.
    """
    decode = find_decoder(decoder)
    if student.training:
        raise SpdError("the student is in training mode, where dropout changes its scores; call student.eval() first")
    backbone = student.backbone
    batch = collate_prompts(encoded, pad_id=backbone.tokenizer.pad_token_id, max_tokens=backbone.max_tokens)
    clock.mark("tokenize")
    with torch.inference_mode():
        moved = batch.to(backbone.device)
        clock.mark("transfer")
        hidden = student.prefill(moved)
        clock.mark("prefill")
        states, user = student.gather(hidden, moved)
        clock.mark("gather")
        matrix = student.head(states, moved.head_mask, user)
        clock.mark("head")
        scores = matrix.float().cpu().numpy()
        clock.mark("copy_back")
    rankings = []
    for prompt, rows in zip(encoded, scores, strict=True):
        try:
            rankings.append(decode(rows[: len(prompt.lasts)].astype(np.float64)))
        except ScoreMatrixError as error:
            raise ScoreMatrixError(f"slate {prompt.slate_id!r}: {error}") from error
    clock.mark("assignment")
    return Ride(batch, scores, tuple(rankings), clock.read())


@dataclass(frozen=True)
class Spread:
    """Repeated measurements of one duration."""

    median_ms: float
    p95_ms: float
    n: int
    samples_ms: tuple[float, ...]

    @classmethod
    def of(cls, samples: Sequence[float]) -> Spread:
        """Spread of at least one sample in ms."""
        median, p95 = np.percentile(samples, [50, 95])
        return cls(float(median), float(p95), len(samples), tuple(samples))


@dataclass(frozen=True)
class LatencyReport:
    """How long a ranking takes here, stage by stage, beside the bare prefill of the same token ids."""

    slate_id: str
    candidates: int
    """N."""
    tokens: int
    """T, length of the prompt."""
    warmup: int
    """Rides thrown away first."""
    stages: dict[str, Spread]
    """Of `STAGES`, in order."""
    total: Spread
    """Tokenise to ranking."""
    bare_prefill: Spread
    """The backbone alone on ids that are already on the device, measured in turn with the rides."""
    ratio: float
    """Median over the n rides of total / bare prefill."""
    assignment_share: float
    """Median assignment / median total."""
    decoder: str
    machine: dict[str, str | int]

    def to_json(self) -> dict[str, Any]:
        """JSON object of all fields."""
        return asdict(self)


def measure_latency(
    student: Student, slate: Slate, *, decoder: str = "hungarian", repeats: int = 20, warmup: int = 3
) -> LatencyReport:
    """Time per stage of ranking one slate on this machine.

    Args:
        student: in eval mode.
        slate: ranked again and again.
        decoder: key of `DECODERS`.
        repeats: n >= 1 measured rides; each is paired with a bare prefill, and the two take turns at going first.
        warmup: rides and prefills before that are not counted.

    Raises:
        SpdError: `repeats` < 1 or `warmup` < 0, or the slate cannot be ranked.
    """
    if repeats < 1 or warmup < 0:
        raise SpdError(f"repeats is {repeats} and warmup is {warmup}; measure at least 1 ride after 0 or more")
    rides, bare = [], []
    on_device = collate_prompts([encode_slate(student, slate)], pad_id=0).to(student.backbone.device)
    for turn in range(warmup + repeats):
        if turn % 2:
            bare.append(_bare_prefill_ms(student, on_device))
        rides.append(_ride_one(student, slate, decoder).timings_ms)
        if not turn % 2:
            bare.append(_bare_prefill_ms(student, on_device))
    rides, bare = rides[warmup:], bare[warmup:]
    total = Spread.of([ride["total"] for ride in rides])
    stages = {stage: Spread.of([ride[stage] for ride in rides]) for stage in STAGES}
    return LatencyReport(
        slate_id=slate.slate_id,
        candidates=len(slate.candidates),
        tokens=on_device.token_count,
        warmup=warmup,
        stages=stages,
        total=total,
        bare_prefill=Spread.of(bare),
        ratio=float(np.median([ride["total"] / alone for ride, alone in zip(rides, bare, strict=True)])),
        assignment_share=stages["assignment"].median_ms / total.median_ms,
        decoder=decoder,
        machine=describe_machine(student),
    )


def _ride_one(student: Student, slate: Slate, decoder: str) -> Ride:
    clock = StageClock(student.backbone.device)
    return ride_prompts(student, [encode_slate(student, slate)], decoder, clock)


def _bare_prefill_ms(student: Student, batch: SlateBatch) -> float:
    clock = StageClock(student.backbone.device)
    with torch.inference_mode():
        student.prefill(batch)
    clock.mark("prefill")
    return clock.read()["prefill"]


def describe_machine(student: Student) -> dict[str, str | int]:
    """What the student runs on: CPU, cores, threads, device, dtype, PyTorch version; ``prefill`` where that is compiled."""
    told = describe_host(student.backbone.device) | {"dtype": str(student.backbone.dtype).removeprefix("torch.")}
    return told | ({} if student.quick is None else {"prefill": "compiled"})


def describe_host(device: torch.device) -> dict[str, str | int]:
    """CPU, cores, threads, the name of the device, PyTorch version."""
    name = torch.cuda.get_device_name(device) if device.type == "cuda" else "cpu"
    cores, threads = os.cpu_count() or 1, torch.get_num_threads()
    return {"cpu": _cpu_name(), "cores": cores, "threads": threads, "device": name, "torch": torch.__version__}


def _cpu_name() -> str:
    listing = Path("/proc/cpuinfo")
    lines = listing.read_text("utf-8", "replace").splitlines() if listing.is_file() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()
