"""Quality against latency: all rank the same slates in turns, a stopped run goes on, the record says what was measured."""

from __future__ import annotations

import dataclasses
import json
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spd_core import __main__ as command_line
from spd_core.datasets import write_jsonl
from spd_core.errors import SlateError, SpdError
from spd_core.frontier import Contender, Outcome, Row, measurable, summarise, take_turns
from spd_core.frontier_report import QUALITIES, Family, FrontierReport, read_report
from spd_core.metrics import METRICS, evaluate_rankings
from spd_core.recipes import frontier as recipe
from spd_core.recipes.frontier import Plan, measure_rest, read_rows, run_frontier
from spd_core.recipes.label_files import open_part
from spd_core.slate import Ranking, Slate

MakeSlate = Callable[..., Slate]
ABOUT: dict[str, Any] = {
    "file": "f.jsonl",
    "file_sha256": "0" * 64,
    "excluded": {},
    "date": "2000-01-01",
    "commit": None,
    "machine": {"cpu": "none", "cores": 1},
    "warmup": 1,
}


def by_input(slate: Slate) -> Ranking:
    return Ranking("input", slate.item_ids)


def reversed_input(slate: Slate) -> Ranking:
    return Ranking("reversed", slate.item_ids[::-1])


def contender(
    name: str,
    calls: list[str] | None = None,
    *,
    family: Family = "student",
    order: Callable[[Slate], Ranking] = by_input,
    most: int = 99,
) -> Contender:
    """A ranker that notes its calls and takes at most so many candidates."""

    def rank(slate: Slate) -> Outcome:
        if calls is not None:
            calls.append(name)
        if len(slate.candidates) > most:
            raise SlateError(f"slate {slate.slate_id!r} has {len(slate.candidates)} candidates, {name} takes {most}")
        return Outcome(order(slate))

    return Contender(name, family, rank)


def labelled(make_slate: MakeSlate, count: int, size: int = 4) -> list[Slate]:
    return [make_slate(size, f"s{k}", label=(f"c{1 + k % size}",)) for k in range(count)]


# ------------------------------------------------------------------ turns


def test_all_rank_a_slate_before_the_next_and_each_goes_first_in_its_turn(make_slate: MakeSlate) -> None:
    calls: list[str] = []
    rows = list(take_turns([contender(name, calls) for name in "abc"], labelled(make_slate, 4), warmup=0))
    assert calls == [*"abc", *"bca", *"cab", *"abc"]
    assert [(row.turn, row.ranker) for row in rows] == [(index // 3, name) for index, name in enumerate(calls)]
    assert all(row.ms > 0 for row in rows)


def test_every_ranker_warms_up_once_uncounted(make_slate: MakeSlate) -> None:
    calls: list[str] = []
    rows = list(take_turns([contender(name, calls) for name in "ab"], labelled(make_slate, 3), warmup=1))
    assert Counter(calls) == {"a": 4, "b": 4}
    assert Counter(row.ranker for row in rows) == {"a": 3, "b": 3}
    assert calls[:4] == ["a", "b", "a", "b"]  # all are warm before the first is timed


@given(st.integers(0, 8), st.integers(0, 2))
def test_a_run_that_goes_on_measures_what_is_missing_and_nothing_twice(make_slate: MakeSlate, kept: int, warmup: int) -> None:
    slates = labelled(make_slate, 3)
    contenders = [contender(name) for name in "abc"]
    whole = [(row.turn, row.ranker) for row in take_turns(contenders, slates)]
    done = set(whole[:kept])
    rest = [(row.turn, row.ranker) for row in take_turns(contenders, slates, done=done, warmup=warmup)]
    assert rest == whole[kept:]


def test_a_ranker_that_refuses_a_slate_takes_no_further_turns_and_is_left_out(make_slate: MakeSlate) -> None:
    calls: list[str] = []
    slates = [make_slate(size, f"s{size}", label=("c1",)) for size in (2, 5, 3)]
    contenders = [contender("wide"), contender("narrow", calls, most=4)]
    rows = list(take_turns(contenders, slates, warmup=0))
    assert calls == ["narrow", "narrow"]
    report = summarise(contenders, rows, **ABOUT)
    assert [ranker.name for ranker in report.rankers] == ["wide"]
    assert report.left_out == {"narrow": "slate 's5' has 5 candidates, narrow takes 4"}
    assert report.slates == 3
    assert report.candidates == (2, 5)


def test_nothing_is_ranked_once_all_have_refused(make_slate: MakeSlate) -> None:
    calls: list[str] = []
    rows = list(take_turns([contender("a", calls, most=1)], labelled(make_slate, 5), warmup=0))
    assert len(calls) == len(rows) == 1
    assert list(take_turns([], labelled(make_slate, 2))) == []


def test_slates_without_a_usable_label_are_counted_by_reason(make_slate: MakeSlate) -> None:
    excluded: dict[str, int] = {}
    slates = [make_slate(2, label=("c1",)), make_slate(2), make_slate(1, label=("c1",)), make_slate(3, label=("x",))]
    assert list(measurable(slates, excluded)) == slates[:1]
    assert excluded == {"no_relevant": 2, "all_relevant": 1}


# ------------------------------------------------------------------ figures


def rows_of(name: str, times: Sequence[float], *, valid: Sequence[bool | None] | None = None) -> list[Row]:
    values = (0.5,) * len(METRICS)
    flags = valid or [None] * len(times)
    return [Row(k, f"s{k}", name, 3, values, ms, flag) for k, (ms, flag) in enumerate(zip(times, flags, strict=True))]


def test_ratios_are_medians_of_paired_times_against_the_fastest_student() -> None:
    contenders = [contender("floor", family="floor"), contender("fast"), contender("slow")]
    rows = rows_of("fast", [1, 2, 4]) + rows_of("slow", [10, 8, 12]) + rows_of("floor", [0.5, 0.5, 0.5])
    report = summarise(contenders, rows[::-1], **ABOUT)
    assert report.fastest_student == "fast"  # the floor is faster still, and no student
    assert [(r.name, r.ratio, r.median_ms) for r in report.rankers] == [
        ("floor", 0.25, 0.5),  # .5, .25, .125
        ("fast", 1.0, 2.0),
        ("slow", 4.0, 10.0),  # 10, 4, 3
    ]
    assert report.rankers[2].p95_ms == pytest.approx(11.8)
    assert {ranker.n for ranker in report.rankers} == {3}


def test_quality_is_what_evaluate_says_of_the_same_rankings(make_slate: MakeSlate) -> None:
    slates = labelled(make_slate, 12)
    contenders = [contender("input"), contender("reversed", order=reversed_input)]
    report = summarise(contenders, list(take_turns(contenders, slates)), **ABOUT)
    for ranker in report.rankers:
        order = {"input": by_input, "reversed": reversed_input}[ranker.name]
        expected = evaluate_rankings(slates, [order(slate) for slate in slates]).intervals()
        assert {name: tuple(q.model_dump().values()) for name, q in ranker.metrics.items()} == {
            name: pytest.approx(tuple(expected[name])) for name in QUALITIES
        }


def test_the_share_of_valid_answers_is_told_where_rankers_write() -> None:
    contenders = [contender("student"), contender("writer", family="teacher")]
    rows = rows_of("student", [1, 1, 1, 1]) + rows_of("writer", [9, 9, 9, 9], valid=[True, False, True, True])
    report = summarise(contenders, rows, **ABOUT)
    assert [ranker.valid_rate for ranker in report.rankers] == [None, 0.75]


def test_without_a_student_or_a_slate_there_is_nothing_to_compare(make_slate: MakeSlate) -> None:
    lone = [contender("student", most=2)]
    rows = list(take_turns(lone, labelled(make_slate, 1)))
    with pytest.raises(SpdError, match=r"no student could rank every slate \(student: slate 's0' has 4 candidates"):
        summarise(lone, rows, **ABOUT)
    with pytest.raises(SpdError, match=r"no student could rank every slate \(no slate has a usable label\)"):
        summarise(lone, [], **ABOUT)


# ------------------------------------------------------------------ the record


@pytest.fixture
def report() -> FrontierReport:
    contenders = [contender("fast"), contender("slow", family="teacher")]
    return summarise(contenders, rows_of("fast", [1, 2]) + rows_of("slow", [7, 9]), **ABOUT)


def test_a_report_is_read_back_as_it_was(report: FrontierReport, tmp_path: Path) -> None:
    (tmp_path / "r.json").write_text(report.model_dump_json(), "utf-8")
    assert read_report(tmp_path / "r.json") == report


@pytest.mark.parametrize(
    ("place", "value", "message"),
    [
        (("rankers", 0, "median_ms"), -1, r"r.json: rankers.0.median_ms: Input should be greater than 0"),
        (
            ("rankers", 0, "metrics", "AUC", "mean"),
            1.5,
            "rankers.0.metrics.AUC.mean: Input should be less than or equal to 1",
        ),
        (
            ("rankers", 0, "metrics", "MRR"),
            {"mean": 1, "low": 1, "high": 1, "n": 2},
            "needs exactly the metrics AUC, Recall@1",
        ),
        (("rankers", 0, "name"), "slow", "names must be unique and hold the fastest student"),
        (("fastest_student",), "other", "names must be unique and hold the fastest student"),
        (("schema_version",), 2, "schema_version: Input should be 1"),
        (("extra",), 1, "extra: Extra inputs are not permitted"),
        (("rankers",), [], "rankers: Tuple should have at least 1 item"),
    ],
)
def test_a_report_that_is_none_is_refused_by_name(
    report: FrontierReport, tmp_path: Path, place: tuple[Any, ...], value: object, message: str
) -> None:
    record = json.loads(report.model_dump_json())
    spot = record
    for key in place[:-1]:
        spot = spot[key]
    spot[place[-1]] = value
    (tmp_path / "r.json").write_text(json.dumps(record), "utf-8")
    with pytest.raises(SpdError, match=message) as caught:
        read_report(tmp_path / "r.json")
    assert "make it again with `python -m spd_core frontier`" in str(caught.value)


def test_a_missing_report_and_one_that_is_no_json_are_refused(tmp_path: Path) -> None:
    with pytest.raises(SpdError, match=r"r.json: cannot be read: No such file or directory"):
        read_report(tmp_path / "r.json")
    (tmp_path / "r.json").write_bytes(b"\xff{")
    with pytest.raises(SpdError, match=r"r.json: the whole: Invalid JSON"):
        read_report(tmp_path / "r.json")


# ------------------------------------------------------------------ a run on disk


def test_a_killed_run_keeps_each_row_and_goes_on(make_slate: MakeSlate, tmp_path: Path) -> None:
    slates, part = labelled(make_slate, 3), tmp_path / "r.json.part"
    calls: list[str] = []
    contenders = [contender("a", calls), contender("b", calls), contender("c", calls, most=2)]

    def ended(slate: Slate) -> Outcome:
        if slate.slate_id == "s1":
            raise KeyboardInterrupt
        return Outcome(by_input(slate))

    dying = [contenders[0], dataclasses.replace(contenders[1], rank=ended), contenders[2]]
    with pytest.raises(KeyboardInterrupt), open_part(part, {"x": 1}, together=1, total=99) as (stream, _):
        measure_rest(dying, slates, [], stream)
    with part.open("ab") as stream:
        stream.write(b'{"turn": 2, "slate_id": "s2", "ran')  # the machine went down while a line was written
    calls.clear()
    with open_part(part, {"x": 1}, together=1, total=99) as (stream, kept):
        rows = list(read_rows(stream, kept))
        assert [(row.turn, row.ranker) for row in rows] == [(0, "a"), (0, "b"), (0, "c")]
        assert rows[2].refused is not None
        rows += measure_rest(contenders, slates, rows, stream)
    assert Counter(calls) == {"a": 3, "b": 3}  # two slates and a warm-up; the one that refused is not asked again
    assert {(row.turn, row.ranker) for row in rows} == {(0, "c"), *((turn, name) for turn in range(3) for name in "ab")}
    with open_part(part, {"x": 1}, together=1, total=99) as (stream, kept):
        assert list(read_rows(stream, kept)) == rows


@pytest.fixture
def machine(
    monkeypatch: pytest.MonkeyPatch,
    app_home: Path,
    app_checkpoints: Path,
    tiny_teacher_dir: Path,
    tmp_path: Path,
    make_slate: MakeSlate,
) -> Path:
    """A slate file on a machine with the tiny student and the tiny teacher."""
    monkeypatch.setenv("SPD_HOME", str(app_home))
    monkeypatch.setenv("SPD_CHECKPOINTS", f"{app_checkpoints}:{tiny_teacher_dir.parent}")
    write_jsonl(tmp_path / "in.jsonl", [make_slate(3, "unlabelled"), *labelled(make_slate, 3)])
    return tmp_path / "in.jsonl"


def test_one_command_measures_all_kinds_of_rankers(machine: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "frontier.json"
    words = [str(machine), "--checkpoint", "tiny-spd", "--teacher", "tiny-teacher", "--limit", "2", "--device", "cpu"]
    assert command_line.main(["frontier", *words, "--out", str(out)]) == 0
    report = read_report(out)
    shown = capsys.readouterr().out
    assert report.slates == 2
    assert report.excluded == {"no_relevant": 1}
    names = {ranker.name for ranker in report.rankers}
    assert names == {
        *(f"tiny-spd, {d}, {t}" for d in ("hungarian", "expected position", "first column") for t in ("float32", "bfloat16")),
        *(f"tiny-teacher teacher, {mode}" for mode in ("constrained", "free")),
        *(f"first token (FIRST), {who}" for who in ("zero-shot", "tiny-teacher")),
        *("reference", "cooccurrence", "tfidf", "popularity", "random"),
    }
    assert set(report.left_out) == {"pointwise yes/no, zero-shot", "pointwise yes/no, tiny-teacher"}
    assert all("no way to write yes and no is one token each" in reason for reason in report.left_out.values())
    assert all(name in shown for name in (*names, *report.left_out))
    student = next(ranker for ranker in report.rankers if ranker.name == report.fastest_student)
    assert (student.family, student.checkpoint, student.depth, student.layers) == ("student", "tiny-spd", 2, 2)
    assert student.ratio == 1.0
    zero_shot = {ranker.name for ranker in report.rankers if ranker.is_zero_shot}
    assert zero_shot == {"first token (FIRST), zero-shot"}
    constrained = next(ranker for ranker in report.rankers if ranker.name == "tiny-teacher teacher, constrained")
    assert constrained.valid_rate == 1.0
    assert list(tmp_path.glob("*.part")) == []


def test_a_part_of_another_plan_is_not_gone_on_with(machine: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plan = Plan(slates=str(machine), checkpoints=["tiny-spd"], dtypes=["float32"], limit=2, device="cpu")
    out = tmp_path / "frontier.json"

    def killed(*_: object, **__: object) -> list[Row]:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(recipe, "measure_rest", killed)
        with pytest.raises(KeyboardInterrupt):
            run_frontier(plan, out)
    with pytest.raises(SpdError, match=r"was begun with other settings \(limit: then 2, now 3\)"):
        run_frontier(dataclasses.replace(plan, limit=3), out)
    assert run_frontier(plan, out).slates == 2


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"slates": "-"}, "frontier reads its slates more than once; give a file instead of standard input"),
        ({"checkpoints": []}, "got 0 students; name at least one with --checkpoint"),
    ],
)
def test_plans_that_cannot_be_run_are_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(SpdError, match=message):
        Plan(**{"slates": "in.jsonl", "checkpoints": ["x"]} | changes)


def test_two_rankers_of_one_name_and_a_place_that_cannot_be_written_are_refused(machine: Path, tmp_path: Path) -> None:
    plan = Plan(slates=str(machine), checkpoints=["tiny-spd", "tiny-spd"], dtypes=["float32"], device="cpu")
    with pytest.raises(SpdError, match="two rankers are named 'tiny-spd, hungarian, float32'; give each checkpoint"):
        run_frontier(plan, tmp_path / "out.json")
    for place in (tmp_path, tmp_path / "missing" / "out.json"):
        with pytest.raises(SpdError, match="is a folder, or in a folder that does not exist"):
            run_frontier(plan, place)


def test_a_zero_shot_teacher_takes_part_under_its_own_name(machine: Path, tmp_path: Path) -> None:
    plan = Plan(slates=str(machine), checkpoints=["tiny-spd"], teacher="zero-shot", dtypes=["float32"], limit=1, device="cpu")
    report = run_frontier(plan, tmp_path / "out.json")
    assert {ranker.name for ranker in report.rankers if ranker.is_zero_shot} == {
        "zero-shot teacher, constrained",
        "zero-shot teacher, free",
        "first token (FIRST), zero-shot",
    }
