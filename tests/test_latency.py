"""The stopwatch: what is counted, not how fast it is."""

from collections.abc import Callable

import pytest
import torch

from spd_core.backbone import prefill
from spd_core.errors import SlateError, SpdError
from spd_core.latency import STAGES, Spread, StageClock, measure_latency
from spd_core.model import Student
from spd_core.slate import Slate

MakeSlate = Callable[..., Slate]


def test_a_report_holds_every_stage_with_its_samples(tiny_student: Student, make_slate: MakeSlate) -> None:
    report = measure_latency(tiny_student, make_slate(6), repeats=4, warmup=1)
    assert tuple(report.stages) == STAGES
    assert (report.candidates, report.warmup, report.slate_id, report.decoder) == (6, 1, "s1", "hungarian")
    for spread in (*report.stages.values(), report.total, report.bare_prefill):
        assert spread.n == len(spread.samples_ms) == 4
        assert min(spread.samples_ms) <= spread.median_ms <= spread.p95_ms <= max(spread.samples_ms)
    assert report.assignment_share == report.stages["assignment"].median_ms / report.total.median_ms


def test_stages_of_each_ride_add_up_to_its_total(tiny_student: Student, make_slate: MakeSlate) -> None:
    report = measure_latency(tiny_student, make_slate(6), repeats=3, warmup=0)
    for ride in range(3):
        stages = sum(spread.samples_ms[ride] for spread in report.stages.values())
        assert stages == pytest.approx(report.total.samples_ms[ride])


def test_the_ratio_compares_each_ride_with_the_prefill_beside_it(tiny_student: Student, make_slate: MakeSlate) -> None:
    report = measure_latency(tiny_student, make_slate(6), repeats=3, warmup=0)
    pairs = zip(report.total.samples_ms, report.bare_prefill.samples_ms, strict=True)
    assert report.ratio == sorted(total / alone for total, alone in pairs)[1]


def test_rides_and_bare_prefills_read_the_same_ids_and_take_turns(
    tiny_student: Student, make_slate: MakeSlate, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[torch.Tensor] = []
    riding = []

    def watched(model: torch.nn.Module, batch: object) -> torch.Tensor:
        seen.append(batch.input_ids)  # type: ignore[attr-defined]
        riding.append(None)
        return prefill(model, batch)  # type: ignore[arg-type]

    monkeypatch.setattr("spd_core.model.prefill", watched)
    report = measure_latency(tiny_student, make_slate(6), repeats=2, warmup=1)
    assert len(seen) == 2 * (2 + 1)
    assert all(torch.equal(ids, seen[0]) for ids in seen)
    assert report.tokens == seen[0].numel()


def test_the_machine_is_named(tiny_student: Student, make_slate: MakeSlate) -> None:
    machine = measure_latency(tiny_student, make_slate(2), repeats=1, warmup=0).machine
    assert set(machine) == {"cpu", "cores", "threads", "device", "dtype", "torch"}
    assert (machine["device"], machine["dtype"], machine["torch"]) == ("cpu", "float32", torch.__version__)
    assert machine["cpu"]


def test_percentiles_are_those_of_the_samples() -> None:
    spread = Spread.of([float(value) for value in range(101)])
    assert (spread.median_ms, spread.p95_ms, spread.n) == (50.0, 95.0, 101)


@pytest.mark.parametrize(("repeats", "warmup"), [(0, 1), (1, -1)])
def test_nothing_to_measure_is_refused(tiny_student: Student, make_slate: MakeSlate, repeats: int, warmup: int) -> None:
    with pytest.raises(SpdError, match=f"repeats is {repeats} and warmup is {warmup}; measure at least 1 ride"):
        measure_latency(tiny_student, make_slate(2), repeats=repeats, warmup=warmup)


def test_a_slate_that_cannot_be_ranked_cannot_be_measured(tiny_student: Student, make_slate: MakeSlate) -> None:
    with pytest.raises(SlateError, match=r"has 51 candidates"):
        measure_latency(tiny_student, make_slate(51))


def test_a_clock_names_stages_in_the_order_of_its_marks() -> None:
    clock = StageClock(torch.device("cpu"))
    for stage in ("tokenize", "prefill"):
        clock.mark(stage)
    assert list(clock.read()) == ["tokenize", "prefill", "total"]


@pytest.mark.gpu
def test_events_on_a_gpu_add_up_to_the_wall_clock() -> None:
    clock = StageClock(torch.device("cuda"))
    values = torch.randn(2000, 2000)
    clock.mark("tokenize")
    moved = values.cuda()
    clock.mark("transfer")
    for _ in range(20):
        moved = torch.tanh(moved @ moved)
    clock.mark("prefill")
    moved.cpu()
    clock.mark("copy_back")
    timings = clock.read()
    total = timings.pop("total")
    assert sum(timings.values()) == pytest.approx(total, rel=0.05)
