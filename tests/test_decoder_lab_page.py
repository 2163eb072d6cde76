"""The decoder lab as a visitor meets it, and its figure: numbers that agree with the library, hostile titles, edge slates."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from streamlit.testing.v1 import AppTest

from pages.shared import lab, loaders, nearly
from spd_core.datasets import load_slates
from spd_core.decoding import DECODERS, to_positions
from spd_core.decoding.forced_ranks import forced_ranks
from spd_core.decoding.health import HEALTHY, NO_INFORMATION, VERDICTS
from spd_core.decoding.near_optimal import near_optimal
from spd_core.figures.decoder_grid import DOWN, SAME, UP, decoder_grid, grid_frame
from spd_core.model import Student
from spd_core.pipeline import RankingResult, rank_slate
from spd_core.slate import Slate

ROOT = Path(__file__).resolve().parent.parent
PAGE = "pages/decoder_lab.py"
TRICKY = load_slates(ROOT / "sample_data" / "slates" / "tricky.jsonl")
MakeSlate = Callable[..., Slate]


def visit(**link: str) -> AppTest:
    """A new visitor who comes by a link and turns to the lab."""
    app = AppTest.from_file(str(ROOT / "app.py"), default_timeout=120)
    for name, value in link.items():
        app.query_params[name] = value
    return app.run().switch_page(PAGE).run()


def is_well(app: AppTest) -> bool:
    return not app.exception and not app.error


def words(app: AppTest) -> str:
    return "\n".join(str(element.value) for kind in ("markdown", "caption", "title") for element in app.get(kind))


def table_with(app: AppTest, column: str) -> list[dict[str, str]]:
    """Rows of the table that has this column."""
    (table,) = [table.value for table in app.table if column in table.value]
    return table.astype(str).to_dict("records")


def result_of(slate: Slate, scores: np.ndarray) -> RankingResult:
    """A result of which only the matrix matters."""
    count = len(scores)
    nothing, none = np.zeros((count, count), dtype=np.float32), np.zeros(count, dtype=np.int64)
    return RankingResult(
        slate_id=slate.slate_id, item_ids=slate.item_ids, ranking=np.arange(count), score_matrix=scores.astype(np.float32),
        log_assignment=nothing, residual=0.0, tau=1.0, iterations=20, margins=none.astype(float), decoder="hungarian",
        timings_ms={}, provenance={}, warnings=(), used_tokens=none, cut_tokens=none,
    )  # fmt: skip


# --- the page


def test_first_visit_shows_every_decoder_with_regret_and_metrics(ready: None) -> None:
    app = visit()
    assert is_well(app)
    rows = table_with(app, "Regret")
    assert len(rows) == len(DECODERS)
    assert (rows[0]["Decoder"], rows[0]["Regret"], rows[0]["Ranks that differ"]) == ("Hungarian", "0.00", "0")
    assert all(float(row["Regret"]) >= 0 for row in rows)
    by_name = {row["Decoder"]: row for row in rows}
    assert by_name["First column"]["Same order as a plain sort"] == ":blue-badge[yes: first column]"
    assert 0 <= float(rows[0]["AUC"]) <= 1


def test_numbers_of_the_page_are_those_of_the_matrix(ready: None) -> None:
    app = visit()
    slate = loaders.shelf("demo")[0]
    forced = forced_ranks(loaders.ranking(loaders.load("tiny-spd"), slate).score_matrix)
    rows = table_with(app, "How sure")
    assert [row["Anywhere else"] for row in rows] == [f"{loss:.3f}" for loss in forced.leaving]
    assert [row["One up"] for row in rows][1:] == [f"{loss:.3f}" for loss in forced.one_up[1:]]
    assert (rows[0]["One up"], rows[-1]["One down"]) == ("", "")
    app.selectbox(key="widget forced rank").set_value(4).run()
    assert is_well(app)
    assert [row["To rank 4"] for row in table_with(app, "How sure")] == [f"{loss:.3f}" for loss in forced.losses[:, 3]]


def test_verdict_is_shown_with_its_meaning(ready: None) -> None:
    text = words(visit())
    assert any(f"[:material/{icon}: " in text for icon in ("check_circle", "sort", "warning"))
    assert any(meaning in text for meaning in VERDICTS.values())


def test_every_tricky_slate_is_shown_whole(ready: None) -> None:
    app = visit(shelf="tricky")
    for slate in TRICKY:
        app.selectbox(key="widget slate").set_value(slate.slate_id).run()
        assert is_well(app), slate.slate_id
        assert len(table_with(app, "How sure")) == len(slate.candidates), slate.slate_id


def test_forced_rank_beyond_a_shorter_slate_falls_back_to_the_first(ready: None) -> None:
    app = visit()
    app.selectbox(key="widget forced rank").set_value(10).run()
    shorter = min(TRICKY, key=lambda slate: len(slate.candidates))
    app.selectbox(key="widget shelf").set_value("tricky").run()
    app.selectbox(key="widget slate").set_value(shorter.slate_id).run()
    assert is_well(app)
    assert app.selectbox(key="widget forced rank").value == 1


def test_flat_matrix_is_said_to_hold_no_ranking(ready: None, monkeypatch: pytest.MonkeyPatch) -> None:
    def constant(student: Student, slate: Slate) -> RankingResult:
        result = rank_slate(student, slate)
        return dataclasses.replace(result, score_matrix=np.ones_like(result.score_matrix))

    monkeypatch.setattr(loaders, "rank_slate", constant)
    loaders._ranking.clear()
    app = visit()
    loaders._ranking.clear()
    assert not app.exception
    assert f"[:material/warning: {NO_INFORMATION}]" in words(app)
    assert "0 firm, 0 leaning, 10 coin-toss" in words(app)


def test_near_rankings_follow_the_odds_that_are_asked_for(ready: None) -> None:
    app = visit()
    slate = loaders.shelf("demo")[0]
    result = loaders.ranking(loaders.load("tiny-spd"), slate)
    for odds in (2, 20):
        app.segmented_control(key="widget near odds").set_value(f"{odds}").run()
        assert is_well(app)
        near = near_optimal(result.score_matrix, epsilon=result.tau * np.log(odds), limit=nearly.LIMIT)
        assert nearly.sentence(near, odds) in words(app)
        (table,) = [frame.value for frame in app.dataframe if "Ranks it takes" in frame.value]
        taken = [", ".join(str(rank + 1) for rank in np.flatnonzero(row)) for row in near.reachable]
        assert table["Ranks it takes"].tolist() == taken


# --- what the page is made of


def test_sentence_counts_the_near_rankings_and_says_whether_the_first_place_is_safe() -> None:
    firm = nearly.sentence(near_optimal(20 * np.eye(4), epsilon=1.0), 3)
    assert firm.startswith("**No other ranking** is among those whose total is within 1.00 of the best")
    two = np.diag([20.0, 20.0, 0.2, 0.2])
    assert "**One other ranking**" in nearly.sentence(near_optimal(two, epsilon=1.0), 3)
    assert "2 candidates have more than one rank there; the first place is the same" in nearly.sentence(
        near_optimal(two, epsilon=1.0), 3
    )
    flat = nearly.sentence(near_optimal(np.ones((5, 5)), epsilon=1.0, limit=7), 3)
    assert "**More than 6 other rankings**" in flat
    assert "the first place is open, too" in flat
    assert "**5 other rankings**" in nearly.sentence(near_optimal(np.ones((3, 3)), epsilon=1.0), 3)


def test_headline_says_whether_the_choice_of_decoder_matters(make_slate: MakeSlate) -> None:
    slate = make_slate(9)
    agreed = lab.open_lab(slate, result_of(slate, 20 * np.eye(9)))
    assert "All 6 decoders give the same order" in lab.headline(agreed)
    differing = lab.open_lab(slate, result_of(slate, np.random.default_rng(0).normal(size=(9, 9))))
    assert "No other decoder of 5 gives the Hungarian order" in lab.headline(differing)


def test_metrics_appear_only_where_there_is_a_label_that_tells_orders_apart(make_slate: MakeSlate) -> None:
    scores = 20 * np.eye(9)[::-1]  # the last candidate first
    for label, shown in [((), False), (("c9",), True)]:
        slate = make_slate(9, label=label)
        frame = lab.decoder_frame(lab.open_lab(slate, result_of(slate, scores)))
        assert ("AUC" in frame) is shown
    assert frame["AUC"].tolist()[0] == "1.000"
    assert frame["Recall@1"].tolist()[0] == "1.000"


def test_one_candidate_has_nothing_to_compare_and_no_empty_number_breaks_the_tables(make_slate: MakeSlate) -> None:
    slate = make_slate(1)
    opened = lab.open_lab(slate, result_of(slate, np.array([[1.0]])))
    assert lab.decoder_frame(opened)["Kendall tau"].tolist() == [""] * len(DECODERS)
    assert dict(lab.health_frame(opened.health).itertuples(index=False))["Best total over second best"] == ""
    assert lab.firmness_frame(opened, 1, ["firm"])["Anywhere else"].tolist() == [""]


def test_rank_table_is_in_hungarian_order_and_from_one(make_slate: MakeSlate) -> None:
    slate = make_slate(9)
    opened = lab.open_lab(slate, result_of(slate, np.random.default_rng(1).normal(size=(9, 9))))
    frame = lab.rank_frame(opened)
    assert frame["Hungarian"].tolist() == list(range(1, 10))
    assert frame["Candidate"].tolist() == [slate.candidates[index].title for index in opened.best.ranking]
    assert sorted(frame["Greedy"]) == list(range(1, 10))
    assert opened.health.verdict == HEALTHY


# --- the figure


@pytest.mark.parametrize(
    "titles", [("1984", "7", "07"), ("Same", "Same", "Same"), ("</script>", "$1$ :red[x]", "")], ids=repr
)
@pytest.mark.parametrize("dark", [False, True])
def test_grid_keeps_every_candidate_whatever_the_titles(titles: tuple[str, ...], dark: bool) -> None:
    positions = {"First": np.array([0, 1, 2]), "Second": to_positions(np.array([2, 0, 1]))}
    chart = decoder_grid(titles, positions, marked=[False, True, False], dark=dark).to_dict()
    rows = (
        chart["datasets"][chart["data"]["name"]] if "data" in chart else chart["datasets"][chart["layer"][0]["data"]["name"]]
    )
    assert len({(row["item"], row["decoder"]) for row in rows}) == 6
    assert [row["candidate"] for row in rows[:3]] == list(titles)


def test_grid_marks_what_differs_from_the_first_decoder_in_words_and_arrows() -> None:
    frame = grid_frame(["a", "b", "c"], {"First": np.array([0, 1, 2]), "Second": np.array([1, 2, 0])})
    assert frame["label"].tolist() == ["1", "2", "3", "2▼1", "3▼1", "1▲2"]
    assert frame["shift"].tolist() == [SAME] * 3 + [DOWN, DOWN, UP]
