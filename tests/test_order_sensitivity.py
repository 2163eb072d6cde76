"""Order sensitivity by law: a model that does not see the order shows no spread, one that only sees it shows nothing else."""

from __future__ import annotations

import json
import zlib
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from itertools import combinations

import numpy as np
import pytest
from numpy.typing import NDArray

from spd_core.decoding import DECODERS
from spd_core.errors import SpdError
from spd_core.figures.rank_spread import rank_spread_chart, rank_spread_frame
from spd_core.metrics.agreement import kendall_tau
from spd_core.metrics.repeats import input_pull, mean_pairwise_tau
from spd_core.model import Student
from spd_core.order_sensitivity import (
    OrderSensitivity,
    Scorer,
    compare_orders,
    draw_orders,
    measure_orders,
    reordered,
)
from spd_core.pipeline import rank_slate, score_slates
from spd_core.prompts import TEMPLATES
from spd_core.slate import Slate

MakeSlate = Callable[..., Slate]
SHOP = TEMPLATES["shop"]


def scorer_of(score: Callable[[Slate], NDArray[np.float64]]) -> Scorer:
    """A scorer that gives each slate the matrix u v^T for the scores u of its candidates in the order shown."""

    def scored(slates: Iterable[Slate]) -> Iterator[tuple[Slate, NDArray[np.float64]]]:
        for slate in slates:
            count = len(slate.candidates)
            yield slate, np.outer(score(slate), np.linspace(1.0, 0.1, count))

    return scored


def by_id(slate: Slate) -> NDArray[np.float64]:
    """Equivariant: a candidate's score depends on its id alone."""
    return np.array([1 + zlib.crc32(item_id.encode()) / 2**32 for item_id in slate.item_ids])


def by_title(slate: Slate) -> NDArray[np.float64]:
    """Equivariant, and equal for candidates that read the same."""
    return np.array([1 + zlib.crc32(item.title.encode()) / 2**32 for item in slate.candidates])


def by_place(slate: Slate) -> NDArray[np.float64]:
    """Sees nothing but the order: what is shown first is best."""
    return np.arange(len(slate.candidates), 0, -1.0)


def measured(slate: Slate, score: Callable[[Slate], NDArray[np.float64]], **options: object) -> OrderSensitivity:
    """Order sensitivity of one slate under a fake model."""
    (result,) = measure_orders([slate], scorer_of(score), SHOP, **options)
    return result


@pytest.mark.parametrize("decoder", DECODERS)
def test_model_that_does_not_see_the_order_has_no_spread(decoder: str, make_slate: MakeSlate) -> None:
    result = measured(make_slate(9), by_id, decoder=decoder)
    assert not result.std.any()
    assert np.array_equal(result.best, result.worst)
    assert result.mean_tau == 1
    assert result.position_effect == (0, 0, 0)
    assert (result.first_changes, result.winners) == (0, 1)
    assert np.array_equal(result.positions, np.tile(result.given, (10, 1)))
    assert result.consensus.tolist() == np.argsort(-by_id(make_slate(9))).tolist()


def test_model_that_sees_only_the_order_gives_the_input_back(make_slate: MakeSlate) -> None:
    result = measured(make_slate(12), by_place, shuffles=40)
    assert np.array_equal(result.positions, np.argsort(result.orders, axis=1))
    assert result.position_effect == pytest.approx((1, 0, 1))
    assert abs(result.mean_tau) < 0.1
    assert result.given.tolist() == list(range(12))


def test_model_that_reverses_the_order_pulls_the_other_way(make_slate: MakeSlate) -> None:
    assert measured(make_slate(7), lambda slate: -by_place(slate) + 99).position_effect == pytest.approx((-1, 0, -1))


def test_chance_order_shows_no_pull_beyond_its_error(make_slate: MakeSlate) -> None:
    rng = np.random.default_rng(5)
    results = [
        measured(make_slate(10, f"s{n}"), lambda slate: rng.random(10), shuffles=20).position_effect for n in range(200)
    ]
    outside = np.mean([abs(effect.slope) > 2 * effect.error for effect in results])
    assert abs(np.mean([effect.slope for effect in results])) < 0.02
    assert 0.01 < outside < 0.12


def test_candidates_keep_their_ids_grades_and_the_rest_of_the_slate(make_slate: MakeSlate) -> None:
    slate = make_slate(3, label=("c2",), grades=(0.0, 1.0, 2.0), query="soap")
    turned = reordered(slate, [2, 0, 1])
    assert turned.item_ids == ("c3", "c1", "c2")
    assert turned.grades == (2.0, 0.0, 1.0)
    assert dict(zip(turned.item_ids, turned.relevant(), strict=True)) == dict(
        zip(slate.item_ids, slate.relevant(), strict=True)
    )
    assert (turned.label, turned.user, turned.slate_id) == (slate.label, slate.user, slate.slate_id)
    assert reordered(turned, [1, 2, 0]) == slate


def test_equal_seeds_draw_equal_orders_and_others_differ(make_slate: MakeSlate) -> None:
    slate = make_slate(8)
    orders = draw_orders(slate, 5, seed=3)
    assert np.array_equal(orders, draw_orders(slate, 5, seed=3))
    assert not np.array_equal(orders, draw_orders(slate, 5, seed=4))
    assert not np.array_equal(orders, draw_orders(make_slate(8, "s2"), 5, seed=3))
    assert orders.shape == (6, 8)
    assert orders[0].tolist() == list(range(8))
    assert np.array_equal(np.sort(orders, axis=1), np.tile(np.arange(8), (6, 1)))


def test_slate_id_of_half_an_emoji_can_be_shuffled(make_slate: MakeSlate) -> None:
    assert draw_orders(make_slate(2, "\ud83d"), 2).shape == (3, 2)


def test_one_candidate_has_no_spread_and_no_tau(make_slate: MakeSlate) -> None:
    result = measured(make_slate(1), by_id)
    assert np.isnan(result.mean_tau)
    assert result.to_json()["mean_kendall_tau"] is None
    assert result.position_effect == (0, 0, 0)
    assert (result.first_changes, result.winners, result.duplicates) == (0, 1, ())


def test_equal_candidates_are_adjacent_for_a_model_that_reads_texts(make_slate: MakeSlate) -> None:
    slate = make_slate(6, titles=["soap", "balm", "soap", "oil", "soap", "gel"])
    (group,) = measured(slate, by_title).duplicates
    assert group.candidates == (0, 2, 4)
    assert (group.mean_gap, group.largest_gap, group.adjacent_runs) == (0, 0, 10)


def test_gap_between_equal_candidates_counts_what_stands_between_them(make_slate: MakeSlate) -> None:
    slate = make_slate(4, titles=["soap", "balm", "oil", "soap"])
    orders = np.array([[0, 1, 2, 3], [0, 1, 2, 3], [0, 3, 1, 2]])
    matrices = [np.outer(by_place(slate), by_place(slate))] * 3
    (group,) = compare_orders(slate, orders, matrices, SHOP).duplicates
    assert (group.candidates, group.mean_gap, group.largest_gap, group.adjacent_runs) == ((0, 3), 1.0, 2, 1)


def test_mean_tau_is_the_mean_over_all_pairs_of_shuffles() -> None:
    rng = np.random.default_rng(0)
    positions = np.stack([rng.permutation(7) for _ in range(6)])
    pairs = [kendall_tau(first, second) for first, second in combinations(positions, 2)]
    assert mean_pairwise_tau(positions) == pytest.approx(np.mean(pairs))
    assert mean_pairwise_tau(np.array([[0, 1, 2], [2, 1, 0]])) == -1


def test_pull_compares_an_item_with_itself_alone() -> None:
    places = np.array([[0, 1, 2], [2, 0, 1]])
    positions = np.array([[0, 1, 2], [1, 0, 2]])
    # Item 0 was shown 2 places later and came out 1 lower; item 1, 1 earlier and 1 higher; item 2, 1 earlier and the same.
    assert input_pull(places, positions).slope == pytest.approx((2 * 1 + 1 * 1 + 0) / (4 + 1 + 1))


def test_figures_are_those_of_the_positions(make_slate: MakeSlate) -> None:
    slate, rng = make_slate(6), np.random.default_rng(1)
    result = measured(slate, lambda shown: by_id(shown) + 0.3 * rng.random(6), shuffles=8)
    assert np.array_equal(result.best, result.positions.min(axis=0))
    assert np.array_equal(result.median, np.median(result.positions, axis=0))
    assert np.array_equal(result.worst, result.positions.max(axis=0))
    assert np.allclose(result.std, result.positions.std(axis=0))
    assert result.std.any()
    assert np.all(np.diff(result.positions.mean(axis=0)[result.consensus]) >= 0)
    assert result.first_changes == sum(run.argmin() != result.given.argmin() for run in result.positions)
    assert result.winners == len({int(run.argmin()) for run in result.positions})


@pytest.mark.parametrize("shuffles", [1, 0, -3])
def test_too_few_shuffles_are_refused(shuffles: int, make_slate: MakeSlate) -> None:
    with pytest.raises(SpdError, match=f"shuffles is {shuffles}; it must be at least 2"):
        draw_orders(make_slate(3), shuffles)


def test_unknown_decoder_is_refused(make_slate: MakeSlate) -> None:
    with pytest.raises(SpdError, match="unknown decoder 'magic'"):
        measured(make_slate(3), by_id, decoder="magic")


def test_many_slates_stream_in_order(make_slate: MakeSlate) -> None:
    slates = [make_slate(4, "a"), make_slate(1, "b"), make_slate(3, "c", titles=["soap", "soap", "oil"])]
    read: list[str] = []

    def stream() -> Iterator[Slate]:
        for slate in slates:
            read.append(slate.slate_id)
            yield slate

    results = measure_orders(stream(), scorer_of(by_title), SHOP, shuffles=3)
    assert next(results).slate_id == "a"
    assert read == ["a"]
    rest = list(results)
    assert [result.slate_id for result in rest] == ["b", "c"]
    assert json.loads(json.dumps(rest[1].to_json(), allow_nan=False))["duplicates"][0]["candidates"] == [0, 1]


def test_scorer_that_reads_ahead_mixes_no_slates_up(make_slate: MakeSlate) -> None:
    slates = [make_slate(4, "a"), make_slate(3, "b"), make_slate(5, "c")]
    eager: Scorer = lambda stream: list(scorer_of(by_id)(list(stream)))  # noqa: E731
    results = list(measure_orders(slates, eager, SHOP, shuffles=3))
    assert [(result.slate_id, len(result.given)) for result in results] == [("a", 4), ("b", 3), ("c", 5)]


def test_real_student_is_measured_through_the_pipeline(tiny_student: Student, make_slate: MakeSlate) -> None:
    slate = make_slate(6)
    (result,) = measure_orders([slate], partial(score_slates, tiny_student), tiny_student.template, shuffles=3, seed=1)
    assert np.array_equal(np.argsort(result.given), rank_slate(tiny_student, slate).ranking)
    for order, positions in zip(result.orders, result.positions, strict=True):
        alone = rank_slate(tiny_student, reordered(slate, order)).item_ids
        assert alone == tuple(slate.item_ids[index] for index in np.argsort(positions))


def test_chart_holds_a_row_a_candidate_whatever_the_titles() -> None:
    positions = np.array([[0, 1, 2], [2, 1, 0]])
    titles = ["1984", "1984", "$5 </script>"]
    frame = rank_spread_frame(titles, positions, positions[0])
    assert frame[["best", "median", "worst", "given"]].to_numpy().tolist() == [[1, 2, 3, 1], [2, 2, 2, 2], [1, 2, 3, 3]]
    spec = rank_spread_chart(titles, positions, given=positions[0], order=[2, 0, 1]).to_dict()
    (rows,) = spec["datasets"].values()
    assert len(rows) == 3
    assert spec["layer"][0]["encoding"]["y"]["sort"] == ["r002", "r000", "r001"]
    assert "</script>" not in json.dumps(spec["layer"][0]["encoding"]["y"]["axis"]["labelExpr"])
