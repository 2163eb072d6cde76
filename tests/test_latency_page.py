"""The page of latency with stored results, its pictures and its tables; measuring on the spot is in `test_pages`."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from stored_measurement import HOSTILE, contest, cost, older, stored
from streamlit.testing.v1 import AppTest

from pages.shared import loaders, stored_bench
from pages.shared import stored_bench_frames as frames
from pages.shared.text import escaped, message
from spd_core.errors import SpdError
from spd_core.figures.bench_curves import CurvePoint, Rate, curve_frame, duration_curves, rate_curve
from spd_core.recipes.bench_report import MAKE, BenchReport

ROOT = Path(__file__).resolve().parent.parent
NAMES = ("a", "b", "c")


def report(**changes: Any) -> BenchReport:
    return BenchReport.model_validate(stored(**changes))


def rows_of(spec: dict[str, Any], mark: str) -> list[dict[str, Any]]:
    """Data of all layers of one mark."""
    found = []
    for layer in spec["layer"]:
        if layer["mark"]["type"] == mark:
            data = layer.get("data", spec.get("data"))
            found += spec["datasets"][data["name"]]
    return found


# --- pictures


@pytest.mark.parametrize("dark", [False, True])
@pytest.mark.parametrize("is_log", [False, True])
def test_every_duration_is_drawn_with_its_p95(dark: bool, is_log: bool) -> None:
    points = [CurvePoint("a", 20, 5.0, 6.0, 3), CurvePoint("a", 10, 4.0, 9.0, 3), CurvePoint("b", 10, 40.0, 41.0, 3, "10x")]
    spec = duration_curves(points, series=NAMES, is_log=is_log, dark=dark).to_dict()
    for mark in ("line", "rule", "point"):
        drawn = {(row["series"], row["candidates"], row["median_ms"], row["p95_ms"]) for row in rows_of(spec, mark)}
        assert drawn == {point[:4] for point in points}
    assert [row["label"] for row in rows_of(spec, "text")] == ["10x"]
    scales = next(layer["encoding"] for layer in spec["layer"] if layer["mark"]["type"] == "point")
    assert scales["y"]["scale"]["type"] == "log"
    assert scales["x"]["scale"]["type"] == ("log" if is_log else "linear")
    assert scales["x"]["axis"]["values"] == [10, 20]


@given(st.lists(st.tuples(st.sampled_from(NAMES), st.sampled_from([1, 9, 50]), st.floats(1e-4, 1e6)), min_size=1, max_size=9))
def test_only_the_uppermost_of_its_n_is_on_top(rows: list[tuple[str, int, float]]) -> None:
    frame = curve_frame([CurvePoint(name, count, ms, ms, 3) for name, count, ms in rows])
    assert list(frame["candidates"]) == sorted(count for _, count, _ in rows)
    for _, part in frame.groupby("candidates"):
        assert list(part["is_top"]) == [ms == max(part["median_ms"]) for ms in part["median_ms"]]


@pytest.mark.parametrize("is_log", [False, True])
@pytest.mark.parametrize("rows", [[(1, 1e-4)], [(50, 1e6)], [(1, 3.0), (2000, 3.0)], [(9, 5e5), (1, 1e-4)]])
def test_all_points_lie_inside_the_axes(rows: list[tuple[int, float]], is_log: bool) -> None:
    points = [CurvePoint("a", count, ms, ms * 1.2, 3) for count, ms in rows]
    encoding = duration_curves(points, series=NAMES, is_log=is_log).to_dict()["layer"][2]["encoding"]
    for axis, values in (("x", [p.candidates for p in points]), ("y", [v for p in points for v in p[2:4]])):
        low, high = encoding[axis]["scale"]["domain"]
        assert low < min(values) <= max(values) < high
        assert low > 0 or not (is_log or axis == "y")


def test_a_series_keeps_its_look_whoever_else_is_there() -> None:
    def look(*names: str) -> dict[str, tuple[str, str]]:
        spec = duration_curves([CurvePoint(name, 10, 1.0, 2.0, 3) for name in names], series=NAMES).to_dict()
        encoding = next(layer["encoding"] for layer in spec["layer"] if layer["mark"]["type"] == "point")
        pairs = zip(encoding["color"]["scale"]["range"], encoding["shape"]["scale"]["range"], strict=True)
        return dict(zip(encoding["color"]["scale"]["domain"], pairs, strict=True))

    assert look("c") == {"c": look(*NAMES)["c"]}
    assert len(set(look(*NAMES).values())) == 3


def test_what_cannot_be_drawn_is_refused() -> None:
    with pytest.raises(SpdError, match="got 0 durations; measure at least one with `python -m spd_core bench`"):
        duration_curves([], series=NAMES)
    with pytest.raises(SpdError, match="unknown series 'd'; at most 3 can be drawn, here a, b, c"):
        duration_curves([CurvePoint("d", 1, 1.0, 1.0, 1)], series=NAMES)
    with pytest.raises(SpdError, match="got 0 batch sizes; measure at least one with `python -m spd_core bench --capacity`"):
        rate_curve([])


@pytest.mark.parametrize("dark", [False, True])
def test_throughput_starts_at_nothing_and_names_every_batch(dark: bool) -> None:
    spec = rate_curve([Rate(4, 12.0, 333.0, 3), Rate(1, 8.0, 125.0, 3)], dark=dark).to_dict()
    (numbers,) = (layer for layer in spec["layer"] if layer["mark"]["type"] == "text")
    assert [(row["batch"], row["slates_per_s"]) for row in rows_of(spec, "text")] == [(1, 8.0), (4, 12.0)]
    assert numbers["encoding"]["x"]["axis"]["values"] == [1, 4]
    low, high = numbers["encoding"]["y"]["scale"]["domain"]
    assert low == 0
    assert high > 12


# --- sentences and tables


def test_the_contest_is_told_and_tabled_with_its_own_figures() -> None:
    name = escaped(HOSTILE, 60)
    assert frames.contest_headline(report()) == (
        f"With 12 candidates the student is 20x faster than {name} (constrained) "
        f"and 40x faster than {name} (free; it wrote no ranking)"
    )
    table = frames.contest_frame(report(), 10)
    assert list(table["Candidates"]) == ["5"] * 3 + ["12"] * 3
    assert list(table["Who"]) == [frames.STUDENT, *frames.WRITERS.values()] * 2
    assert list(table["n"]) == [3] * 6
    assert list(table["Passes"]) == ["1", "11", "11"] * 2
    assert list(table["Answer"])[1:3] == ["valid as written"] * 2
    assert list(table["Answer"])[3:] == ["always valid", "valid as written", "repeats itself"]
    assert list(table["Student is (measured)"]) == ["", "8x faster", "2x slower", "", "20x faster", "40x faster"]
    # (2000 + 10 x 50) / 100 and the like; where no token's time is known, nothing is computed
    assert list(table["After 10 thinking tokens (computed)"]) == ["", "13x faster", "", "", "25x faster", "45x faster"]
    assert "computed" not in " ".join(frames.contest_frame(report(), None).columns)


def test_the_picture_of_the_contest_has_the_figures_of_its_table() -> None:
    points = frames.contest_points(report())
    assert [(p.series, p.candidates, p.median_ms, p.label) for p in points[:3]] == [
        (frames.STUDENT, 12, 100, ""),
        (frames.WRITERS["constrained"], 12, 2000, "20x"),
        (frames.WRITERS["free"], 12, 4000, "40x"),
    ]
    assert points[-1].label == "0.5x"


def test_ways_of_running_the_prefill_are_told_by_the_longest_prompt() -> None:
    assert frames.pass_headline(report()) == "The compiled prefill is 1.50 times as fast at 240 tokens"
    slow = [row | {"gain": 0.9} if row["name"] == "compiled" else row for row in stored()["passes"]]
    assert frames.pass_headline(report(passes=slow)) == "No other way of running the prefill is faster at 240 tokens"
    table = frames.pass_frame(report())
    assert list(table["Prefill"]) == ["fused attention", "compiled"] * 2
    assert list(table["Tokens"]) == ["240", "240", "100", "100"]
    assert list(table["Times as fast as fused attention"]) == ["1.00", "1.50", "1.00", "1.25"]
    assert list(table["Share of the peak"]) == ["25%", "38%", "25%", "31%"]
    assert list(table["n"]) == ["5"] * 4
    assert "Share of the peak" not in frames.pass_frame(report(capacity=None))


def test_throughput_is_told_beside_the_smallest_batch() -> None:
    assert frames.rate_headline(report()) == (
        "Most slates a second: 12, with 4 slates in a batch; 1.5 times as many as with 1 slate in a batch"
    )
    assert list(frames.rate_frame(report())["Slates a second"]) == ["8", "12"]
    room = stored()["capacity"]
    falling = [room["batches"][0], room["batches"][1] | {"slates_per_s": 2.0}]
    told = {len(found): frames.rate_headline(report(capacity=room | {"batches": found})) for found in (falling, falling[:1])}
    assert told[2].endswith("with 1 slate in a batch; larger ones gain nothing")
    assert told[1].endswith("with 1 slate in a batch; no other size was measured")


def test_solver_times_are_told_at_the_size_nearest_to_the_slate() -> None:
    assert frames.solver_headline(report()) == (
        "Assigning 10 candidates (measured size nearest to the slate's 12) takes 0.1 ms on the slower kind of matrix: "
        "0.10% of the ranking above"
    )
    assert "nearest" not in frames.solver_headline(report(candidates=100))
    table = frames.solver_frame(report())
    assert list(table["Candidates"]) == ["10", "100"]
    assert list(table["Matrix near rank 1, ms: median (p95)"]) == ["0.1 (0.15), n = 5", "1 (1.5), n = 5"]


def test_the_source_names_what_is_known() -> None:
    text = frames.source_line(report())
    for known in ("n = 4 runs after 1", escaped(HOSTILE, 60), "made\\-up\\.jsonl", "tiny\\-spd", "2000\\-01\\-01", "abc1234"):
        assert known in text
    assert "Made\\-up CPU, 2 threads, float32" in text
    text = frames.source_line(BenchReport.model_validate(older()))
    assert "checkpoint not recorded" in text
    assert "date not recorded" in text
    assert "commit" not in text
    compiled = stored()["machine"] | {"prefill": "compiled"}
    assert "float32, compiled prefill, PyTorch" in frames.source_line(report(machine=compiled))
    gpu = stored()["machine"] | {"device": "GPU_1"}
    assert "GPU\\_1, Made\\-up CPU" in frames.source_line(report(machine=gpu))


# --- the page


@pytest.fixture
def results(ready: None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """An empty folder for results."""
    monkeypatch.setattr(loaders, "RESULTS", tmp_path)
    return tmp_path


def visit() -> AppTest:
    """A visitor who has turned to the stored results."""
    app = AppTest.from_file(str(ROOT / "app.py"), default_timeout=240).run().switch_page("pages/latency.py").run()
    return app.segmented_control(key="widget latency view").set_value("stored").run()


def words(app: AppTest) -> str:
    kinds = ("markdown", "caption", "info", "error", "title")
    return "\n".join(str(element.value) for kind in kinds for element in app.get(kind))


def test_without_a_result_the_page_names_the_command(results: Path) -> None:
    (results / "evaluate-a.json").write_text("{}", "utf-8")  # of another command
    app = visit()
    assert not app.exception
    assert not app.error
    assert "No stored result is here" in words(app)
    assert [block.value for block in app.code] == [MAKE]
    assert not app.get("vega_lite_chart")


def test_a_result_is_shown_part_by_part_with_source_n_and_tables(results: Path) -> None:
    (results / "bench-a.json").write_text(json.dumps(stored()), "utf-8")
    app = visit()
    assert not app.exception
    assert not app.error
    text = words(app)
    assert frames.source_line(report()) in text
    assert HOSTILE not in text
    charts = [chart.proto.alt for chart in app.get("vega_lite_chart")]
    assert charts == [stored_bench.CONTEST_ALT, stored_bench.RATE_ALT, stored_bench.SOLVER_ALT]
    stages, sides, passes, throughput, solver = (table.value for table in app.table)
    assert list(stages["Median, ms"]) == ["10"] * 7 + ["100", "80"]
    assert list(stages["Paper, A100 (other data and hardware), ms"])[6:8] == ["0.008", "28"]
    assert sides.equals(frames.contest_frame(report(), 200))
    assert passes.equals(frames.pass_frame(report()))
    assert throughput.equals(frames.rate_frame(report()))
    assert solver.equals(frames.solver_frame(report()))
    metrics = {metric.label: metric.value for metric in app.metric}
    assert metrics["Share of the peak"] == "50%"
    assert metrics["Memory, at most"] == "1,234 MiB"
    assert "the median of 4 bare prefills" in text
    assert "does not hold" not in text
    pictures = [c.value for c in app.caption if c.value.startswith(("Medians", "Copies"))]
    assert len(pictures) == 4
    assert all(len(re.findall(r"\S+", caption)) <= 25 for caption in pictures)


def test_the_price_of_thinking_follows_the_slider_and_is_called_computed(results: Path) -> None:
    (results / "bench-a.json").write_text(json.dumps(stored()), "utf-8")
    app = visit()
    app.slider(key="widget thinking").set_value(10).run()
    assert not app.exception
    assert app.table[1].value.equals(frames.contest_frame(report(), 10))
    assert "Computed, not measured, as the teacher did not think: 10 tokens" in words(app)


def test_where_no_token_was_timed_nothing_is_computed(results: Path) -> None:
    races = [contest(5, cost("constrained", 8.0, token_ms=None))]
    (results / "bench-a.json").write_text(json.dumps(stored(contests=races)), "utf-8")
    app = visit()
    assert not app.exception
    assert not app.slider
    assert "omputed, not" not in words(app)
    assert list(app.table[1].value["Student is (measured)"]) == ["", "8x faster"]


def test_an_older_result_shows_its_stages_and_what_would_add_the_rest(results: Path) -> None:
    (results / "any.json").write_text(json.dumps(older()), "utf-8")
    app = visit()
    assert not app.exception
    assert not app.error
    assert len(app.table) == 1
    assert not app.get("vega_lite_chart")
    assert "does not hold a contest with a teacher (`--teacher`) nor what the machine can do" in words(app)
    assert [metric.label for metric in app.metric] == ["Median", "p95", "Against bare prefill", "Assignment's share"]


def test_a_damaged_result_is_named_and_another_can_be_chosen(results: Path) -> None:
    (results / "bench-a.json").write_text('{"kind": "bench"}', "utf-8")
    (results / "bench-b.json").write_text(json.dumps(stored()), "utf-8")
    (results / "bench-c.json").write_text(json.dumps(older()), "utf-8")
    app = visit()
    assert not app.exception
    assert message("bench-a.json: slate_id: Field required") in app.error[0].value
    box = next(box for box in app.selectbox if box.label == "Stored result")
    assert box.options == [
        "tiny-spd, N = 12, n = 4, 2000-01-01 (bench-b.json)",
        "checkpoint not recorded, N = 12, n = 4, date not recorded (bench-c.json)",
    ]
    box.set_value("bench-c.json").run()
    assert "date not recorded" in words(app)


def test_a_result_is_not_taken_for_one_of_another_page_that_has_looked_at_it_first(results: Path) -> None:
    (results / "any.json").write_text(json.dumps(stored()), "utf-8")
    app = AppTest.from_file(str(ROOT / "app.py"), default_timeout=240).run().switch_page("pages/evaluate.py").run()
    assert "No stored result is here" in words(app)
    app.switch_page("pages/latency.py").run()
    app.segmented_control(key="widget latency view").set_value("stored").run()
    assert frames.source_line(report()) in words(app)
