"""The prompt: what it says, in which order, and when its hash changes."""

import dataclasses
from collections.abc import Callable

import pytest

from spd_core.errors import PromptError
from spd_core.prompts import EMPTY_TEXT, TEMPLATES, Template, build_prompt, clean_text, describe, find_template
from spd_core.slate import Item, Slate, UserContext

MakeSlate = Callable[..., Slate]
PLAIN = Template("plain", fields=("brand", "title"))


@pytest.mark.parametrize("field", [f.name for f in dataclasses.fields(Template) if f.name != "name"])
def test_the_hash_changes_with_every_setting_of_the_template(field: str) -> None:
    value = getattr(PLAIN, field)
    changed = {str: "other {ordinal}", int: 3, tuple: ("title",)}[type(value)]
    assert dataclasses.replace(PLAIN, **{field: changed}).hash != PLAIN.hash


def test_the_hash_does_not_change_with_the_name() -> None:
    assert dataclasses.replace(PLAIN, name="other").hash == PLAIN.hash
    assert len(PLAIN.hash) == 16


def test_templates_differ_in_their_hashes() -> None:
    assert len({template.hash for template in TEMPLATES.values()}) == len(TEMPLATES)


def test_an_unknown_template_is_refused_with_the_list() -> None:
    with pytest.raises(PromptError, match=r"unknown template 'chat'; choose from .*shop"):
        find_template("chat")


@pytest.mark.parametrize("cap", ["query_cap", "history_cap", "candidate_cap"])
def test_a_cap_below_one_is_refused(cap: str) -> None:
    with pytest.raises(PromptError, match=f"template 'plain': {cap} is 0; it must be at least 1"):
        dataclasses.replace(PLAIN, **{cap: 0})


@pytest.mark.parametrize(
    ("text", "clean"),
    [
        ("two  blanks", "two blanks"),
        ("\n a\tb\r\nc \u2028d\u00a0", "a b c d"),
        ("", EMPTY_TEXT),
        (" \n\t ", EMPTY_TEXT),
        ("lone \ud800 surrogate", "lone \ufffd surrogate"),
        ("pair \ud83d\ude00", "pair \U0001f600"),
        ("👩‍👩‍👧 שלום &amp; <b>", "👩‍👩‍👧 שלום &amp; <b>"),
    ],
)
def test_clean_text_is_one_line_that_encodes(text: str, clean: str) -> None:
    assert clean_text(text) == clean
    clean_text(text).encode("utf-8")


@pytest.mark.parametrize(
    ("brand", "title", "description"),
    [
        ("Orris", "Hand Soap", "Orris Hand Soap"),
        ("Orris", "ORRIS Hand Soap", "ORRIS Hand Soap"),
        ("Nike", "nike", "Nike"),
        (None, "Hand Soap", "Hand Soap"),
        ("Orris", "", "Orris"),
        ("", " ", EMPTY_TEXT),
    ],
)
def test_a_description_does_not_repeat_the_brand(brand: str | None, title: str, description: str) -> None:
    assert describe(Item("1", title, brand), ("brand", "title")) == description


def test_a_prompt_reads_user_first_then_candidates_with_the_ordinal_after_each(make_slate: MakeSlate) -> None:
    slate = make_slate(2, history=["Soap", "Cream"], titles=["Oil", "Comb"], query="for dry\nhair")
    text = "Query: for dry hair\nBought before:\n- Soap\n- Cream\nCandidates:\n Oil #1\n Comb #2\n"
    assert build_prompt(slate, PLAIN).text == text


def test_what_the_user_has_not_is_left_out(make_slate: MakeSlate) -> None:
    assert build_prompt(make_slate(1, history=0, titles=["Oil"]), PLAIN).text == "Candidates:\n Oil #1\n"


def test_ratings_of_the_history_are_told() -> None:
    user = UserContext((Item("h", "Soap", rating=4.0), Item("i", "Cream", rating=2.5)))
    text = build_prompt(Slate("s", user, (Item("1", "Oil"),)), PLAIN).text
    assert text == "Bought before:\n- Soap (4/5)\n- Cream (2.5/5)\nCandidates:\n Oil #1\n"


def test_the_newest_of_a_long_history_are_kept(make_slate: MakeSlate) -> None:
    slate = make_slate(1, history=[f"Soap {k}" for k in range(9)])
    text = build_prompt(slate, dataclasses.replace(PLAIN, history_limit=2)).text
    assert [f"- Soap {k}\n" in text for k in range(9)] == [False] * 7 + [True] * 2
    assert "Soap" not in build_prompt(slate, dataclasses.replace(PLAIN, history_limit=0)).text


@pytest.mark.parametrize("template", TEMPLATES.values(), ids=TEMPLATES.keys())
@pytest.mark.parametrize("count", [1, 9, 10, 27, 50])
def test_each_candidate_has_one_description_and_one_close_in_order(
    make_slate: MakeSlate, template: Template, count: int
) -> None:
    prompt = build_prompt(make_slate(count, query="cream"), template)
    for kind in ("description", "close"):
        assert [piece.candidate for piece in prompt.pieces if piece.kind == kind] == list(range(count))
    assert prompt.candidate_count == count
    assert prompt.template_hash == template.hash
    assert prompt.text == "".join(piece.text for piece in prompt.pieces)


def test_all_user_text_is_in_capped_pieces() -> None:
    mark = "zqx"
    user = UserContext((Item("h", mark, mark + "b", mark + "c"),), query=mark)
    slate = Slate("s", user, (Item("1", mark, mark + "d", mark + "e"),))
    for template in TEMPLATES.values():
        marked = [piece for piece in build_prompt(slate, template).pieces if mark in piece.text]
        assert {piece.kind for piece in marked} == {"query", "history", "description"}
        assert all(piece.cap is not None for piece in marked)


def test_a_preamble_opens_and_an_ordinal_may_stand_before(make_slate: MakeSlate) -> None:
    template = dataclasses.replace(PLAIN, preamble="Rank.\n", candidate_before="[{ordinal}]")
    text = build_prompt(make_slate(2, history=0, titles=["Oil", "{ordinal}"]), template).text
    assert text == "Rank.\nCandidates:\n[1] Oil #1\n[2] {ordinal} #2\n"
