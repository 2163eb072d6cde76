"""A race's arithmetic, its marks, its record on disk, and its run: one at a time, cancelled at the next token."""

from __future__ import annotations

import dataclasses
import json
import math
import threading
from collections.abc import Callable
from concurrent.futures import wait
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scripted_teacher import ScriptedTeacher, pieces_of

from pages.shared.race import LEFT_ALONE_S, Entry, Line, Race, Replay
from spd_core.errors import SlateError, SpdError
from spd_core.figures.orderings import orderings_frame
from spd_core.model import Student
from spd_core.pipeline import rank_slate
from spd_core.race import SpeedUp, Timing, compare_rankings, marked_answer, timing_of, written_count
from spd_core.race_record import RaceRecord, new_record, parse_record, read_record, record_bytes, write_record
from spd_core.recipes import race as recipe
from spd_core.slate import Ranking, Slate
from spd_core.teachers.answers import TokenEvent
from spd_core.teachers.ordinals import parse_answer

MakeSlate = Callable[..., Slate]
MACHINE: dict[str, str | int] = {"cpu": "abacus", "threads": 2, "dtype": "float32"}


def recorded(student: Student, slate: Slate, text: str) -> RaceRecord:
    """A race of the tiny student against a teacher that writes `text`."""
    events: list[TokenEvent] = []
    answer = ScriptedTeacher(pieces_of(text)).answer(slate, on_token=events.append)
    return new_record(slate, rank_slate(student, slate).to_json(), answer, events, MACHINE)


def ranking(name: str, *places: int) -> Ranking:
    return Ranking(name, tuple(f"c{place}" for place in places))


# --- comparing


def test_disagreements_come_largest_first_and_say_which_way(make_slate: MakeSlate) -> None:
    compared = compare_rankings(make_slate(4), ranking("teacher", 1, 2, 3, 4), ranking("student", 4, 1, 2, 3))
    assert compared.gaps.tolist() == [1, 1, 1, -3]  # the student puts the last candidate three places higher
    assert compared.disagreements.tolist() == [3, 0, 1, 2]
    assert compared.kendall_tau == 0.0  # three pairs of six are turned round
    assert compared.overlaps == {1: 0.0}  # the top 5 and top 10 of four candidates tell nothing


def test_three_cycle_keeps_teacher_and_student_apart(make_slate: MakeSlate) -> None:
    compared = compare_rankings(make_slate(3), ranking("teacher", 1, 2, 3), ranking("student", 2, 3, 1))
    assert compared.teacher.tolist() == [0, 1, 2]
    assert compared.student.tolist() == [2, 0, 1]


def test_metrics_are_there_for_both_sides_where_a_label_is(make_slate: MakeSlate) -> None:
    sides = ranking("teacher", 1, 2, 3), ranking("student", 3, 1, 2)
    assert compare_rankings(make_slate(3), *sides).metrics == {}
    assert compare_rankings(make_slate(3, label=("c1", "c2", "c3")), *sides).metrics == {}
    compared = compare_rankings(make_slate(3, label=("c3",)), *sides)
    assert compared.metrics["NDCG@1"] == (0.0, 1.0)
    assert compared.metrics["AUC"] == (0.0, 1.0)
    assert compared.relevant == (2,)


def test_a_candidate_alone_can_be_compared(make_slate: MakeSlate) -> None:
    compared = compare_rankings(make_slate(1), ranking("teacher", 1), ranking("student", 1))
    assert math.isnan(compared.kendall_tau)
    assert (compared.rbo, compared.overlaps) == (1.0, {})


def test_ranking_of_another_slate_is_refused(make_slate: MakeSlate) -> None:
    with pytest.raises(SlateError, match="ranking 'student': ranks 'c4', which is not in the slate"):
        compare_rankings(make_slate(3), ranking("teacher", 1, 2, 3), ranking("student", 1, 2, 4))


# --- speed


def test_speed_up_is_teacher_over_student_and_thinking_adds_its_tokens() -> None:
    speed = SpeedUp.of([Timing(100.0, 1000.0, 50.0)])
    assert speed.direct == 10.0
    assert speed.after_thinking(0) == speed.direct
    assert speed.thinking_ms(20) == 2000.0
    assert speed.after_thinking(20) == 20.0


def test_speed_up_of_several_races_takes_medians_and_says_how_many() -> None:
    speed = SpeedUp.of([Timing(10.0, 100.0, 5.0), Timing(20.0, 300.0, None), Timing(30.0, 200.0, 7.0)])
    assert (speed.student_ms, speed.teacher_ms, speed.token_ms, speed.races) == (20.0, 200.0, 6.0, 3)


def test_time_of_a_token_leaves_the_prefill_out(make_slate: MakeSlate, tiny_student: Student) -> None:
    answer = recorded(tiny_student, make_slate(2), "2>1").answer
    assert timing_of(7.0, answer) == Timing(7.0, 150.0, 50.0)
    sparse = dataclasses.replace(answer, tokens=5)
    assert timing_of(7.0, sparse).token_ms == 25.0  # two steps of 50 ms brought the four tokens after the first
    ordinals = dataclasses.replace(sparse, mode="constrained")
    assert timing_of(7.0, ordinals).token_ms == 50.0  # each pass brought several tokens; a token of thought takes a pass
    unseen = dataclasses.replace(answer, token_ms=(150.0,))
    assert timing_of(7.0, unseen).token_ms is None


def test_speed_up_needs_races_times_and_a_token_cost(make_slate: MakeSlate, tiny_student: Student) -> None:
    with pytest.raises(SpdError, match="got 0 races; run at least one"):
        SpeedUp.of([])
    with pytest.raises(SpdError, match="unknown each; needs 0 tokens or more and a teacher that was timed"):
        SpeedUp.of([Timing(1.0, 2.0, None)]).thinking_ms(5)
    with pytest.raises(SpdError, match=r"-1 thinking tokens at 3.0 ms each"):
        SpeedUp.of([Timing(1.0, 2.0, 3.0)]).after_thinking(-1)
    with pytest.raises(SpdError, match=r"student 0.0 ms, teacher 50.0 ms: a speed-up needs times above 0"):
        timing_of(0.0, recorded(tiny_student, make_slate(1), "1").answer)


# --- marks


def test_each_problem_is_marked_where_it_is() -> None:
    pieces = marked_answer("<think>2 > 1</think> [1] > 1 > 25 > -2 and 2", 3)
    assert pieces[0] == ("<think>2 > 1</think>", "thinking")
    assert [(text, mark) for text, mark in pieces if mark not in ("separator", "thinking")] == [
        ("1", "ordinal"),
        ("1", "repeated"),
        ("25", "out_of_range"),
        ("-2", "out_of_range"),
        ("and", "format"),
        ("2", "ordinal"),
    ]


@given(st.one_of(st.text(), st.text("0123456789>,-[]. \nthink</>")), st.integers(1, 30))
def test_marked_pieces_are_the_text_and_count_as_the_parser_does(text: str, count: int) -> None:
    pieces, parsed = marked_answer(text, count), parse_answer(text, count)
    assert "".join(piece.text for piece in pieces) == text
    numbers = [int(piece.text) for piece in pieces if piece.mark in ("ordinal", "repeated", "out_of_range")]
    assert tuple(numbers) == parsed.ordinals
    assert any(piece.mark == "out_of_range" for piece in pieces) is any("candidates are 1 to" in p for p in parsed.problems)
    assert any(piece.mark == "repeated" for piece in pieces) is any("more than once" in p for p in parsed.problems)


def test_candidates_that_the_teacher_named_itself_are_counted(make_slate: MakeSlate, tiny_student: Student) -> None:
    assert written_count(recorded(tiny_student, make_slate(4), "2>2>9>1").answer) == 2


# --- records


@pytest.mark.parametrize("text", ["3>1>2", "1>1", "", "<think>hm", "3>1>2 \U0001f600 “so”"])
def test_record_comes_back_as_it_was(text: str, make_slate: MakeSlate, tiny_student: Student, tmp_path: Path) -> None:
    slate = make_slate(3, label=("c2",), titles=["</script>", "$5 :red[x]", "Crème \ud800"])
    record = recorded(tiny_student, slate, text or " ")
    write_record(tmp_path / "race.json", record)
    assert read_record(tmp_path / "race.json") == record


def test_half_a_character_is_shown_once_it_is_whole(make_slate: MakeSlate, tiny_student: Student) -> None:
    record = recorded(tiny_student, make_slate(2), "2\U0001f600>1")
    halves = [
        dataclasses.replace(event, text=event.text.replace("\U0001f600", "\ufffd\ufffd") if event.index == 1 else event.text)
        for event in record.events
    ]
    written = record_bytes(dataclasses.replace(record, events=tuple(halves)))
    assert [event.text for event in parse_record(written, "race.json").events] == ["2", "2", "2\U0001f600>", "2\U0001f600>1"]


def test_race_looks_where_it_shall_write_before_anything_is_read(tmp_path: Path) -> None:
    with pytest.raises(SpdError, match=r"race\.json: is a folder, or in a folder that does not exist"):
        recipe.race("no-such.jsonl", tmp_path / "nowhere" / "race.json", checkpoint="nobody", teacher="nobody")


def test_race_knows_a_teacher_from_a_student_before_anything_is_read(
    ready: None, tiny_teacher_dir: Path, tmp_path: Path
) -> None:
    for names, message in (
        ({"checkpoint": "tiny-spd", "teacher": "nobody"}, "unknown teacher 'nobody'"),
        ({"checkpoint": "tiny-spd", "teacher": "tiny-spd"}, "is a student, which writes no rankings; choose a teacher"),
        ({"checkpoint": str(tiny_teacher_dir), "teacher": "any"}, "is a teacher, which writes rankings and has no score"),
        ({"checkpoint": "tiny-spd", "teacher": str(tiny_teacher_dir), "mode": "wild"}, "unknown decoding mode 'wild'"),
        ({"checkpoint": "tiny-spd", "teacher": str(tiny_teacher_dir), "decoder": "coin"}, "unknown decoder 'coin'"),
    ):
        with pytest.raises(SpdError, match=message):
            recipe.race("no-such.jsonl", tmp_path / "race.json", **names)


def test_record_without_events_is_fine(make_slate: MakeSlate, tiny_student: Student) -> None:
    slate = make_slate(2)
    answer = ScriptedTeacher(["2>1"]).answer(slate)
    record = new_record(slate, rank_slate(tiny_student, slate).to_json(), answer, [], MACHINE)
    assert parse_record(record_bytes(record), "race.json") == record


def changed(fields: dict[str, Any], path: str, value: object) -> bytes:
    """The fields with one replaced, as a file."""
    *way, last = path.split(".")
    place = fields
    for step in way:
        place = place[step]
    place[last] = value
    return json.dumps(fields).encode()


@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        ("format", "other", "race.json: not a recorded race of format 'spd-race' version 1"),
        ("version", 2, "not a recorded race of format 'spd-race' version 1"),
        ("machine", None, "race.json: machine is 'None': Input should be a valid dictionary"),
        ("recorded_at", "yesterday", "recorded_at is 'yesterday'"),
        ("student.timings_ms", {"total": "fast"}, "student.timings_ms.total is 'fast'"),
        ("student.timings_ms", {"prefill": 3}, "race.json: times must be above 0 ms"),
        ("student.slate_id", "s9", "race.json: the student ranked slate 's9', not 's1'"),
        ("teacher.slate_id", "s9", "race.json: the teacher ranked slate 's9', not 's1'"),
        ("teacher.permutation", ["c1", "c1", "c2"], "race.json: teacher: ranks an item twice; record the race again"),
        ("student.ranking", ["c1"], "race.json: student: ranks 1 candidates but the slate has 3; record the race again"),
        ("teacher.kind", "splendid", "kind is 'splendid'"),
        ("teacher.ms", 0, "race.json: times must be above 0 ms"),
        ("slate.candidates", [], "race.json: slate 's1': has no candidates"),
        ("named", [0, 0, 1], "`named` must hold candidate indices 0 to 2, each at most once"),
        ("named", [3], "`named` must hold candidate indices 0 to 2, each at most once"),
        ("events", [[50.0, 1, 0], [40.0, 2, 0]], "race.json: event 2 is (40.0, 2, 0), but times, characters and names only"),
        ("events", [[50.0, 99, 0]], "race.json: event 1 is (50.0, 99, 0)"),
        ("events", [[50.0, 1, 4]], "race.json: event 1 is (50.0, 1, 4)"),
    ],
)
def test_damaged_record_is_refused_by_name(
    path: str, value: object, message: str, make_slate: MakeSlate, tiny_student: Student
) -> None:
    fields = recorded(tiny_student, make_slate(3), "3>1>2").to_json()
    with pytest.raises(SpdError) as caught:
        parse_record(changed(fields, path, value), "race.json")
    assert message in str(caught.value)
    assert "python -m spd_core race" in str(caught.value)


def test_file_that_is_no_record_is_refused(tmp_path: Path) -> None:
    (tmp_path / "race-a.json").write_text('{"format": "spd-race", "version": 1')
    with pytest.raises(SpdError, match=r"race-a.json: not JSON"):
        read_record(tmp_path / "race-a.json")
    with pytest.raises(SpdError, match=r"race-b.json: cannot be read: No such file or directory; record the race again"):
        read_record(tmp_path / "race-b.json")
    (tmp_path / "race-c.json").write_bytes(b" " * (5 * 2**20 + 1))
    with pytest.raises(SpdError, match="more than 5,242,880 bytes, which no race has"):
        read_record(tmp_path / "race-c.json")
    with pytest.raises(SpdError, match=r"race-d.json: not a recorded race"):
        parse_record(b"[]", "race-d.json")


def test_record_with_nan_is_not_written(make_slate: MakeSlate, tiny_student: Student) -> None:
    record = recorded(tiny_student, make_slate(1), "1")
    record.student.timings_ms["total"] = float("nan")
    with pytest.raises(SpdError, match="race of slate 's1': cannot be written as JSON"):
        record_bytes(record)


# --- the command


def test_command_records_a_race_that_can_be_read(
    ready: None, make_slate: MakeSlate, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    slates, out = tmp_path / "slates.jsonl", tmp_path / "race-a.json"
    slates.write_text("\n".join(json.dumps(make_slate(n, f"s{n}").to_json()) for n in (2, 3)))
    teacher = ScriptedTeacher(pieces_of("3>1>2"))
    monkeypatch.setattr(recipe, "load_teacher", lambda name, **options: teacher)
    monkeypatch.setattr(recipe, "check_rankers", lambda names: None)
    monkeypatch.setattr(recipe, "size_warnings", lambda checkpoints, sizes: [f"{len(list(checkpoints))} for {dict(sizes)}"])
    record = recipe.race(slates, out, checkpoint="tiny-spd", teacher="any", slate_id="s3")
    assert caplog.messages == ["2 for {3: 1}"]
    assert read_record(out) == record
    assert record.answer.permutation == ("c3", "c1", "c2")
    assert record.machine["threads"] > 0
    facts = recipe.summary_of(record)
    assert facts["passes"] == 5
    assert facts["speed_up"] == pytest.approx(250.0 / record.student.ms, abs=0.01)
    with pytest.raises(SpdError, match=r"slates.jsonl: holds no slate 's9'; check --slate-id"):
        recipe.race(slates, out, checkpoint="tiny-spd", teacher="any", slate_id="s9")


# --- the run


class Clock:
    """A clock that stands until it is moved."""

    now = 0.0

    def __call__(self) -> float:
        return self.now


def entry_of(student: Student, slate: Slate, teacher: ScriptedTeacher, **options: bool) -> Entry:
    return Entry(slate, lambda: rank_slate(student, slate), teacher, MACHINE, **options)


@pytest.fixture
def line() -> Line:
    return Line(threading.Lock())


def test_race_shows_the_student_first_then_token_by_token_the_teacher(
    line: Line, make_slate: MakeSlate, tiny_student: Student
) -> None:
    slate, teacher = make_slate(3), ScriptedTeacher(pieces_of("3>1>2"), hold_at=4)
    race = Race(entry_of(tiny_student, slate, teacher), line)
    assert teacher.is_held.wait(60)
    view = race.look()
    assert (view.phase, view.is_over, view.clock_ms) == ("teacher", False, 200.0)
    assert view.student is not None
    assert view.student.ranking == rank_slate(tiny_student, slate).item_ids
    assert view.events[-1].order == (2, 0)
    assert line.gate.locked()
    teacher.release.set()
    race.future.result(60)
    view = race.look()
    assert (view.phase, view.is_over, view.clock_ms) == ("done", True, 250.0)
    assert race.record().answer.permutation == ("c3", "c1", "c2")
    assert not line.gate.locked()
    assert line.races == []


def test_cancelled_race_stops_at_the_next_token_and_the_next_one_works(
    line: Line, make_slate: MakeSlate, tiny_student: Student
) -> None:
    slate, teacher = make_slate(3), ScriptedTeacher(pieces_of("3>1>2"), hold_at=1)
    race = Race(entry_of(tiny_student, slate, teacher), line)
    assert teacher.is_held.wait(60)
    race.cancel()
    assert race.look().phase == "cancelled"  # at once, whatever the teacher still does
    teacher.release.set()
    assert race.future.exception(60) is not None
    assert race.look().phase == "cancelled"
    assert teacher.written == 1
    assert not line.gate.locked()
    again = Race(entry_of(tiny_student, slate, ScriptedTeacher(["3>1>2"])), line)
    again.future.result(60)
    assert again.look().phase == "done"


def test_failed_race_says_why_and_leaves_the_gate_free(line: Line, make_slate: MakeSlate, tiny_student: Student) -> None:
    too_long = make_slate(51)
    race = Race(entry_of(tiny_student, too_long, ScriptedTeacher(["1"])), line)
    race.future.exception(60)
    with pytest.raises(SlateError, match="has 51 candidates but the student ranks at most 50"):
        race.look()
    broken = Race(entry_of(tiny_student, make_slate(2), ScriptedTeacher([])), line)
    broken.future.exception(60)
    with pytest.raises(SpdError, match="the race broke off through a defect, which the app's log describes"):
        broken.look()
    assert not line.gate.locked()
    assert line.races == []


def test_ten_races_run_one_at_a_time_in_the_order_they_came(line: Line, make_slate: MakeSlate, tiny_student: Student) -> None:
    slate, teacher = make_slate(3), ScriptedTeacher(["3>", "1>2"], hold_at=1)
    races = [Race(entry_of(tiny_student, slate, teacher), line) for _ in range(10)]
    assert teacher.is_held.wait(60)
    assert [race.look().ahead for race in races] == list(range(10))
    assert {race.look().phase for race in races[1:]} == {"queued"}
    races[4].cancel()
    assert races[4].look().phase == "cancelled"
    assert [race.look().ahead for race in races[5:]] == [4, 5, 6, 7, 8]
    teacher.release.set()
    for race in races[:4] + races[5:]:
        race.future.result(60)
        assert race.look().phase == "done"
    assert teacher.most_alive == 1


def test_race_waits_for_whoever_runs_a_model_and_can_be_cancelled_there(
    line: Line, make_slate: MakeSlate, tiny_student: Student
) -> None:
    teacher = ScriptedTeacher(["2>1"])
    with line.gate:
        race = Race(entry_of(tiny_student, make_slate(2), teacher), line)
        assert race.look().student is None
        race.cancel()
        wait([race.future], 60)  # it may have been cancelled in the line or at the gate
    assert race.look().phase == "cancelled"
    assert teacher.written == 0
    assert not line.gate.locked()


def test_remote_teacher_leaves_the_gate_to_others(line: Line, make_slate: MakeSlate, tiny_student: Student) -> None:
    teacher = ScriptedTeacher(["2>1"], hold_at=0)
    race = Race(entry_of(tiny_student, make_slate(2), teacher, is_local=False), line)
    assert teacher.is_held.wait(60)
    assert not line.gate.locked()
    assert race.look().student is not None
    teacher.release.set()
    race.future.result(60)


def test_race_that_nobody_watches_is_given_up(line: Line, make_slate: MakeSlate, tiny_student: Student) -> None:
    clock, teacher = Clock(), ScriptedTeacher(pieces_of("3>1>2"), hold_at=2)
    race = Race(entry_of(tiny_student, make_slate(3), teacher), line, clock=clock)
    assert teacher.is_held.wait(60)
    clock.now = LEFT_ALONE_S + 1
    teacher.release.set()
    race.future.exception(60)
    assert teacher.written == 2
    assert race.look().phase == "cancelled"
    assert not line.gate.locked()


def test_stream_that_starts_again_is_shown_from_its_start(line: Line, make_slate: MakeSlate, tiny_student: Student) -> None:
    class Twice(ScriptedTeacher):
        def _answer(self, slate: Slate, on_token: Any, is_cancelled: Any) -> Any:
            super()._answer(slate, on_token, is_cancelled)
            return super()._answer(slate, on_token, is_cancelled)

    race = Race(entry_of(tiny_student, make_slate(2), Twice(["2>", "1"])), line)
    race.future.result(60)
    assert [event.text for event in race.look().events] == ["2>", "2>1"]


# --- the replay


def test_replay_shows_at_each_moment_what_was_there_then(make_slate: MakeSlate, tiny_student: Student) -> None:
    record, clock = recorded(tiny_student, make_slate(3), "3>1>2"), Clock()
    record.student.timings_ms["total"] = 120.0
    replay = Replay(record, clock=clock)
    seen = []
    for ms in (0, 60, 130, 210, 260):
        clock.now = ms / 1e3
        view = replay.look()
        seen.append((view.phase, view.student is not None, len(view.events), view.answer is not None, view.clock_ms))
    assert seen == [
        ("teacher", False, 0, False, 0.0),
        ("teacher", False, 1, False, 60.0),
        ("teacher", True, 2, False, 130.0),
        ("teacher", True, 4, False, 210.0),
        ("done", True, 5, True, 250.0),
    ]
    assert replay.record() == record


def test_replay_can_be_skipped_to_its_end_or_left(make_slate: MakeSlate, tiny_student: Student) -> None:
    record = recorded(tiny_student, make_slate(3), "3>1>2")
    replay = Replay(record, clock=Clock())
    replay.skip()
    assert replay.look().phase == "done"
    other = Replay(record, clock=Clock())
    other.cancel()
    assert other.look().phase == "cancelled"


# --- the figure


def test_only_the_longest_moves_stand_out_and_they_are_named_as_asked() -> None:
    frame = orderings_frame(["a", "b", "c", "d"], np.array([3, 1, 0, 2]), [False] * 4, moves=("up", "down", "same"), loud=2)
    assert frame["loud"].tolist() == [True, False, True, False]
    assert frame["move"].tolist() == ["down", "same", "up", "up"]
    assert not orderings_frame(["a", "b"], np.array([0, 1]), [False] * 2, loud=2)["loud"].any()
    assert orderings_frame(["a", "b"], np.array([0, 1]), [False] * 2)["loud"].all()
