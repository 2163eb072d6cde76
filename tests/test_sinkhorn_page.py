"""The Sinkhorn page as a visitor meets it, and its figures: every frame is the operator's, every number has its words."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import altair as alt
import numpy as np
import pytest
import torch
from streamlit.testing.v1 import AppTest

from pages.shared import loaders, sinkhorn_picture, sinkhorn_view
from spd_core.datasets import load_slates
from spd_core.errors import SpdError
from spd_core.figures.sinkhorn_curves import certainty_chart, flip_chart, residual_chart, residual_frame, segment_frame
from spd_core.figures.sinkhorn_frames import MOST_FRAMES, frame_rounds, sinkhorn_animation
from spd_core.model import Student
from spd_core.pipeline import rank_slate
from spd_core.sinkhorn import log_sinkhorn
from spd_core.sinkhorn_flips import sweep_temperatures
from spd_core.slate import Slate

ROOT = Path(__file__).resolve().parent.parent
PAGE = "pages/sinkhorn.py"
TRICKY = load_slates(ROOT / "sample_data" / "slates" / "tricky.jsonl")
HOSTILE = ('</script><a href="http://x/">x</a>', "1984", "1984", "$5 :red[x]")
GOLDEN = np.array([[3.0, 1.0, 0.0], [1.0, 0.0, 1.0], [0.0, 1.0, 3.0]])


def visit(**link: str) -> AppTest:
    app = AppTest.from_file(str(ROOT / "app.py"), default_timeout=120)
    for name, value in link.items():
        app.query_params[name] = value
    return app.run().switch_page(PAGE).run()


def words(app: AppTest) -> str:
    kinds = ("markdown", "caption", "info", "warning", "error", "title", "header")
    return "\n".join(str(element.value) for kind in kinds for element in app.get(kind))


def is_well(app: AppTest) -> bool:
    return not app.exception and not app.error


def relaxed_of(student: Student, slate: Slate, tau: float = 1.0, iterations: int = 20) -> sinkhorn_view.Relaxed:
    result = rank_slate(student, slate)
    sweep = sweep_temperatures(result.score_matrix)
    return sinkhorn_view.relax(slate, result, sweep, tau=tau, iterations=iterations, trained_at=(1.0, 20))


# --- the page


def test_page_tells_spread_agreement_and_flips(ready: None) -> None:
    app = visit()
    assert is_well(app)
    slate = loaders.shelf("demo")[0]
    loaded = loaders.load("tiny-spd")
    result = rank_slate(loaded.student, slate)
    logs = log_sinkhorn(torch.from_numpy(result.score_matrix.astype(np.float64))[None], tau=1.0, iterations=20)
    shares = logs.log_assignment[0].exp().numpy()
    shares /= shares.sum(axis=1, keepdims=True)
    spread = float(np.exp(-(shares * np.log(shares)).sum(axis=1).mean()))
    assert f"a candidate is spread over **{spread:.1f}** of {len(slate.candidates)} positions" in words(app)
    sweep = sweep_temperatures(result.score_matrix)
    assert f"**{len(sweep.flips)} flips** between" in words(app)
    numbers, flips, residuals = (table.value for table in app.dataframe)
    assert len(numbers) == len(slate.candidates)
    assert len(flips) == len(sweep.flips)
    assert len(residuals) == 20


def test_too_cold_for_so_few_rounds_is_said_in_words(ready: None) -> None:
    app = visit(tau="0.01", iterations="2")
    assert is_well(app)
    assert "Not converged: after 2 rounds some row still misses its sum of 1" in app.warning[0].value
    app.select_slider(key="widget tau").set_value(10.0).run()
    assert not app.warning
    assert "every row sums to 1 as nearly as that" in words(app)


def test_picture_stands_still_until_a_visitor_asks_for_the_player(ready: None) -> None:
    app = visit(tau="3", iterations="20")
    still = len(app.get("vega_lite_chart"))
    assert not app.get("plotly_chart")
    assert "Probability of each position at temperature 3 after 20 rounds" in words(app)
    for picture, label in (("rounds", "rounds"), ("temperature", "temperatures")):
        app.segmented_control(key="widget picture").set_value(picture).run()
        assert is_well(app)
        assert f"press Play to run through the {label}" in words(app)
        assert len(app.get("plotly_chart")) == 1
        assert len(app.get("vega_lite_chart")) == still - 1
    app.segmented_control(key="widget picture").set_value("still").run()
    assert not app.get("plotly_chart")


def test_still_picture_is_the_last_round_in_rank_order(
    tiny_student: Student, make_slate: Callable[..., Slate], monkeypatch: pytest.MonkeyPatch
) -> None:
    drawn: list[alt.LayerChart] = []
    monkeypatch.setattr(sinkhorn_picture.st, "altair_chart", lambda chart, **_: drawn.append(chart))
    relaxed = relaxed_of(tiny_student, make_slate(6), tau=0.02, iterations=3)
    sinkhorn_picture.show_picture(relaxed, sinkhorn_picture.STILL)
    assert not np.allclose(relaxed.logs[-1], relaxed.logs[-2])  # or an earlier round would do
    spec = drawn[0].to_dict()
    cells = spec["layer"][0]
    rows = spec["datasets"][(cells.get("data") or spec["data"])["name"]]
    assert np.allclose([row["value"] for row in rows], np.exp(relaxed.logs[-1]).ravel())
    assert cells["encoding"]["y"]["sort"] == [f"r{index:03d}" for index in relaxed.order]


@pytest.mark.parametrize("picture", sinkhorn_picture.PICTURES)
def test_every_tricky_slate_is_shown_whole(ready: None, picture: str) -> None:
    app = visit(shelf="tricky")
    app.segmented_control(key="widget picture").set_value(picture).run()
    for slate in TRICKY:
        app.selectbox(key="widget slate").set_value(slate.slate_id).run()
        assert is_well(app), slate.slate_id
        assert len(app.dataframe[0].value) == len(slate.candidates), slate.slate_id
        assert not re.search(r"(?<!\\)\$", words(app).replace("$SPD_HOME", "")), slate.slate_id
        if slate.slate_id == "tricky-one-candidate":
            assert "there is nothing to relax" in words(app)


def test_frames_are_the_operators_and_the_last_round_is_drawn_first(
    tiny_student: Student, make_slate: Callable[..., Slate]
) -> None:
    relaxed = relaxed_of(tiny_student, make_slate(6), tau=0.5, iterations=9)
    frames, names, drawn, label = sinkhorn_picture._rounds(relaxed)
    assert (names[drawn], label) == ("9", "round")
    scores = torch.from_numpy(relaxed.result.score_matrix.astype(np.float64))[None]
    for name, frame in zip(names, frames, strict=True):
        expected = log_sinkhorn(scores, tau=0.5, iterations=int(name)).log_assignment[0].exp()
        assert np.allclose(frame, expected)


def test_temperature_frames_run_from_warm_to_cold_and_start_at_the_chosen_one(
    tiny_student: Student, make_slate: Callable[..., Slate]
) -> None:
    frames, names, drawn, _ = sinkhorn_picture._temperatures(relaxed_of(tiny_student, make_slate(6), tau=1.0))
    taus = [float(name) for name in names]
    assert taus == sorted(taus, reverse=True)
    assert taus[drawn] == pytest.approx(1.0, rel=0.25)
    assert np.allclose(frames.sum(axis=1), 1, atol=1e-5)


def test_one_sure_candidate_among_equals_is_named(tiny_student: Student, make_slate: Callable[..., Slate]) -> None:
    assert "All candidates are equally sure" in sinkhorn_view.surest(relaxed_of(tiny_student, make_slate(1)))
    assert "Surest of its place: **Lumen" in sinkhorn_view.surest(relaxed_of(tiny_student, make_slate(6), tau=0.5))


def test_no_convergence_anywhere_is_said_and_nothing_is_drawn(
    tiny_student: Student, make_slate: Callable[..., Slate]
) -> None:
    relaxed = relaxed_of(tiny_student, make_slate(6))
    ties = 100 * np.sign(np.random.default_rng(1).normal(size=(20, 20)))
    ties += 0.1 * np.random.default_rng(2).normal(size=(20, 20))
    sweep = sweep_temperatures(ties, [1e-3, 2e-3])
    hopeless = sinkhorn_view.Relaxed(relaxed.slate, relaxed.result, 1.0, (1.0, 20), relaxed.logs, relaxed.residuals, sweep)
    assert "converged at none of the temperatures" in sinkhorn_view.flip_sentence(hopeless)


# --- its figures


@pytest.mark.parametrize("iterations", [1, 5, MOST_FRAMES, 60, 500])
def test_rounds_worth_a_frame_are_few_and_end_with_the_last(iterations: int) -> None:
    rounds = frame_rounds(iterations)
    assert rounds == sorted(set(rounds))
    assert (rounds[0], rounds[-1]) == (1, iterations)
    assert len(rounds) <= MOST_FRAMES
    assert len(rounds) == min(iterations, MOST_FRAMES) or iterations > MOST_FRAMES


@pytest.mark.parametrize("dark", [False, True])
def test_animation_keeps_rows_of_equal_titles_and_draws_no_title_as_markup(dark: bool) -> None:
    frames = np.random.default_rng(0).dirichlet(np.ones(4), size=(3, 4))
    order = [2, 0, 3, 1]
    figure = sinkhorn_animation(
        frames, ["1", "2", "3"], positions=np.array([1, 3, 0, 2]), titles=HOSTILE, row_order=order, shown=2, label="round",
        dark=dark,
    )  # fmt: skip
    assert [frame.name for frame in figure.frames] == ["1", "2", "3"]
    assert np.allclose(figure.frames[0].data[0].z, frames[0][order], atol=1e-6)
    assert np.allclose(figure.data[0].z, frames[2][order], atol=1e-6)
    assert list(figure.data[1].x) == [1, 2, 3, 4]  # in rank order the ranking is the diagonal
    assert len(set(figure.data[0].y)) == 4
    assert "<a " not in figure.to_json()
    steps = figure.layout.sliders[0].steps
    assert [step.args[0][0] for step in steps] == ["1", "2", "3"]
    assert figure.layout.sliders[0].active == 2


def test_animation_of_fifty_candidates_stays_small() -> None:
    frames = np.random.default_rng(0).dirichlet(np.ones(50), size=(MOST_FRAMES, 50))
    figure = sinkhorn_animation(
        frames, [str(k) for k in range(MOST_FRAMES)], positions=np.arange(50), titles=["t"] * 50, row_order=range(50),
        shown=0, label="round",
    )  # fmt: skip
    assert len(figure.to_json()) < 800_000


def test_animation_without_frames_or_with_a_name_too_few_is_refused() -> None:
    for frames, names in ((np.zeros((0, 1, 1)), []), (np.zeros((2, 1, 1)), ["1"])):
        with pytest.raises(SpdError, match=r"got \d frames and \d names"):
            sinkhorn_animation(frames, names, positions=np.zeros(1, int), titles=["t"], row_order=[0], shown=0, label="round")


def test_segments_of_an_item_join_from_cold_to_warm() -> None:
    sweep = sweep_temperatures(GOLDEN)
    frame = segment_frame(["a", "a", "b"], sweep)
    middle = frame[frame["item"] == "r001"]
    assert middle["place"].tolist() == [1, 2]
    assert middle["high"].tolist() == [sweep.taus[-1], sweep.flips[0].tau]
    assert middle["low"].tolist() == [sweep.flips[0].tau, sweep.coldest]
    assert (frame["low"] < frame["high"]).all()


def test_curves_carry_their_marks_and_hostile_titles_stay_text() -> None:
    sweep = sweep_temperatures(GOLDEN)
    titles = HOSTILE[:3]
    flips = flip_chart(titles, sweep, {"training": 3.0}, row_order=[2, 0, 1], dark=True).to_json()
    sure = certainty_chart(titles, np.array([0.0, 1.0, 0.5]), positions=np.arange(3), row_order=[0, 1, 2]).to_json()
    curve = residual_chart(np.array([0.1, 0.0]), {"training": 2}, limit=0.05).to_json()
    assert all('"training"' in chart for chart in (flips, curve))
    assert all("</script>" not in re.sub(r'"candidate": "[^"]*(\\"[^"]*)*"', "", chart) for chart in (flips, sure))
    assert residual_frame(np.array([0.1, 0.0]))["drawn"].tolist() == [0.1, 1e-12]
