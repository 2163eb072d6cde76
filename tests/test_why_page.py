"""The what-if page as a visitor meets it: words from the matrix in memory, things left out and ranked again, any slate."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from streamlit.testing.v1 import AppTest

from pages.shared import loaders, shuffling, why
from spd_core.datasets import load_slates
from spd_core.errors import ScoreMatrixError
from spd_core.explanations import SwapGain, swap_gain
from spd_core.model import Student
from spd_core.slate import Slate

ROOT = Path(__file__).resolve().parent.parent
PAGE = "pages/why.py"
TRICKY = load_slates(ROOT / "sample_data" / "slates" / "tricky.jsonl")


def visit(**link: str) -> AppTest:
    """A new visitor who comes by a link and turns to the page."""
    app = AppTest.from_file(str(ROOT / "app.py"), default_timeout=120)
    for name, value in link.items():
        app.query_params[name] = value
    return app.run().switch_page(PAGE).run()


def leave_out(app: AppTest) -> AppTest:
    """The page after a press of its button."""
    next(button for button in app.button if button.label == "Leave out and rank again").click()
    return app.run()


def words(app: AppTest) -> str:
    kinds = ("markdown", "caption", "info", "warning", "error", "title")
    return "\n".join(str(element.value) for kind in kinds for element in app.get(kind))


def is_well(app: AppTest) -> bool:
    return not app.exception and not app.error


def test_words_come_from_the_matrix_in_memory_and_follow_the_pair(ready: None, monkeypatch: pytest.MonkeyPatch) -> None:
    app = visit()
    assert is_well(app)
    slate = loaders.shelf("demo")[0]
    result = loaders.ranking(loaders.load("tiny-spd"), slate)
    order = result.ranking.tolist()
    bought = [index for index in order[1:] if slate.relevant()[index]]
    pair = swap_gain(result.score_matrix, result.ranking, order[0], (bought or order[1:])[0])
    assert f"Changing places would cost {pair.gain:.2f} of the total score" in words(app)
    assert f"**{pair.stake_above:+.2f}**" in words(app)
    assert "Not tried yet" in words(app)
    monkeypatch.setattr(shuffling, "score_slates", None)  # another pair ranks nothing again
    app.selectbox(key="widget why above").set_value(slate.item_ids[order[3]]).run()
    app.selectbox(key="widget why below").set_value(slate.item_ids[order[6]]).run()
    assert is_well(app)
    pair = swap_gain(result.score_matrix, result.ranking, order[3], order[6])
    assert f"would cost {max(pair.gain, 0):.2f} of" in words(app)
    assert "is 4th" in words(app)
    assert "is 7th" in words(app)


def test_everything_is_left_out_once_and_another_pair_reads_the_same_matrices(
    ready: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    app = visit()
    app.segmented_control(key="widget left out").set_value("all").run()
    leave_out(app)
    assert is_well(app)
    slate, loaded = loaders.shelf("demo")[0], loaders.load("tiny-spd")
    history = min(len(slate.user.history), loaded.student.template.history_limit)
    table = app.dataframe[0].value
    assert len(table) == history + len(slate.candidates) - 2
    sizes = [abs(float(text)) for text in table["Change"]]
    assert sizes == sorted(sizes, reverse=True)
    monkeypatch.setattr(shuffling, "score_slates", None)
    order = loaders.ranking(loaded, slate).ranking
    app.selectbox(key="widget why above").set_value(slate.item_ids[order[2]]).run()
    assert is_well(app)
    assert app.dataframe[0].value["Upper"][0].startswith("3 → ")
    app.selectbox(key="widget why whole").set_value(3).run()
    assert is_well(app)
    assert "stand elsewhere without it" in words(app)


def test_model_that_reads_no_purchase_is_said_not_to_hang_on_any(ready: None, monkeypatch: pytest.MonkeyPatch) -> None:
    matrix = loaders.ranking(loaders.load("tiny-spd"), loaders.shelf("demo")[0]).score_matrix

    def same(student: Student, slates: list[Slate]) -> Iterator[tuple[Slate, np.ndarray]]:
        yield from ((slate, matrix) for slate in slates)

    monkeypatch.setattr(shuffling, "score_slates", same)
    app = leave_out(visit())
    assert is_well(app)
    assert "Nothing left out alone turns the two round" in words(app)
    assert set(app.dataframe[0].value["Change"]) == {"+0.00"}
    assert "moves the cost by +0.00" in words(app)


def test_every_tricky_slate_is_explained(ready: None) -> None:
    app = visit(shelf="tricky")
    for slate in TRICKY:
        app.selectbox(key="widget slate").set_value(slate.slate_id).run()
        assert is_well(app), slate.slate_id
        if len(slate.candidates) == 1:
            assert "One candidate has nothing to stand above" in words(app)
        else:
            assert "Changing places would cost" in words(app), slate.slate_id


def test_slate_without_purchases_and_query_has_nothing_of_that_kind(ready: None) -> None:
    bare = next(s for s in TRICKY if not s.user.history and s.user.query is None and len(s.candidates) > 1)
    app = visit(shelf="tricky", slate=bare.slate_id)
    assert "This slate has nothing of that kind" in words(app)


def test_run_broken_off_keeps_nothing_and_the_next_one_works(ready: None, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(student: Student, slates: list[Slate]) -> Iterator[tuple[Slate, np.ndarray]]:
        raise ScoreMatrixError("score of item 2 for position 1 is nan; check the checkpoint")

    with monkeypatch.context() as patch:
        patch.setattr(shuffling, "score_slates", broken)
        app = leave_out(visit())
        assert "item 2 for position 1 is nan" in app.error[0].value
    app.run()
    assert "Not tried yet" in words(app)
    assert is_well(leave_out(app))


@pytest.mark.parametrize(
    ("stakes", "words"),
    [
        ((2.0, -1.0), "Each stands where it scores better"),
        ((2.0, 1.0), "Both score better at the higher place"),
        ((-1.0, -2.0), "Both score better at the lower place"),
        ((-1.0, -1.0), "it makes no difference"),
    ],
)
def test_reason_follows_the_two_stakes(stakes: tuple[float, float], words: str) -> None:
    assert words in why._reason(SwapGain(0, 1, 0, 1, *stakes))
