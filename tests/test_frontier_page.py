"""The page and the picture of quality against latency: no result, a result, a broken one; no figure without n and source."""

from __future__ import annotations

import math
import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from streamlit.testing.v1 import AppTest

from pages.shared import frontier_view
from pages.shared.text import escaped
from spd_core.errors import SpdError
from spd_core.figures.frontier import FrontierPoint, frontier_chart, frontier_frame, label_groups, pareto_front, spans
from spd_core.frontier_report import QUALITIES, FrontierReport

ROOT = Path(__file__).resolve().parent.parent
PAGE = "pages/frontier.py"
FAMILIES = list(frontier_view.FAMILIES.values())
HOSTILE = "$5 :red[x] ![i](http://x/y.png)"


def ranker(name: str, family: str, mean: float, ms: float, **more: Any) -> dict[str, Any]:
    """A made-up ranker; the intervals are .02 either side."""
    quality = {"mean": mean, "low": mean - 0.02, "high": mean + 0.02, "n": 40}
    times = {"median_ms": ms, "p95_ms": ms * 1.5, "n": 40, "ratio": ms / 100}
    return {"name": name, "family": family, "metrics": dict.fromkeys(QUALITIES, quality)} | times | more


def made_up(**changes: Any) -> FrontierReport:
    """A report of nothing that was ever measured."""
    rankers = [
        ranker("random", "floor", 0.5, 0.04),
        ranker(f"{HOSTILE}, hungarian", "student", 0.75, 100.0, depth=16, layers=30, dtype="bfloat16"),
        ranker("tiny, first column", "student", 0.71, 120.0, depth=30, layers=30, dtype="float32"),
        ranker("first token (FIRST), zero-shot", "first_token", 0.52, 190.0, is_zero_shot=True),
        ranker("pointwise yes/no, zero-shot", "pointwise", 0.53, 1400.0, is_zero_shot=True),
        ranker("tiny teacher, free", "teacher", 0.76, 4000.0, valid_rate=0.9),
    ]
    record: dict[str, Any] = {
        "file": "made-up.jsonl",
        "file_sha256": "0" * 64,
        "candidates": (20, 20),
        "excluded": {"no_relevant": 2},
        "date": "2000-01-01",
        "commit": "abc1234",
        "machine": {"cpu": "Made-up CPU", "cores": 2, "threads": 2, "device": "cpu", "torch": "2.13.0"},
        "warmup": 1,
        "fastest_student": f"{HOSTILE}, hungarian",
        "rankers": rankers,
        "left_out": {"pointwise yes/no, tiny": "no word for `yes`"},
    }
    return FrontierReport.model_validate(record | changes)


def points(*values: tuple[float, float], family: str = FAMILIES[0]) -> list[FrontierPoint]:
    return [FrontierPoint(f"r{k}", family, q, q - 0.01, q + 0.01, 9, ms, ms * 2, ms) for k, (ms, q) in enumerate(values)]


# ------------------------------------------------------------------ the picture


@given(st.lists(st.tuples(st.sampled_from([1.0, 2.0, 3.0, 5.0]), st.sampled_from([0.1, 0.2, 0.3])), min_size=1, max_size=9))
def test_the_front_holds_exactly_those_that_nothing_beats(pairs: list[tuple[float, float]]) -> None:
    front = pareto_front(*zip(*pairs, strict=True))
    for (time, quality), is_on in zip(pairs, front, strict=True):
        as_good = {pair for pair in pairs if pair[0] <= time and pair[1] >= quality}
        assert is_on == (as_good == {(time, quality)})
    kept = sorted({pair for pair, is_on in zip(pairs, front, strict=True) if is_on})
    assert kept == sorted(kept, key=lambda pair: pair[1])  # slower ones on it are better


def test_the_frame_numbers_rankers_from_the_fastest() -> None:
    frame = frontier_frame(points((30.0, 0.7), (10.0, 0.6), (20.0, 0.5), (10.0, 0.65)))
    assert list(frame["name"]) == ["r1", "r3", "r2", "r0"]  # equal times keep their order, whatever the metric
    assert list(frame["number"]) == [1, 2, 3, 4]
    assert list(frame["on_front"]) == [False, True, False, True]


def test_points_that_touch_share_a_label_and_of_neighbours_the_lower_is_labelled_below() -> None:
    frame = frontier_frame(points((100.0, 0.700), (101.0, 0.701), (110.0, 0.65), (112.0, 0.60), (900.0, 0.5)))
    labels = label_groups(frame)
    assert list(labels["label"]) == ["1-2", "3", "4", "5"]
    assert list(labels["is_above"]) == [True, True, False, True]
    assert list(labels["height"]) == pytest.approx([0.711, 0.66, 0.59, 0.51])


@given(st.lists(st.tuples(st.floats(0.01, 1e5), st.floats(0, 1)), min_size=1, max_size=12))
def test_every_number_is_on_exactly_one_label(pairs: list[tuple[float, float]]) -> None:
    frame = frontier_frame(points(*pairs))
    told: list[int] = []
    for span in (span for label in label_groups(frame)["label"] for span in label.split(", ")):
        first, _, last = span.partition("-")
        told += range(int(first), int(last or first) + 1)
    assert sorted(told) == list(frame["number"])


@pytest.mark.parametrize(("numbers", "text"), [([4], "4"), ([1, 2], "1-2"), ([1, 2, 3, 5, 8, 9], "1-3, 5, 8-9")])
def test_runs_of_numbers_are_written_as_spans(numbers: list[int], text: str) -> None:
    assert spans(numbers) == text


def layers(report: FrontierReport, *, levels: tuple[str, ...] = (), dark: bool = False) -> dict[str, list[dict[str, Any]]]:
    """Rows of the data of each mark."""
    rows = frontier_view.points(report, "AUC")
    spec = frontier_chart(rows, metric="AUC", families=FAMILIES, levels=levels, dark=dark).to_dict()
    found: dict[str, list[dict[str, Any]]] = {}
    for layer in spec["layer"]:
        found.setdefault(layer["mark"]["type"], []).extend(spec["datasets"][layer["data"]["name"]])
    return found


@pytest.mark.parametrize("dark", [False, True])
def test_the_chart_draws_every_ranker_with_its_interval(dark: bool) -> None:
    rows = frontier_view.points(made_up(), "AUC")
    drawn = layers(made_up(), dark=dark)
    assert set(drawn) == {"line", "rule", "point", "text"}
    assert [(row["quality"], row["low"], row["high"]) for row in drawn["rule"]] == [(r.quality, r.low, r.high) for r in rows]
    assert [row["name"] for row in drawn["point"]] == [row.name for row in rows]
    assert [row["median_ms"] for row in drawn["line"]] == [0.04, 100.0, 4000.0]
    assert {row["label"] for row in drawn["text"]} == set("123456")


def test_families_that_are_levels_have_a_line_instead_of_a_point_and_still_beat_others() -> None:
    better = [ranker("floor", "floor", 0.8, 1.0), ranker("a", "student", 0.7, 9.0), ranker("b", "student", 0.9, 50.0)]
    drawn = layers(made_up(rankers=better, fastest_student="a"), levels=(FAMILIES[4],))
    assert [row["name"] for row in drawn["point"]] == ["a", "b"]
    assert [row["name"] for row in drawn["rule"]] == ["a", "b", "floor"]
    assert [row["name"] for row in drawn["line"]] == ["b"]  # a is slower and worse than the floor
    alone = layers(made_up(rankers=[better[0], better[1]], fastest_student="a"), levels=tuple(FAMILIES))
    assert [row["name"] for row in alone["point"]] == ["floor", "a"]  # lines alone would be no picture


def test_kinds_differ_in_shape_and_time_is_on_a_log_axis() -> None:
    rows = frontier_view.points(made_up(), "AUC")
    spec = frontier_chart(rows, metric="AUC", families=FAMILIES).to_dict()
    (encoding,) = (layer["encoding"] for layer in spec["layer"] if layer["mark"]["type"] == "point")
    assert len(set(encoding["shape"]["scale"]["range"])) == len(encoding["shape"]["scale"]["domain"]) == 5
    assert encoding["x"]["scale"]["type"] == "log"


def test_a_family_keeps_its_look_whoever_else_is_there() -> None:
    def look(rows: list[FrontierPoint]) -> dict[str, tuple[str, str]]:
        spec = frontier_chart(rows, metric="AUC", families=FAMILIES).to_dict()
        (encoding,) = (layer["encoding"] for layer in spec["layer"] if layer["mark"]["type"] == "point")
        pairs = zip(encoding["color"]["scale"]["range"], encoding["shape"]["scale"]["range"], strict=True)
        return dict(zip(encoding["color"]["scale"]["domain"], pairs, strict=True))

    whole = look(frontier_view.points(made_up(), "AUC"))
    alone = look(points((5.0, 0.6), family=FAMILIES[4]))
    assert alone == {FAMILIES[4]: whole[FAMILIES[4]]}


def test_one_ranker_alone_can_be_drawn() -> None:
    (row,) = points((5.0, 1.0))
    flat = row._replace(low=1.0, high=1.0)
    spec = frontier_chart([flat], metric="AUC", families=FAMILIES).to_dict()
    (domain,) = (layer["encoding"]["y"]["scale"]["domain"] for layer in spec["layer"] if layer["mark"]["type"] == "point")
    assert domain == [0.95, 1.0]


def test_no_ranker_is_no_picture() -> None:
    with pytest.raises(SpdError, match="got 0 rankers; measure at least one with `python -m spd_core frontier`"):
        frontier_chart([], metric="AUC", families=FAMILIES)


# ------------------------------------------------------------------ words and tables


def test_the_headline_names_the_best_of_each_kind_with_interval_and_time() -> None:
    assert frontier_view.headline(made_up(), "AUC") == [
        f"The best student is {escaped(HOSTILE + ', hungarian')}: AUC 0.750 (0.730 to 0.770) in 100 ms.",
        f"The best other use of the language model: {escaped('tiny teacher, free')}: AUC 0.760 (0.740 to 0.780) in 4000 ms "
        "(40 times as long).",
        "The best without a language model: random: AUC 0.500 (0.480 to 0.520) in 0.04 ms (2,500 times faster).",
    ]
    alone = made_up(rankers=[ranker("x", "student", 0.7, 10.0)], fastest_student="x")
    assert frontier_view.headline(alone, "AUC") == ["The best student is x: AUC 0.700 (0.680 to 0.720) in 10 ms."]


def test_of_equally_good_students_the_faster_one_is_named() -> None:
    rankers = [ranker("slow", "student", 0.7, 20.0), ranker("fast", "student", 0.7, 10.0)]
    (line,) = frontier_view.headline(made_up(rankers=rankers, fastest_student="fast"), "AUC")
    assert line.startswith("The best student is fast:")


def test_the_table_holds_the_numbers_of_the_unbeaten_and_of_the_best_of_each_kind() -> None:
    table = frontier_view.key_table(frontier_view.points(made_up(), "AUC"), "AUC")
    assert list(table["No."]) == ["**1**", "**2**", "**4**", "**5**", "**6**"]  # 3 is beaten by 2, of its own kind
    assert list(table["AUC (95 %, n = 40)"])[1] == "**0.750** (0.730 to 0.770)"
    assert list(table["ms, median (p95)"])[1:3] == ["**100** (150)", "**190** (285)"]
    assert list(table["Fastest student = 1"]) == ["< 0.01", "1", "1.9", "14", "40"]
    assert ["unbeaten" in cell for cell in table["Ranker"]] == [True, True, False, False, True]


def test_the_whole_table_holds_every_metric_of_every_ranker() -> None:
    table = frontier_view.whole_table(made_up())
    assert set(QUALITIES) < set(table.columns)
    assert list(table["No."]) == [1, 2, 3, 4, 5, 6]
    assert list(table["Layers read"]) == ["", "16 of 30", "30 of 30", "", "", ""]
    assert list(table["Valid as written"]) == ["", "", "", "", "", "90.0%"]


@pytest.mark.parametrize("machine", [{}, {"threads": 1, "cpu": "x"}, {"device": "GPU", "cpu": "y", "threads": "many"}])
def test_the_source_is_told_whatever_is_known_of_the_machine(machine: dict[str, Any]) -> None:
    text = frontier_view.source(made_up(machine=machine, commit=None, candidates=(5, 20)))
    assert text.startswith(f"n = 40 slates of {escaped('made-up.jsonl')}, 5 to 20 candidates; measured")
    assert ("1 thread" in text) == (machine.get("threads") == 1)
    assert "commit" not in text


# ------------------------------------------------------------------ the page


@pytest.fixture
def results(ready: None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """An empty folder for results."""
    monkeypatch.setattr(frontier_view, "RESULTS", tmp_path)
    return tmp_path


def visit() -> AppTest:
    return AppTest.from_file(str(ROOT / "app.py"), default_timeout=240).run().switch_page(PAGE).run()


def words(app: AppTest) -> str:
    kinds = ("markdown", "caption", "info", "error", "title")
    return "\n".join(str(element.value) for kind in kinds for element in app.get(kind))


def test_without_a_result_the_page_names_the_command(results: Path) -> None:
    app = visit()
    assert not app.exception
    assert not app.error
    assert "Nothing is measured yet" in words(app)
    assert [block.value for block in app.code] == [frontier_view.COMMAND]
    assert not app.get("vega_lite_chart")


def test_a_result_is_shown_with_n_and_source_and_a_table(results: Path) -> None:
    (results / "frontier-a.json").write_text(made_up().model_dump_json(), "utf-8")
    app = visit()
    assert not app.exception
    assert not app.error
    (chart,) = app.get("vega_lite_chart")
    assert chart.proto.alt == frontier_view.ALT
    text = words(app)
    assert f"n = 40 slates of {escaped('made-up.jsonl')}" in text
    assert "Made\\-up CPU" in text
    assert "abc1234" in text
    assert "90% of answers were rankings as written" in text
    assert "2 slates left out" in text
    assert f"Left out: {escaped('pointwise yes/no, tiny')}: no word for `yes`" in text
    assert "near chance" in text
    assert len(app.table[0].value) == 5
    assert len(app.dataframe[0].value) == 6
    for caption in app.caption:
        if caption.value.startswith("Numbers are those"):
            assert len(re.findall(r"\S+", caption.value)) <= 25


def test_another_metric_gives_its_own_table(results: Path) -> None:
    (results / "frontier-a.json").write_text(made_up().model_dump_json(), "utf-8")
    app = visit()
    app.get("button_group")[0].set_value("NDCG@10").run()
    assert "NDCG@10 (95 %, n = 40)" in app.table[0].value.columns
    assert "NDCG@10 0.750" in words(app)


def test_all_rankers_can_have_a_point(results: Path) -> None:
    (results / "frontier-a.json").write_text(made_up().model_dump_json(), "utf-8")
    app = visit()
    before = app.get("vega_lite_chart")[0].proto.spec
    app.get("button_group")[1].set_value("all").run()
    assert not app.exception
    assert app.get("vega_lite_chart")[0].proto.spec != before


def test_hostile_names_stay_text(results: Path) -> None:
    (results / "frontier-a.json").write_text(made_up().model_dump_json(), "utf-8")
    cells = frontier_view.key_table(frontier_view.points(made_up(), "AUC"), "AUC")["Ranker"]
    text = words(visit()) + "\n".join(cells)
    assert HOSTILE not in text
    assert escaped(HOSTILE + ", hungarian") in text


def test_a_broken_result_is_named_and_the_others_are_shown(results: Path) -> None:
    (results / "frontier-a.json").write_text('{"file": 3}', "utf-8")
    (results / "frontier-b.json").write_text(made_up().model_dump_json(), "utf-8")
    (results / "frontier-c.json").write_text(made_up(date="2000-02-02").model_dump_json(), "utf-8")
    app = visit()
    assert not app.exception
    assert "frontier\\-a\\.json" in app.error[0].value
    box = next(box for box in app.selectbox if box.label == "Result")
    assert box.options == [
        f"made-up.jsonl, {date} (frontier-{name}.json)" for name, date in (("b", "2000-01-01"), ("c", "2000-02-02"))
    ]
    box.set_value("frontier-c.json").run()
    assert "2000\\-02\\-02" in words(app)


def test_intervals_of_the_made_up_report_are_what_the_chart_gets() -> None:
    rows = frontier_view.points(made_up(), "Recall@1")
    assert all(math.isclose(row.high - row.low, 0.04) for row in rows)
