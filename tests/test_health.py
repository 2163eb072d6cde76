"""Laws of a score matrix's verdict where its nature is known: constant, additive, rank 1, random, permutation-like."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from spd_core.decoding import DECODERS, hungarian
from spd_core.decoding.health import (
    BROKEN,
    FEWEST_TO_JUDGE,
    HEALTHY,
    NO_INFORMATION,
    NOTHING_TO_RANK,
    ONE_SCORE,
    SORT_GAIN_LIMIT,
    TOO_FEW,
    VERDICTS,
    matrix_health,
    raw_share,
)
from spd_core.decoding.margins import matrix_warnings, swap_margins
from spd_core.decoding.plain_sort import LEADING, PLAIN_SORTS, is_flat, leading_sort, same_sort, sort_gains
from spd_core.errors import ScoreMatrixError

Matrix = NDArray[np.float64]
SIZES = st.integers(FEWEST_TO_JUDGE, 30)
SEEDS = st.integers(0, 2**32 - 1)


def one_score(count: int, seed: int) -> Matrix:
    """u v^T with v positive and falling, and constants added to rows and columns."""
    random = np.random.default_rng(seed)
    quality, weight = random.permutation(np.linspace(-3, 3, count)), np.linspace(1, 0.1, count)
    return np.outer(quality, weight) + random.normal(size=(count, 1)) + random.normal(size=(1, count))


def permutation_like(count: int, seed: int) -> Matrix:
    """High where a hidden permutation puts each candidate, small noise elsewhere."""
    random = np.random.default_rng(seed)
    return 5 * np.eye(count)[random.permutation(count)] + 0.3 * random.normal(size=(count, count))


def additive(count: int, seed: int) -> Matrix:
    random = np.random.default_rng(seed)
    return 3 * random.normal(size=(count, 1)) + 3 * random.normal(size=(1, count))


# --- verdicts


@pytest.mark.parametrize("value", [0.0, -2.5, 3e5])
@pytest.mark.parametrize("count", [2, 3, 10, 50])
def test_constant_matrix_has_no_ranking_information(value: float, count: int) -> None:
    health = matrix_health(np.full((count, count), value))
    assert health.verdict == NO_INFORMATION
    assert (health.second_best_gap, health.coin_tosses, health.duplicates) == (0, count, count - 1)
    assert (health.row_spread, health.column_spread, health.collisions) == (0, 0, count - 1)


def test_views_of_numpy_arrays_are_taken_as_they_are() -> None:
    matrix = np.random.default_rng(0).random((9, 9))
    own = matrix_health(matrix)
    matrix.flags.writeable = False
    assert matrix_health(matrix) == own
    assert raw_share(matrix[::-1, ::-1]) == pytest.approx(raw_share(matrix))


@given(SIZES, SEEDS)
@settings(max_examples=30)
def test_additive_matrix_has_no_ranking_information_and_every_ranking_is_optimal(count: int, seed: int) -> None:
    scores = additive(count, seed)
    assert matrix_health(scores).verdict == NO_INFORMATION
    places, random = np.arange(count), np.random.default_rng(seed)
    totals = [scores[random.permutation(count), places].sum() for _ in range(10)]
    assert totals == pytest.approx([scores[hungarian(scores), places].sum()] * 10)


@given(SIZES, SEEDS)
@settings(max_examples=30)
def test_rank_one_matrix_holds_one_score_whatever_is_added_to_rows_and_columns(count: int, seed: int) -> None:
    health = matrix_health(one_score(count, seed))
    assert health.verdict == ONE_SCORE
    assert health.centred_share == pytest.approx(1)
    assert health.sort_gains[LEADING] == pytest.approx(1)


def test_one_score_survives_a_little_noise_and_not_a_lot() -> None:
    noise = np.random.default_rng(1).normal(size=(20, 20))
    assert matrix_health(one_score(20, 0) + 0.01 * noise).verdict == ONE_SCORE
    assert matrix_health(one_score(20, 0) + noise).verdict == HEALTHY


@pytest.mark.parametrize("count", [10, 20, 50])
def test_random_and_permutation_like_matrices_hold_more_than_one_score(count: int) -> None:
    for seed in range(20):
        assert matrix_health(np.random.default_rng(seed).normal(size=(count, count))).verdict == HEALTHY
        assert matrix_health(permutation_like(count, seed)).verdict == HEALTHY


def test_smooth_preference_for_a_place_is_one_score_although_the_matrix_has_full_rank() -> None:
    place = np.arange(20.0)
    health = matrix_health(-np.abs(place[:, None] - place))
    assert health.verdict == ONE_SCORE
    assert health.centred_share < 0.95


def test_high_share_of_energy_alone_does_not_make_one_score() -> None:
    scores = one_score(20, 0) + 0.2 * np.random.default_rng(0).normal(size=(20, 20))
    health = matrix_health(scores)
    assert health.centred_share > 0.85
    assert health.sort_gains[LEADING] < SORT_GAIN_LIMIT
    assert health.verdict == HEALTHY


def test_few_candidates_are_not_judged_and_one_has_nothing_to_rank() -> None:
    for count in range(2, FEWEST_TO_JUDGE):
        assert matrix_health(one_score(count, 0)).verdict == TOO_FEW
    assert matrix_health(one_score(FEWEST_TO_JUDGE, 0)).verdict == ONE_SCORE
    alone = matrix_health(np.array([[1.5, 0.0]]))
    assert (alone.verdict, alone.coin_tosses, alone.second_best_gap) == (NOTHING_TO_RANK, 0, np.inf)


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_scores_that_are_not_finite_are_counted_and_judged_not_usable(value: float) -> None:
    scores = np.zeros((9, 9))
    scores[2, 1] = scores[3, 0] = value
    health = matrix_health(scores)
    assert (health.verdict, health.not_finite) == (BROKEN, 2)
    assert np.isnan(health.centred_share)


def test_more_candidates_than_positions_are_refused() -> None:
    with pytest.raises(ScoreMatrixError, match="5 candidates but 3 positions"):
        matrix_health(np.zeros((5, 3)))


def test_columns_beyond_the_slate_change_nothing() -> None:
    scores = np.random.default_rng(0).normal(size=(9, 50))
    assert matrix_health(scores) == matrix_health(scores[:, :9])


def test_every_verdict_is_a_sentence() -> None:
    assert matrix_health(np.eye(9)).meaning == VERDICTS[HEALTHY]
    assert all(meaning.endswith(".") for meaning in VERDICTS.values())


# --- the numbers behind


def test_numbers_can_be_checked_by_hand() -> None:
    scores = np.array([[4.0, 0.0], [4.0, 0.0], [0.0, 2.0]])[:, [0, 1, 1]]
    health = matrix_health(scores)
    assert health.collisions == 1  # rows 1 and 2 both like position 1 best
    assert health.duplicates == 1
    assert health.second_best_gap == 0  # the two equal candidates may change places
    assert health.row_spread == pytest.approx((2 * 4 + 2) * np.sqrt(2) / 3 / 3)
    assert health.column_spread == pytest.approx((4 + 2 + 2) * np.sqrt(2) / 3 / 3)


def test_near_ties_depend_on_the_temperature() -> None:
    scores = 0.5 * np.eye(10)
    assert matrix_health(scores, tau=5.0).coin_tosses == 10
    assert matrix_health(scores, tau=0.1).coin_tosses == 0


def test_raw_share_is_that_of_the_uncentred_matrix() -> None:
    assert raw_share(np.full((4, 4), -3.0)) == pytest.approx(1)
    assert raw_share(np.eye(4)) == pytest.approx(0.25)
    assert raw_share(np.zeros((4, 4))) == 0


@given(SIZES, SEEDS)
@settings(max_examples=20)
def test_centred_numbers_do_not_see_constants_of_rows_and_columns(count: int, seed: int) -> None:
    scores = np.random.default_rng(seed).normal(size=(count, count))
    plain, shifted = matrix_health(scores), matrix_health(scores + additive(count, seed + 1))
    assert shifted.centred_share == pytest.approx(plain.centred_share)
    assert shifted.second_best_gap == pytest.approx(plain.second_best_gap)


# --- plain sorts


@given(SIZES, SEEDS)
@settings(max_examples=30)
def test_all_plain_sorts_and_the_assignment_sort_a_rank_one_matrix_by_its_score(count: int, seed: int) -> None:
    quality = np.random.default_rng(seed).permutation(np.linspace(0.5, 3, count))
    scores = np.outer(quality, np.linspace(1, 0.1, count))
    wanted = np.argsort(-quality).tolist()
    assert [sort(scores).tolist() for sort in PLAIN_SORTS.values()] == [wanted] * len(PLAIN_SORTS)
    assert hungarian(scores).tolist() == wanted
    assert same_sort(scores, hungarian(scores)) == "expected position"


def test_leading_sort_matches_scores_to_positions_also_where_late_ones_want_quality() -> None:
    scores = np.outer([3.0, 1.0, 2.0], [0.1, 0.5, 1.0])  # the last position wants quality most
    assert leading_sort(scores).tolist() == [1, 2, 0]
    assert leading_sort(scores).tolist() == hungarian(scores).tolist()


@given(st.integers(2, 12), SEEDS)
@settings(max_examples=60)
def test_no_sort_gains_more_than_the_assignment(count: int, seed: int) -> None:
    scores = np.random.default_rng(seed).normal(size=(count, count))
    gains = sort_gains(scores)
    assert all(gain <= 1 for gain in gains.values())
    twin = same_sort(scores, hungarian(scores))
    assert twin is None or gains[twin] == pytest.approx(1)


def test_flatness_is_relative_to_the_scores() -> None:
    assert is_flat(additive(6, 0).astype(np.float32) * 1e4)
    assert not is_flat(np.eye(6) * 1e-4)


# --- what `rank` warns of


def warnings_of(scores: Matrix, decoder: str = "hungarian") -> tuple[str, ...]:
    return matrix_warnings(scores, swap_margins(scores, DECODERS[decoder](scores)), decoder)


def test_one_score_is_warned_of_with_its_number_where_the_solver_pretends_to_do_more() -> None:
    scores = one_score(12, 3)
    (warning,) = warnings_of(scores)
    assert warning == (
        "one score per candidate: the solver only sorts, a sort by it reaches 100.0% of the best assignment's gain"
    )
    assert warnings_of(scores, "expected_position") == ()


def test_healthy_matrix_and_few_candidates_warn_of_nothing() -> None:
    assert warnings_of(permutation_like(12, 0)) == ()
    assert warnings_of(one_score(FEWEST_TO_JUDGE - 1, 0)) == ()
