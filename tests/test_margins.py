"""Laws of forced ranks: equal to brute force, exact under ties, and the words for how sure a rank is."""

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from spd_core.decoding import hungarian, to_positions
from spd_core.decoding.forced_ranks import COIN_TOSS, FIRM, LEANING, ForcedRanks, firmness, forced_ranks
from spd_core.decoding.margins import swap_margins
from spd_core.errors import ScoreMatrixError

Matrix = NDArray[np.float64]
SEEDS = st.integers(0, 2**32 - 1)


def brute_force(scores: Matrix, ranking: NDArray[np.int64]) -> Matrix:
    """(N, N) losses by trying every ranking: rows in the order of `ranking`, columns the rank forced."""
    count = len(scores)
    orders = np.array(list(itertools.permutations(range(count))))  # (N!, N) candidate at each rank
    totals = scores[orders, np.arange(count)].sum(axis=1)
    return np.array([[totals.max() - totals[orders[:, c] == item].max() for c in range(count)] for item in ranking])


@given(st.integers(1, 6), st.integers(0, 3), st.booleans(), SEEDS)
@settings(max_examples=80)
def test_forced_losses_are_those_of_brute_force(count: int, spare: int, tied: bool, seed: int) -> None:
    scores = np.random.default_rng(seed).normal(size=(count, count + spare))
    scores = scores.round() if tied else scores
    forced = forced_ranks(scores)
    assert forced.ranking.tolist() == hungarian(scores).tolist()
    assert forced.losses == pytest.approx(brute_force(scores[:, :count], forced.ranking), abs=1e-9)


def test_forced_losses_are_those_of_brute_force_for_seven_candidates() -> None:
    for seed in range(4):
        scores = np.random.default_rng(seed).normal(size=(7, 7))
        forced = forced_ranks(scores)
        assert forced.losses == pytest.approx(brute_force(scores, forced.ranking), abs=1e-9)


def test_forced_losses_of_fifty_candidates_are_those_of_a_new_solution() -> None:
    scores = np.random.default_rng(0).normal(size=(50, 50))
    forced = forced_ranks(scores)
    best = scores[forced.ranking, np.arange(50)].sum()
    for rank, wanted in [(0, 49), (49, 0), (7, 8), (20, 3)]:
        held = scores.copy()
        held[forced.ranking[rank], wanted] += 1e4  # so large that the solver must take this cell
        total = held[hungarian(held), np.arange(50)].sum() - 1e4
        assert forced.losses[rank, wanted] == pytest.approx(best - total)


@given(st.integers(2, 12), SEEDS)
@settings(max_examples=40)
def test_forcing_costs_nothing_at_the_own_rank_and_never_more_than_a_mere_swap(count: int, seed: int) -> None:
    scores = np.random.default_rng(seed).normal(size=(count, count))
    forced = forced_ranks(scores)
    assert np.diag(forced.losses).tolist() == [0.0] * count
    assert (forced.losses >= 0).all()
    swaps = swap_margins(scores, forced.ranking)[:-1]
    assert (forced.one_down[:-1] <= swaps + 1e-9).all()
    assert (forced.one_up[1:] <= swaps + 1e-9).all()
    assert forced.second_best_gap == pytest.approx(forced.leaving.min())


def test_constants_added_to_rows_and_columns_change_no_loss() -> None:
    random = np.random.default_rng(5)
    scores = random.normal(size=(9, 9))
    shifted = scores + random.normal(size=(9, 1)) + random.normal(size=(1, 9))
    assert forced_ranks(shifted).losses == pytest.approx(forced_ranks(scores).losses)


def test_losses_can_be_checked_by_hand() -> None:
    scores = np.array([[0.0, 9.0, 0.0], [0.0, 0.0, 8.0], [7.0, 0.0, 0.0]])  # a 3-cycle: item 2 first, then 0, then 1
    forced = forced_ranks(scores)
    assert forced.ranking.tolist() == [2, 0, 1]
    assert to_positions(forced.ranking).tolist() == [1, 2, 0]
    assert forced.losses[0].tolist() == [0.0, 16.0, 15.0]  # item 2 to rank 2 keeps only 8, to rank 3 only 9 (of 24)
    assert forced.leaving.tolist() == [15.0, 16.0, 15.0]
    assert forced.second_best_gap == 15.0


def test_one_up_is_towards_the_first_rank_and_ends_have_no_further() -> None:
    forced = ForcedRanks(np.arange(3), np.array([[0.0, 1.0, 2.0], [3.0, 0.0, 5.0], [6.0, 7.0, 0.0]]))
    assert forced.one_up[1:].tolist() == [3.0, 7.0]
    assert forced.one_down[:-1].tolist() == [1.0, 5.0]
    assert np.isnan([forced.one_up[0], forced.one_down[-1]]).all()


def test_one_candidate_can_go_nowhere() -> None:
    forced = forced_ranks(np.array([[2.0, 1.0]]))
    assert forced.losses.tolist() == [[0.0]]
    assert forced.second_best_gap == np.inf
    assert firmness(forced) == (FIRM,)


def test_more_candidates_than_positions_are_refused() -> None:
    with pytest.raises(ScoreMatrixError, match="4 candidates but 3 positions; a position for each is needed"):
        forced_ranks(np.zeros((4, 3)))


def test_scores_that_are_not_finite_are_refused() -> None:
    with pytest.raises(ScoreMatrixError, match="score of item 1 for position 1 is nan"):
        forced_ranks(np.array([[np.nan]]))


def test_words_follow_the_odds_of_the_best_ranking_against_the_best_with_the_candidate_elsewhere() -> None:
    losses = np.log(np.array([[1, 1.9, 50], [2.1, 1, 19], [21, 30, 1]]))
    forced = ForcedRanks(np.arange(3), losses)
    assert firmness(forced) == (COIN_TOSS, LEANING, FIRM)
    assert firmness(forced, tau=0.1) == (FIRM, FIRM, FIRM)
    assert firmness(forced, tau=10.0) == (COIN_TOSS, COIN_TOSS, COIN_TOSS)


def test_exact_tie_is_a_coin_toss_and_huge_losses_are_firm() -> None:
    assert firmness(forced_ranks(np.ones((3, 3)))) == (COIN_TOSS,) * 3
    assert firmness(forced_ranks(1e6 * np.eye(3))) == (FIRM,) * 3
