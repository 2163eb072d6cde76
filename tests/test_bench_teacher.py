"""Student against teacher in one run: every turn is counted, tokens and passes are the teacher's own."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from spd_core import __main__ as command_line
from spd_core.datasets import write_jsonl
from spd_core.errors import SpdError
from spd_core.model import Student
from spd_core.recipes.bench_teacher import measure_contest, slates_of_sizes, write_contests
from spd_core.slate import Slate
from spd_core.teachers.autoregressive import AutoregressiveTeacher

MakeSlate = Callable[..., Slate]


def test_both_sides_are_measured_as_often(
    tiny_student: Student, tiny_teacher: AutoregressiveTeacher, make_slate: MakeSlate
) -> None:
    rivals = [tiny_teacher.with_mode(mode) for mode in ("constrained", "free")]
    contest = measure_contest(tiny_student, rivals, make_slate(12), repeats=3)
    assert contest.candidates == 12
    assert [cost.mode for cost in contest.teachers] == ["constrained", "free"]
    assert {contest.student.n, *(cost.total.n for cost in contest.teachers)} == {3}
    constrained = contest.teachers[0]
    assert (constrained.kind, constrained.tokens) == ("ok", 9 + 2 * 3 + 11)  # digits, separators
    assert 12 / 2 < constrained.passes <= 12  # a rank a pass
    assert constrained.speed_up == pytest.approx(constrained.total.median_ms / contest.student.median_ms)


def test_a_slate_is_cut_to_its_first_candidates(make_slate: MakeSlate) -> None:
    slate = make_slate(9)
    small, whole = slates_of_sizes(slate, [3, 9])
    assert small.item_ids == slate.item_ids[:3]
    assert whole.item_ids == slate.item_ids
    with pytest.raises(SpdError, match="size 10 was asked for but slate 's1' has 1 to 9 candidates to give"):
        slates_of_sizes(slate, [10])


@pytest.mark.parametrize(("repeats", "warmup"), [(0, 1), (1, -1)])
def test_nothing_to_measure_is_refused(tiny_student: Student, make_slate: MakeSlate, repeats: int, warmup: int) -> None:
    with pytest.raises(SpdError, match=f"repeats is {repeats} and warmup is {warmup}"):
        measure_contest(tiny_student, [], make_slate(3), repeats=repeats, warmup=warmup)


def test_the_table_names_both_sides(
    tiny_student: Student, tiny_teacher: AutoregressiveTeacher, make_slate: MakeSlate
) -> None:
    contest = measure_contest(tiny_student, [tiny_teacher], make_slate(1), repeats=1, warmup=0)
    head, student, teacher = write_contests([contest])
    assert "speed-up" in head
    assert student.split()[:2] == ["1", "student"]
    assert teacher.split()[:2] == ["1", "constrained"]
    assert contest.teachers[0].token_ms is None  # one token has no cost beside its prefill
    assert teacher.endswith("x  ok")


def test_bench_races_a_teacher(
    monkeypatch: pytest.MonkeyPatch,
    app_home: Path,
    app_checkpoints: Path,
    tiny_teacher_dir: Path,
    make_slate: MakeSlate,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("SPD_HOME", str(app_home))
    monkeypatch.setenv("SPD_CHECKPOINTS", f"{app_checkpoints}:{tiny_teacher_dir.parent}")
    write_jsonl(tmp_path / "in.jsonl", [make_slate(6)])
    options = ["--checkpoint", "tiny-spd", "--teacher", "tiny-teacher", "--slates", str(tmp_path / "in.jsonl")]
    small = ["--n", "1", "--warmup", "0", "--turns", "1", "--size", "2", "--size", "6", "--device", "cpu"]
    assert command_line.main(["bench", *options, *small, "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert [contest["candidates"] for contest in report["contests"]] == [2, 6]
    assert command_line.main(["bench", *options, *small]) == 0
    assert "ms/token" in capsys.readouterr().out
