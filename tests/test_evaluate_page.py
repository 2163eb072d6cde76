"""Evaluate as a visitor meets it: stored results with n and source, a run with cancel, and the way from a bar to a matrix."""

from __future__ import annotations

import csv
import dataclasses
import io
import json
import re
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import numpy as np
import pytest
from streamlit.testing.v1 import AppTest

from pages.shared import evaluated_frames, evaluating, evaluation_rankers, evaluation_runs, loaders
from pages.shared.evaluated_slates import worst_first
from pages.shared.evaluating import EvaluationRun, Job
from pages.shared.evaluation_sources import by_digest
from spd_core.datasets import write_jsonl
from spd_core.errors import SpdError
from spd_core.figures.metric_bars import Bar, bars_frame, metric_bars
from spd_core.metrics import METRICS
from spd_core.recipes.evaluate import evaluate_file
from spd_core.recipes.evaluation import report_bytes
from spd_core.recipes.evaluation_report import MAKE, EvaluationReport, read_if_report, read_report
from spd_core.recipes.ranker_kinds import Ranked, TeacherRanker
from spd_core.slate import Ranking, Slate
from spd_core.teachers import TEACHERS
from spd_core.teachers.input_order import InputOrder

ROOT = Path(__file__).resolve().parent.parent
MakeSlate = Callable[..., Slate]
HOSTILE = "=1+1 $x$ <script>![i](http://x/y.png)"


def visit() -> AppTest:
    """A new visitor who turns to the page."""
    app = AppTest.from_file(str(ROOT / "app.py"), default_timeout=120)
    return app.run().switch_page("pages/evaluate.py").run()


def words(app: AppTest) -> str:
    kinds = ("markdown", "caption", "info", "warning", "error", "title", "code")
    return "\n".join(str(element.value) for kind in kinds for element in app.get(kind))


def is_well(app: AppTest) -> bool:
    return not app.exception and not app.error


def press(app: AppTest, label: str) -> AppTest:
    next(button for button in app.button if button.label == label).click()
    return app.run()


@pytest.fixture(scope="module")
def slates(make_slate: MakeSlate) -> list[Slate]:
    return [
        make_slate(6, f"s{k}", titles=[f"Soap {k} {c}" for c in "abcdef"], label=(f"c{k % 6 + 1}",), extra={"shop": HOSTILE})
        for k in range(12)
    ] + [make_slate(4, "unlabelled")]


@pytest.fixture(scope="module")
def stored(slates: list[Slate], tmp_path_factory: pytest.TempPathFactory) -> dict:
    """A report over floors."""
    file = tmp_path_factory.mktemp("slates") / "mine.jsonl"
    write_jsonl(file, slates)
    return evaluate_file(str(file), rankers=["input_order", "random", "tfidf"])


@pytest.fixture
def shelf(ready: None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A machine with empty folders for results, data and the store."""
    for name in ("results", "data"):
        (tmp_path / name).mkdir()
    monkeypatch.setattr(loaders, "RESULTS", tmp_path / "results")
    monkeypatch.setenv("SPD_DATA", str(tmp_path / "data"))
    monkeypatch.setattr(evaluation_runs, "default_folder", lambda: tmp_path / "store")
    return tmp_path


# --- stored results


def test_without_a_result_the_page_names_the_command_and_offers_a_run(shelf: Path) -> None:
    app = visit()
    assert is_well(app)
    assert [block.value for block in app.code] == [MAKE]
    assert "No stored result is here" in words(app)
    assert not app.get("vega_lite_chart")


def test_a_result_is_shown_with_n_source_date_and_the_slates_left_out(shelf: Path, stored: dict) -> None:
    (shelf / "results" / "evaluate-a.json").write_bytes(report_bytes(stored))
    (shelf / "results" / "bench-cpu.json").write_text('{"stages": {}}')  # of another command
    app = visit()
    assert is_well(app)
    text = words(app)
    assert "n = 12 slates of mine\\.jsonl" in text
    assert stored["date"].replace("-", "\\-") in text
    assert "**1 slate** left out: no candidate is relevant" in text
    assert "Recall\\@10 is 1 for any order on 12 of 12 slates" in text.replace("\u2060", "")
    assert len(app.get("vega_lite_chart")) == 3
    table = next(frame.value for frame in app.dataframe if "MRR" in frame.value and "Ranker" in frame.value)
    assert table["Ranker"].tolist() == ["Order given", "Random", "TF-IDF of titles"]
    assert table["n"].tolist() == [12, 12, 12]
    figure = stored["rankers"]["random"]["AUC"]
    assert table["AUC"][1] == f"{figure['mean']:.3f} ({figure['low']:.3f} to {figure['high']:.3f})"
    for caption in app.caption:
        if "95 % intervals" in caption.value:  # those of pictures
            assert len(re.findall(r"\S+", caption.value)) <= 25
    assert not re.search(r"(?<!\\)\$", text)


def test_every_choice_redraws_what_hangs_on_it(shelf: Path, stored: dict) -> None:
    (shelf / "results" / "evaluate-a.json").write_bytes(report_bytes(stored))
    app = visit()
    app.segmented_control(key="widget evaluate metric").set_value("MRR").run()
    app.selectbox(key="widget evaluate ranker").set_value("random").run()
    assert is_well(app)
    text = words(app)
    assert "Best on MRR" in text
    assert "##### Is Random better than the others?" in text
    report = EvaluationReport.model_validate(stored)
    found = report.differences_to("random", "MRR")
    rows = next(table.value for table in app.table if "p" in table.value)
    assert rows["Ranker"].tolist() == ["Order given", "TF-IDF of titles"]
    assert rows.iloc[0, 1] == evaluated_frames.interval(found["input_order"], "+.3f")
    app.selectbox(key="widget evaluate attribute").set_value("target place").run()
    app.selectbox(key="widget evaluate slice").set_value("last fifth").run()
    assert is_well(app)
    assert "of 2 slates of this slice" in words(app)


def test_a_result_of_an_earlier_version_shows_what_it_has(shelf: Path, stored: dict) -> None:
    old = {key: stored[key] for key in stored if key not in ("slices", "per_slate", "date", "machine", "commit")}
    old["groups"] = {"same_day_as_history": {"no": stored["metrics"], "yes": stored["metrics"]}}
    (shelf / "results" / "old.json").write_text(json.dumps(old))
    app = visit()
    assert is_well(app)
    text = words(app)
    assert "date not recorded" in text
    assert "keeps no single slates" in text
    assert any("p" in table.value for table in app.table)
    app.selectbox(key="widget evaluate ranker").set_value("random").run()
    assert is_well(app)
    assert "keeps paired differences only of Order given" in words(app)


def test_a_broken_result_is_named_and_the_others_are_shown(shelf: Path, stored: dict) -> None:
    (shelf / "results" / "evaluate-a.json").write_text('{"file": 3}')
    (shelf / "results" / "evaluate-b.json").write_bytes(report_bytes(stored))
    app = visit()
    assert not app.exception
    assert "evaluate\\-a\\.json" in app.error[0].value
    assert app.selectbox(key="widget evaluation report").options == [
        f"mine.jsonl, n = 12, {stored['date']} (evaluate-b.json)"
    ]


def test_the_shipped_results_can_be_opened(ready: None) -> None:
    app = visit()
    assert is_well(app)
    assert "n = 1,000 slates of valid\\.jsonl\\.gz" in words(app)


# --- from a bar to a matrix


def test_slates_are_listed_worst_first_and_open_on_other_pages(shelf: Path, slates: list[Slate], stored: dict) -> None:
    (shelf / "results" / "evaluate-a.json").write_bytes(report_bytes(stored))
    write_jsonl(shelf / "data" / "mine.jsonl", slates)
    app = visit()
    report = EvaluationReport.model_validate(stored)
    rows = next(table.value for table in app.table if "Right item" in table.value)
    assert rows["Right item"].tolist()[:2] == ["**6th** of 6", "**6th** of 6"]  # the order given puts labels last twice
    assert "the first candidate is wrong on **10** of 12 slates" in words(app)
    app.segmented_control(key="widget evaluate which").set_value("wrong").run()
    assert is_well(app)
    values = report.per_slate.values["input_order"]["AUC"]
    worst = report.per_slate.slate_ids[int(np.argmin(values))]
    assert app.selectbox(key="widget evaluate slate").value == worst
    press(app, "Open its score matrix")
    assert is_well(app)
    assert [title.value for title in app.title] == ["Score matrix"]
    assert app.selectbox(key="widget slate").value == worst


def test_slates_that_are_not_here_are_listed_by_id(shelf: Path, slates: list[Slate], stored: dict) -> None:
    (shelf / "results" / "evaluate-a.json").write_bytes(report_bytes(stored))
    changed = [slate for slate in slates if slate.slate_id != "s0"]
    write_jsonl(shelf / "data" / "mine.jsonl", changed)  # of that name, but of other content
    app = visit()
    assert is_well(app)
    assert "is not here, so its slates cannot be opened" in words(app)


def test_worst_first_breaks_ties_by_the_rank_of_the_right_item(slates: list[Slate], stored: dict, tmp_path: Path) -> None:
    report = EvaluationReport.model_validate(stored)
    write_jsonl(tmp_path / "mine.jsonl", slates)
    known = by_digest(tmp_path / "mine.jsonl")
    found = worst_first(report.per_slate, known, ranker="input_order", metric="Recall@1", indices=range(12), only_wrong=False)
    assert [one.first_right for one in found] == [6, 6, 5, 5, 4, 4, 3, 3, 2, 2, 1, 1]
    assert [one.value for one in found] == [0.0] * 10 + [1.0] * 2
    assert all(one.slate is not None and one.slate.slate_id == one.slate_id for one in found)
    wrong = worst_first(report.per_slate, {}, ranker="input_order", metric="AUC", indices=[0, 3], only_wrong=True)
    assert [(one.slate_id, one.slate) for one in wrong] == [("s3", None)]


# --- a run


def finished(app: AppTest) -> AppTest:
    """The page once its run is over; each look draws it again as the browser's poll does."""
    run: EvaluationRun = app.session_state["chosen evaluation run"]
    run.thread.join(60)
    return app.run()


def test_a_run_measures_a_student_beside_floors_and_can_be_looked_into(shelf: Path, tiny_teacher_dir: Path) -> None:
    app = visit()
    app.segmented_control(key="widget evaluate view").set_value("run").run()
    assert "Nothing is measured yet" in words(app)
    assert app.multiselect(key="widget evaluate rankers").value[:2] == [
        "student:tiny-spd:hungarian",
        "student:tiny-spd:expected_position",
    ]
    finished(press(app, "Run"))
    assert is_well(app)
    shown = next(frame.value for frame in app.dataframe if "MRR" in frame.value and "Ranker" in frame.value)
    assert shown["Ranker"].tolist() == [
        "tiny-spd, Hungarian",
        "tiny-spd, Expected position",
        "Reference",
        "TF-IDF of titles",
        "Random",
    ]
    assert set(shown["n"]) == {len(loaders.shelf("demo"))}
    app.selectbox(key="widget evaluate ranker").set_value("student:tiny-spd:expected_position").run()
    press(app, "Open its ranking")
    assert is_well(app)
    assert [title.value for title in app.title] == ["Rank"]
    assert app.selectbox(key="widget decoder").value == "expected_position"
    app.switch_page("pages/evaluate.py").run()
    assert is_well(app)
    assert "n = 14 slates of demo\\.jsonl" in words(app)  # the result stays when the page is left
    finished(press(app, "Run"))
    assert "model results were there already" in words(app)


def test_nobody_chosen_means_no_run(shelf: Path) -> None:
    app = visit()
    app.segmented_control(key="widget evaluate view").set_value("run").run()
    app.multiselect(key="widget evaluate rankers").set_value([]).run()
    assert is_well(app)
    assert next(button for button in app.button if button.label == "Run").disabled


def test_a_file_that_is_no_slates_is_named_and_the_page_stays(shelf: Path) -> None:
    (shelf / "data" / "items.jsonl").write_text('{"item_id": "a", "title": "b"}\n')
    app = visit()
    app.segmented_control(key="widget evaluate view").set_value("run").run()
    app.selectbox(key="widget evaluate file").set_value("data items.jsonl").run()
    press(app, "Run")
    assert not app.exception
    assert "items\\.jsonl line 1" in app.error[0].value


class Held:
    """A ranker that waits for the test before each slate but the first."""

    names, provenance = ("held",), {}

    def __init__(self) -> None:
        self.go, self.waits, self.ranked = threading.Semaphore(1), threading.Semaphore(0), 0

    def rank_all(self, slates: Sequence[Slate]) -> Iterator[list[Ranked]]:
        for slate in slates:
            self.waits.release()
            assert self.go.acquire(timeout=30)
            self.ranked += 1
            yield [Ranked("held", Ranking("held", slate.item_ids))]


def run_of(slates: Sequence[Slate], *rankers: object, **options: object) -> EvaluationRun:
    names = [name for ranker in rankers for name in ranker.names]
    return EvaluationRun(Job("f.jsonl", slates, rankers, names, None), threading.Lock(), **options)


class TestRun:
    def test_cancelled_run_shows_so_at_once_and_stops_at_the_next_slate(self, slates: list[Slate]) -> None:
        held = Held()
        run = run_of(slates, held).start()
        for _ in range(2):
            assert held.waits.acquire(timeout=30)
        assert run.look().phase == "ranking"
        assert run.look().total == 13
        run.cancel()
        assert run.look().phase == "cancelled"  # although the ranker has not answered
        held.go.release()
        run.thread.join(30)
        assert (held.ranked, run.report, run.gate.locked()) == (2, None, False)

    def test_done_run_has_the_report_that_the_command_gives(self, slates: list[Slate], stored: dict) -> None:
        run = run_of(
            slates, *(TeacherRanker((name,), TEACHERS[name](slates, [])) for name in ("input_order", "random", "tfidf"))
        )
        run.run()
        progress = run.look()
        assert (progress.phase, progress.done) == ("done", 13)
        assert [line.partition(" (")[0] for line in progress.log] == ["13 slates ranked", "figures and intervals computed"]
        assert json.loads(run.data)["rankers"] == stored["rankers"]
        assert run.report == EvaluationReport.model_validate(json.loads(run.data))

    def test_run_that_nobody_looks_at_is_given_up(self, slates: list[Slate]) -> None:
        now = [0.0]
        run = run_of(slates, TeacherRanker(("given",), InputOrder()), clock=lambda: now[0])
        now[0] = evaluating.LEFT_ALONE_S + 1
        run.run()
        assert (run.report, run.done) == (None, 0)

    def test_failed_run_says_why_and_a_defect_says_no_more_than_it_knows(
        self, slates: list[Slate], make_slate: MakeSlate
    ) -> None:
        bad = run_of([make_slate(3, "unlabelled")], TeacherRanker(("given",), InputOrder())).start()
        bad.thread.join(30)
        with pytest.raises(SpdError, match="no slate can be measured"):
            bad.look()
        broken = run_of(slates, TeacherRanker(("given",), None)).start()
        broken.thread.join(30)
        with pytest.raises(SpdError, match="broke off through a defect, which the app's log describes; press Run again"):
            broken.look()


# --- frames and files


class TestFiles:
    def test_csv_holds_each_figure_with_its_n_and_no_formula(self, stored: dict) -> None:
        report = EvaluationReport.model_validate(stored)
        rows = list(csv.DictReader(io.StringIO(evaluated_frames.as_csv(report))))
        whole = [row for row in rows if not row["attribute"]]
        assert len(whole) == 3 * len(METRICS)
        assert {row["n"] for row in whole} == {"12"}
        assert {row["slice"] for row in rows if row["attribute"] == "shop"} == {f"'{HOSTILE}"}
        lines = list(csv.DictReader(io.StringIO(evaluated_frames.slates_csv(report))))
        assert len(lines) == 12 * 3
        assert {line["shop"] for line in lines} == {f"'{HOSTILE}"}

    def test_html_is_one_page_without_markup_of_others(self, stored: dict) -> None:
        page = evaluated_frames.as_html(EvaluationReport.model_validate(stored | {"file": HOSTILE}))
        assert "<script" not in page
        assert "&lt;script&gt;" in page
        assert not re.search(r"(src|href)=", page)
        assert "n = 12" in page
        assert page.count("<table>") == 1 + len(METRICS) + len(stored["slices"])
        figure = stored["rankers"]["random"]["MRR"]
        assert f"{figure['mean']:.3f} ({figure['low']:.3f} to {figure['high']:.3f})" in page

    def test_report_that_was_downloaded_can_be_stored_and_read_again(self, stored: dict, tmp_path: Path) -> None:
        file = tmp_path / "evaluate-x.json"
        file.write_bytes(report_bytes(stored))
        assert read_report(file) == EvaluationReport.model_validate(stored)

    @pytest.mark.parametrize(
        ("change", "problem"),
        [
            ({"n": 0}, "n: Input should be greater than or equal to 1"),
            ({"decoder": "nobody"}, "the main ranker is not among the rankers"),
            ({"rankers": {"input_order": {}}}, "each ranker needs exactly the metrics AUC"),
            ({"per_slate": {"slate_ids": ["a"], "digests": [], "attributes": {}, "values": {}}}, "as long as slate_ids"),
            (
                {"per_slate": {"slate_ids": [], "digests": [], "attributes": {}, "values": {}}},
                "other rankers than the report",
            ),
        ],
    )
    def test_damaged_report_is_refused_with_what_is_wrong(
        self, stored: dict, tmp_path: Path, change: dict, problem: str
    ) -> None:
        file = tmp_path / "evaluate-x.json"
        file.write_text(json.dumps(stored | change))
        with pytest.raises(SpdError, match=problem):
            read_if_report(file)
        with pytest.raises(SpdError, match=r"evaluate-y\.json: cannot be read: No such file"):
            read_report(tmp_path / "evaluate-y.json")

    @pytest.mark.parametrize("content", ["{", "[1]", '{"rankers": {}}', "[" * 5000])
    def test_files_of_other_commands_are_passed_over(self, tmp_path: Path, content: str) -> None:
        (tmp_path / "bench.json").write_text(content)
        assert read_if_report(tmp_path / "bench.json") is None


@pytest.mark.parametrize(
    ("name", "title"),
    [
        ("stored", "Stored in the slates"),
        ("by:initial_rank", "by initial_rank"),
        ("student:a:greedy", "a, Greedy"),
        ("student:/x/b", "b, Hungarian"),
        ("teacher:t", "t teacher, constrained"),
        ("teacher:t:free", "t teacher, free"),
        ("first_token:zero-shot", "zero-shot, first letter (FIRST)"),
        ("pointwise:t", "t, yes/no (pointwise)"),
        ("labels:/x/l.jsonl", "labels of l.jsonl"),
        ("hungarian", "Hungarian"),
        ("cooccurrence", "Bought together"),
    ],
)
def test_rankers_have_names_for_people(name: str, title: str) -> None:
    assert evaluation_rankers.ranker_title(name) == title


def test_the_ranking_that_slates_store_can_be_chosen(ready: None, slates: list[Slate]) -> None:
    assert "stored" in evaluation_rankers.ranker_names()
    (ranker,) = evaluation_rankers.build(["stored"], [])
    ranked = dataclasses.replace(slates[0], teacher=Ranking("sage", slates[0].item_ids[::-1]))
    ((found,),) = ranker.rank_all([ranked])
    assert found.ranking == Ranking("stored", slates[0].item_ids[::-1])


@pytest.mark.parametrize("dark", [False, True])
def test_bars_keep_rows_of_one_title_and_of_hostile_ones(dark: bool) -> None:
    bars = [Bar(title, 0.5, 0.4, 0.6, 9) for title in ("1984", "1984", "</script>", "a.b[c]:d")]
    chart = metric_bars(bars, title="AUC", picked=2, dark=dark).to_dict()
    rows = next(iter(chart["datasets"].values()))
    assert [row["title"] for row in rows] == [bar.title for bar in bars]
    assert len({row["row"] for row in rows}) == 4
    assert bars_frame(bars, 2)["picked"].tolist() == [False, False, True, False]
    assert "</script>" not in json.dumps(chart["layer"][0]["encoding"])
    assert "u00b7" not in json.dumps(chart)  # no "1 · 1984": rankers and slices are in no order that counts
