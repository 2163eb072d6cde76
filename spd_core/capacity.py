"""What the machine can do and how much of it a ranking uses: matrix product peak, batch throughput, solver times, memory.

Like `latency`, it measures here and now; nothing is taken from a data sheet.
"""

from __future__ import annotations

import resource
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from spd_core.backbone import Backbone
from spd_core.decoding.hungarian import hungarian
from spd_core.errors import SpdError
from spd_core.latency import Spread, StageClock, encode_slate, ride_prompts
from spd_core.model import Student
from spd_core.slate import Slate

GEMM_SIZES = (1024, 2048, 4096)
BATCH_SIZES = (1, 2, 4, 8, 16, 32)
SOLVER_SIZES = (10, 20, 50, 100, 200, 500, 1000, 2000)
MATRIX_KINDS: dict[str, str] = {
    "random": "independent normal scores",
    "near rank 1": "u v^T plus 1 % noise: what trained heads come close to, and the solver's slow case",
}


@dataclass(frozen=True)
class SolverTime:
    """How long the exact assignment takes on one kind of matrix."""

    kind: str
    """Key of `MATRIX_KINDS`."""
    candidates: int
    """N = K."""
    time: Spread


@dataclass(frozen=True)
class BatchRate:
    """Slates a second when B of them share a pass."""

    batch: int
    """B."""
    slates_per_s: float
    """From the median time of a pass, tokenisation and assignment included."""
    time: Spread
    """Of a whole pass."""


@dataclass(frozen=True)
class Capacity:
    """All of it for one student on one slate."""

    gemm_tflops: float
    """Best of square matrix products in the student's dtype."""
    prefill_gflop: float
    """Of the slate's prompt: 2 x weights x tokens of the linear layers, and causal attention."""
    prefill_tflops: float
    """Reached by the bare prefill."""
    batches: tuple[BatchRate, ...]
    solver: tuple[SolverTime, ...]
    peak_memory_mib: float
    """Of the process so far; on a GPU that of the device's allocator."""

    @property
    def peak_share(self) -> float:
        """Share of the matrix product peak that the bare prefill reaches."""
        return self.prefill_tflops / self.gemm_tflops

    def to_json(self) -> dict[str, Any]:
        """JSON object of all fields and `peak_share`."""
        return asdict(self) | {"peak_share": self.peak_share}


def repeated_ms(run: Callable[[], object], repeats: int, device: torch.device) -> list[float]:
    """Milliseconds of each of `repeats` calls after one that is not counted; waits for the device."""
    times = []
    for _ in range(repeats + 1):
        start = time.perf_counter()
        run()
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        times.append((time.perf_counter() - start) * 1e3)
    return times[1:]


@torch.inference_mode()
def gemm_peak_tflops(
    device: torch.device, dtype: torch.dtype, *, sizes: Sequence[int] = GEMM_SIZES, repeats: int = 8
) -> float:
    """Most TFLOP/s of a square matrix product, the best of all sizes and repeats."""
    best = 0.0
    for size in sizes:
        left, right = (torch.randn(size, size, device=device).to(dtype) for _ in range(2))
        fastest = min(repeated_ms(lambda a=left, b=right: a @ b, repeats, device))  # type: ignore[misc]
        best = max(best, 2 * size**3 / fastest / 1e9)
    return best


def prefill_gflop(backbone: Backbone, tokens: int) -> float:
    """Floating point work of one prefill, in GFLOP; adapters that are merged cost nothing more.

    Args:
        backbone: of any depth.
        tokens: T.

    Returns:
        (2 T sum of in x out over linear layers + 2 T^2 width x layers) / 1e9: scores and mix of causal attention are
        T^2 x width each, half of the full square. Norms, rotary and activations are left out.
    """
    config: Any = backbone.model.config
    linear = sum(layer.in_features * layer.out_features for layer in backbone.model.modules() if isinstance(layer, nn.Linear))
    width = config.num_attention_heads * (
        getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    )
    return (2 * tokens * linear + 2 * tokens**2 * width * backbone.depth) / 1e9


def batch_rates(
    student: Student, slate: Slate, *, sizes: Sequence[int] = BATCH_SIZES, repeats: int = 3, decoder: str = "hungarian"
) -> Iterator[BatchRate]:
    """Throughput at each batch size, all slates of one length: what padding would cost is left out.

    Raises:
        SpdError: a size below 1, or a slate that cannot be ranked.
    """
    for size in sizes:
        if size < 1:
            raise SpdError(f"batch size is {size}; it must be at least 1")

        def one_pass(size: int = size) -> None:
            clock = StageClock(student.backbone.device)
            ride_prompts(student, [encode_slate(student, slate) for _ in range(size)], decoder, clock)

        spread = Spread.of(repeated_ms(one_pass, repeats, student.backbone.device))
        yield BatchRate(size, size / spread.median_ms * 1e3, spread)


def solver_times(*, sizes: Sequence[int] = SOLVER_SIZES, repeats: int = 5, seed: int = 0) -> Iterator[SolverTime]:
    """Time of the Hungarian decoder on N x N matrices of each kind, a new matrix each time."""
    rng = np.random.default_rng(seed)
    for size in sizes:
        for kind in MATRIX_KINDS:
            times = []
            for _ in range(repeats):
                matrix = draw_matrix(kind, size, rng)
                start = time.perf_counter()
                hungarian(matrix)
                times.append((time.perf_counter() - start) * 1e3)
            yield SolverTime(kind, size, Spread.of(times))


def draw_matrix(kind: str, size: int, rng: np.random.Generator) -> NDArray[np.float64]:
    """(N, N) matrix of a kind.

    Args:
        kind: key of `MATRIX_KINDS`.
        size: N.
        rng: where its numbers come from.
    """
    noise = rng.normal(size=(size, size))
    if kind == "random":
        return noise
    outer = np.outer(rng.normal(size=size), np.linspace(1, -1, size))
    return np.asarray(outer + 0.01 * noise)


def peak_memory_mib(device: torch.device) -> float:
    """Most memory held so far, in MiB: by PyTorch on a GPU, else resident by the process."""
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device) / 2**20
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / (2**20 if sys.platform == "darwin" else 2**10)


def measure_capacity(student: Student, slate: Slate, *, prefill_ms: float, tokens: int, repeats: int = 3) -> Capacity:
    """All measurements of this module.

    Args:
        student: in eval mode.
        slate: of the batches.
        prefill_ms: median of the bare prefill of its prompt, from the same run.
        tokens: T of that prompt.
        repeats: of each batch size.
    """
    backbone = student.backbone
    work = prefill_gflop(backbone, tokens)
    return Capacity(
        gemm_tflops=gemm_peak_tflops(backbone.device, backbone.dtype),
        prefill_gflop=work,
        prefill_tflops=work / prefill_ms,
        batches=tuple(batch_rates(student, slate, repeats=repeats)),
        solver=tuple(solver_times()),
        peak_memory_mib=peak_memory_mib(backbone.device),
    )
