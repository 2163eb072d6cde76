"""A made-up result of `bench`: nothing in it was ever measured."""

from __future__ import annotations

from typing import Any

from spd_core.capacity import MATRIX_KINDS
from spd_core.latency import STAGES

HOSTILE = "$5 :red[x] ![i](http://x/y.png)"


def spread(median: float, n: int = 4) -> dict[str, Any]:
    """n samples of one value, with a p95 above it."""
    return {"median_ms": median, "p95_ms": median * 1.5, "n": n, "samples_ms": [median] * n}


def cost(mode: str, ratio: float, **more: Any) -> dict[str, Any]:
    """A teacher that took `ratio` times the student's 100 ms."""
    times = {"total": spread(100 * ratio, n=3), "speed_up": ratio, "token_ms": 50.0}
    return {"teacher": HOSTILE, "mode": mode, "tokens": 29, "passes": 11, "kind": "ok"} | times | more


def contest(count: int, *costs: dict[str, Any]) -> dict[str, Any]:
    """A race of these costs over N candidates."""
    return {
        "slate_id": "s1",
        "candidates": count,
        "prompt_tokens": 20 * count,
        "student": spread(100, n=3),
        "teachers": list(costs),
    }


def stored(**changes: Any) -> dict[str, Any]:
    """A whole record."""
    solver = [
        {"kind": kind, "candidates": size, "time": spread(size * factor, n=5)}
        for size in (10, 100)
        for kind, factor in zip(MATRIX_KINDS, (0.001, 0.01), strict=True)
    ]
    rates = [{"batch": b, "slates_per_s": rate, "time": spread(b / rate * 1e3, n=3)} for b, rate in ((1, 8.0), (4, 12.0))]
    record = {
        "kind": "bench",
        "version": 1,
        "date": "2000-01-01",
        "commit": "abc1234",
        "checkpoint": "tiny-spd",
        "file": "made-up.jsonl",
        "slate_id": HOSTILE,
        "candidates": 12,
        "tokens": 240,
        "warmup": 1,
        "stages": {stage: spread(10.0) for stage in STAGES},
        "total": spread(100.0),
        "bare_prefill": spread(80.0),
        "ratio": 1.25,
        "assignment_share": 0.1,
        "decoder": "hungarian",
        "machine": {
            "cpu": "Made-up CPU", "cores": 2, "threads": 2, "device": "cpu", "torch": "2.13.0", "dtype": "float32",
        },
        "capacity": {
            "gemm_tflops": 0.2, "prefill_gflop": 8.0, "prefill_tflops": 0.1, "batches": rates, "solver": solver,
            "peak_memory_mib": 1234.5, "peak_share": 0.5,
        },
        "passes": [
            {
                "name": name, "candidates": tokens // 20, "tokens": tokens, "time": spread(tokens / gain, n=5), "gain": gain,
                "tflops": 0.05 * gain, "difference": 0.01,
            }
            for tokens in (100, 240) for name, gain in (("fused attention", 1.0), ("compiled", 1.5 if tokens > 100 else 1.25))
        ],
        "contests": [
            contest(12, cost("constrained", 20.0), cost("free", 40.0, kind="repetition")),
            contest(5, cost("constrained", 8.0), cost("free", 0.5, token_ms=None)),
        ],
    }  # fmt: skip
    return record | changes


def older() -> dict[str, Any]:
    """What the first version wrote."""
    later = ("kind", "version", "date", "commit", "checkpoint", "file", "capacity", "contests", "passes")
    return {key: value for key, value in stored().items() if key not in later}
