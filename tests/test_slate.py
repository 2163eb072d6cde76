"""The records every other part leans on: what they keep, what they refuse, and that they stand on nothing."""

from __future__ import annotations

import dataclasses
import json
import subprocess
import sys
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spd_core.errors import SlateError, SpdError, choices
from spd_core.slate import Item, Ranking, Slate, UserContext, check_permutation

texts = st.text(max_size=20)
ids = st.text(min_size=1, max_size=8)
numbers = st.integers() | st.floats(allow_nan=False, allow_infinity=False)
extras = st.dictionaries(
    st.sampled_from(["price", "note", "tags"]), numbers | texts | st.none() | st.lists(texts), max_size=2
)
optional_texts = st.none() | texts
items = st.builds(
    Item, item_id=ids, title=texts, brand=optional_texts, category=optional_texts, rating=st.none() | numbers, extra=extras
)
users = st.builds(
    UserContext,
    history=st.lists(items, max_size=3).map(tuple),
    user_id=st.none() | ids,
    query=optional_texts,
    extra=extras,
)


@st.composite
def slates(draw: st.DrawFn) -> Slate:
    """Any valid slate: with or without label, grades, teacher and unknown keys."""
    candidates = draw(st.lists(items, min_size=1, max_size=5, unique_by=lambda item: item.item_id))
    shuffled = draw(st.permutations([item.item_id for item in candidates]))
    count = len(candidates)
    return Slate(
        slate_id=draw(ids),
        user=draw(users),
        candidates=tuple(candidates),
        label=draw(st.none() | st.lists(ids, max_size=3).map(tuple)),
        grades=draw(st.none() | st.lists(numbers, min_size=count, max_size=count).map(tuple)),
        teacher=draw(st.none() | st.builds(Ranking, name=texts, permutation=st.just(tuple(shuffled)), extra=extras)),
        extra=draw(extras),
    )


def record(**more: Any) -> dict[str, Any]:
    candidates = [{"item_id": "a", "title": "Serum"}, {"item_id": "b", "title": "Balm"}]
    return {"slate_id": "s1", "user": {"history": []}, "candidates": candidates} | more


class TestRoundTrip:
    @given(slate=slates())
    def test_a_slate_comes_back_equal_from_its_json_text(self, slate: Slate) -> None:
        assert Slate.from_json(json.loads(json.dumps(slate.to_json()))) == slate

    def test_unknown_keys_are_kept_at_every_level(self) -> None:
        item = {"item_id": "a", "title": "Serum", "price": [9.5, "N/A", None]}
        full = record(
            user={"user_id": "u", "history": [item], "query": "q", "age": 7},
            candidates=[item],
            label=["a"],
            grades=[2],
            teacher={"name": "t", "permutation": ["a"], "cost": 0.5},
            timestamp=1009513310189256287,
        )
        assert Slate.from_json(full).to_json() == full

    def test_keys_that_were_absent_stay_absent(self) -> None:
        assert Slate.from_json(record()).to_json() == record()

    @pytest.mark.parametrize("empty", [{}, {"user": None}, {"user": {}}, {"user": {"history": None}}])
    def test_a_missing_user_or_history_is_an_empty_one(self, empty: dict[str, Any]) -> None:
        fields = {key: value for key, value in record().items() if key != "user"}
        assert Slate.from_json(fields | empty).user == UserContext()

    def test_a_missing_title_is_an_empty_one(self) -> None:
        assert Item.from_json({"item_id": "a"}, "here") == Item("a", "")

    @pytest.mark.parametrize("number", [0, 7, 1009513310189256287])
    def test_whole_number_ids_become_exact_strings(self, number: int) -> None:
        slate = Slate.from_json(record(slate_id=number, candidates=[{"item_id": number, "title": ""}], label=[number]))
        assert (slate.slate_id, slate.item_ids, slate.label) == (str(number), (str(number),), (str(number),))
        assert slate.relevant() == (True,)


class TestWhatIsRight:
    def test_the_label_decides_relevance_and_may_name_items_elsewhere(self) -> None:
        assert Slate.from_json(record(label=["b", "elsewhere"], grades=[4, 0])).relevant() == (False, True)

    def test_without_a_label_grades_above_0_are_relevant(self) -> None:
        assert Slate.from_json(record(grades=[0.5, 0])).relevant() == (True, False)
        assert Slate.from_json(record(grades=[-1, 2])).relevant() == (False, True)

    def test_an_empty_label_says_that_nothing_is_relevant(self) -> None:
        assert Slate.from_json(record(label=[], grades=[1, 1])).relevant() == (False, False)

    def test_with_neither_nothing_is_relevant_and_nothing_gained(self) -> None:
        slate = Slate.from_json(record())
        assert slate.relevant() == (False, False)
        assert slate.gains() == (0.0, 0.0)

    def test_gains_are_the_grades_else_1_for_the_labelled(self) -> None:
        assert Slate.from_json(record(label=["a"], grades=[0, 3])).gains() == (0, 3)
        assert Slate.from_json(record(label=["b"])).gains() == (0.0, 1.0)

    @given(slate=slates())
    def test_both_are_aligned_with_the_candidates(self, slate: Slate) -> None:
        assert len(slate.relevant()) == len(slate.gains()) == len(slate.item_ids) == len(slate.candidates)


NAN = float("nan")
INFINITY = float("inf")
BROKEN: list[tuple[Any, str]] = [
    ("text", r"^slate: expected a JSON object, got str$"),
    (None, r"^slate: expected a JSON object, got NoneType$"),
    ({}, r"^slate: slate_id is None; it must be a non-empty string$"),
    (record(slate_id=""), r"slate_id is ''; it must be a non-empty string"),
    (record(slate_id=True), r"slate_id is True; it must be a non-empty string"),
    (record(slate_id=1.5), r"slate_id is 1.5; it must be a non-empty string"),
    (record(candidates=None), r"slate 's1': candidates: expected a list, got NoneType"),
    (record(candidates="ab"), r"slate 's1': candidates: expected a list, got str"),
    (record(candidates=[]), r"slate 's1': has no candidates; a slate needs at least one"),
    (record(candidates=["a"]), r"slate 's1': candidate 0: expected a JSON object, got str"),
    (record(candidates=[{"title": "x"}]), r"slate 's1': candidate 0: item_id is None; it must be a non-empty string"),
    (record(candidates=[{"item_id": "a", "title": 7}]), r"slate 's1': candidate 0: title is 7; it must be a string"),
    (record(candidates=[{"item_id": "a", "brand": 7}]), r"slate 's1': candidate 0: brand is 7; it must be a string"),
    (record(candidates=[{"item_id": "a", "category": []}]), r"candidate 0: category is \[\]; it must be a string"),
    (record(candidates=[{"item_id": "a", "rating": "5"}]), r"candidate 0: rating is '5'; it must be a finite number"),
    (record(candidates=[{"item_id": "a", "rating": NAN}]), r"candidate 0: rating is nan; it must be a finite number"),
    (record(candidates=[{"item_id": "a", "rating": 10**400}]), r"rating is 1000.*; it must be a finite number"),
    (record(candidates=[{"item_id": "a"}, {"item_id": "a"}]), r"item_id 'a' appears twice; ids must be unique within"),
    (record(candidates=[{"item_id": 7}, {"item_id": "7"}]), r"item_id '7' appears twice"),
    (record(user=["x"]), r"slate 's1': user: expected a JSON object, got list"),
    (record(user={"history": "x"}), r"slate 's1': user.history: expected a list, got str"),
    (record(user={"history": [{}]}), r"slate 's1': history item 0: item_id is None"),
    (record(user={"user_id": []}), r"slate 's1': user_id is \[\]; it must be a non-empty string"),
    (record(user={"query": 7}), r"slate 's1': query is 7; it must be a string"),
    (record(label="a"), r"slate 's1': label: expected a list, got str"),
    (record(label=[None]), r"slate 's1': label is None; it must be a non-empty string"),
    (record(grades=[1]), r"slate 's1': 1 grades for 2 candidates; give one grade a candidate"),
    (record(grades=[1, None]), r"slate 's1': grades: holds null; give one finite number a candidate"),
    (record(grades=[1, INFINITY]), r"slate 's1': grades\[1\] is inf; it must be a finite number"),
    (record(grades=[1, True]), r"slate 's1': grades\[1\] is True; it must be a finite number"),
    (record(teacher=[]), r"slate 's1': teacher: expected a JSON object, got list"),
    (record(teacher={"name": "t"}), r"slate 's1': teacher has no permutation; re-run label"),
    (record(teacher={"permutation": ["a"]}), r"slate 's1': teacher 'teacher': ranks 1 candidates but the slate has 2; re"),
    (record(teacher={"permutation": ["a", "c"]}), r"teacher 'teacher': ranks 'c', which is not in the slate; re-run"),
    (record(teacher={"permutation": ["a", "a"]}), r"teacher 'teacher': ranks an item twice; re-run label"),
]


class TestRefusals:
    @pytest.mark.parametrize(("broken", "message"), BROKEN, ids=[message for _, message in BROKEN])
    def test_what_breaks_the_contract_is_refused_by_name(self, broken: Any, message: str) -> None:
        with pytest.raises(SlateError, match=message):
            Slate.from_json(broken)

    def test_invariants_also_hold_for_slates_made_in_code(self) -> None:
        with pytest.raises(SlateError, match=r"slate 's': has no candidates"):
            Slate("s", UserContext(), ())
        with pytest.raises(SlateError, match=r"slate 's': 2 grades for 1 candidates"):
            Slate("s", UserContext(), (Item("a", ""),), grades=(1.0, 2.0))

    def test_records_cannot_be_changed(self) -> None:
        slate = Slate.from_json(record())
        for target, name in ((slate, "label"), (slate.user, "query"), (slate.candidates[0], "title")):
            with pytest.raises(dataclasses.FrozenInstanceError):
                setattr(target, name, "other")

    @given(order=st.permutations(["a", "b", "c"]))
    def test_any_order_of_the_same_items_is_a_permutation(self, order: list[str]) -> None:
        check_permutation(order, ("a", "b", "c"), "here")

    def test_errors_are_for_users(self) -> None:
        assert issubclass(SlateError, SpdError)
        assert choices("head", "mlp", {"b": 1, "a": 2}) == "unknown head 'mlp'; choose from a, b"


def test_slates_stand_on_the_standard_library_alone() -> None:
    """A page or script that only reads slates must not wait for the model libraries."""
    code = "import spd_core.slate, sys; print(*sorted({name.split('.')[0] for name in sys.modules}))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert not {"torch", "numpy", "transformers", "streamlit", "pydantic"} & set(done.stdout.split())
