"""Laws of near-optimal rankings: the list and the ranks taken equal brute force, ties included, best first, none twice."""

import itertools
import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from spd_core.decoding import hungarian
from spd_core.decoding.comparison import total_of
from spd_core.decoding.forced_ranks import COIN_TOSS, FIRM, LEANING, forced_ranks, sureness
from spd_core.decoding.near_optimal import near_optimal, rankings_by_loss
from spd_core.errors import ScoreMatrixError, SpdError
from spd_core.figures.near_optimal import reachable_chart, reachable_frame

Matrix = NDArray[np.float64]
SEEDS = st.integers(0, 2**32 - 1)


def random_scores(count: int, seed: int, *, spare: int = 0, tied: bool = False) -> Matrix:
    """(N, N + spare) scores; whole numbers, hence many equal totals, if `tied`."""
    scores = np.random.default_rng(seed).normal(size=(count, count + spare))
    return scores.round() if tied else scores


def brute_force(scores: Matrix) -> dict[tuple[int, ...], float]:
    """Loss of every ranking."""
    count = len(scores)
    totals = {order: total_of(scores, np.array(order)) for order in itertools.permutations(range(count))}
    return {order: max(totals.values()) - total for order, total in totals.items()}


@given(st.integers(1, 6), st.integers(0, 2), st.booleans(), SEEDS)
@settings(max_examples=40, deadline=None)
def test_every_ranking_comes_once_best_first(count: int, spare: int, tied: bool, seed: int) -> None:
    scores = random_scores(count, seed, spare=spare, tied=tied)
    expected = brute_force(scores[:, :count])
    found = {tuple(runner.ranking.tolist()): runner.loss for runner in rankings_by_loss(scores)}
    assert found == pytest.approx(expected, abs=1e-9)
    assert list(found.values()) == sorted(found.values())
    assert len(list(rankings_by_loss(scores))) == len(expected)


@given(st.integers(1, 6), st.booleans(), st.floats(0, 3), SEEDS)
@settings(max_examples=60, deadline=None)
def test_near_rankings_and_the_ranks_in_them_are_those_of_brute_force(
    count: int, tied: bool, epsilon: float, seed: int
) -> None:
    scores = random_scores(count, seed, tied=tied)
    epsilon = round(epsilon) if tied else epsilon
    near = near_optimal(scores, epsilon=epsilon, limit=1000)
    expected = {order for order, loss in brute_force(scores).items() if loss <= epsilon + 1e-9}
    assert {tuple(runner.ranking.tolist()) for runner in near.runners} == expected
    assert near.is_complete
    taken = np.array([[any(order[c] == item for order in expected) for c in range(count)] for item in near.ranking])
    assert np.array_equal(near.reachable, taken)
    assert near.highest.tolist() == [min(np.flatnonzero(row)) for row in taken]
    assert near.lowest.tolist() == [max(np.flatnonzero(row)) for row in taken]


def test_first_ranking_is_that_of_the_decoder_and_the_second_is_worse_by_the_gap() -> None:
    scores = random_scores(20, 3)
    first, second = itertools.islice(rankings_by_loss(scores), 2)
    assert first.ranking.tolist() == hungarian(scores).tolist()
    assert first.loss == 0
    assert second.loss == pytest.approx(forced_ranks(scores).second_best_gap)


def test_limit_cuts_the_list_and_not_the_ranks() -> None:
    flat = np.ones((8, 8))
    near = near_optimal(flat, epsilon=0.0, limit=5)
    assert len(near.runners) == 5
    assert not near.is_complete
    assert near.reachable.all()
    assert near_optimal(np.ones((3, 3)), epsilon=0.0, limit=6).is_complete


def test_wider_epsilon_never_loses_a_ranking() -> None:
    scores = random_scores(7, 1)
    sizes = [len(near_optimal(scores, epsilon=epsilon, limit=5040).runners) for epsilon in (0, 0.5, 1, 2, 1000)]
    assert sizes == sorted(sizes)
    assert (sizes[0], sizes[-1]) == (1, 5040)


def test_constants_added_to_rows_and_columns_change_nothing() -> None:
    scores, random = random_scores(6, 9), np.random.default_rng(9)
    shifted = scores + random.normal(size=(6, 1)) + random.normal(size=(1, 6))
    ours, theirs = near_optimal(scores, epsilon=1.0), near_optimal(shifted, epsilon=1.0)
    assert [r.ranking.tolist() for r in ours.runners] == [r.ranking.tolist() for r in theirs.runners]
    assert np.array_equal(ours.reachable, theirs.reachable)


def test_rounding_of_large_scores_loses_no_tie() -> None:
    scores = 1e6 + np.add.outer(np.arange(5) / 3, np.arange(5) / 7)  # every ranking has one total but for rounding
    near = near_optimal(scores, epsilon=0.0)
    assert len(near.runners) == 120


def test_bad_epsilon_limit_and_matrix_are_refused() -> None:
    for epsilon in (-1.0, float("nan")):
        with pytest.raises(SpdError, match=f"epsilon is {epsilon}; it must be 0 or more"):
            near_optimal(np.eye(2), epsilon=epsilon)
    with pytest.raises(SpdError, match="limit is 0; it must be at least 1"):
        near_optimal(np.eye(2), epsilon=1.0, limit=0)
    with pytest.raises(ScoreMatrixError, match="score of item 1 for position 2 is inf"):
        near_optimal(np.array([[0.0, np.inf], [0.0, 0.0]]), epsilon=1.0)


# --- leaving the top


@given(st.integers(1, 6), st.booleans(), SEEDS)
@settings(max_examples=40, deadline=None)
def test_loss_of_another_top_is_that_of_brute_force(count: int, tied: bool, seed: int) -> None:
    scores = random_scores(count, seed, tied=tied)
    forced, losses = forced_ranks(scores), brute_force(scores)
    for top in range(1, count + 1):
        best = set(forced.ranking[:top].tolist())
        others = [loss for order, loss in losses.items() if set(order[:top]) != best]
        assert forced.leaving_top(top) == pytest.approx(min(others, default=np.inf), abs=1e-9)


def test_words_of_a_loss_follow_its_odds() -> None:
    words = [sureness(float(np.log(odds))) for odds in (1, 1.9, 2.1, 19, 21)]
    assert words == [COIN_TOSS, COIN_TOSS, LEANING, LEANING, FIRM]
    assert sureness(np.inf) == sureness(1e9) == FIRM


# --- the picture


def test_picture_has_a_cell_for_each_rank_taken_and_a_dot_for_the_own_one() -> None:
    reachable = np.array([[True, True, False], [True, True, False], [False, False, True]])
    odds = np.array([[1.0, 4.0, 9.0], [2.0, 1.0, 9.0], [9.0, 9.0, 1.0]])
    frame = reachable_frame(["soap", "soap", "1984"], odds, reachable)
    assert frame[["held", "rank"]].to_numpy().tolist() == [[1, 1], [1, 2], [2, 1], [2, 2], [3, 3]]
    assert frame["likelihood"].tolist() == [1, 0.25, 0.5, 1, 1]
    assert frame["is_best"].tolist() == [True, False, False, True, True]
    spec = reachable_chart(["soap", "soap", "</script>"], odds, reachable).to_dict()
    assert len(next(iter(spec["datasets"].values()))) == 5
    assert "</script>" not in json.dumps(spec["layer"][0]["encoding"]["y"]["axis"]["labelExpr"])
