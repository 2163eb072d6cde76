"""The page Teacher vs student as a visitor meets it: race, cancel, replay, stored labels, odd answers, nothing there."""

from __future__ import annotations

import dataclasses
import json
import threading
import tomllib
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from app_machine import FACTS
from scripted_teacher import ScriptedTeacher, pieces_of
from streamlit import get_option
from streamlit.testing.v1 import AppTest

from pages.shared import endpoints, loaders, sides, teachers
from pages.shared.comparison import as_csv, times
from pages.shared.contest import recorded_title
from pages.shared.race import Race, View
from pages.shared.text import escaped, message
from spd_core.checkpoints import UNTRAINED
from spd_core.datasets import load_slates
from spd_core.errors import SpdError
from spd_core.pipeline import rank_slate
from spd_core.race import compare_rankings, marked_answer
from spd_core.race_record import new_record, parse_record, write_record
from spd_core.slate import Ranking, Slate
from spd_core.teachers.answers import AnswerCancelled, TokenEvent

ROOT = Path(__file__).resolve().parent.parent
PAGE = "pages/teacher_vs_student.py"
MakeSlate = Callable[..., Slate]
VALID = "3>1>2>4>5>6>7>8>9>10"


def visit(**link: str) -> AppTest:
    """A new visitor who comes by a link."""
    app = AppTest.from_file(str(ROOT / "app.py"), default_timeout=120)
    for name, value in link.items():
        app.query_params[name] = value
    return app.run().switch_page(PAGE).run()


def words(app: AppTest) -> str:
    kinds = ("markdown", "caption", "info", "warning", "error", "title")
    return "\n".join(str(element.value) for kind in kinds for element in app.get(kind))


def is_well(app: AppTest) -> bool:
    return not app.exception and not app.error


def press(app: AppTest, label: str) -> AppTest:
    return next(button for button in app.button if button.label == label).click().run()


def labels(app: AppTest) -> list[str]:
    return [button.label for button in app.button]


def metrics(app: AppTest) -> dict[str, str]:
    return {metric.label: metric.value for metric in app.metric}


def table_with(app: AppTest, column: str) -> list[dict[str, str]]:
    """Rows of the first table that has this column."""
    return next(table.value for table in app.table if column in table.value).astype(str).to_dict("records")


def lists(app: AppTest) -> list[list[str]]:
    """Cells of the student's and of the teacher's list."""
    return [list(table.value["Best first"]) for table in app.table if "Best first" in table.value]


def current_race(app: AppTest) -> Race:
    return app.session_state["chosen race"].runner


@pytest.fixture
def demo() -> Slate:
    return load_slates(ROOT / "sample_data" / "slates" / "demo.jsonl")[0]


@pytest.fixture
def no_records(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """An empty folder where recorded races would lie."""
    monkeypatch.setattr(loaders, "RESULTS", tmp_path)
    return tmp_path


@pytest.fixture
def teacher(ready: None, no_records: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ScriptedTeacher]:
    """A teacher checkpoint `slow` that writes a valid ranking of the demo slate."""
    scripted = ScriptedTeacher(pieces_of(VALID))
    info = SimpleNamespace(checkpoint_id="slow", folder=ROOT, config=object(), error=None)
    monkeypatch.setattr(loaders, "teachers", lambda: [info])
    monkeypatch.setattr(loaders, "load_teacher", lambda name, mode: scripted)
    yield scripted
    scripted.release.set()


def raced(app: AppTest) -> AppTest:
    """The page after a race has run to its end."""
    press(app, "Race")
    assert is_well(app)
    if (race := app.session_state["chosen race"]) is not None:
        race.runner.future.result(60)
        app.run()
    return app


def test_first_visit_says_what_will_happen_and_runs_nothing(teacher: ScriptedTeacher) -> None:
    app = visit()
    assert is_well(app)
    assert "Nothing has run yet. Press **Race**" in words(app)
    assert teacher.written == 0
    assert "Replay" not in labels(app)
    assert app.selectbox(key="widget teacher").value == "constrained-slow"
    assert app.query_params["teacher"] in ("constrained-slow", ["constrained-slow"])


def test_race_runs_to_its_end_and_is_compared(teacher: ScriptedTeacher, demo: Slate) -> None:
    app = raced(visit())
    assert is_well(app)
    text = words(app)
    assert "Teacher: scripted, free" in text
    assert "valid as written" in text
    assert "repaired" not in text
    shown = metrics(app)
    assert (shown["Tokens"], shown["Passes"]) == ("20", "20")
    student, written = lists(app)
    assert len(student) == len(written) == len(demo.candidates)
    assert written[0].startswith(f"**1**\u2002{escaped(demo.candidates[2].title, 60)}")
    assert {"Kendall tau", "RBO", "Same top 1", "Same top 5"} <= shown.keys()
    assert {"Teacher", "Student", "By the student"} <= set(table_with(app, "By the student")[0])
    assert "NDCG@10" in [row[""] for row in table_with(app, "")]
    assert "n = 1." in text
    assert "Computed, not measured" in text


def test_largest_disagreement_comes_first(teacher: ScriptedTeacher) -> None:
    app = raced(visit())
    gaps = [int("".join(c for c in row["By the student"] if c.isdigit()) or 0) for row in table_with(app, "By the student")]
    assert gaps == sorted(gaps, reverse=True)
    assert gaps[0] > 0


def test_speed_ups_follow_from_the_times_shown(teacher: ScriptedTeacher) -> None:
    app = raced(visit())
    record = app.session_state["chosen ended races"]
    ((_, ended),) = record.items()
    student_ms = ended.records[0].student.ms
    direct, thinking = 1000.0 / student_ms, (1000.0 + 657 * 50.0) / student_ms
    assert metrics(app)["Direct output: measured"] == sides_times(direct)
    app.slider(key="widget thinking").set_value(657).run()
    assert metrics(app)["With thinking: computed"] == sides_times(thinking)


def sides_times(ratio: float) -> str:
    if ratio < 1:
        return f"{1 / ratio:.2g}x slower" if ratio > 0.1 else f"{1 / ratio:,.0f}x slower"
    return f"{ratio:,.0f}x faster" if ratio >= 10 else f"{ratio:.2g}x faster"


def test_page_tells_whether_the_student_learned_from_this_teacher(teacher: ScriptedTeacher) -> None:
    assert f"{escaped('tiny-spd')} learned from reference, not from this teacher" in words(visit(teacher="free-slow"))
    assert f"{escaped('tiny-spd')} learned from reference." in words(visit(teacher="input-order"))
    assert "learned from" not in words(visit(checkpoint=UNTRAINED))


@pytest.mark.parametrize("learned", ["slow", "other, slow"])
def test_page_tells_of_a_student_of_this_teacher(learned: str) -> None:
    training = FACTS.model_copy(update={"teacher": learned})
    info = SimpleNamespace(checkpoint_id="pupil", config=SimpleNamespace(training=training))
    choice = teachers.Choice("free-slow", "checkpoint", "slow", "free")
    told = teachers.kinship(SimpleNamespace(info=info), choice)  # type: ignore[arg-type]
    assert told == f"pupil learned from {escaped(learned)}: from this teacher's own rankings."


def test_speed_up_below_1_is_told_the_other_way_round() -> None:
    assert times(0.35) == "2.9x slower"
    assert times(0.05) == "20x slower"
    assert times(1.0) == "1x faster"


def test_second_race_counts_and_medians_are_said(teacher: ScriptedTeacher) -> None:
    app = raced(raced(visit()))
    assert is_well(app)
    assert "n = 2, medians" in words(app)


def test_running_race_shows_what_was_named_and_a_cancelled_one_goes_on_showing_it(
    teacher: ScriptedTeacher, demo: Slate
) -> None:
    teacher.hold_at = 4
    app = press(visit(), "Race")
    assert teacher.is_held.wait(60)
    app.run()
    assert is_well(app)
    assert "The teacher writes" in words(app)
    assert metrics(app)["Tokens"] == "4"
    assert "Writes: 3\\>1\\>" in words(app)
    student, named = seen = lists(app)
    assert [not cell.endswith("**\u2002") for cell in named] == [True, True] + [False] * (len(demo.candidates) - 2)
    assert not any(cell.endswith("**\u2002") for cell in student)
    race = current_race(app)
    press(app, "Cancel")
    assert "Cancelled when 2 of 10 candidates were named: no time of it is kept." in words(app)
    assert "Writes: 3\\>1\\>" in words(app)
    assert "Nothing has run yet" not in words(app)
    assert lists(app) == seen
    assert "Race" in labels(app)
    teacher.release.set()
    race.future.exception(60)
    app = raced(app)
    assert "valid as written" in words(app)
    assert "Cancelled" not in words(app)
    assert "n = 1." in words(app)


def test_race_cancelled_before_anything_was_ranked_says_so_and_the_earlier_one_stays(teacher: ScriptedTeacher) -> None:
    app = raced(visit())
    with loaders.inference_gate():
        press(app, "Race")
        race = current_race(app)
        press(app, "Cancel")
        assert isinstance(race.future.exception(60), AnswerCancelled)
    assert is_well(app)
    assert "Cancelled before anything was ranked." in words(app)
    assert "valid as written" in words(app)
    assert len(lists(app)) == 2
    assert teacher.written == 20


def test_race_cancelled_while_the_student_ranks_asks_the_teacher_nothing(
    teacher: ScriptedTeacher, monkeypatch: pytest.MonkeyPatch
) -> None:
    ranks, may_end = threading.Event(), threading.Event()

    def slow(*ranked: Any, **how: Any) -> Any:
        ranks.set()
        assert may_end.wait(60)
        return rank_slate(*ranked, **how)

    app = visit()
    monkeypatch.setattr(loaders, "rank_slate", slow)
    press(app, "Race")
    assert ranks.wait(60)
    race = current_race(app)
    press(app, "Cancel")
    may_end.set()
    assert isinstance(race.future.exception(60), AnswerCancelled)
    assert teacher.most_alive == 0


def test_redraw_does_not_look_through_all_memory() -> None:
    """With PyTorch in memory that takes 0.3 s in which no model can run; at four redraws a second none ever could."""
    settings = tomllib.loads((ROOT / ".streamlit" / "config.toml").read_text("utf-8"))
    assert settings["runner"]["postScriptGC"] is False


def test_choosing_another_slate_gives_the_race_up(teacher: ScriptedTeacher) -> None:
    teacher.hold_at = 2
    app = press(visit(), "Race")
    assert teacher.is_held.wait(60)
    race = current_race(app)
    other = load_slates(ROOT / "sample_data" / "slates" / "demo.jsonl")[1].slate_id
    app.selectbox(key="widget slate").set_value(other).run()
    assert is_well(app)
    assert "Nothing has run yet" in words(app)
    teacher.release.set()
    race.future.exception(60)
    assert teacher.written == 2


def test_second_visitor_waits_in_line_and_is_told(teacher: ScriptedTeacher) -> None:
    teacher.hold_at = 2
    first = press(visit(), "Race")
    assert teacher.is_held.wait(60)
    second = press(visit(), "Race")
    assert "Waiting: 1 race before yours" in words(second)
    teacher.release.set()
    for app in (first, second):
        current_race(app).future.result(60)
        assert "valid as written" in words(app.run())
    assert teacher.most_alive == 1


@pytest.mark.parametrize(
    ("text", "badge", "marked"),
    [
        ("1>1>2", "repeats itself", "1 again"),
        ("2>25>1", "names what is not there", "25 is no candidate"),
        ("best is 3", "not a plain list", "best: no number"),
        ("1>2>3", "leaves some out", "1\\>2\\>3"),
        ("<think>10>9</think>", "not a plain list", "nothing"),
    ],
)
def test_repaired_answer_says_so_wherever_it_is_shown(teacher: ScriptedTeacher, text: str, badge: str, marked: str) -> None:
    teacher.pieces = pieces_of(text)
    app = raced(visit())
    assert is_well(app)
    shown = words(app)
    assert badge in shown
    assert marked in shown
    assert shown.count("repaired for display") == 2  # above the list and above the text
    assert "Teacher (repaired)" in table_with(app, "By the student")[0]
    named = {number for number in (1, 2, 3) if str(number) in text.rpartition("</think>")[2]}
    assert sum("not named" in str(cell) for cell in lists(app)[1]) == 10 - len(named)


def test_slate_too_large_is_told_and_the_next_race_works(teacher: ScriptedTeacher, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any, **__: Any) -> Any:
        raise SpdError("slate 'x' has 51 candidates but the student ranks at most 50")

    app = visit()
    with monkeypatch.context() as patch:
        patch.setattr(loaders, "rank_slate", refuse)
        press(app, "Race")
        if (race := app.session_state["chosen race"]) is not None:
            race.runner.future.exception(60)
            app.run()
    assert not app.exception
    assert "51 candidates" in app.error[0].value
    app = raced(app.run())
    assert is_well(app)


def test_no_teacher_is_told_with_the_command_and_the_order_given_is_compared(ready: None, no_records: Path) -> None:
    app = visit()
    assert is_well(app)
    text = words(app)
    assert "No trained teacher is here. `python -m spd_core train --role teacher` makes one" in text
    assert "no clock, only the comparison" in text
    assert "Race" not in labels(app)
    assert app.selectbox(key="widget teacher").value == "input-order"


def test_broken_teacher_is_named_and_not_offered(ready: None, no_records: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    info = SimpleNamespace(checkpoint_id="half", folder=ROOT, config=None, error="checkpoint 'half': adapter is cut short")
    monkeypatch.setattr(loaders, "teachers", lambda: [info])
    app = visit(teacher="free-half")
    assert is_well(app)
    assert "adapter is cut short" in words(app)
    assert "The link asks for the teacher “free\\-half”, which is not here" in words(app)


def test_stored_labels_are_compared_without_a_clock(
    ready: None, no_records: Path, monkeypatch: pytest.MonkeyPatch, demo: Slate
) -> None:
    stored = dataclasses.replace(demo, teacher=Ranking("wise:red[x]", demo.item_ids[::-1]))
    monkeypatch.setattr(loaders, "shelf", lambda name: (stored,))
    app = visit()
    assert is_well(app)
    assert app.selectbox(key="widget teacher").value == "stored"
    assert table_with(app, "By the student")
    assert "Time" not in metrics(app)


def test_student_that_agrees_is_said_to_agree(
    ready: None, no_records: Path, monkeypatch: pytest.MonkeyPatch, demo: Slate
) -> None:
    order = rank_slate(loaders.load("tiny-spd").student, demo).item_ids
    monkeypatch.setattr(loaders, "shelf", lambda name: (dataclasses.replace(demo, teacher=Ranking("twin", order)),))
    app = visit(checkpoint="tiny-spd")
    assert is_well(app)
    assert "The same ranking twice" in words(app)
    assert metrics(app)["Kendall tau"] == "1.00"


def test_every_tricky_slate_is_compared(ready: None, no_records: Path) -> None:
    app = visit(shelf="tricky")
    for slate in load_slates(ROOT / "sample_data" / "slates" / "tricky.jsonl"):
        app.selectbox(key="widget slate").set_value(slate.slate_id).run()
        assert is_well(app), slate.slate_id


# --- remote


def test_remote_endpoint_is_asked_only_when_both_fields_are_filled_and_race_is_pressed(
    ready: None, no_records: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[dict[str, str]] = []

    def fake(**settings: str) -> ScriptedTeacher:
        asked.append(settings)
        return ScriptedTeacher(pieces_of(VALID))

    monkeypatch.setattr(teachers, "open_remote", fake)
    monkeypatch.delenv("OPENAI_BASE_URL", raising=False)
    app = visit(teacher="remote")
    assert is_well(app)
    assert "Fill in base URL and model" in words(app)
    assert next(button for button in app.button if button.label == "Race").disabled
    app.text_input(key="widget base url").set_value("http://localhost:9/v1").run()
    app.text_input(key="widget model").set_value("big").run()
    assert asked == []
    app = raced(app)
    assert is_well(app)
    assert asked == [{"base_url": "http://localhost:9/v1", "model": "big", "key_env": "none"}]
    assert "valid as written" in words(app)


@pytest.mark.parametrize(("option", "value"), [("server.address", "0.0.0.0"), ("server.address", None)])
def test_remote_endpoint_is_off_where_other_machines_can_open_the_app(
    ready: None, no_records: Path, monkeypatch: pytest.MonkeyPatch, option: str, value: str | None
) -> None:
    monkeypatch.delenv(endpoints.ENDPOINTS_VARIABLE, raising=False)
    monkeypatch.setattr(endpoints.st, "get_option", lambda name: value if name == option else get_option(name))
    app = visit(teacher="remote")
    assert is_well(app)
    assert "any visitor could make this one call any address" in words(app)
    assert "SPD_REMOTE_ENDPOINTS=http://localhost:8000/v1" in words(app)
    assert not app.text_input
    assert next(button for button in app.button if button.label == "Race").disabled
    assert "Remote endpoint (off here)" in app.selectbox(key="widget teacher").options
    with pytest.raises(
        SpdError, match=r"base URL 'http://10\.0\.0\.1/v1' is not one of those that this app may call \(none\)"
    ):
        teachers.ready_teacher(teachers.Choice("remote", "remote", base_url="http://10.0.0.1/v1", model="m"))


def test_visitors_choose_among_the_endpoints_that_the_host_allows(
    ready: None, no_records: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[dict[str, str]] = []
    monkeypatch.setattr(teachers, "open_remote", lambda **how: asked.append(how) or ScriptedTeacher(pieces_of(VALID)))
    monkeypatch.setenv(endpoints.ENDPOINTS_VARIABLE, " http://a/v1/, http://b/v1 ,,http://a/v1")
    monkeypatch.setenv("OPENAI_BASE_URL", "http://b/v1")
    app = visit(teacher="remote")
    assert is_well(app)
    address = app.selectbox(key="widget base url")
    assert (address.options, address.value) == (["http://a/v1", "http://b/v1"], "http://b/v1")
    app.text_input(key="widget model").set_value("big").run()
    assert is_well(raced(app))
    assert [how["base_url"] for how in asked] == ["http://b/v1"]
    with pytest.raises(SpdError, match=r"is not one of those that this app may call \(http://a/v1, http://b/v1\)"):
        teachers.ready_teacher(teachers.Choice("remote", "remote", base_url="http://a/v1/x", model="m"))


def test_an_app_on_its_own_machine_calls_any_address_unless_a_proxy_stands_before_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(endpoints.ENDPOINTS_VARIABLE, raising=False)
    context = SimpleNamespace(headers={})
    monkeypatch.setattr(endpoints, "st", SimpleNamespace(context=context, get_option=lambda name: "127.0.0.1"))
    assert endpoints.allowed_endpoints() is None
    for header in endpoints.FORWARDED:
        context.headers = {header: "203.0.113.9"}
        assert endpoints.allowed_endpoints() == ()
    monkeypatch.setenv(endpoints.ENDPOINTS_VARIABLE, "")
    context.headers = {}
    assert endpoints.allowed_endpoints() == ()


@pytest.mark.parametrize(
    ("addresses", "is_own"),
    [(("127.0.0.1", "127.8.0.1", "::1", "localhost"), True), (("0.0.0.0", "::", "192.168.0.2", "", "example.org"), False)],
)
def test_addresses_of_this_machine_alone_are_known(addresses: tuple[str, ...], is_own: bool) -> None:
    assert [endpoints.is_loopback(address) for address in addresses] == [is_own] * len(addresses)


def test_missing_package_is_told(ready: None, no_records: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(**_: str) -> Any:
        raise SpdError("the package openai is missing; install it with `pip install openai`")

    monkeypatch.setattr(teachers, "open_remote", missing)
    app = visit(teacher="remote")
    app.text_input(key="widget base url").set_value("http://localhost:9/v1").run()
    app.text_input(key="widget model").set_value("big").run()
    press(app, "Race")
    assert not app.exception
    assert "`pip install openai`" in app.error[0].value


def test_key_goes_only_to_the_address_that_the_host_has_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "secret")
    monkeypatch.delenv("OPENAI_BASE_URL", raising=False)
    assert teachers.key_variable("http://a/v1") == "none"
    monkeypatch.setenv("OPENAI_BASE_URL", "http://a/v1/")
    assert teachers.key_variable("http://a/v1") == "OPENAI_API_KEY"
    assert teachers.key_variable("http://b/v1") == "none"
    monkeypatch.delenv("OPENAI_API_KEY")
    assert teachers.key_variable("http://a/v1") == "none"


# --- recorded races


@pytest.fixture
def record_file(ready: None, no_records: Path, demo: Slate) -> Path:
    """A recorded race of the demo slate, shipped with the app."""
    events: list[Any] = []
    answer = ScriptedTeacher(pieces_of(VALID), step_ms=3_600_000.0).answer(demo, on_token=events.append)
    result = rank_slate(loaders.load("tiny-spd").student, demo).to_json()
    machine = {"cpu": "abacus :red[x]", "threads": 2, "dtype": "float32"}
    write_record(no_records / "race-demo.json", new_record(demo, result, answer, events, machine))
    return no_records / "race-demo.json"


def test_recorded_race_of_the_slate_is_replayed_without_a_model(record_file: Path) -> None:
    app = press(visit(), "Replay")
    assert is_well(app)
    assert metrics(app)["Tokens"] == "…"  # its first token comes after an hour
    assert "history: recorded]" in words(app)
    press(app, "Skip to the end")
    assert is_well(app)
    text = words(app)
    assert "history: recorded]" in text
    assert escaped("abacus :red[x]") in text
    assert "nothing runs now" in text
    assert ", recorded, n = 1." in text
    assert "valid as written" in text


def test_replay_can_be_left(record_file: Path) -> None:
    app = press(press(visit(), "Replay"), "Cancel")
    assert is_well(app)
    assert "Replay" in labels(app)


def test_damaged_record_is_named_and_the_page_lives(record_file: Path) -> None:
    (record_file.parent / "race-bad.json").write_text("{")
    app = visit()
    assert is_well(app)
    assert message("race-bad.json: not JSON") in words(app)
    assert "Replay" in labels(app)


def test_downloaded_record_can_be_replayed(teacher: ScriptedTeacher, no_records: Path) -> None:
    app = raced(visit())
    ((_, ended),) = app.session_state["chosen ended races"].items()
    write_record(no_records / "race-own.json", ended.records[0])
    data = (no_records / "race-own.json").read_bytes()
    assert parse_record(data, "x") == ended.records[0]
    assert "Replay" in labels(app.run())
    assert recorded_title(ended.records[0]).endswith("scripted, free (1.0 s)")


# --- pieces


def test_marks_are_words_and_text_stays_text() -> None:
    shown = sides.marked_text(marked_answer("1>1 :red[x] $5$ >99", 3))
    assert ":orange-badge[1 again]" in shown
    assert ":red-badge[99 is no candidate]" in shown
    assert ":red[" not in shown.replace(":red-badge[", "")
    assert "$" not in shown.replace("\\$", "")


def test_what_cannot_be_seen_of_a_remote_teacher_is_not_shown(make_slate: MakeSlate) -> None:
    answer = ScriptedTeacher(["2>", "1"]).answer(make_slate(2))
    events = (TokenEvent(0, "2>", 40.0, (1,)),)
    running = View("teacher", events=events, clock_ms=40.0)
    assert sides.teacher_numbers(running) == [("Time", "40 ms"), ("Tokens", "1"), ("Passes", "1")]
    constrained = dataclasses.replace(running, events=(TokenEvent(2, "12>", 40.0, (11,)),))  # three tokens in one pass
    assert sides.teacher_numbers(constrained) == [("Time", "40 ms"), ("Tokens", "3"), ("Passes", "1")]
    remote = dataclasses.replace(running, is_local=False)
    assert sides.teacher_numbers(remote) == [("Time", "40 ms"), ("Chunks", "1")]
    counted = dataclasses.replace(remote, answer=dataclasses.replace(answer, tokens=7))
    assert sides.teacher_numbers(counted) == [("Time", "40 ms"), ("Tokens", "7")]
    assert sides.teacher_numbers(View("student"))[0] == ("Time", "…")


def test_csv_of_a_comparison_neutralises_formulas(make_slate: MakeSlate) -> None:
    slate = make_slate(2, titles=["=1+1", "@x"])
    compared = compare_rankings(slate, Ranking("t", ("c1", "c2")), Ranking("s", ("c2", "c1")))
    lines = as_csv(slate, compared, is_repaired=True).splitlines()
    assert lines[1] == "s1,c1,'=1+1,1,2,1,0"
    assert json.dumps(lines[2]) == '"s1,c2,\'@x,2,1,1,0"'
