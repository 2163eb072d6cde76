"""What a teacher writes: every way of going wrong has a name, and nothing wrong passes for a ranking."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spd_core.errors import SpdError
from spd_core.slate import Slate
from spd_core.teachers.answers import judged
from spd_core.teachers.ordinals import KINDS, parse_answer, split_thinking, write_answer


@given(st.integers(1, 60).flatmap(lambda n: st.permutations(range(n))))
def test_what_is_written_is_read_back(order: list[int]) -> None:
    parsed = parse_answer(write_answer(order), len(order))
    assert (parsed.kind, list(parsed.order), parsed.problems) == ("ok", order, ())


@pytest.mark.parametrize(
    "text",
    [
        "2>3>1",
        " 2 > 3 > 1 ",
        "[2] > [3] > [1]",
        "2, 3, 1",
        "2 3 1.",
        "2\n3\n1",
        "[2, 3, 1]",
        "\uff12\uff1e\uff13\uff1e\uff11",  # full-width
        "```\n2 > 3 > 1\n```",
        " ```text\n2 > 3 > 1```\n",
        "<think>1</think>\n```\n2, 3, 1\n```",
    ],
)
def test_ways_to_write_the_same_ranking(text: str) -> None:
    assert parse_answer(text, 3).order == (1, 2, 0)
    assert not parse_answer(text, 3).is_repaired


@pytest.mark.parametrize(
    ("text", "count", "kind", "order"),
    [
        ("[1] > [1] > [2]", 2, "repetition", (0, 1)),
        ("[2]", 3, "missing", (1, 0, 2)),
        ("0 > 2 > 1", 2, "out_of_range", (1, 0)),
        ("-2 > 1", 2, "out_of_range", (0, 1)),
        ("2 > 1 > 3", 2, "out_of_range", (1, 0)),
        ("The best is 3, then 1.", 3, "format", (2, 0, 1)),
        ("", 2, "format", (0, 1)),
        ("2 > 1 >", 2, "format", (1, 0)),
        ("My order: ```\n2 > 1\n```", 2, "format", (1, 0)),
        ("```\n2 > 1\n", 2, "format", (1, 0)),
        ("```\n2 > 1\n```\n```\n1 > 2\n```", 2, "format", (1, 0)),
        ("1.5 > 2", 2, "format", (0, 1)),
        ("\u0662 > \u0661", 2, "format", (0, 1)),
        ("9999999999999999999999 > 1", 2, "format", (0, 1)),
        ("<think>2 > 1", 2, "format", (0, 1)),
    ],
)
def test_each_problem_has_its_kind(text: str, count: int, kind: str, order: tuple[int, ...]) -> None:
    parsed = parse_answer(text, count)
    assert (parsed.kind, parsed.order) == (kind, order)
    assert parsed.is_repaired
    assert parsed.problems


def test_thinking_is_no_part_of_the_answer() -> None:
    parsed = parse_answer("<think>2 > 1</think> 1 > 2", 2)
    assert (parsed.kind, parsed.order, parsed.thinking) == ("ok", (0, 1), "2 > 1")


def test_thinking_whose_opening_was_stripped_is_no_part_either() -> None:
    assert split_thinking("maybe 2</think>1>2") == ("maybe 2", "1>2")


@given(st.text(max_size=60), st.integers(1, 12))
def test_any_text_gives_a_permutation(text: str, count: int) -> None:
    parsed = parse_answer(text, count)
    assert sorted(parsed.order) == list(range(count))
    assert parsed.kind in KINDS
    assert (parsed.kind == "ok") == (not parsed.problems)


def test_all_problems_are_told_in_words() -> None:
    assert parse_answer("7 > 1 > 1", 3).problems == (
        "names 7, but the candidates are 1 to 3",
        "names 1 more than once",
        "leaves out 2, 3",
    )


def test_no_candidates_is_refused() -> None:
    with pytest.raises(SpdError, match="count is 0; a ranking needs at least 1 candidate"):
        parse_answer("1", 0)


def test_an_answer_names_items_best_first(make_slate: object) -> None:
    slate: Slate = make_slate(3)  # type: ignore[operator]
    answer = judged(slate, "2>2", teacher="t", mode="free", prompt_tokens=9, tokens=3, passes=3, ms=1.0)
    assert answer.permutation == ("c2", "c1", "c3")
    assert answer.ranking.permutation == answer.permutation
    assert answer.is_repaired
    assert answer.to_json()["kind"] == "repetition"
