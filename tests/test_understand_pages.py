"""The pages that look inside, as a visitor meets them: shuffled slates, written-out prompts, hostile texts in both."""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
from streamlit.testing.v1 import AppTest

from pages.shared import loaders, prompt_text, shuffling
from pages.shared.text import escaped
from spd_core.datasets import load_slates
from spd_core.errors import ScoreMatrixError
from spd_core.model import Student
from spd_core.order_sensitivity import draw_orders, measure_orders
from spd_core.pipeline import rank_slate, score_slates
from spd_core.prompt_view import view_prompt
from spd_core.prompts import TEMPLATES, build_prompt
from spd_core.slate import Slate

ROOT = Path(__file__).resolve().parent.parent
ORDER, PROMPT = "pages/order_sensitivity.py", "pages/prompt.py"
TRICKY = load_slates(ROOT / "sample_data" / "slates" / "tricky.jsonl")


def visit(page: str, **link: str) -> AppTest:
    """A new visitor who comes by a link and turns to a page."""
    app = AppTest.from_file(str(ROOT / "app.py"), default_timeout=120)
    for name, value in link.items():
        app.query_params[name] = value
    return app.run().switch_page(page).run()


def words(app: AppTest) -> str:
    """All markdown, captions and messages of a page."""
    kinds = ("markdown", "caption", "info", "warning", "error", "title", "header")
    return "\n".join(str(element.value) for kind in kinds for element in app.get(kind))


def cells(app: AppTest) -> str:
    """All cells of a page's tables."""
    return "\n".join(str(cell) for table in app.table for row in table.value.to_numpy() for cell in row)


def shuffle(app: AppTest) -> AppTest:
    """The page after a press of its button."""
    next(button for button in app.button if button.label == "Shuffle and rank").click()
    return app.run()


def is_well(app: AppTest) -> bool:
    """Whether a page ran to its end and shows no error."""
    return not app.exception and not app.error


# --- order sensitivity


def test_shuffled_slate_is_told_in_numbers_and_words(ready: None) -> None:
    app = visit(ORDER)
    assert "Press **Shuffle and rank**: 10 random orders" in words(app)
    shuffle(app)
    assert is_well(app)
    assert not app.info
    slate, loaded = loaders.shelf("demo")[0], loaders.load("tiny-spd")
    scorer = lambda slates: score_slates(loaded.student, slates)  # noqa: E731
    (result,) = measure_orders([slate], scorer, loaded.student.template)
    numbers = {metric.label: metric.value for metric in app.metric}
    assert numbers["First place changed"] == f"{result.first_changes} of 10"
    assert numbers["Agreement"] == f"{result.mean_tau:.2f}"
    assert f"The first place changed hands in {result.first_changes} of 10 shuffles" in words(app)
    assert result.std.any()
    assert len(app.dataframe[0].value) == len(slate.candidates)


def test_number_of_shuffles_and_decoder_are_followed_and_runs_are_kept(ready: None, monkeypatch: pytest.MonkeyPatch) -> None:
    app = visit(ORDER)
    app.segmented_control(key="widget shuffles").set_value("5").run()
    shuffle(app)
    assert app.metric[0].value.endswith(" of 5")
    before = app.dataframe[0].value.to_dict()
    monkeypatch.setattr(shuffling, "score_slates", None)  # whatever follows ranks nothing again
    app.selectbox(key="widget decoder").set_value("first_column").run()
    assert is_well(app)
    assert app.dataframe[0].value.to_dict() != before
    app.switch_page("pages/rank.py").run()
    app.switch_page(ORDER).run()
    assert app.segmented_control(key="widget shuffles").value == "5"
    assert app.metric


def test_every_tricky_slate_can_be_shuffled(ready: None) -> None:
    app = visit(ORDER, shelf="tricky")
    app.segmented_control(key="widget shuffles").set_value("5").run()
    for slate in TRICKY:
        app.selectbox(key="widget slate").set_value(slate.slate_id).run()
        shuffle(app)
        assert is_well(app), slate.slate_id
        assert len(app.dataframe[0].value) == len(slate.candidates), slate.slate_id
        assert not re.search(r"(?<!\\)\$", words(app)), slate.slate_id  # an unescaped dollar would start a formula
        if slate.slate_id == "tricky-one-candidate":
            assert "nothing to shuffle" in words(app)
            assert not app.metric
        if slate.slate_id == "tricky-identical-descriptions":
            assert "Candidates 1, 2, 3, 4 read the same" in words(app)


def test_model_that_does_not_see_the_order_is_said_to_be_indifferent(ready: None, monkeypatch: pytest.MonkeyPatch) -> None:
    def by_id(student: Student, slates: list[Slate]) -> Iterator[tuple[Slate, np.ndarray]]:
        for slate in slates:
            scores = np.array([sum(item_id.encode()) % 97 for item_id in slate.item_ids], dtype=np.float32)
            yield slate, np.outer(scores, np.arange(len(scores), 0, -1, dtype=np.float32))

    monkeypatch.setattr(shuffling, "score_slates", by_id)
    app = shuffle(visit(ORDER, shelf="tricky", slate="tricky-markup"))
    assert is_well(app)
    assert "The order given does not matter here: 10 shuffles, one ranking" in words(app)
    assert "has no effect on where it is ranked" in words(app)


def test_passes_go_in_small_steps_so_that_cancel_is_seen(ready: None, make_slate: Callable[..., Slate]) -> None:
    loaded, slate = loaders.load("tiny-spd"), make_slate(30)
    steps = [len(runs.matrices) for runs in shuffling.scored(loaded, slate, shuffles=5)]
    assert steps == list(range(1, 7)) or max(np.diff([0, *steps])) * 700 < 2 * shuffling.STEP_TOKENS
    assert steps[-1] == 6
    assert len(steps) > 1


def test_run_broken_off_keeps_nothing_and_the_next_one_works(ready: None, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(student: Student, slates: list[Slate]) -> Iterator[tuple[Slate, np.ndarray]]:
        raise ScoreMatrixError("score of item 2 for position 1 is nan; check the checkpoint")

    with monkeypatch.context() as patch:
        patch.setattr(shuffling, "score_slates", broken)
        app = shuffle(visit(ORDER))
        assert not app.exception
        assert "item 2 for position 1 is nan" in app.error[0].value
    app.run()
    assert app.info
    assert is_well(shuffle(app))


def test_session_keeps_the_latest_runs_only() -> None:
    app = AppTest.from_function(_keep_many)
    assert app.run().markdown[0].value == "8 False True"


def _keep_many() -> None:
    import numpy as np
    import streamlit as st

    from pages.shared import shuffling, state

    for number in range(20):
        shuffling.keep_runs(str(number), shuffling.Runs(np.zeros((3, 1), dtype=np.int64), ()))
    kept = state.get("shuffled runs", {})
    st.markdown(f"{len(kept)} {shuffling.kept_runs('0') is not None} {shuffling.kept_runs('19') is not None}")


def test_shuffled_results_are_the_same_in_the_page_and_in_the_library(ready: None, tiny_student: Student) -> None:
    slate = TRICKY[0]
    *_, runs = shuffling.scored(loaders.load("tiny-spd"), slate, shuffles=5)
    assert np.array_equal(runs.orders, draw_orders(slate, 5))
    given = rank_slate(loaders.load("tiny-spd").student, slate).score_matrix
    assert np.allclose(runs.matrices[0], given, atol=1e-5)


# --- prompt


def test_prompt_is_written_out_line_by_line_with_its_tokens(ready: None) -> None:
    app = visit(PROMPT)
    assert is_well(app)
    slate, loaded = loaders.shelf("demo")[0], loaders.load("tiny-spd")
    prompt = build_prompt(slate, loaded.student.template)
    view = view_prompt(prompt, loaded.student.backbone.tokenizer, readout="last")
    table = app.table[0].value
    assert len(table) == prompt.text.count("\n")
    assert [label for label in table["Line"] if "Candidate" in label] == [f"**Candidate {n}**" for n in range(1, 11)]
    assert {metric.label: metric.value for metric in app.metric}["Prompt"] == f"{view.token_count} of 4,096 tokens"
    assert f"hash `{loaded.student.template.hash}`: :material/check: the same as the checkpoint's" in words(app)
    assert "the last token of a description" in words(app)
    assert sum(app.dataframe[0].value["Tokens read"]) == view.token_count


def test_every_tricky_prompt_is_shown_whole_and_stays_text(ready: None) -> None:
    app = visit(PROMPT, shelf="tricky")
    for slate in TRICKY:
        app.selectbox(key="widget slate").set_value(slate.slate_id).run()
        assert is_well(app), slate.slate_id
        rows = app.table[0].value
        assert sum("Candidate" in label for label in rows["Line"]) == len(slate.candidates), slate.slate_id
        text = words(app) + cells(app)
        assert not re.search(r"(?<!\\)\$|(?<!\\)!\[|(?<!\\)<", text), slate.slate_id
        assert len(text) < 60_000, slate.slate_id
        if slate.slate_id == "tricky-special-tokens":
            assert "None of it reaches the model as a control token" in text
            assert escaped("<|im_end|>") in cells(app)
            assert "- **Special token** spells a control token" in text


@pytest.mark.parametrize(
    ("slate_id", "found", "kind"),
    [
        ("tricky-special-tokens", "<|im_end|>", "special token"),
        ("tricky-hostile-ranking-text", "[1] > [2]", "ranking"),
        ("tricky-hostile-ranking-text", "Ignore the other", "instruction"),
        ("tricky-hostile-ranking-text", "Best first:", "template words"),
        ("tricky-lone-surrogate", "U+FFFD REPLACEMENT CHARACTER", "broken character"),
    ],
)
def test_suspicious_text_is_listed_with_what_it_is(slate_id: str, found: str, kind: str, tiny_student: Student) -> None:
    slate = next(slate for slate in TRICKY if slate.slate_id == slate_id)
    view = view_prompt(build_prompt(slate, TEMPLATES["shop"]), tiny_student.backbone.tokenizer, readout="last")
    table = prompt_text.flag_frame(view)
    assert (escaped(found), kind) in list(zip(table["Found"], table["Kind"], strict=True))
    assert any("suspicious" in label for label in prompt_text.line_frame(view)["Line"])


def test_hidden_characters_of_a_pasted_title_are_made_visible(ready: None, make_slate: Callable[..., Slate]) -> None:
    app = visit(PROMPT)
    slate = make_slate(2, "mine", titles=["soap \u202egnp\x07", "balm"])
    app.text_area(key="widget own text").set_value(json.dumps(slate.to_json()))
    next(button for button in app.button if button.label == "Use these slates").click()
    app.run()
    assert is_well(app)
    assert "⟨U\\+202E⟩gnp⟨U\\+0007⟩" in cells(app).replace("**", "").replace(":primary[", "").replace("]", "")
    assert "\u202e" not in cells(app)


def test_slate_that_cannot_be_ranked_is_shown_all_the_same(ready: None, make_slate: Callable[..., Slate]) -> None:
    app = visit(PROMPT)
    app.text_area(key="widget own text").set_value(json.dumps(make_slate(51).to_json()))
    next(button for button in app.button if button.label == "Use these slates").click()
    app.run()
    assert is_well(app)
    assert "it has 51 candidates but the student ranks at most 50" in app.warning[0].value
    assert len([label for label in app.table[0].value["Line"] if "Candidate" in label]) == 51


def test_prompt_beyond_the_context_is_said_not_to_fit(tiny_student: Student, make_slate: Callable[..., Slate]) -> None:
    view = view_prompt(build_prompt(make_slate(40), TEMPLATES["shop"]), tiny_student.backbone.tokenizer, readout="mean")
    assert prompt_text.fit_problem(view, tiny_student) == ""
    padded = dataclasses.replace(view.pieces[0], kept=("x",) * 4096)
    long = dataclasses.replace(view, pieces=(padded, *view.pieces))
    assert "tokens but the model takes 4,096" in prompt_text.fit_problem(long, tiny_student)


def test_another_template_than_the_checkpoints_is_pointed_out(ready: None) -> None:
    loaded = loaders.load("tiny-spd")
    other = Student(loaded.student.backbone, loaded.student.head, loaded.student.config, TEMPLATES["films"])
    line = prompt_text.template_line(dataclasses.replace(loaded, student=other))
    assert TEMPLATES["films"].hash in line
    assert f"the checkpoint's is `{TEMPLATES['shop'].hash}`" in line
    assert "no checkpoint to compare" in prompt_text.template_line(dataclasses.replace(loaded, info=None))


def test_readout_in_mid_word_is_bold_and_the_cut_is_struck_through(tiny_student: Student) -> None:
    slate = next(slate for slate in TRICKY if slate.slate_id == "tricky-very-long-title")
    prompt = build_prompt(slate, TEMPLATES["shop"])
    for readout, mark in (("last", ":primary[**"), ("mean", ":blue-background[**"), ("newline", ":primary[**↵**]")):
        view = view_prompt(prompt, tiny_student.backbone.tokenizer, readout=readout)
        cell = next(
            row["What the model reads"] for _, row in prompt_text.line_frame(view).iterrows() if "Candidate 1" in row["Line"]
        )
        assert mark in cell
        assert re.search(r":gray\[~~.*~~\] :gray\[and [\d,]+ more characters\]", cell)


def test_table_of_tokens_numbers_every_token_once(tiny_student: Student) -> None:
    view = view_prompt(build_prompt(TRICKY[1], TEMPLATES["shop"]), tiny_student.backbone.tokenizer, readout="mean")
    table = prompt_text.token_table(view)
    assert table["First token"].tolist() == np.cumsum([0, *table["Tokens read"][:-1]]).tolist()
    described = table[table["Part"] == "description"]
    assert [row.split(" to ")[0] for row in described["Read out"]] == [str(first) for first in described["First token"]]
