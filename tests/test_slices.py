"""Slices of slates: what a slate is known for, few slices for many values, figures of the slates in them alone."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from spd_core.errors import SpdError
from spd_core.metrics import (
    MetricTable,
    attributes_of,
    mean_interval,
    mean_intervals,
    slice_metrics,
    slice_order,
    slices_of,
)
from spd_core.metrics.slices import FIFTHS, MOST_NUMBERS, MOST_WORDS, RANGES
from spd_core.slate import Slate

numbers = st.lists(st.one_of(st.none(), st.integers(-50, 50), st.floats(-1e6, 1e6)), min_size=1, max_size=80)


def table(name: str, values: np.ndarray) -> MetricTable:
    ids = tuple(f"s{k}" for k in range(len(values)))
    return MetricTable(name, ids, {"AUC": values, "MRR": values / 2}, {}, {})


def with_brands(slate: Slate, history: str | None, candidates: str | None) -> Slate:
    bought = tuple(replace(item, brand=history) for item in slate.user.history)
    shown = tuple(replace(item, brand=candidates) for item in slate.candidates)
    return replace(slate, user=replace(slate.user, history=bought), candidates=shown)


class TestAttributes:
    def test_size_history_and_place_of_the_right_item(self, make_slate: Callable[..., Slate]) -> None:
        found = attributes_of(make_slate(10, history=3, label=("c5",)))
        assert (found["candidates"], found["history"], found["target place"]) == (10, 3, "third fifth")

    def test_every_place_of_the_input_has_its_fifth_and_the_ends_are_first_and_last(
        self, make_slate: Callable[..., Slate]
    ) -> None:
        for count in (1, 2, 5, 7, 20):
            places = [attributes_of(make_slate(count, label=(f"c{k}",)))["target place"] for k in range(1, count + 1)]
            assert places == sorted(places, key=FIFTHS.index)
            assert places[0] == FIFTHS[0]
        assert places[-1] == FIFTHS[-1]
        assert [places.count(fifth) for fifth in FIFTHS] == [4] * 5

    @pytest.mark.parametrize(
        ("history", "candidates", "found"),
        [
            ("Nike", "nike", "yes"),
            ("Nike", "Puma", "no"),
            (None, "Puma", "no"),
            ("Nike", None, "no brand"),
            (None, "ORRIS soap", "yes"),  # its words stand in the titles of the history
            (None, "Orr", "no"),
        ],
    )
    def test_brand_of_the_right_item_is_looked_for_in_the_history_whatever_its_case(
        self, make_slate: Callable[..., Slate], history: str | None, candidates: str | None, found: str
    ) -> None:
        slate = with_brands(make_slate(4, label=("c2",)), history, candidates)
        assert attributes_of(slate)["brand in history"] == found

    def test_slate_without_a_right_item_has_neither_place_nor_brand(self, make_slate: Callable[..., Slate]) -> None:
        found = attributes_of(with_brands(make_slate(4), "Nike", "Nike"))
        assert (found["target place"], found["brand in history"]) == (None, None)

    def test_further_keys_count_if_they_are_flags_numbers_or_short_words(self, make_slate: Callable[..., Slate]) -> None:
        extra = {
            "same_day_as_history": 3,
            "synthetic": True,
            "hour": 7,
            "shop": "north",
            "story": "long " * 20,
            "tags": ["a"],
        }
        found = attributes_of(make_slate(4, extra=extra | {"empty": "", "history": 99}))
        assert found["same_day_as_history"] == found["synthetic"] == "yes"
        assert (found["hour"], found["shop"]) == (7.0, "north")
        assert found["history"] == 2  # a key of that name does not hide the length of the history
        assert not {"story", "tags", "empty"} & set(found)


class TestSlices:
    def test_few_numbers_and_words_stand_for_themselves(self) -> None:
        assert slices_of([20, 10, 20, None]) == ["20", "10", "20", None]
        assert slice_order([20, 10, 20, 5, None]) == ["5", "10", "20"]
        assert slices_of([1404691200, 1404691201]) == ["1404691200", "1404691201"]
        assert slice_order(["no", "yes", None, "no"]) == ["no", "yes"]
        assert slice_order([FIFTHS[4], FIFTHS[1], FIFTHS[0]]) == [FIFTHS[0], FIFTHS[1], FIFTHS[4]]

    def test_many_numbers_fall_into_ranges_of_about_as_many_slates(self) -> None:
        values = list(range(1, 101))
        assert slice_order(values) == ["1 to 20", "21 to 40", "41 to 60", "61 to 80", "81 to 100"]
        assert [slices_of(values).count(name) for name in slice_order(values)] == [20] * 5

    @given(values=numbers)
    def test_ranges_hold_every_number_once_and_in_order(self, values: list[float | None]) -> None:
        names, order = slices_of(values), slice_order(values)
        assert [name is None for name in names] == [value is None for value in values]
        assert len(order) <= max(MOST_NUMBERS, RANGES)
        known = sorted(value for value in values if value is not None)
        by_value = [order.index(names[values.index(value)]) for value in known]
        assert by_value == sorted(by_value)

    def test_words_that_name_single_slates_make_no_slices(self) -> None:
        assert slices_of([f"user {k}" for k in range(MOST_WORDS + 1)]) == [None] * (MOST_WORDS + 1)
        assert len(slice_order([f"kind {k}" for k in range(MOST_WORDS)])) == MOST_WORDS

    def test_numbers_among_words_are_words(self) -> None:
        assert slices_of(["a", 3.0, None]) == ["a", "3", None]


class TestFigures:
    def test_intervals_are_those_of_the_slates_in_the_slice(self) -> None:
        rng = np.random.default_rng(0)
        tables = {name: table(name, rng.random(40)) for name in ("one", "two")}
        values = ["yes" if k % 3 else "no" for k in range(40)]
        found = slice_metrics(tables, values)
        assert list(found) == ["no", "yes"]
        chosen = np.array([value == "no" for value in values])
        for ranker, own in tables.items():
            for metric, column in own.values.items():
                assert found["no"][ranker][metric] == pytest.approx(mean_interval(column[chosen]))
        assert found["no"]["one"]["AUC"].n + found["yes"]["one"]["AUC"].n == 40

    def test_slates_without_a_value_are_in_no_slice(self) -> None:
        found = slice_metrics({"one": table("one", np.arange(4.0))}, ["a", None, None, "a"])
        assert found["a"]["one"]["AUC"].n == 2
        assert found["a"]["one"]["AUC"].mean == 1.5

    def test_many_columns_get_the_intervals_that_each_gets_alone(self) -> None:
        columns = np.random.default_rng(1).random((1200, 3))  # several blocks of draws
        together = mean_intervals(columns)
        for column, interval in zip(columns.T, together, strict=True):
            assert interval == pytest.approx(mean_interval(column), abs=1e-12)

    def test_no_rows_or_a_number_that_is_none_are_refused(self) -> None:
        with pytest.raises(SpdError, match="no slates to average"):
            mean_intervals(np.empty((0, 2)))
        with pytest.raises(SpdError, match="value 1 is nan"):
            mean_intervals(np.array([[1.0, np.nan]]))
