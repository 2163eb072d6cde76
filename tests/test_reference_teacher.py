"""Teachers without a language model: what they read, what they must not read, and how they break ties."""

from __future__ import annotations

import gzip
import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from spd_core.datasets import load_slates
from spd_core.errors import SlateError, SpdError
from spd_core.slate import Item, Ranking, Slate, UserContext
from spd_core.teachers import TEACHERS, Teacher, rank_by_scores, with_purchase_first
from spd_core.teachers.input_order import RandomOrder
from spd_core.teachers.reference import EQUAL_WEIGHTS, ReferenceTeacher, standardise
from spd_core.teachers.signals import RECENCY, Affinity, Observations, Popularity, TitleSimilarity, recency_weights

BRANDS = ("Aster", "Birch", "Cedar", "Dahlia")
KINDS = ("shampoo", "lipstick", "brush")
CATALOGUE = tuple(
    Item(f"{brand}-{kind}-{size}", f"{brand} {kind} {size} ml", brand=brand, category=kind)
    for brand in BRANDS
    for kind in KINDS
    for size in (50, 100, 250)
)
BY_ID = {item.item_id: item for item in CATALOGUE}


def shopper(user_id: str | None, history: Sequence[str], candidates: Sequence[str], label: str | None = None) -> Slate:
    """A slate of catalogue items whose history entries tell no brand or category, as in the beauty set."""
    bare = tuple(replace(BY_ID[item_id], brand=None, category=None) for item_id in history)
    shown = tuple(BY_ID[item_id] for item_id in candidates)
    return Slate(f"s-{user_id}", UserContext(bare, user_id), shown, None if label is None else (label,))


def random_shoppers(count: int, seed: int = 0) -> list[Slate]:
    """Shoppers loyal to one brand, each with 5 history items, 6 candidates and a purchase."""
    rng = np.random.default_rng(seed)
    slates = []
    for user in range(count):
        loyal = [item.item_id for item in CATALOGUE if item.brand == BRANDS[user % len(BRANDS)]]
        others = [item.item_id for item in CATALOGUE if item.item_id not in loyal]
        history = [str(item_id) for item_id in rng.permutation(loyal)[:4]] + [str(rng.choice(others))]
        bought = str(rng.choice([item_id for item_id in loyal if item_id not in history]))
        shown = [bought, *(str(item_id) for item_id in rng.permutation(others)[:5])]
        shown = [shown[index] for index in rng.permutation(6)]
        slates.append(shopper(f"u{seed}-{user}", history, shown, bought))
    return slates


@pytest.fixture(scope="module")
def train() -> list[Slate]:
    return random_shoppers(80)


def share_first(teacher: Teacher, slates: Sequence[Slate]) -> float:
    return float(np.mean([teacher.rank(slate).permutation[0] in (slate.label or ()) for slate in slates]))


@pytest.mark.parametrize("name", sorted(TEACHERS))
class TestEveryTeacher:
    def test_ranks_each_candidate_once_under_its_registered_name(self, name: str, train: list[Slate]) -> None:
        teacher = TEACHERS[name](train, CATALOGUE)
        for slate in random_shoppers(10, seed=5):
            ranking = teacher.rank(slate)
            assert ranking.name == teacher.name == name
            assert sorted(ranking.permutation) == sorted(slate.item_ids)

    def test_never_reads_label_grades_or_stored_teacher(self, name: str, train: list[Slate]) -> None:
        blind = [replace(slate, label=None) for slate in train]
        backwards = [Ranking("x", slate.item_ids[::-1]) for slate in train]
        told = [
            replace(slate, label=slate.item_ids[-1:], grades=tuple(range(6)), teacher=ranking)
            for slate, ranking in zip(train, backwards, strict=True)
        ]
        seeing, unseeing = TEACHERS[name](told, CATALOGUE), TEACHERS[name](blind, CATALOGUE)
        assert [seeing.rank(slate) for slate in told] == [unseeing.rank(slate) for slate in blind]

    def test_a_users_own_later_history_does_not_give_the_purchase_away(self, name: str, train: list[Slate]) -> None:
        slate = shopper("twice", ["Aster-brush-50"], ["Birch-brush-50", "Cedar-brush-50", "Dahlia-brush-50"])
        later = replace(shopper("twice", ["Aster-brush-50", "Cedar-brush-50"], ["Birch-brush-100"]), slate_id="later")
        without = TEACHERS[name]([*train, slate], CATALOGUE).rank(slate)
        assert TEACHERS[name]([*train, slate, later], CATALOGUE).rank(slate) == without

    def test_candidate_order_changes_nothing_where_no_scores_are_equal(self, name: str, train: list[Slate]) -> None:
        teacher = TEACHERS[name](train, CATALOGUE)
        slates = [replace(slate, candidates=slate.candidates[:3]) for slate in random_shoppers(40, seed=3)]
        if hasattr(teacher, "scores"):
            slates = [slate for slate in slates if len(set(teacher.scores(slate).tolist())) == 3]
        turned = [replace(slate, candidates=slate.candidates[::-1]) for slate in slates]
        same = [teacher.rank(one) == teacher.rank(other) for one, other in zip(slates, turned, strict=True)]
        assert len(same) >= 3
        assert all(same) if name != "input_order" else not any(same)

    def test_ranks_a_single_candidate(self, name: str, train: list[Slate]) -> None:
        slate = shopper("one", ["Aster-brush-50"], ["Birch-brush-50"])
        assert TEACHERS[name](train, CATALOGUE).rank(slate).permutation == ("Birch-brush-50",)

    def test_works_with_nothing_to_learn_from(self, name: str) -> None:
        slate = shopper("new", ["Aster-brush-50"], ["Birch-brush-50", "Cedar-brush-50"])
        assert set(TEACHERS[name]([], []).rank(slate).permutation) == set(slate.item_ids)

    def test_takes_hostile_titles_and_unknown_items(self, name: str, train: list[Slate]) -> None:
        titles = ("", " ", "\ud800", "[1] > [2]", "<|im_end|>", "a" * 100_000, "👩‍👩‍👧", "שלום")
        slate = Slate(
            "hostile",
            UserContext((Item("h", ""), Item("h2", "\udfff brush"))),
            tuple(Item(f"c{n}", title) for n, title in enumerate(titles)),
        )
        assert set(TEACHERS[name]([*train, slate], CATALOGUE).rank(slate).permutation) == set(slate.item_ids)


@pytest.mark.parametrize("name", ["reference", "tfidf", "cooccurrence", "brand"])
def test_a_fitted_signal_finds_the_loyal_purchase_of_unseen_shoppers(name: str, train: list[Slate]) -> None:
    unseen = random_shoppers(60, seed=9)
    assert share_first(TEACHERS[name](train, CATALOGUE), unseen) > 0.6
    assert share_first(TEACHERS["random"](train, CATALOGUE), unseen) < 0.4


def test_equal_scores_keep_the_input_order() -> None:
    slate = shopper("u", [], ["Cedar-brush-50", "Aster-brush-50", "Birch-brush-50", "Dahlia-brush-50"])
    ranking = rank_by_scores([1.0, 2.0, 1.0, 2.0], slate, "x")
    assert ranking.permutation == ("Aster-brush-50", "Dahlia-brush-50", "Cedar-brush-50", "Birch-brush-50")


def test_candidates_with_the_same_words_tie_to_the_last_bit(train: list[Slate]) -> None:
    """A matrix product would round equal rows differently, depending on their number: ties by input order would break."""
    signal = TitleSimilarity.fit(Observations.collect(train, CATALOGUE))
    for size in range(2, 40):
        history = CATALOGUE[: 1 + size % 13]
        twins = tuple(Item(f"t{n}", "Aster brush 50 ml") for n in range(size))
        assert len(set(signal.scores(Slate("s", UserContext(history), twins)).tolist())) == 1


@pytest.mark.parametrize("name", ["reference", "tfidf", "cooccurrence", "brand", "category"])
def test_a_user_without_history_or_query_gets_the_input_order(name: str, train: list[Slate]) -> None:
    slate = shopper("new", [], ["Cedar-brush-50", "Aster-brush-50", "Birch-brush-50"])
    assert TEACHERS[name](train, CATALOGUE).rank(slate).permutation == slate.item_ids


def test_a_query_counts_as_history(train: list[Slate]) -> None:
    slate = shopper("new", [], ["Cedar-brush-50", "Aster-lipstick-50", "Birch-shampoo-50"])
    asked = replace(slate, user=UserContext(query="lipstick by aster"))
    for name in ("reference", "tfidf"):
        assert TEACHERS[name](train, CATALOGUE).rank(asked).permutation[0] == "Aster-lipstick-50"


def test_newer_history_weighs_more_by_the_stated_factor() -> None:
    weights = recency_weights(4)
    assert weights.sum() == pytest.approx(1.0)
    assert weights[:-1] / weights[1:] == pytest.approx(RECENCY)


def test_log_lift_is_the_count_the_reader_can_do() -> None:
    """Two others hold a with b, one holds b with c: pairs(a, b) = 2, expected = 2 * 3 / 6 = 1, log-lift log(3 / 2)."""
    a, b, c = "Aster-brush-50", "Birch-brush-50", "Cedar-brush-50"
    others = [shopper("1", [a, b], [c]), shopper("2", [a, b], [c]), shopper("3", [b, c], [a])]
    signal = Affinity.fit(Observations.collect(others), "cooccurrence", "item_id")
    scores = signal.scores(shopper("new", [b], [a, c, "Dahlia-brush-50"]))
    assert scores == pytest.approx([np.log(3 / 2), np.log((1 + 1) / (1 * 3 / 6 + 1)), 0.0])


def test_scoring_a_fitted_user_equals_a_fit_without_that_user(train: list[Slate]) -> None:
    untold = (*train[0].user.history, Item("odd", "odd"), Item("odder", "odder"))
    slates = [*train, Slate("odd", UserContext(untold, "odd"), train[0].candidates)]
    for name, attribute in (("cooccurrence", "item_id"), ("brand", "brand"), ("category", "category")):
        inside = Affinity.fit(Observations.collect(slates, CATALOGUE), name, attribute)
        for slate in (slates[0], slates[17], slates[-1]):
            others = [other for other in slates if other is not slate]
            outside = Affinity.fit(Observations.collect(others, CATALOGUE), name, attribute)
            assert inside.scores(slate) == pytest.approx(outside.scores(slate), abs=1e-12)


def test_popularity_counts_other_users_once_each() -> None:
    a, b, c = "Aster-brush-50", "Birch-brush-50", "Cedar-brush-50"
    slates = [shopper("1", [a, a, b], [c]), shopper("2", [a], [c]), shopper("3", [b, a], [c])]
    signal = Popularity.fit(Observations.collect(slates))
    assert signal.scores(shopper("new", [], [a, b, c])).tolist() == [3, 2, 0]
    assert signal.scores(shopper("3", [], [a, b, c])).tolist() == [2, 1, 0]


def test_an_unbranded_item_differs_from_one_whose_brand_was_never_told() -> None:
    plain = [Item(f"p{n}", f"plain {n}", brand="") for n in range(4)]
    users = [Slate(f"s{n}", UserContext(tuple(plain[:3]), f"u{n}"), (plain[3],)) for n in range(5)]
    brands = Affinity.fit(Observations.collect([*users, *random_shoppers(8)], CATALOGUE), "brand", "brand")
    candidates = (Item("x", "x", brand=""), Item("y", "y"), BY_ID["Aster-brush-50"])
    unbranded, untold, branded = brands.scores(Slate("s", UserContext((plain[0],), "new"), candidates))
    assert unbranded > 0 == untold > branded


def test_brand_of_a_history_item_comes_from_the_catalogue(train: list[Slate]) -> None:
    bare = Item("Aster-brush-50", "Aster brush 50 ml")
    slate = Slate("s", UserContext((bare,), "new"), (BY_ID["Birch-lipstick-50"], BY_ID["Aster-lipstick-50"]))
    assert TEACHERS["brand"](train, CATALOGUE).rank(slate).permutation[0] == "Aster-lipstick-50"


def test_the_first_record_that_tells_a_brand_wins() -> None:
    seen = Observations.collect([], [Item("a", "t"), Item("a", "u", brand="B"), Item("a", "v", "C", "K")])
    assert seen.catalogue["a"] == Item("a", "t", brand="B", category="K")


def test_reference_is_the_weighted_sum_of_its_standardised_signals(train: list[Slate]) -> None:
    seen = Observations.collect(train, CATALOGUE)
    slate = train[3]
    signals = {
        "tfidf": TitleSimilarity.fit(seen),
        "cooccurrence": Affinity.fit(seen, "cooccurrence", "item_id"),
        "brand": Affinity.fit(seen, "brand", "brand"),
        "category": Affinity.fit(seen, "category", "category"),
    }
    assert set(signals) == set(EQUAL_WEIGHTS)
    parts = {name: standardise(signal.scores(slate)) for name, signal in signals.items()}
    assert ReferenceTeacher.fit(train, CATALOGUE).scores(slate) == pytest.approx(sum(parts.values()))
    weighted = ReferenceTeacher.fit(train, CATALOGUE, weights={"brand": 2.0, "tfidf": -1.0})
    assert weighted.scores(slate) == pytest.approx(2.0 * parts["brand"] - parts["tfidf"])


def test_standardised_values_have_mean_0_and_deviation_1_and_constants_become_0() -> None:
    values = standardise(np.array([3.0, 5.0, 10.0]))
    assert values.mean() == pytest.approx(0.0)
    assert values.std() == pytest.approx(1.0)
    assert standardise(np.array([0.3, 0.1 + 0.2, 0.3])).tolist() == [0.0] * 3


def test_an_unknown_or_infinite_weight_is_refused() -> None:
    with pytest.raises(SpdError, match=r"unknown signal 'price'; choose from brand, category, cooccurrence, tfidf"):
        ReferenceTeacher.fit([], weights={"price": 1.0})
    with pytest.raises(SpdError, match=r"weight of signal 'brand' is inf; it must be a finite number"):
        ReferenceTeacher.fit([], weights={"brand": float("inf")})


def test_random_order_is_uniform_and_depends_only_on_seed_and_slate() -> None:
    slate = shopper("u", [], ["Aster-brush-50", "Birch-brush-50", "Cedar-brush-50"])
    assert RandomOrder().rank(slate) == RandomOrder().rank(replace(slate, candidates=slate.candidates[::-1]))
    drawn = [RandomOrder().rank(replace(slate, slate_id=str(n))).permutation for n in range(3000)]
    counts = [drawn.count(order) for order in set(drawn)]
    assert len(counts) == 6
    assert 400 < min(counts) <= max(counts) < 600
    assert any(RandomOrder(seed).rank(slate) != RandomOrder().rank(slate) for seed in range(1, 9))


class TestPurchaseFirst:
    SLATE = shopper("u", [], ["Aster-brush-50", "Birch-brush-50", "Cedar-brush-50", "Dahlia-brush-50"])
    RANKING = Ranking("reference", tuple(f"{brand}-brush-50" for brand in ("Dahlia", "Cedar", "Birch", "Aster")))

    def test_labelled_items_move_to_the_front_and_all_else_keeps_its_order(self) -> None:
        slate = replace(self.SLATE, label=("Aster-brush-50", "Cedar-brush-50", "elsewhere"))
        moved = with_purchase_first(self.RANKING, slate)
        assert moved.name == "reference+purchase"
        assert moved.permutation == ("Cedar-brush-50", "Aster-brush-50", "Dahlia-brush-50", "Birch-brush-50")

    def test_a_slate_without_label_keeps_its_ranking(self) -> None:
        assert with_purchase_first(self.RANKING, self.SLATE).permutation == self.RANKING.permutation

    def test_a_ranking_of_another_slate_is_refused(self) -> None:
        short = Ranking("reference", self.RANKING.permutation[:3])
        with pytest.raises(SlateError, match=r"slate 's-u': ranking 'reference': ranks 3 candidates but the slate has 4"):
            with_purchase_first(short, self.SLATE)


def test_reference_beats_its_parts_on_real_slates(spd_data: Path) -> None:
    train, valid = (load_slates(spd_data / "beauty" / f"{split}.jsonl.gz") for split in ("train", "valid"))
    with gzip.open(spd_data / "beauty" / "items.jsonl.gz", "rt", encoding="utf-8") as lines:
        items = [Item.from_json(json.loads(line), "item") for line in lines]
    first = {name: share_first(TEACHERS[name](train, items), valid) for name in ("reference", "tfidf", "cooccurrence")}
    assert first["reference"] > 0.29 > first["tfidf"] > 0.27 > first["cooccurrence"] > 0.15
