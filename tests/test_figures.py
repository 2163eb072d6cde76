"""Figures from hostile titles and edge-case matrices: no row is lost, and the picture says what the numbers say."""

from __future__ import annotations

import json
from typing import Any

import altair as alt
import numpy as np
import pytest

from spd_core.decoding import hungarian, to_positions
from spd_core.errors import ScoreMatrixError, SpdError
from spd_core.figures.heatmap import LOG_FLOOR, SELECTION, heatmap_frame, score_heatmap
from spd_core.figures.labels import axis_labels, row_index, row_keys
from spd_core.figures.latency import StageTime, latency_waterfall, waterfall_frame
from spd_core.figures.layers import LAYERS, double_centred, leading_share, matrix_views
from spd_core.figures.orderings import orderings_frame, slope_chart

HOSTILE_TITLES = (
    ("1984", "7", "07"),
    ("Same title", "Same title", "Same title"),
    ("Nike", "nike", "NIKE"),
    ('"; alert(1); "', "</script><b>x</b>", "back\\slash 'quote' {brace}"),
    ("$5 or 2 for $9 :red[x]", "a.b[0]:c", "line\u2028separator"),
    ("", " ", "\u202eright to left"),
)


def scores(n: int, k: int | None = None, *, seed: int = 0) -> np.ndarray[Any, np.dtype[np.float64]]:
    """Random (n, k) scores."""
    return np.random.default_rng(seed).normal(size=(n, k or n))


def chart_rows(chart: alt.LayerChart | alt.Chart, layer: int = 0) -> list[dict[str, Any]]:
    """Rows of the data of one layer, as the browser gets them."""
    spec = chart.to_dict()
    view = spec["layer"][layer]
    return list(spec["datasets"][(view.get("data") or spec["data"])["name"]])


@pytest.mark.parametrize("titles", HOSTILE_TITLES, ids=repr)
def test_heatmap_keeps_every_cell_whatever_the_titles(titles: tuple[str, ...]) -> None:
    matrix = scores(3)
    rows = chart_rows(score_heatmap(matrix, to_positions(hungarian(matrix)), titles, layer="raw"))
    assert len({(row["item"], row["position"]) for row in rows}) == 9
    assert [row["value"] for row in rows] == pytest.approx(matrix.ravel().tolist())
    assert [row["candidate"] for row in rows[::3]] == list(titles)


def test_heatmap_takes_clicks_unless_it_is_told_not_to() -> None:
    matrix = scores(3)
    for is_clickable in (True, False):
        chart = score_heatmap(matrix, np.arange(3), ["a", "b", "c"], layer="raw", is_clickable=is_clickable)
        assert (SELECTION in chart.to_json()) is is_clickable


def test_skewed_heatmap_gives_small_values_more_of_the_shades() -> None:
    shares = np.full((2, 2), 0.5)
    for is_skewed, kind in ((True, "sqrt"), (False, "linear")):
        chart = score_heatmap(shares, np.arange(2), ["a", "b"], layer="probability", is_skewed=is_skewed)
        assert chart.to_dict()["layer"][0]["encoding"]["color"]["scale"]["type"] == kind


@pytest.mark.parametrize("titles", HOSTILE_TITLES, ids=repr)
def test_slope_chart_keeps_every_candidate_whatever_the_titles(titles: tuple[str, ...]) -> None:
    rows = chart_rows(slope_chart(titles, np.array([1, 2, 0]), marked=[False, True, False]))
    assert [(row["before"], row["after"]) for row in rows] == [(1, 2), (2, 3), (3, 1)]
    assert [row["candidate"] for row in rows] == list(titles)


@pytest.mark.parametrize("titles", HOSTILE_TITLES, ids=repr)
def test_axis_labels_hold_each_title_under_its_own_key_and_no_markup(titles: tuple[str, ...]) -> None:
    expression = axis_labels(titles, color="#000").to_dict()["labelExpr"]
    lookup = json.loads(expression.removesuffix("[datum.value]")[1:-1])
    assert lookup == {f"r00{index}": f"{index + 1} · {title}" for index, title in enumerate(titles)}
    plain = axis_labels(titles, color="#000", numbered=False).to_dict()["labelExpr"]
    assert list(json.loads(plain.removesuffix("[datum.value]")[1:-1]).values()) == list(titles)
    assert "<" not in expression
    assert expression.isascii()


def test_row_keys_sort_in_input_order_and_turn_back() -> None:
    keys = row_keys(101)
    assert keys == sorted(keys)
    assert [row_index(key) for key in keys] == list(range(101))


def test_one_cell_a_row_is_outlined_and_it_is_the_position() -> None:
    positions = np.array([2, 0, 1])  # a 3-cycle: a ranking taken for positions would outline other cells
    frame = heatmap_frame(scores(3), positions, ["a", "b", "c"])
    placed = frame[frame["assigned"]]
    assert placed["position"].tolist() == [3, 1, 2]
    assert placed["item"].tolist() == row_keys(3)


def test_heatmap_rows_follow_the_order_asked_for() -> None:
    spec = score_heatmap(scores(3), np.array([2, 0, 1]), ["a", "b", "c"], layer="raw", row_order=[1, 2, 0]).to_dict()
    assert spec["layer"][0]["encoding"]["y"]["sort"] == ["r001", "r002", "r000"]


def test_heatmap_has_one_named_click_selection_over_item_and_position() -> None:
    spec = score_heatmap(scores(2), np.array([0, 1]), ["a", "b"], layer="raw").to_dict()
    (selection,) = spec["params"]
    assert selection["name"] == SELECTION
    assert selection["select"]["fields"] == ["item", "position"]


def test_picked_cell_is_ringed_beside_the_assignment() -> None:
    chart = score_heatmap(scores(3), np.array([0, 1, 2]), ["a", "b", "c"], layer="raw", picked=(2, 1))
    assert [(row["item"], row["position"]) for row in chart_rows(chart, 2)] == [("r002", 2)]


@pytest.mark.parametrize("layer", LAYERS)
@pytest.mark.parametrize("dark", [False, True])
def test_every_layer_is_drawn_on_light_and_dark_ground(layer: str, dark: bool) -> None:
    views = matrix_views(scores(4, 6), tau=0.5, iterations=20)
    chart = score_heatmap(views.values[layer], np.arange(4), list("abcd"), layer=layer, dark=dark)
    assert len(chart_rows(chart)) == 16


def test_log_layer_shades_nothing_below_its_floor_but_keeps_the_number() -> None:
    views = matrix_views(np.array([[0.0, -100.0], [-100.0, 0.0]]), tau=1.0, iterations=20)
    rows = chart_rows(score_heatmap(views.values["log"], np.array([0, 1]), ["a", "b"], layer="log"))
    assert min(row["shade"] for row in rows) == LOG_FLOOR
    assert min(row["value"] for row in rows) < -90


def test_constant_layer_has_a_color_scale_of_positive_width() -> None:
    spec = score_heatmap(np.zeros((2, 2)), np.array([0, 1]), ["a", "b"], layer="raw").to_dict()
    low, high = spec["layer"][0]["encoding"]["color"]["scale"]["domain"]
    assert low < high


def test_unknown_layer_lists_the_known_ones() -> None:
    with pytest.raises(SpdError, match="unknown layer 'x'; choose from centred, log, probability, raw"):
        score_heatmap(scores(2), np.array([0, 1]), ["a", "b"], layer="x")


def test_double_centring_removes_row_and_column_constants_and_nothing_else() -> None:
    matrix = scores(5, 7)
    shifted = matrix + scores(5, 1, seed=1) + scores(1, 7, seed=2)
    assert double_centred(shifted) == pytest.approx(double_centred(matrix))
    assert double_centred(matrix).sum(axis=0) == pytest.approx(np.zeros(7))
    assert double_centred(matrix).sum(axis=1) == pytest.approx(np.zeros(5))


def test_one_order_alone_is_all_in_the_first_singular_value() -> None:
    strength, place = np.array([3.0, 1.0, -2.0]), np.array([1.0, 0.0, -1.0])
    assert leading_share(np.outer(strength, place)) == pytest.approx(1.0)
    assert leading_share(np.eye(3)) == pytest.approx(0.5)  # centred, the identity has two equal singular values


def test_constant_matrix_has_no_leading_share() -> None:
    assert leading_share(np.full((4, 4), 3.7)) == 0.0


def test_views_are_the_slates_own_square_but_raw_may_show_all_columns() -> None:
    matrix = scores(3, 5)
    views = matrix_views(matrix, tau=1.0, iterations=50, all_columns=True)
    assert views.values["raw"].shape == (3, 5)
    assert {name: view.shape for name, view in views.values.items() if name != "raw"} == {
        name: (3, 3) for name in LAYERS if name != "raw"
    }
    assert views.values["probability"].sum(axis=1) == pytest.approx(np.ones(3), abs=1e-3)
    assert views.residual < 1e-3


def test_cold_sinkhorn_with_few_iterations_reports_its_large_residual() -> None:
    assert matrix_views(scores(10), tau=0.01, iterations=2).residual > 0.05


def test_bad_temperature_is_refused() -> None:
    with pytest.raises(ScoreMatrixError, match="tau"):
        matrix_views(scores(2), tau=float("nan"), iterations=5)


def test_moves_are_named_from_positions_not_from_the_ranking() -> None:
    frame = orderings_frame(["a", "b", "c"], np.array([2, 0, 1]), [False] * 3)
    assert frame["move"].tolist() == ["moved down", "moved up", "moved up"]
    assert orderings_frame(["a"], np.array([0]), [False])["move"].tolist() == ["stayed"]


def test_waterfall_bars_start_where_the_one_before_ends() -> None:
    frame = waterfall_frame([StageTime("a", 2.0, 3.0), StageTime("b", 6.0, 7.0), StageTime("c", 0.0, 0.0)])
    assert frame["start_ms"].tolist() == [0.0, 2.0, 8.0]
    assert frame["share"].tolist() == [0.25, 0.75, 0.0]


def test_waterfall_shows_every_stage_with_its_time_and_the_bare_prefill() -> None:
    stages = [StageTime("Tokenise", 1.5, 2.0), StageTime("Prefill", 97.0, 120.0), StageTime("Assignment", 0.02, 0.03)]
    figure = latency_waterfall(stages, bare_prefill_ms=95.0)
    assert list(figure.layout.yaxis.ticktext) == ["Tokenise  1.5 ms", "Prefill  97.0 ms", "Assignment  0.02 ms"]
    assert [note.text for note in figure.layout.annotations] == ["bare prefill 95.0 ms"]


def test_waterfall_of_nothing_is_refused() -> None:
    with pytest.raises(SpdError, match="got 0 stages; measure at least one ranking first"):
        latency_waterfall([])
