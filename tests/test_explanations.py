"""Laws of the explanation of a pair: the cost of a swap is arithmetic, and what a model ignores moves nothing."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from spd_core.decoding import hungarian
from spd_core.decoding.margins import swap_margins
from spd_core.errors import SpdError
from spd_core.explanations import KINDS, Change, Effect, as_read, effects_on, leave_one_out, stakes, swap_gain
from spd_core.figures.changes import changes_chart, changes_frame
from spd_core.prompts import TEMPLATES, build_prompt
from spd_core.slate import Slate

MakeSlate = Callable[..., Slate]
SHOP = TEMPLATES["shop"]
SEEDS = st.integers(0, 2**32 - 1)


def by_letter(slate: Slate, title_of_history: str = "") -> NDArray[np.float64]:
    """A fake model: a candidate's score is the number in its title; one title in the history turns the order round."""
    scores = np.array([float(item.title.split()[-1]) for item in slate.candidates])
    read = [item.title for item in slate.user.history]
    sign = -1.0 if title_of_history and title_of_history in read else 1.0
    return np.outer(sign * scores, np.linspace(1.0, 0.1, len(scores)))


def tried(
    slate: Slate, model: Callable[[Slate], NDArray[np.float64]], ranks: tuple[int, int] = (0, 1)
) -> tuple[list[Effect], NDArray[np.int64]]:
    """Effects on the candidates at two ranks under a fake model, and the ranking."""
    matrix = model(as_read(slate, SHOP))
    ranking = hungarian(matrix)
    pair = swap_gain(matrix, ranking, int(ranking[ranks[0]]), int(ranking[ranks[1]]))
    changes = leave_one_out(slate, SHOP)
    return effects_on(pair, slate, ranking, changes, [model(change.slate) for change in changes]), ranking


# --- the cost of a swap


@given(st.integers(2, 9), st.integers(0, 3), SEEDS)
@settings(max_examples=60)
def test_cost_of_a_swap_is_what_the_total_loses(count: int, spare: int, seed: int) -> None:
    random = np.random.default_rng(seed)
    scores = random.normal(size=(count, count + spare))
    ranking = hungarian(scores)
    upper, lower = sorted(random.choice(count, 2, replace=False).tolist())
    pair = swap_gain(scores, ranking, int(ranking[upper]), int(ranking[lower]))
    swapped = ranking.copy()
    swapped[[upper, lower]] = swapped[[lower, upper]]
    rank = np.arange(count)
    assert pair.gain == pytest.approx(scores[ranking, rank].sum() - scores[swapped, rank].sum(), abs=1e-9)
    assert pair.gain >= -1e-9
    assert (pair.upper, pair.lower) == (upper, lower)


def test_cost_of_a_swap_of_neighbours_is_their_margin() -> None:
    scores = np.random.default_rng(3).normal(size=(8, 8))
    ranking = hungarian(scores)
    costs = [swap_gain(scores, ranking, int(ranking[r]), int(ranking[r + 1])).gain for r in range(7)]
    assert costs == pytest.approx(swap_margins(scores, ranking)[:-1].tolist())


def test_constants_of_rows_and_columns_change_neither_stake() -> None:
    random = np.random.default_rng(4)
    scores = random.normal(size=(6, 6))
    shifted = scores + random.normal(size=(6, 1)) + 5 * random.normal(size=(1, 6))
    ours, theirs = stakes(scores, 2, 4, upper=0, lower=3), stakes(shifted, 2, 4, upper=0, lower=3)
    assert (theirs.stake_above, theirs.stake_below) == pytest.approx((ours.stake_above, ours.stake_below))


def test_pair_the_other_way_round_is_refused() -> None:
    with pytest.raises(SpdError, match="candidate 1 at rank 2 does not stand above candidate 2 at rank 1"):
        swap_gain(np.eye(2)[::-1], np.array([1, 0]), 0, 1)
    with pytest.raises(SpdError, match="does not stand above"):
        swap_gain(np.eye(2), np.array([0, 1]), 1, 1)


# --- leaving things out


def test_what_the_model_ignores_changes_nothing(make_slate: MakeSlate) -> None:
    slate = make_slate(5, history=3, query="warm soap bar")
    effects, ranking = tried(slate, by_letter)
    ignored = [effect for effect in effects if effect.change.kind != "candidate"]
    assert len(ignored) == 3 + 1 + 3
    for effect in ignored:
        assert effect.shift == pytest.approx(0)
        assert (effect.rank_above, effect.rank_below) == (0, 1)
        assert effect.ranking == tuple(slate.item_ids[index] for index in ranking)


def test_what_the_model_hangs_on_comes_first_and_turns_the_pair(make_slate: MakeSlate) -> None:
    slate = make_slate(5, history=["soap", "the one", "oil"])
    effects, _ = tried(slate, lambda shown: by_letter(shown, "the one"))
    assert (effects[0].change.kind, effects[0].change.text) == ("history", "the one")
    assert effects[0].is_turned
    assert effects[0].shift < 0
    others = [effect for effect in effects if effect.change.text in ("soap", "oil")]
    assert len(others) == 2
    assert not any(effect.is_turned for effect in others)
    sizes = [abs(effect.shift) for effect in effects]
    assert sizes == sorted(sizes, reverse=True)


@pytest.mark.parametrize(("ranks", "gone", "expected"), [((1, 3), 0, (0, 2)), ((1, 3), 2, (1, 2)), ((1, 3), 4, (1, 3))])
def test_places_below_a_rival_that_is_left_out_move_up(
    ranks: tuple[int, int], gone: int, expected: tuple[int, int], make_slate: MakeSlate
) -> None:
    effects, ranking = tried(make_slate(5), by_letter, ranks)
    (effect,) = [effect for effect in effects if effect.change.kind == "candidate" and effect.change.index == ranking[gone]]
    assert (effect.rank_above, effect.rank_below) == expected
    assert len(effect.ranking) == 4
    # u v^T keeps the order, so the cost at the moved places is what these places of the smaller matrix give
    places = np.linspace(1.0, 0.1, 4)
    apart = abs(int(ranking[ranks[0]]) - int(ranking[ranks[1]]))  # titles end in the index + 1
    assert effect.gain == pytest.approx(apart * (places[expected[0]] - places[expected[1]]))


def test_neither_of_the_pair_is_left_out(make_slate: MakeSlate) -> None:
    effects, ranking = tried(make_slate(4, history=0), by_letter)
    assert {effect.change.index for effect in effects} == set(range(4)) - set(ranking[:2].tolist())


def test_each_part_of_the_input_is_left_out_once_and_the_rest_stays(make_slate: MakeSlate) -> None:
    slate = make_slate(3, history=["a", "b"], query="warm  soap")
    changes = leave_one_out(slate, SHOP)
    assert [(change.kind, change.index, change.text) for change in changes] == [
        ("history", 0, "a"),
        ("history", 1, "b"),
        ("query", 0, "warm  soap"),
        ("query word", 0, "warm"),
        ("query word", 1, "soap"),
        *(("candidate", index, item.title) for index, item in enumerate(slate.candidates)),
    ]
    assert [item.title for item in changes[0].slate.user.history] == ["b"]
    assert [change.slate.user.query for change in changes[2:5]] == [None, "soap", "warm"]
    assert changes[-1].slate.item_ids == ("c1", "c2")
    assert all(change.slate.candidates == slate.candidates for change in changes[:5])
    assert all(change.slate.user == slate.user for change in changes[5:])


def test_no_older_purchase_takes_the_place_of_the_one_left_out(make_slate: MakeSlate) -> None:
    slate = make_slate(2, history=SHOP.history_limit + 3)
    changes = leave_one_out(slate, SHOP, ("history",))
    assert len(changes) == SHOP.history_limit
    oldest_read = slate.user.history[3].title
    assert changes[0].text == oldest_read
    for change in changes:
        assert len(change.slate.user.history) == SHOP.history_limit - 1
        assert slate.user.history[2].title not in build_prompt(change.slate, SHOP).text


def test_bare_slate_has_nothing_to_leave_out(make_slate: MakeSlate) -> None:
    assert leave_one_out(make_slate(1, history=0), SHOP, KINDS) == ()
    one_word: tuple[Change, ...] = leave_one_out(make_slate(1, history=0, query="soap"), SHOP, KINDS)
    assert [change.kind for change in one_word] == ["query"]


def test_unknown_kind_is_refused(make_slate: MakeSlate) -> None:
    with pytest.raises(SpdError, match="unknown kind of change 'price'; choose from candidate, history, query, query word"):
        leave_one_out(make_slate(2), SHOP, ("price",))  # type: ignore[arg-type]


# --- the picture


def test_bars_keep_equal_labels_apart_and_carry_their_sign() -> None:
    labels = ["soap", "soap", "1984", "</script>"]
    assert changes_frame(labels, [1.0, -2.0, 0.0, 0.5])["text"].tolist() == ["+1.00", "-2.00", "+0.00", "+0.50"]
    spec = changes_chart(labels, [1.0, -2.0, 0.0, 0.5], title="change").to_dict()
    (rows,) = spec["datasets"].values()
    assert len({row["item"] for row in rows}) == 4
    assert "</script>" not in spec["layer"][0]["encoding"]["y"]["axis"]["labelExpr"]
    low, high = spec["layer"][0]["encoding"]["x"]["scale"]["domain"]
    assert low < -2.0 < 2.0 < high
