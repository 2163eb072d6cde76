"""The gate: what it lets through, what it refuses and why. The rankings are made so that the verdict is known."""

from __future__ import annotations

import dataclasses
import json
import random
from collections.abc import Callable, Sequence

import pytest

from spd_core.errors import SlateError
from spd_core.recipes.gate_text import format_gate
from spd_core.slate import Slate
from spd_core.teachers.gate import GateCollector, GateReport
from spd_core.teachers.labelling import Label

N = 10
Order = Callable[[Slate, random.Random], list[str]]


@pytest.fixture
def slates(make_slate: Callable[..., Slate]) -> list[Slate]:
    """120 slates with one click, at each place equally often."""
    return [make_slate(N, f"s{k}", label=(f"c{k % N + 1}",)) for k in range(120)]


def new_label(slate: Slate, ranking: Sequence[str], kind: str = "ok") -> Label:
    problems = () if kind == "ok" else ("leaves out 3",)
    return Label(slate.slate_id, tuple(ranking), kind, problems, "1>2", 3, 100, 3, "t", "free")  # type: ignore[arg-type]


def judge(slates: Sequence[Slate], order: Order, kinds: Sequence[str] = ("ok",)) -> GateReport:
    """Report on labels whose rankings `order` makes; their kinds follow the cycle of `kinds`."""
    rng, collector = random.Random(0), GateCollector()
    for k, slate in enumerate(slates):
        collector.add(slate, new_label(slate, order(slate, rng), kinds[k % len(kinds)]))
    return collector.report()


def shuffled(slate: Slate, rng: random.Random) -> list[str]:
    return rng.sample(slate.item_ids, len(slate.item_ids))


def clicked_first(slate: Slate, rng: random.Random) -> list[str]:
    order = shuffled(slate, rng)
    return sorted(order, key=lambda item_id: item_id not in (slate.label or ()))


def given(slate: Slate, rng: random.Random) -> list[str]:
    return list(slate.item_ids)


def test_labels_that_put_the_click_first_pass(slates: list[Slate]) -> None:
    report = judge(slates, clicked_first)
    assert (report.passed, report.reasons, report.cautions) == (True, (), ())
    assert report.clicks is not None
    assert (report.clicks.auc.mean, report.clicks.recall_at_1.mean) == (1.0, 1.0)
    assert report.clicks.chance_recall_at_1 == pytest.approx(1 / N)
    assert report.input_order is not None
    assert report.input_order.words == "no position bias seen"


def test_random_permutations_are_refused_because_their_order_is_near_chance(slates: list[Slate]) -> None:
    report = judge(slates, shuffled)
    (reason,) = report.reasons
    assert reason.startswith("the order is near chance: AUC 0.")
    assert "the lower end must be above 0.52" in reason
    assert not report.passed


def test_rankings_that_put_the_click_last_are_refused(slates: list[Slate]) -> None:
    report = judge(slates, lambda slate, rng: clicked_first(slate, rng)[::-1])
    assert "near chance: AUC 0.000" in report.reasons[0]


def test_a_mean_above_chance_on_few_slates_is_not_enough(slates: list[Slate]) -> None:
    """The click first on 14 of 24 slates and last on 10: AUC 14/24, and the interval reaches below chance."""
    last = {f"s{k}" for k in range(10)}

    def order(slate: Slate, rng: random.Random) -> list[str]:
        return clicked_first(slate, rng)[:: -1 if slate.slate_id in last else 1]

    report = judge(slates[:24], order)
    assert report.clicks is not None
    assert report.clicks.auc.mean == pytest.approx(14 / 24)
    assert "near chance: AUC 0.583" in report.reasons[0]


@pytest.mark.parametrize(
    ("order", "words", "tau"),
    [
        (given, "follows the input order and puts place 1 of the input first on 100% of slates, where 10% are expected", 1.0),
        (lambda slate, rng: given(slate, rng)[::-1], "reverses the input order and puts place 10 of the input first", -1.0),
    ],
)
def test_copying_the_input_order_is_named(slates: list[Slate], order: Order, words: str, tau: float) -> None:
    report = judge(slates, order)
    assert report.input_order is not None
    assert words in report.input_order.words
    assert report.input_order.tau.mean == pytest.approx(tau)
    assert f"position bias: the teacher {words}" in report.reasons[-1]


def test_one_favourite_place_is_named_though_the_rest_is_right(slates: list[Slate]) -> None:
    """A teacher that always opens with `1` and orders the rest well has a high AUC and hardly any tau."""

    def opens_with_one(slate: Slate, rng: random.Random) -> list[str]:
        return ["c1", *(item_id for item_id in clicked_first(slate, rng) if item_id != "c1")]

    report = judge(slates, opens_with_one)
    assert report.clicks is not None
    assert report.clicks.auc.low > 0.8
    (reason,) = report.reasons
    assert "puts place 1 of the input first on 100% of slates" in reason


def test_a_first_stage_order_may_be_followed_by_whoever_improves_it(make_slate: Callable[..., Slate]) -> None:
    """Clicks stand among the first three places: the input order is good, and agreeing with it is no bias."""
    slates = [make_slate(N, f"s{k}", label=(f"c{k % 3 + 1}",)) for k in range(120)]

    def improved(slate: Slate, rng: random.Random) -> list[str]:
        return sorted(slate.item_ids, key=lambda item_id: item_id not in (slate.label or ()))

    report = judge(slates, improved)
    assert report.input_order is not None
    assert report.input_order.tau.mean > 0.9
    assert report.reasons == ()
    assert any("follows the input order" in reason for reason in judge(slates, given).reasons)
    anywhere = [make_slate(N, f"a{k}", label=(f"c{k % N + 1}",)) for k in range(120)]  # where the input order tells nothing
    (reason,) = judge(anywhere, improved).reasons
    assert reason.startswith("position bias: the teacher follows the input order (")


def test_too_few_valid_answers_are_refused_whatever_the_rest_says(slates: list[Slate]) -> None:
    nine_in_ten = ["ok"] * 9 + ["missing"]
    assert judge(slates, clicked_first, nine_in_ten).passed
    report = judge(slates, clicked_first, ["ok"] * 4 + ["repetition"])
    assert report.reasons == ("only 80.0% of the answers are valid as written; 90% are needed",)
    assert report.kinds == {"ok": 96, "format": 0, "repetition": 24, "missing": 0, "out_of_range": 0}
    assert report.valid_rate == pytest.approx(0.8)


def test_repaired_rankings_do_not_count_for_the_order(slates: list[Slate]) -> None:
    valid = slates[::2]
    mixed = GateCollector()
    for k, slate in enumerate(slates):
        ranking = slate.item_ids if k % 2 else clicked_first(slate, random.Random(k))
        mixed.add(slate, new_label(slate, ranking, "missing" if k % 2 else "ok"))
    alone = GateCollector()
    for k, slate in enumerate(valid):
        alone.add(slate, new_label(slate, clicked_first(slate, random.Random(2 * k))))
    one, other = mixed.report(), alone.report()
    assert (one.clicks, one.input_order) == (other.clicks, other.input_order)
    assert (one.slates, other.slates) == (120, 60)


def test_without_clicks_the_verdict_says_what_was_not_checked(slates: list[Slate]) -> None:
    blind = [dataclasses.replace(slate, label=None) for slate in slates]
    report = judge(blind, shuffled)
    assert report.clicks is None
    assert report.passed
    assert report.cautions == ("fewer than 20 valid answers have a click to compare with: the order may mean nothing",)
    assert not judge(blind, given).passed  # copying shows without clicks too
    assert judge(slates[:19], clicked_first).clicks is None
    assert judge(slates[:20], clicked_first).clicks is not None


def test_a_verdict_on_few_labels_says_that_they_are_few(slates: list[Slate]) -> None:
    few, enough = (judge(slates[:count], clicked_first) for count in (19, 20))
    assert few.cautions[0] == "whether this holds beyond these slates: 19 of at least 20 labels"
    assert enough.cautions == ()
    assert (few.verdict, enough.verdict) == ("undecided", "passed")
    biased = judge(slates[:19], given)
    assert biased.reasons  # it is told, but not as a verdict
    assert (biased.verdict, judge(slates, given).verdict, judge([], given).verdict) == ("undecided", "refused", "refused")
    assert [next(format_gate(report.to_json())) for report in (few, enough, biased, judge(slates, given))] == [
        "gate: undecided, 19 labels cannot tell; train takes these labels",
        "gate: passed",
        "gate: undecided, 19 labels cannot tell; train takes these labels only with --ungated",
        "gate: REFUSED; train takes these labels only with --ungated",
    ]


def test_no_labels_and_lone_candidates_are_no_reason_to_fail(make_slate: Callable[..., Slate]) -> None:
    assert judge([], given).reasons == ("there are no labels",)
    lone = judge([make_slate(1, f"s{k}", label=("c1",)) for k in range(30)], given)
    assert (lone.slates, lone.clicks, lone.input_order, lone.passed) == (30, None, None, True)


def test_candidates_that_read_the_same_are_followed(make_slate: Callable[..., Slate]) -> None:
    slates = [make_slate(5, f"s{k}", titles=["Soap", "Oil", "Comb", "Soap", "Wax"]) for k in range(4)]
    apart = judge(slates, lambda slate, rng: ["c1", "c2", "c3", "c4", "c5"]).twins
    assert apart is not None
    assert (apart.pairs, apart.mean_gap, apart.chance_gap, apart.earlier_first_share) == (4, 2.0, 1.0, 1.0)
    adjacent = judge(slates, lambda slate, rng: ["c4", "c1", "c2", "c3", "c5"]).twins
    assert adjacent is not None
    assert (adjacent.mean_gap, adjacent.earlier_first_share) == (0.0, 0.0)
    assert judge([make_slate(5)], given).twins is None


def test_slates_of_several_sizes_are_judged_together(make_slate: Callable[..., Slate]) -> None:
    slates = [make_slate(3 + k % 8, f"s{k}", label=("c2",)) for k in range(160)]
    report = judge(slates, shuffled)
    assert report.input_order is not None
    assert report.input_order.p_value is not None
    assert report.input_order.p_value > 0.001
    assert abs(report.input_order.tau.mean) < 0.1


def test_a_label_of_another_slate_stops_the_gate(make_slate: Callable[..., Slate]) -> None:
    with pytest.raises(SlateError, match=r"slate 's1': ranking 't': ranks 3 candidates but the slate has 5"):
        GateCollector().add(make_slate(5), new_label(make_slate(3), ["c1", "c2", "c3"]))


def test_the_report_is_plain_json_with_its_thresholds(slates: list[Slate]) -> None:
    record = judge(slates, given).to_json()
    assert json.loads(json.dumps(record, allow_nan=False)) == record
    assert list(record)[:3] == ["passed", "reasons", "cautions"]
    assert record["clicks"]["auc"]["n"] == 120
    assert record["input_order"]["tau"]["mean"] == pytest.approx(1.0)
    assert record["thresholds"] == {
        "valid_rate": 0.9,
        "auc_low": 0.52,
        "clicked_slates": 20,
        "input_tau": 0.3,
        "top_ratio": 3.0,
    }
