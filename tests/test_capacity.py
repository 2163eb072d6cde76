"""What the machine can do: counts that one can check by hand, times that are all there."""

from __future__ import annotations

import json
from collections.abc import Callable

import numpy as np
import pytest
import torch

from spd_core.backbone import Backbone
from spd_core.capacity import (
    MATRIX_KINDS,
    batch_rates,
    draw_matrix,
    gemm_peak_tflops,
    measure_capacity,
    peak_memory_mib,
    prefill_gflop,
    repeated_ms,
    solver_times,
)
from spd_core.errors import SpdError
from spd_core.model import Student
from spd_core.slate import Slate

MakeSlate = Callable[..., Slate]
CPU = torch.device("cpu")


def test_the_work_of_a_prefill_is_counted_by_hand(tiny_backbone: Backbone) -> None:
    # Per layer: q and o 64 x 64, k and v 64 x 32 (2 of 4 heads), gate, up and down 64 x 128; 2 layers of width 64.
    weights = 2 * (2 * 64 * 64 + 2 * 64 * 32 + 3 * 64 * 128)
    assert prefill_gflop(tiny_backbone, 10) == pytest.approx((2 * 10 * weights + 2 * 10**2 * 64 * 2) / 1e9)


def test_the_first_call_is_not_counted() -> None:
    calls = []
    assert len(repeated_ms(lambda: calls.append(1), 4, CPU)) == 4
    assert len(calls) == 5


def test_the_peak_is_found_among_sizes() -> None:
    assert gemm_peak_tflops(CPU, torch.float32, sizes=(8, 64), repeats=2) > 0


@pytest.mark.parametrize("kind", MATRIX_KINDS)
def test_matrices_have_the_rank_they_are_named_after(kind: str) -> None:
    values = np.linalg.svd(draw_matrix(kind, 40, np.random.default_rng(0)), compute_uv=False)
    first = values[0] ** 2 / np.sum(values**2)
    assert (first > 0.99) == (kind == "near rank 1")


def test_every_size_and_kind_is_solved() -> None:
    times = list(solver_times(sizes=(3, 5), repeats=2))
    assert [(time.candidates, time.kind, time.time.n) for time in times] == [
        (n, kind, 2) for n in (3, 5) for kind in MATRIX_KINDS
    ]


def test_rates_are_slates_by_seconds(tiny_student: Student, make_slate: MakeSlate) -> None:
    (rate,) = batch_rates(tiny_student, make_slate(4), sizes=(3,), repeats=2)
    assert rate.slates_per_s == pytest.approx(3000 / rate.time.median_ms)
    with pytest.raises(SpdError, match="batch size is 0; it must be at least 1"):
        next(batch_rates(tiny_student, make_slate(4), sizes=(0,)))


def test_the_share_of_the_peak_is_a_ratio_of_two_measurements(
    tiny_student: Student, make_slate: MakeSlate, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("spd_core.capacity.gemm_peak_tflops", lambda device, dtype: 2.0)
    monkeypatch.setattr("spd_core.capacity.solver_times", lambda: iter(()))
    monkeypatch.setattr("spd_core.capacity.batch_rates", lambda *args, **options: iter(()))
    room = measure_capacity(tiny_student, make_slate(4), prefill_ms=4.0, tokens=10)
    assert room.peak_share == pytest.approx(prefill_gflop(tiny_student.backbone, 10) / 4.0 / 2.0)
    assert json.loads(json.dumps(room.to_json()))["peak_share"] == room.peak_share


def test_memory_is_that_of_this_process() -> None:
    assert 50 < peak_memory_mib(CPU) < 1_000_000
