"""Metrics against scikit-learn, trec_eval, SciPy and brute force, and the laws that tie them together."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

import numpy as np
import pytest
import pytrec_eval
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from sklearn.metrics import ndcg_score, roc_auc_score

from spd_core.errors import SlateError, SpdError
from spd_core.metrics import (
    EXCLUSIONS,
    METRICS,
    evaluate_rankings,
    kendall_tau,
    mean_interval,
    ndcg_at,
    pair_auc,
    paired_difference,
    positions_of,
    rbo,
    recall_at,
    reciprocal_rank,
    top_k_overlap,
)
from spd_core.metrics import bootstrap as bootstrap_module
from spd_core.slate import Item, Ranking, Slate, UserContext

CYCLE = (1, 2, 0)
"""Positions of three candidates; a 3-cycle, because a swap is its own inverse and would hide a mix-up."""

permutations = st.integers(1, 12).flatmap(lambda size: st.permutations(range(size)))
pairs = st.integers(1, 12).flatmap(lambda size: st.tuples(st.permutations(range(size)), st.permutations(range(size))))


def random_case(seed: int) -> tuple[NDArray[np.bool_], NDArray[np.int64], NDArray[np.float64]]:
    """Relevance with both kinds, positions and grades of a slate of 2 to 30 candidates."""
    rng = np.random.default_rng(seed)
    size = int(rng.integers(2, 31))
    relevant = rng.random(size) < 0.3
    relevant[:2] = (True, False)
    return relevant, rng.permutation(size), rng.integers(-1, 5, size).astype(float)


class TestPerSlate:
    @pytest.mark.parametrize("seed", range(30))
    def test_agrees_with_scikit_learn(self, seed: int) -> None:
        relevant, positions, grades = random_case(seed)
        grades[0] = 4.0
        assert pair_auc(relevant, positions) == pytest.approx(roc_auc_score(relevant, -positions))
        for k in (1, 3, 10, 50):
            oracle = ndcg_score([np.maximum(grades, 0)], [-positions], k=k, ignore_ties=True)
            assert ndcg_at(grades, positions, k) == pytest.approx(oracle)

    @pytest.mark.parametrize("seed", range(30))
    def test_recall_and_reciprocal_rank_agree_with_reading_down_the_list(self, seed: int) -> None:
        relevant, positions, _ = random_case(seed)
        listed = [bool(relevant[candidate]) for candidate in np.argsort(positions)]
        assert reciprocal_rank(relevant, positions) == 1 / (1 + listed.index(True))
        for k in (1, 3, 10, 50):
            assert recall_at(relevant, positions, k) == sum(listed[:k]) / sum(listed)

    @pytest.mark.parametrize("seed", range(30))
    def test_agrees_with_trec_eval(self, seed: int) -> None:
        _, positions, grades = random_case(seed)
        grades[0] = 4.0
        judged = {f"c{index}": int(grade) for index, grade in enumerate(grades)}
        scores = {f"c{index}": -float(position) for index, position in enumerate(positions)}
        measures = {"recip_rank", "recall.1,10", "ndcg_cut.1,10"}
        oracle = pytrec_eval.RelevanceEvaluator({"s": judged}, measures).evaluate({"s": scores})["s"]
        relevant = grades > 0
        assert reciprocal_rank(relevant, positions) == pytest.approx(oracle["recip_rank"])
        for k in (1, 10):
            assert recall_at(relevant, positions, k) == pytest.approx(oracle[f"recall_{k}"])
            assert ndcg_at(grades, positions, k) == pytest.approx(oracle[f"ndcg_cut_{k}"])

    @given(order=permutations, chosen=st.integers(0, 11))
    def test_with_one_relevant_candidate_recall_at_1_is_ndcg_at_1(self, order: list[int], chosen: int) -> None:
        relevant = np.arange(len(order)) == chosen % len(order)
        assert recall_at(relevant, order, 1) == ndcg_at(relevant, order, 1)

    @given(order=permutations.filter(lambda order: len(order) > 1), chosen=st.integers(0, 11))
    def test_with_one_relevant_candidate_auc_is_its_place_from_last_to_first(self, order: list[int], chosen: int) -> None:
        place = order[chosen % len(order)]
        relevant = np.arange(len(order)) == chosen % len(order)
        assert pair_auc(relevant, order) == pytest.approx(1 - place / (len(order) - 1))

    @pytest.mark.parametrize("seed", range(10))
    def test_reversing_a_ranking_mirrors_auc_at_one_half(self, seed: int) -> None:
        relevant, positions, _ = random_case(seed)
        turned = len(positions) - 1 - positions
        assert pair_auc(relevant, positions) + pair_auc(relevant, turned) == pytest.approx(1.0)

    def test_reads_positions_not_rankings(self) -> None:
        """Candidate 0 is relevant and stands second of three."""
        relevant = (True, False, False)
        assert pair_auc(relevant, CYCLE) == 0.5
        assert reciprocal_rank(relevant, CYCLE) == 0.5
        assert recall_at(relevant, CYCLE, 1) == 0.0
        assert ndcg_at((1.0, 0.0, 0.0), CYCLE, 3) == pytest.approx(1 / np.log2(3))

    def test_gain_is_linear_and_negative_grades_count_nothing(self) -> None:
        assert ndcg_at((1.0, 3.0), (0, 1), 1) == pytest.approx(1 / 3)
        assert ndcg_at((-5.0, 2.0), (0, 1), 2) == ndcg_at((0.0, 2.0), (0, 1), 2)

    @pytest.mark.parametrize("relevant", [(False, False), (True, True), (True,), (False,)])
    def test_auc_without_a_pair_is_nan(self, relevant: tuple[bool, ...]) -> None:
        assert np.isnan(pair_auc(relevant, range(len(relevant))))

    def test_nothing_relevant_is_nan_not_zero(self) -> None:
        for value in (recall_at((False,), (0,), 1), reciprocal_rank((False,), (0,)), ndcg_at((0.0,), (0,), 1)):
            assert np.isnan(value)

    @given(order=permutations)
    def test_recall_at_10_of_ten_or_fewer_is_1_for_any_order(self, order: list[int]) -> None:
        relevant = np.arange(len(order[:10])) == 0
        assert recall_at(relevant, np.argsort(np.argsort(order[:10])), 10) == 1.0


class TestAgreement:
    @pytest.mark.filterwarnings("error")
    @given(two=pairs)
    def test_kendall_tau_counts_pairs_in_the_same_order(self, two: tuple[list[int], list[int]]) -> None:
        first, second = two
        signs = [
            np.sign((first[i] - first[j]) * (second[i] - second[j])) for i, j in itertools.combinations(range(len(first)), 2)
        ]
        tau = kendall_tau(first, second)
        assert np.isnan(tau) if not signs else tau == pytest.approx(np.mean(signs))

    @given(two=pairs, persistence=st.floats(0.05, 0.95))
    def test_rbo_is_the_infinite_weighted_sum_of_overlaps(self, two: tuple[list[int], list[int]], persistence: float) -> None:
        """Beyond the end both lists hold the same candidates, so that the overlap stays 1."""
        first, second = (np.argsort(positions).tolist() for positions in two)
        expected = 0.0
        for depth in range(1, 1000):
            share = len(set(first[:depth]) & set(second[:depth])) / min(depth, len(first))
            expected += (1 - persistence) * persistence ** (depth - 1) * share
        assert rbo(*two, persistence) == pytest.approx(expected)

    @given(two=pairs, k=st.integers(1, 15))
    def test_all_are_symmetric_and_the_overlap_is_that_of_the_lists(self, two: tuple[list[int], list[int]], k: int) -> None:
        first, second = two
        assert rbo(first, second) == pytest.approx(rbo(second, first))
        assert kendall_tau(first, second) == pytest.approx(kendall_tau(second, first), nan_ok=True)
        tops = [set(np.argsort(positions)[:k].tolist()) for positions in two]
        assert top_k_overlap(first, second, k) == len(tops[0] & tops[1]) / min(k, len(first))

    @given(order=permutations)
    def test_a_ranking_agrees_fully_with_itself(self, order: list[int]) -> None:
        assert rbo(order, order) == pytest.approx(1.0)
        assert top_k_overlap(order, order, 3) == 1.0
        assert len(order) == 1 or kendall_tau(order, order) == pytest.approx(1.0)

    def test_rbo_of_two_swapped_candidates_is_one_half_at_persistence_one_half(self) -> None:
        """Overlap 0 at depth 1 and 1 from depth 2 on: 1/2 * 0 + 1/4 + 1/8 + ... = 1/2."""
        assert rbo((0, 1), (1, 0), 0.5) == pytest.approx(0.5)

    def test_a_swap_at_the_top_costs_more_rbo_than_one_at_the_bottom(self) -> None:
        same = list(range(8))
        assert rbo(same, [1, 0, *same[2:]]) < rbo(same, [*same[:6], 7, 6]) < 1

    @pytest.mark.parametrize("persistence", [0.0, 1.0, -1.0, float("nan")])
    def test_rbo_refuses_a_persistence_out_of_range(self, persistence: float) -> None:
        with pytest.raises(SpdError, match=r"persistence is .*; it must be above 0 and below 1"):
            rbo((0, 1), (0, 1), persistence)


class TestBootstrap:
    def test_the_interval_is_that_of_the_normal_law_for_many_slates(self) -> None:
        values = np.random.default_rng(0).random(2000)
        interval = mean_interval(values)
        half_width = 1.96 * values.std() / np.sqrt(len(values))
        assert interval.n == 2000
        assert interval.mean == pytest.approx(values.mean())
        assert interval.low == pytest.approx(values.mean() - half_width, abs=0.05 * half_width)
        assert interval.high == pytest.approx(values.mean() + half_width, abs=0.05 * half_width)

    def test_the_interval_covers_the_true_mean_about_95_times_in_100(self) -> None:
        rng = np.random.default_rng(1)
        covered = 0
        for _ in range(200):
            interval = mean_interval(rng.random(60) < 0.4)
            covered += interval.low <= 0.4 <= interval.high
        assert 180 <= covered <= 199

    def test_the_seed_alone_decides_the_draws(self) -> None:
        values = np.random.default_rng(0).random(50)
        assert mean_interval(values) == mean_interval(values)
        assert mean_interval(values, seed=1) != mean_interval(values)

    def test_drawing_in_blocks_changes_no_law(self, monkeypatch: pytest.MonkeyPatch) -> None:
        values = np.random.default_rng(0).random(50)
        whole = mean_interval(values)
        monkeypatch.setattr(bootstrap_module, "NUMBERS_AT_ONCE", 70)
        blocks = mean_interval(values)
        assert blocks == whole

    def test_one_slate_or_equal_values_have_no_width(self) -> None:
        assert mean_interval([0.25]) == (0.25, 0.25, 0.25, 1)
        assert mean_interval([0.5] * 7) == (0.5, 0.5, 0.5, 7)

    def test_pairing_sees_a_small_steady_difference_that_two_intervals_hide(self) -> None:
        base = np.random.default_rng(0).random(300)
        better = base + 0.01 + 0.01 * np.random.default_rng(1).standard_normal(300)
        assert mean_interval(better).low < mean_interval(base).high
        difference = paired_difference(better, base)
        assert 0 < difference.low < difference.mean < difference.high
        assert difference.p_value == pytest.approx(2 / (bootstrap_module.RESAMPLES + 1))

    def test_the_difference_turns_its_sign_with_its_arguments(self) -> None:
        first, second = np.random.default_rng(0).random((2, 80))
        forth, back = paired_difference(first, second), paired_difference(second, first)
        assert (back.mean, back.low, back.high) == pytest.approx((-forth.mean, -forth.high, -forth.low))
        assert back.p_value == pytest.approx(forth.p_value)

    def test_p_values_of_rankers_that_do_not_differ_are_uniform(self) -> None:
        rng = np.random.default_rng(2)
        p_values = [paired_difference(*rng.random((2, 60))).p_value for _ in range(200)]
        assert 0.4 < np.mean(p_values) < 0.6
        assert np.mean(np.array(p_values) < 0.05) < 0.12

    def test_values_that_never_differ_have_p_value_1(self) -> None:
        assert paired_difference([0.0, 1.0], [0.0, 1.0]) == (0.0, 0.0, 0.0, 2, 1.0)

    def test_nothing_unequal_or_undefined_values_are_refused(self) -> None:
        with pytest.raises(SpdError, match=r"no slates to average: each was left out"):
            mean_interval([])
        with pytest.raises(SpdError, match=r"value 1 is nan; leave out slates on which the metric is not defined"):
            mean_interval([1.0, float("nan")])
        with pytest.raises(SpdError, match=r"2 values against 3; a paired comparison needs the same slates"):
            paired_difference([0, 1], [0, 1, 0])


def make_slate(slate_id: str, size: int, label: Sequence[int] | None, grades: Sequence[float] | None = None) -> Slate:
    items = tuple(Item(f"i{index}", f"title {index}") for index in range(size))
    named = None if label is None else tuple(f"i{index}" for index in label)
    return Slate(slate_id, UserContext(), items, named, None if grades is None else tuple(grades))


def shuffled(slate: Slate, seed: int = 0) -> Ranking:
    order = np.random.default_rng(seed).permutation(len(slate.candidates))
    return Ranking("shuffled", tuple(slate.item_ids[index] for index in order))


@pytest.fixture
def slates() -> list[Slate]:
    return [make_slate(f"s{number}", 5 + number, [number % 5]) for number in range(12)]


class TestTable:
    def test_holds_each_metric_of_each_slate(self, slates: list[Slate]) -> None:
        rankings = [shuffled(slate, seed) for seed, slate in enumerate(slates)]
        table = evaluate_rankings(slates, rankings)
        assert table.name == "shuffled"
        assert table.slate_ids == tuple(slate.slate_id for slate in slates)
        assert tuple(table.values) == METRICS
        for index, (slate, ranking) in enumerate(zip(slates, rankings, strict=True)):
            positions = positions_of(ranking, slate)
            assert table.values["AUC"][index] == pair_auc(slate.relevant(), positions)
            assert table.values["Recall@10"][index] == recall_at(slate.relevant(), positions, 10)
            assert table.values["NDCG@10"][index] == ndcg_at(slate.gains(), positions, 10)
            assert table.values["MRR"][index] == reciprocal_rank(slate.relevant(), positions)

    def test_recall_at_1_is_ndcg_at_1_with_one_labelled_item(self, slates: list[Slate]) -> None:
        table = evaluate_rankings(slates, map(shuffled, slates))
        assert table.values["Recall@1"].tolist() == table.values["NDCG@1"].tolist()
        assert 0 < table.values["Recall@1"].sum() < len(slates)

    def test_grades_decide_gains_and_the_label_relevance(self) -> None:
        slate = make_slate("s", 3, [2], [0, 3, 1])
        table = evaluate_rankings([slate], [Ranking("x", ("i1", "i0", "i2"))])
        assert table.values["AUC"].tolist() == [0.0]
        assert table.values["NDCG@1"].tolist() == [1.0]

    def test_slates_without_an_order_to_judge_are_left_out_by_reason(self) -> None:
        odd = [
            make_slate("unlabelled", 3, None),
            make_slate("elsewhere", 3, [7]),
            make_slate("all", 3, [0, 1, 2]),
            make_slate("one", 1, [0]),
            make_slate("ungraded", 3, [0], [0, -1, 0]),
            make_slate("fine", 3, [0]),
        ]
        table = evaluate_rankings(odd, map(shuffled, odd))
        assert table.slate_ids == ("fine",)
        assert table.excluded == {
            "no_relevant": ("unlabelled", "elsewhere"),
            "all_relevant": ("all", "one"),
            "no_gain": ("ungraded",),
        }
        assert set(table.excluded) == set(EXCLUSIONS)
        assert all(np.isfinite(values).all() for values in table.values.values())
        assert [line.split(":")[0] for line in table.warnings()[1:]] == [
            "2 slates left out (no_relevant)",
            "2 slates left out (all_relevant)",
            "1 slate left out (no_gain)",
        ]

    def test_a_recall_that_cannot_be_other_than_1_is_flagged(self, slates: list[Slate]) -> None:
        table = evaluate_rankings(slates, map(shuffled, slates))
        assert table.trivial == {"Recall@10": 6}
        assert table.warnings() == ["Recall@10 is 1 for any order on 6 of 12 slates: they have no more than 10 candidates"]
        assert evaluate_rankings(slates[6:], map(shuffled, slates[6:])).warnings() == []

    def test_intervals_are_those_of_the_columns(self, slates: list[Slate]) -> None:
        table = evaluate_rankings(slates, map(shuffled, slates))
        assert table.intervals() == {metric: mean_interval(table.values[metric]) for metric in METRICS}
        assert table.intervals()["AUC"].n == len(table) == 12

    def test_two_rankers_are_compared_slate_by_slate(self, slates: list[Slate]) -> None:
        given_order = evaluate_rankings(slates, [Ranking("input", slate.item_ids) for slate in slates])
        other = evaluate_rankings(slates, map(shuffled, slates))
        difference = given_order.compare(other, "AUC")
        assert difference == paired_difference(given_order.values["AUC"], other.values["AUC"])
        assert difference.mean == pytest.approx(-other.compare(given_order, "AUC").mean)

    def test_tables_of_different_slates_or_an_unknown_metric_are_refused(self, slates: list[Slate]) -> None:
        table = evaluate_rankings(slates, map(shuffled, slates))
        other = evaluate_rankings(slates[1:], map(shuffled, slates[1:]))
        with pytest.raises(SpdError, match=r"12 slates of 'shuffled' against 11 of 'shuffled' are not the same slates"):
            table.compare(other, "AUC")
        with pytest.raises(SpdError, match=r"unknown metric 'F1'; choose from AUC, MRR, NDCG@1, NDCG@10, Recall@1,"):
            table.compare(table, "F1")

    def test_a_table_without_slates_tells_why(self) -> None:
        slate = make_slate("s", 3, None)
        table = evaluate_rankings([slate], [shuffled(slate)])
        with pytest.raises(SpdError, match=r"no slate can be measured \(no_relevant: 1, all_relevant: 0, no_gain: 0\)"):
            table.intervals()
        assert len(evaluate_rankings([], [])) == 0

    @pytest.mark.parametrize(
        ("change", "message"),
        [
            (lambda rankings: rankings[:-1], r"slate 's11' has no ranking: only 11 rankings were given"),
            (lambda rankings: [*rankings, rankings[0]], r"more rankings than slates: only 12 slates were given"),
        ],
    )
    def test_a_count_that_does_not_fit_is_refused(
        self, slates: list[Slate], change: Callable[[list[Ranking]], list[Ranking]], message: str
    ) -> None:
        with pytest.raises(SpdError, match=message):
            evaluate_rankings(slates, change([shuffled(slate) for slate in slates]))

    def test_a_ranking_of_another_slate_is_refused(self, slates: list[Slate]) -> None:
        wrong = replace(shuffled(slates[0]), permutation=("i0",) * 5)
        with pytest.raises(SlateError, match=r"slate 's0': ranking 'shuffled': ranks an item twice"):
            evaluate_rankings(slates[:1], [wrong])

    def test_slates_and_rankings_are_taken_one_at_a_time(self) -> None:
        taken = []

        def stream() -> Iterator[Slate]:
            for number in range(3):
                taken.append(f"slate {number}")
                yield make_slate(f"s{number}", 4, [0])

        def rankings() -> Iterator[Ranking]:
            for number in range(3):
                taken.append(f"ranking {number}")
                yield shuffled(make_slate("any", 4, [0]))

        evaluate_rankings(stream(), rankings())
        assert taken == [f"{kind} {number}" for number in range(3) for kind in ("slate", "ranking")]
