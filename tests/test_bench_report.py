"""Stored measurements: what `bench` writes is read back, models are loaded once, what contradicts itself is refused."""

from __future__ import annotations

import copy
import json
import math
import re
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from stored_measurement import cost, older, spread, stored

from spd_core import __main__ as command_line
from spd_core.capacity import BatchRate, Capacity, SolverTime
from spd_core.datasets import write_jsonl
from spd_core.errors import SpdError
from spd_core.fused_llama import FusedLlama
from spd_core.latency import STAGES, Spread
from spd_core.model import Student
from spd_core.recipes import bench_passes, bench_run, provenance
from spd_core.recipes.bench_report import BenchReport, read_bench, read_if_bench
from spd_core.slate import Slate

MakeSlate = Callable[..., Slate]
RESULTS = Path(__file__).resolve().parent.parent / "sample_data" / "results"


def written(folder: Path, record: Any, name: str = "bench-a.json") -> Path:
    path = folder / name
    path.write_text(json.dumps(record), "utf-8")
    return path


# --- the command


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch, app_home: Path, app_checkpoints: Path, tiny_teacher_dir: Path) -> None:
    """A machine with a tiny student and a tiny teacher, whose capacity is measured in no time."""

    def room(student: object, slate: object, *, prefill_ms: float, tokens: int) -> Capacity:
        time = Spread.of([2.0])
        return Capacity(2.0, tokens * 1.0, 1.0, (BatchRate(1, 500.0, time),), (SolverTime("random", 3, time),), 99.0)

    monkeypatch.setenv("SPD_HOME", str(app_home))
    monkeypatch.setenv("SPD_CHECKPOINTS", f"{app_checkpoints}:{tiny_teacher_dir.parent}")
    monkeypatch.setattr(bench_run, "measure_capacity", room)
    monkeypatch.setattr(bench_passes, "compiled_pass", lambda student: FusedLlama(student.model).forward)


def test_one_command_writes_what_the_reader_gives_back_and_loads_each_model_once(
    machine: None, monkeypatch: pytest.MonkeyPatch, make_slate: MakeSlate, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    loads = []

    def counted(name: str) -> None:
        load = getattr(bench_run, name)
        monkeypatch.setattr(bench_run, name, lambda *args, **options: loads.append(name) or load(*args, **options))

    for name in ("load_student", "read_slates", "load_teacher"):
        counted(name)
    monkeypatch.setattr(provenance, "source_commit", lambda: "abc1234+")
    write_jsonl(tmp_path / "in.jsonl", [make_slate(6)])
    out = tmp_path / "bench-tiny.json"
    files = [
        "--slates",
        str(tmp_path / "in.jsonl"),
        "--out",
        str(out),
        "--checkpoint",
        "tiny-spd",
        "--teacher",
        "tiny-teacher",
    ]
    small = ["--n", "2", "--warmup", "0", "--turns", "1", "--size", "3", "--size", "6", "--capacity", "--device", "cpu"]
    assert command_line.main(["bench", *files, *small]) == 0
    assert loads == ["load_student", "read_slates", "load_teacher"]

    printed = capsys.readouterr().out.splitlines()
    record = json.loads(out.read_bytes())
    assert json.loads(printed[-1]) == record
    assert {line.split()[0] for line in printed if line} >= {"slate", "matrix", "batch", "N"}
    report = read_bench(out)
    assert (report.date, report.commit) == (datetime.now(UTC).date().isoformat(), "abc1234+")
    assert (report.checkpoint, report.file, report.slate_id, report.candidates) == ("tiny-spd", "in.jsonl", "s1", 6)
    assert report.latency().to_json() == {key: record[key] for key in report.latency().to_json()} | {
        key: _tuples(record[key]) for key in ("stages", "total", "bare_prefill")
    }
    assert [contest.candidates for contest in report.contests] == [3, 6]
    assert report.capacity is not None
    assert report.capacity.peak_share == record["capacity"]["peak_share"] == 0.5
    assert [(row.name, row.candidates) for row in report.passes] == [
        (name, size) for size in (3, 6) for name in bench_passes.PASS_TITLES
    ]
    assert all(row.time.n == 2 and row.difference < 0.05 for row in report.passes)
    assert sum(line.startswith("compiled ") for line in printed) == 2


def _tuples(value: Any) -> Any:
    """The same with tuples for lists."""
    if isinstance(value, dict):
        return {key: _tuples(entry) for key, entry in value.items()}
    return tuple(value) if isinstance(value, list) else value


def test_a_part_that_was_not_asked_for_is_not_in_the_record(machine: None, make_slate: MakeSlate, tmp_path: Path) -> None:
    write_jsonl(tmp_path / "in.jsonl", [make_slate(3)])
    run = bench_run.bench("tiny-spd", tmp_path / "in.jsonl", n=1, warmup=0, device="cpu")
    assert not {"capacity", "contests", "passes"} & set(run.to_json())
    assert read_bench(written(tmp_path, run.to_json())).contests == ()


def test_a_compiled_student_is_measured_as_one_and_says_so(
    machine: None, monkeypatch: pytest.MonkeyPatch, make_slate: MakeSlate, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def made_quick(student: Student) -> None:
        student.quick = FusedLlama(student.model).forward

    monkeypatch.setattr(bench_run, "quicken", made_quick)
    write_jsonl(tmp_path / "in.jsonl", [make_slate(3)])
    words = ["bench", "--checkpoint", "tiny-spd", "--slates", str(tmp_path / "in.jsonl"), "--n", "1", "--device", "cpu"]
    for options, line in (([], "prefill as every command runs it"), (["--compile"], "compiled prefill")):
        assert command_line.main([*words, *options, "--out", str(tmp_path / "bench-a.json")]) == 0
        assert line in capsys.readouterr().out.splitlines()
        assert read_bench(tmp_path / "bench-a.json").machine.prefill == ("compiled" if options else None)


def test_a_size_that_cannot_be_raced_is_refused_before_anything_is_measured(
    machine: None, monkeypatch: pytest.MonkeyPatch, make_slate: MakeSlate, tmp_path: Path
) -> None:
    monkeypatch.delattr(bench_run, "measure_latency")
    write_jsonl(tmp_path / "in.jsonl", [make_slate(3)])
    with pytest.raises(SpdError, match="size 4 was asked for but slate 's1' has 1 to 3 candidates to give"):
        bench_run.bench("tiny-spd", tmp_path / "in.jsonl", teacher="tiny-teacher", sizes=[4], device="cpu")


# --- the reader


def test_a_record_of_the_first_version_is_read_with_what_it_has(tmp_path: Path) -> None:
    report = read_if_bench(written(tmp_path, older(), "any.json"))
    assert report is not None
    assert (report.date, report.checkpoint, report.capacity, report.contests, report.passes) == (None, None, None, (), ())
    assert report.latency().machine["threads"] == 2


@pytest.mark.parametrize("path", sorted(RESULTS.glob("*.json")), ids=lambda path: path.name)
def test_shipped_results_of_other_commands_are_passed_over_and_those_of_bench_are_read(path: Path) -> None:
    assert (read_if_bench(path) is not None) == path.name.startswith("bench")


def test_stages_come_in_the_order_of_a_ranking_whatever_that_of_the_file(tmp_path: Path) -> None:
    turned = dict(reversed(stored()["stages"].items()))
    assert tuple(read_bench(written(tmp_path, stored(stages=turned))).latency().stages) == STAGES


@pytest.mark.parametrize("content", ["[1]", "3", "{", '{"kind": "diagnose"}', '{"stages": {}}', "[" * 100_000, ""])
def test_a_foreign_file_is_passed_over_under_any_other_name(content: str, tmp_path: Path) -> None:
    path = tmp_path / "other.json"
    path.write_text(content, "utf-8")
    assert read_if_bench(path) is None
    path = path.rename(tmp_path / "bench-other.json")
    with pytest.raises(SpdError, match=r"^bench-other\.json: .*; make it again with `python -m spd_core bench`$"):
        read_if_bench(path)


def test_a_result_of_random_weights_is_no_result_of_a_student(tmp_path: Path) -> None:
    assert read_if_bench(written(tmp_path, {"preset": "qwen3-0.6b-shape", "rides": [], "machine": {}})) is None


def test_a_file_that_is_gone_is_named(tmp_path: Path) -> None:
    with pytest.raises(SpdError, match=r"bench-a\.json: cannot be read: No such file"):
        read_bench(tmp_path / "bench-a.json")


def changed(place: str, value: Any) -> dict[str, Any]:
    """A whole record with one value replaced."""
    record = copy.deepcopy(stored())
    *above, last = place.split(".")
    entry: Any = record
    for key in above:
        entry = entry[int(key) if isinstance(entry, list) else key]
    entry[int(last) if isinstance(entry, list) else last] = value
    return record


@pytest.mark.parametrize(
    ("place", "value", "complaint"),
    [
        ("version", 2, "version: Input should be 1"),
        ("date", "yesterday", "date: String should match pattern"),
        ("candidates", 0, "candidates: Input should be greater than or equal to 1"),
        ("total.median_ms", math.nan, "total.median_ms: Input should be a finite number"),
        ("total.median_ms", 0, "total: Value error, median_ms of a whole ranking must be above 0"),
        ("total.p95_ms", 1.0, "total: Value error, p95_ms is below median_ms"),
        ("total.samples_ms", [1.0], "total: Value error, n is 4 but there are 1 samples_ms"),
        ("stages.head.median_ms", -1.0, "stages.head.median_ms: Input should be greater than or equal to 0"),
        ("stages", {"head": spread(1.0)}, "the whole: Value error, stages must be exactly tokenize, transfer"),
        ("bare_prefill", spread(80.0, n=5), "the whole: Value error, all stages and the bare prefill must be measured as"),
        ("machine.threads", "many", "machine.threads: Input should be a valid integer"),
        ("capacity.gemm_tflops", 0, "capacity.gemm_tflops: Input should be greater than 0"),
        ("capacity.solver.0.kind", "odd", "capacity.solver.0.kind: Value error, must be one of random, near rank 1"),
        ("passes.0.name", "odd", "passes.0.name: Value error, must be one of written out, fused attention, joined, compiled"),
        ("passes.1.gain", 0, "passes.1.gain: Input should be greater than 0"),
        ("contests.0.teachers", [], "contests.0.teachers: Tuple should have at least 1 item"),
        ("contests.0.teachers.1.kind", "fine", "contests.0.teachers.1.kind: Input should be 'ok'"),
        ("contests.0.teachers.1.mode", "wild", "contests.0.teachers.1.mode: Input should be 'free' or 'constrained'"),
        (
            "contests.0.teachers.1.speed_up",
            41.0,
            "contests.0: Value error, speed_up 41.0 of the free teacher is not the ratio of the median times",
        ),
        (
            "contests.0.student",
            spread(100, n=2),
            "contests.0: Value error, the student ran 2 times but the constrained teacher 3 times",
        ),
    ],
)
def test_a_damaged_record_is_refused_with_its_place(place: str, value: Any, complaint: str, tmp_path: Path) -> None:
    BenchReport.model_validate(stored())  # sound before
    with pytest.raises(SpdError, match=re.escape(f"any.json: {complaint}")):
        read_if_bench(written(tmp_path, changed(place, value), "any.json"))


def test_speed_ups_of_a_stored_contest_are_those_of_its_own_times() -> None:
    report = BenchReport.model_validate(stored())
    (large, _) = report.contests
    speed = large.speed_up(large.teachers[0])
    assert (speed.direct, speed.races) == (20.0, 3)
    assert speed.after_thinking(10) == (2000 + 10 * 50) / 100
    assert cost("free", 20.0)["total"]["median_ms"] == 2000
