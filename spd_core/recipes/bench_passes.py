"""The same prefill run in several ways, in turn, on prompts of several sizes: what fusing and compiling are worth here."""

from __future__ import annotations

import copy
import logging
import statistics
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import Tensor

from spd_core.backbone import base_states
from spd_core.capacity import prefill_gflop
from spd_core.errors import BackboneError, SpdError
from spd_core.fused_llama import FusedLlama
from spd_core.latency import Spread, StageClock, encode_slate
from spd_core.model import Student
from spd_core.quick_pass import compiled_pass, relative_difference
from spd_core.slate import Slate

logger = logging.getLogger(__name__)

OWN = "fused attention"
"""How every command runs a student; the others are compared with it."""
PASS_TITLES = {
    "written out": "attention in single operations, as papers write it",
    OWN: "Hugging Face model with fused attention: how every command runs it",
    "joined": "joined projections, not compiled",
    "compiled": "joined projections, each layer compiled for any length: what the app takes once it is ready",
}
Run = Callable[[Tensor], Tensor]


@dataclass(frozen=True)
class PassTime:
    """How long one way of running the prefill takes on one prompt."""

    name: str
    """Key of `PASS_TITLES`."""
    candidates: int
    """N."""
    tokens: int
    """T."""
    time: Spread
    gain: float
    """Median over the turns of the time of `OWN` over its time."""
    tflops: float
    """Reached in the median: linear layers and causal attention."""
    difference: float
    """|difference| / |states| to those of `OWN`, Frobenius norms."""

    def to_json(self) -> dict[str, Any]:
        """JSON object of all fields."""
        return asdict(self)


def measure_passes(student: Student, slates: Sequence[Slate], *, repeats: int, warmup: int = 2) -> tuple[PassTime, ...]:
    """Times of each way of running a student's prefill, in turn, on the prompt of each slate.

    Args:
        student: on the CPU, adapters merged.
        slates: each ranked alone.
        repeats: n >= 1 measured passes of each way and slate.
        warmup: turns before that are not counted.

    Raises:
        SpdError: `repeats` < 1 or `warmup` < 0, or a student that is not on the CPU.
    """
    if repeats < 1 or warmup < 0:
        raise SpdError(f"repeats is {repeats} and warmup is {warmup}; measure at least 1 pass after 0 or more")
    ways = dict(ways_of(student))
    return tuple(row for slate in slates for row in _measure_slate(student, ways, slate, repeats, warmup))


def ways_of(student: Student) -> Iterator[tuple[str, Run]]:
    """Every way that can run here, by the keys of `PASS_TITLES`; why another one cannot goes to the log.

    Raises:
        BackboneError: the student is not on the CPU.
    """
    if student.backbone.device.type != "cpu":
        raise BackboneError(f"the student is on {student.backbone.device}; ways of running are compared on the CPU")
    written_out: Any = copy.deepcopy(student.model)
    written_out.set_attn_implementation("eager")
    yield "written out", lambda ids: base_states(written_out, ids)
    yield OWN, lambda ids: base_states(student.model, ids)
    try:
        yield "joined", FusedLlama(student.model).eval()
        yield "compiled", student.quick or compiled_pass(student)
    except BackboneError as error:
        logger.warning("%s", error)


@torch.inference_mode()
def _measure_slate(student: Student, ways: dict[str, Run], slate: Slate, repeats: int, warmup: int) -> Iterator[PassTime]:
    ids = torch.tensor([encode_slate(student, slate).input_ids])
    own = ways[OWN](ids)
    differences = {name: relative_difference(run(ids), own) for name, run in ways.items()}
    times: dict[str, list[float]] = {name: [] for name in ways}
    names = list(ways)
    for turn in range(warmup + repeats):
        for name in names if turn % 2 else reversed(names):
            clock = StageClock(student.backbone.device)
            ways[name](ids)
            clock.mark("prefill")
            if turn >= warmup:
                times[name].append(clock.read()["prefill"])
    work = prefill_gflop(student.backbone, ids.shape[1])
    for name in names:
        gain = statistics.median(one / other for one, other in zip(times[OWN], times[name], strict=True))
        spread = Spread.of(times[name])
        sizes = len(slate.candidates), ids.shape[1]
        yield PassTime(name, *sizes, spread, gain, work / spread.median_ms, differences[name])


def write_passes(passes: Sequence[PassTime], peak_tflops: float | None) -> Iterator[str]:
    """Lines of a table for people; shares of the matrix product peak where that is known."""
    share = "  of peak" if peak_tflops else ""
    yield f"{'prefill':<18}{'N':>5}{'tokens':>8}{'median ms':>11}{'p95 ms':>10}{'gain':>7}{share}{'difference':>12}"
    for row in passes:
        reached = f"{row.tflops / peak_tflops:>9.0%}" if peak_tflops else ""
        yield (
            f"{row.name:<18}{row.candidates:>5}{row.tokens:>8}{row.time.median_ms:>11.1f}{row.time.p95_ms:>10.1f}"
            f"{row.gain:>7.2f}{reached}{row.difference:>12.2g}"
        )
    yield f"gain: times as fast as {OWN!r}, median of {passes[0].time.n} turns"
