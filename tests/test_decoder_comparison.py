"""The decoders against each other on one matrix: regret, plain sorts, and what is particular to two of them."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from spd_core.decoding import DECODERS
from spd_core.decoding.comparison import compare_decoders, total_of
from spd_core.decoding.greedy import greedy
from spd_core.decoding.greedy_by_position import greedy_by_position
from spd_core.decoding.hungarian import hungarian
from spd_core.decoding.sinkhorn_argmax import log_sinkhorn_of, sinkhorn_argmax
from spd_core.errors import ScoreMatrixError
from spd_core.sinkhorn import log_sinkhorn

SEEDS = st.integers(0, 2**32 - 1)


@given(st.integers(1, 12), st.integers(0, 3), SEEDS)
@settings(max_examples=40, deadline=None)
def test_regret_is_zero_for_the_assignment_and_never_negative(count: int, spare: int, seed: int) -> None:
    orders = compare_decoders(np.random.default_rng(seed).normal(size=(count, count + spare)))
    assert [order.decoder for order in orders] == list(DECODERS)
    regret = {order.decoder: order.regret for order in orders}
    assert regret["hungarian"] == 0
    assert min(regret.values()) == 0
    assert all(order.time_ms > 0 for order in orders)


def test_total_regret_and_sort_of_each_decoder_can_be_checked_by_hand() -> None:
    orders = {order.decoder: order for order in compare_decoders(np.array([[10.0, 9.0], [9.0, 0.0]]))}
    best, sort = orders["hungarian"], orders["first_column"]
    assert (best.ranking.tolist(), best.total, best.regret) == ([1, 0], 18.0, 0.0)
    assert (sort.ranking.tolist(), sort.total, sort.regret, sort.same_sort) == ([0, 1], 10.0, 8.0, "first column")
    assert best.same_sort == "expected position"


def test_order_that_no_sort_gives_is_said_to_be_none() -> None:
    scores = 5 * np.eye(10)[[1, 0, 3, 2, 5, 4, 7, 6, 9, 8]] + np.random.default_rng(0).normal(size=(10, 10)) * 3
    orders = {order.decoder: order for order in compare_decoders(scores)}
    assert orders["hungarian"].same_sort is None
    assert orders["expected_position"].same_sort == "expected position"


def test_scores_that_are_not_finite_are_refused() -> None:
    with pytest.raises(ScoreMatrixError, match="score of item 1 for position 1 is nan"):
        compare_decoders(np.array([[np.nan]]))


def test_more_candidates_than_positions_are_refused() -> None:
    with pytest.raises(ScoreMatrixError, match="3 candidates but 2 positions"):
        compare_decoders(np.zeros((3, 2)))


def test_total_reads_the_ranking_as_candidate_at_rank() -> None:
    scores = np.array([[0.0, 1.0, 0.0], [0.0, 0.0, 2.0], [4.0, 0.0, 0.0]])
    assert total_of(scores, np.array([2, 0, 1])) == 7.0
    assert total_of(scores, np.array([1, 2, 0])) == 0.0


# --- greedy by position


def test_greedy_by_position_fills_the_first_position_first() -> None:
    scores = np.array([[3.0, 0.0, 0.0], [2.0, 9.0, 1.0], [4.0, 8.0, 0.0]])
    assert greedy_by_position(scores).tolist() == [2, 1, 0]
    assert greedy(scores).tolist() == [2, 1, 0]
    scores[1, 0] = 5.0  # position 1 now takes item 1, although position 2 would gain more from it
    assert greedy_by_position(scores).tolist() == [1, 2, 0]
    assert greedy(scores).tolist() == [2, 1, 0]


def test_greedy_by_position_puts_those_beyond_k_by_the_tail_rule() -> None:
    scores = np.array([[0.0, 1.0], [9.0, 0.0], [0.0, 2.0], [8.0, 9.0], [2.0, 0.0], [0.0, 1.0]])
    assert greedy_by_position(scores).tolist() == [1, 3, 4, 0, 5, 2]


# --- Sinkhorn, then argmax


@given(st.integers(1, 9), st.integers(1, 9), SEEDS)
@settings(max_examples=30, deadline=None)
def test_numpy_sinkhorn_is_the_operator_of_training(count: int, columns: int, seed: int) -> None:
    scores = np.random.default_rng(seed).normal(size=(count, columns)) * 5
    own = scores[:, :count]
    for tau, iterations in [(1.0, 20), (0.3, 3)]:
        expected = log_sinkhorn(torch.from_numpy(scores)[None], tau=tau, iterations=iterations).log_assignment[0].numpy()
        assert log_sinkhorn_of(own, tau=tau, iterations=iterations) == pytest.approx(expected, abs=1e-9)


def test_argmax_without_a_collision_is_the_ranking() -> None:
    scores = 4 * np.eye(3)[[1, 2, 0]]
    assert sinkhorn_argmax(scores).tolist() == [2, 0, 1]


def test_favourite_position_counts_before_the_expected_one() -> None:
    scores = np.array([[3.0, 3.0, 1.0], [0.0, 3.0, 3.0], [2.0, 0.0, 3.0]])
    log_assignment = log_sinkhorn_of(scores)
    assert log_assignment.argmax(axis=1).tolist() == [0, 1, 2]
    assert (np.exp(log_assignment) @ np.arange(3)).round(1).tolist() == [0.5, 1.4, 1.2]
    assert sinkhorn_argmax(scores).tolist() == [0, 1, 2]


def test_candidates_with_one_favourite_queue_by_expected_position() -> None:
    scores = np.array([[3.0, 1.0, 5.0, 5.0], [0.0, 1.0, 1.0, 1.0], [3.0, 2.0, 2.0, 1.0], [5.0, 4.0, 3.0, 0.0]])
    log_assignment = log_sinkhorn_of(scores)
    assert log_assignment.argmax(axis=1).tolist() == [3, 3, 0, 0]
    assert (np.exp(log_assignment) @ np.arange(4)).round(1).tolist() == [2.5, 1.9, 1.0, 0.6]
    assert sinkhorn_argmax(scores).tolist() == [3, 2, 1, 0]


@given(st.integers(2, 20), SEEDS)
@settings(max_examples=30, deadline=None)
def test_strong_preferences_are_kept_as_the_assignment_keeps_them(count: int, seed: int) -> None:
    random = np.random.default_rng(seed)
    scores = 20 * np.eye(count)[random.permutation(count)] + random.normal(size=(count, count))
    assert sinkhorn_argmax(scores).tolist() == hungarian(scores).tolist()
