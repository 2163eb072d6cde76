"""Laws of the decoders: valid permutations, the solver against brute force, tail rule, ties, and what is refused."""

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from numpy.typing import NDArray

from spd_core.decoding import DECODERS, decode_batch, find_decoder, to_positions, to_ranking, validate_scores
from spd_core.decoding.greedy import greedy
from spd_core.decoding.hungarian import hungarian
from spd_core.decoding.matrix import append_tail, expected_positions
from spd_core.errors import ScoreMatrixError, SpdError

Matrix = NDArray[np.float64]
MATRICES = arrays.arrays(
    np.float64,
    st.tuples(st.integers(1, 9), st.integers(1, 9)),
    elements=st.one_of(st.floats(-1e6, 1e6), st.sampled_from([0.0, 1.0])),
)


def total(scores: Matrix, ranking: NDArray[np.int64]) -> float:
    """Sum of the scores of the items at the positions that exist."""
    columns = min(scores.shape)
    return float(scores[ranking[:columns], np.arange(columns)].sum())


@pytest.mark.parametrize("decoder", DECODERS)
@given(scores=MATRICES)
@settings(max_examples=60, deadline=None)
def test_every_decoder_returns_a_permutation(decoder: str, scores: Matrix) -> None:
    kept = scores.copy()
    ranking = DECODERS[decoder](scores)
    assert ranking.dtype == np.int64
    assert sorted(ranking.tolist()) == list(range(len(scores)))
    assert np.array_equal(scores, kept)


def test_hungarian_is_as_good_as_brute_force() -> None:
    random = np.random.default_rng(0)
    for _ in range(1000):
        count = int(random.integers(1, 8))
        scores = random.normal(size=(count, 50))
        if random.random() < 0.3:
            scores = scores.round()  # many ties
        best = max(total(scores, np.array(order)) for order in itertools.permutations(range(count)))
        assert total(scores, hungarian(scores)) == pytest.approx(best, abs=1e-9)


def test_hungarian_top_k_is_as_good_as_brute_force() -> None:
    random = np.random.default_rng(1)
    for _ in range(100):
        scores = random.normal(size=(6, int(random.integers(1, 6))))
        orders = itertools.permutations(range(6), scores.shape[1])
        best = max(total(scores, np.array(order)) for order in orders)
        assert total(scores, hungarian(scores)) == pytest.approx(best, abs=1e-9)


def test_the_best_total_is_not_below_any_other_decoders() -> None:
    random = np.random.default_rng(2)
    for _ in range(50):
        scores = random.normal(size=(12, 12))
        best = total(scores, hungarian(scores))
        assert all(best >= total(scores, decode(scores)) - 1e-9 for decode in DECODERS.values())


@pytest.mark.parametrize("decoder", DECODERS)
@pytest.mark.parametrize("count", [1, 2, 7, 50])
def test_the_identity_matrix_keeps_the_order(decoder: str, count: int) -> None:
    assert DECODERS[decoder](3 * np.eye(count)).tolist() == list(range(count))


@pytest.mark.parametrize("count", [2, 3, 7, 50])
def test_the_negative_identity_moves_every_candidate(count: int) -> None:
    assert not (hungarian(-np.eye(count)) == np.arange(count)).any()


def test_scores_are_read_as_item_by_position() -> None:
    scores = np.zeros((3, 3))
    scores[0, 1] = scores[1, 2] = scores[2, 0] = 1.0  # item 0 to position 1, item 1 to position 2, item 2 to position 0
    assert hungarian(scores).tolist() == [2, 0, 1]
    assert greedy(scores).tolist() == [2, 0, 1]


def test_rankings_and_positions_are_inverse() -> None:
    ranking = np.array([2, 0, 1])  # a 3-cycle: a swap could not tell the two apart
    assert to_positions(ranking).tolist() == [1, 2, 0]
    assert to_ranking(np.array([1, 2, 0])).tolist() == [2, 0, 1]
    random = np.random.default_rng(0).permutation(50)
    assert np.array_equal(to_ranking(to_positions(random)), random)


@pytest.mark.parametrize("values", [[0, 0, 1], [1, 2, 3], [-1, 0, 1]])
def test_what_is_no_permutation_is_not_inverted(values: list[int]) -> None:
    with pytest.raises(ScoreMatrixError, match=r"ranking \[.*\] is not a permutation of 0 to 2"):
        to_positions(np.array(values))
    with pytest.raises(ScoreMatrixError, match=r"positions \[.*\] is not a permutation of 0 to 2"):
        to_ranking(np.array(values))


@pytest.mark.parametrize("decoder", DECODERS)
@pytest.mark.parametrize("shape", [(5, 5), (5, 50), (5, 2), (50, 50), (150, 50)])
def test_a_constant_matrix_gives_the_input_order(decoder: str, shape: tuple[int, int]) -> None:
    assert DECODERS[decoder](np.full(shape, -2.5)).tolist() == list(range(shape[0]))


@pytest.mark.parametrize("decoder", DECODERS)
def test_decoders_agree_on_a_sorted_rank_one_matrix(decoder: str) -> None:
    random = np.random.default_rng(3)
    for _ in range(20):
        quality = random.permutation(np.linspace(0.5, 3, 10))
        weight = np.linspace(1, 0.1, 10)  # earlier positions want quality more
        assert DECODERS[decoder](np.outer(quality, weight)).tolist() == np.argsort(-quality).tolist()


def test_only_the_first_n_columns_count() -> None:
    random = np.random.default_rng(4)
    scores = random.normal(size=(5, 50))
    other = scores.copy()
    other[:, 5:] = 1e9 * random.normal(size=(5, 45))
    for decode in DECODERS.values():
        assert decode(scores).tolist() == decode(other).tolist() == decode(scores[:, :5]).tolist()


@pytest.mark.parametrize("decode", [hungarian, greedy])
def test_candidates_beyond_k_follow_by_expected_position(decode: object) -> None:
    scores = np.array([[0.0, 1.0], [9.0, 0.0], [0.0, 2.0], [8.0, 9.0], [2.0, 0.0], [0.0, 1.0]])
    ranking = decode(scores)  # type: ignore[operator]
    assert ranking[:2].tolist() == [1, 3]  # assigned
    assert ranking[2:].tolist() == [4, 0, 5, 2]  # surest of position 1 first; 0 and 5 tie: input order


def test_the_tail_follows_the_assigned_head() -> None:
    scores = np.array([[0.0, 3.0], [3.0, 0.0], [1.0, 1.0]])
    assert append_tail(np.array([2, 0]), scores).tolist() == [2, 0, 1]


def test_expected_position_is_the_mean_under_the_row_softmax() -> None:
    scores = np.log(np.array([[1.0, 1.0, 2.0], [3.0, 1.0, 0.5], [1.0, 1.0, 1.0]]))
    assert expected_positions(scores) == pytest.approx([(1 + 4) / 4, (1 + 1) / 4.5, 1.0])
    assert DECODERS["expected_position"](scores).tolist() == [1, 2, 0]


def half_like_first(positions: int) -> tuple[Matrix, list[int], list[int]]:
    """200 candidates of which half score 1 for position 1; the scores, who does, and who does not."""
    likes = np.random.default_rng(6).random(200) < 0.5
    scores = np.zeros((200, positions))
    scores[:, 0] = likes
    return scores, np.flatnonzero(likes).tolist(), np.flatnonzero(~likes).tolist()


@pytest.mark.parametrize("decoder", ["expected_position", "first_column"])
@pytest.mark.parametrize("positions", [200, 20])
def test_ties_of_sorting_decoders_keep_the_input_order(decoder: str, positions: int) -> None:
    scores, liking, others = half_like_first(positions)
    assert DECODERS[decoder](scores).tolist() == liking + others


def test_ties_of_greedy_keep_the_input_order_in_head_and_tail() -> None:
    scores, liking, _ = half_like_first(200)
    rest = [k for k in range(200) if k != liking[0]]
    assert greedy(scores).tolist() == [liking[0], *rest]
    scores, liking, others = half_like_first(20)
    assigned = [liking[0], *rest[:19]]
    assert greedy(scores).tolist() == assigned + [k for k in liking + others if k not in assigned]


def test_expected_position_is_finite_for_huge_scores() -> None:
    assert expected_positions(np.array([[1e6, 0.0], [0.0, 1e6]])).tolist() == [0.0, 1.0]


def test_first_column_ignores_the_other_columns() -> None:
    scores = np.array([[1.0, 9.0, 9.0], [3.0, -9.0, 0.0], [2.0, 0.0, 7.0], [3.0, 5.0, 5.0]])
    assert DECODERS["first_column"](scores).tolist() == [1, 3, 2, 0]


def test_greedy_takes_the_largest_first_even_where_the_total_suffers() -> None:
    scores = np.array([[10.0, 9.0], [9.0, 0.0]])
    assert greedy(scores).tolist() == [0, 1]
    assert hungarian(scores).tolist() == [1, 0]


def test_greedy_ties_go_to_the_lower_candidate_then_the_lower_position() -> None:
    assert greedy(np.array([[0.0, 5.0, 5.0], [0.0, 5.0, 5.0], [0.0, 0.0, 0.0]])).tolist() == [2, 0, 1]
    assert greedy(np.array([[1.0, 1.0], [1.0, 1.0]])).tolist() == [0, 1]


@given(scores=arrays.arrays(np.float64, st.integers(1, 6).map(lambda n: (n, n)), elements=st.floats(0, 100)))
@settings(max_examples=100, deadline=None)
def test_greedy_reaches_half_of_the_best_total(scores: Matrix) -> None:
    assert total(scores, greedy(scores)) >= total(scores, hungarian(scores)) / 2 - 1e-9


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("decoder", DECODERS)
def test_scores_that_are_not_finite_are_refused_by_item_and_position(decoder: str, value: float) -> None:
    scores = np.zeros((4, 5))
    scores[2, 1] = scores[3, 0] = value
    with pytest.raises(ScoreMatrixError, match=r"score of item 3 for position 2 is -?(nan|inf); 2 of 20 scores are not"):
        DECODERS[decoder](scores)


@pytest.mark.parametrize("where", [np.s_[1, :], np.s_[:, 1]])
def test_a_whole_forbidden_row_or_column_is_refused(where: object) -> None:
    scores = np.zeros((3, 3))
    scores[where] = -np.inf  # type: ignore[call-overload]
    with pytest.raises(ScoreMatrixError, match="is -inf; 3 of 9 scores are not finite, so no ranking can be decoded"):
        hungarian(scores)


@pytest.mark.parametrize("shape", [(0, 3), (3, 0), (3,), (1, 2, 3)])
def test_a_matrix_without_candidates_or_positions_is_refused(shape: tuple[int, ...]) -> None:
    with pytest.raises(ScoreMatrixError, match=r"score matrix has shape \(.*\); it must be \(candidates, positions\)"):
        validate_scores(np.zeros(shape))


def test_huge_scores_of_one_precision_still_give_a_permutation() -> None:
    scores = np.full((6, 6), 3e38, dtype=np.float32)
    for name in DECODERS:
        mask = np.ones((1, 6), dtype=bool)
        assert sorted(decode_batch(scores[None], mask, name)[0].tolist()) == list(range(6))


@pytest.mark.parametrize("decoder", DECODERS)
def test_a_batch_is_decoded_as_its_slates_alone(decoder: str) -> None:
    random = np.random.default_rng(5)
    scores = random.normal(size=(3, 7, 50)).astype(np.float32)
    counts = [1, 7, 4]
    mask = np.arange(7) < np.array(counts)[:, None]
    scores[~mask] = np.nan  # padding is never looked at
    rankings = decode_batch(scores, mask, decoder)
    for row, count in enumerate(counts):
        alone = DECODERS[decoder](scores[row, :count].astype(np.float64))
        assert rankings[row].tolist() == alone.tolist() + [-1] * (7 - count)


def test_an_unknown_decoder_is_refused_with_the_list() -> None:
    with pytest.raises(SpdError, match=f"unknown decoder 'beam'; choose from {', '.join(sorted(DECODERS))}"):
        find_decoder("beam")


@pytest.mark.parametrize("decoder", DECODERS)
def test_every_decoder_says_in_one_line_what_it_does(decoder: str) -> None:
    first = (DECODERS[decoder].__doc__ or "").splitlines()[0]
    assert 20 <= len(first) <= 110
