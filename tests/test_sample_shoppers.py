"""The invented shoppers: their choice model, and that every word written about them means something."""

import math
from collections import Counter
from dataclasses import replace
from pathlib import Path
from random import Random

import pytest

from spd_core.datasets.jsonl import load_slates
from spd_core.errors import SlateError
from spd_core.recipes.make_samples import DEFAULT_SEED
from spd_core.recipes.samples.catalogue import Catalogue, read_catalogue, read_words
from spd_core.recipes.samples.shoppers import choose, read_shoppers, reasons, utility
from spd_core.recipes.samples.stories import find_shopper, grade
from spd_core.slate import Item

SHIPPED = Path(__file__).resolve().parents[1] / "sample_data" / "slates"


@pytest.fixture(scope="module")
def catalogue() -> Catalogue:
    return read_catalogue(DEFAULT_SEED)


def test_purchases_follow_taste_but_not_always(catalogue: Catalogue) -> None:
    by_id, tastes = {product.item.item_id: product for product in catalogue.products}, read_shoppers()
    slates = load_slates(SHIPPED / "shoppers.jsonl")
    best = 0
    for slate in slates:
        values = {item_id: utility(tastes[slate.user.user_id], by_id[item_id]) for item_id in slate.item_ids}
        best += values[slate.label[0]] == max(values.values())
    assert 0.6 < best / len(slates) < 0.9


def test_utility_is_the_sum_its_docstring_names(catalogue: Catalogue) -> None:
    _, amara = find_shopper("Amara O.")
    leave_in = catalogue.find("Unscented Leave-In Conditioner for Curly Hair")
    assert utility(amara, leave_in) == pytest.approx(1.6 + 1.4 + 0.9 + 1.0)
    assert utility(amara, catalogue.find("Second Day Curl Refresher Spray")) == pytest.approx(1.6 + 1.4 + 1.0 - 3.0)
    assert utility(replace(amara, budget=0), leave_in) == pytest.approx(4.9 - 0.8 * leave_in.band)
    assert "unscented" in reasons(amara, leave_in)


def test_choices_have_the_probabilities_of_the_logit(catalogue: Catalogue) -> None:
    _, amara = find_shopper("Amara O.")
    products = catalogue.products[20:40:4]
    weights = [math.exp(utility(amara, product) / 2.0) for product in products]
    rng, draws = Random(0), 6000
    drawn = Counter(choose(amara, products, rng, temperature=2.0).key for _ in range(draws))
    for product, weight in zip(products, weights, strict=True):
        share = weight / sum(weights)
        assert abs(drawn[product.key] / draws - share) < 4 * math.sqrt(share * (1 - share) / draws)


def test_a_cold_choice_takes_the_best(catalogue: Catalogue) -> None:
    _, henrik = find_shopper("Henrik L.")
    products = catalogue.products[::7]
    best = max(utility(henrik, product) for product in products)
    taken = [choose(henrik, products, Random(seed), temperature=1e-6) for seed in range(20)]
    assert {utility(henrik, product) for product in taken} == {best}


def test_grades_fall_with_the_part_of_the_query_that_is_met(catalogue: Catalogue) -> None:
    asked = {"kinds": ["beard_care"], "tags": ["cedar", "beard"]}
    graded = {
        "Cedar Beard Oil": 3,
        "Bergamot Beard Oil for Sensitive Skin": 2,
        "Cathedral Cedar Eau de Parfum with Incense": 0,
    }
    assert {key: grade(catalogue.find(key), asked) for key in graded} == graded
    assert grade(catalogue.find("Cedar Beard Oil"), asked | {"tags": ["rose"]}) == 1
    assert grade(catalogue.find("Cedar Beard Oil"), asked | {"kinds": ["comb"]}) == 1
    assert grade(catalogue.find("Cedar Beard Oil"), asked | {"brand": "Embervane"}) == 2


def test_unknown_names_in_the_stories_are_refused_by_name(catalogue: Catalogue) -> None:
    with pytest.raises(SlateError, match=r"no product is called 'Wig'; use a name \(and shade\) of catalogue\.toml"):
        catalogue.find("Wig")
    with pytest.raises(SlateError, match=r"no shopper is called 'Nobody'; use a name of shoppers\.toml"):
        find_shopper("Nobody")


def test_two_products_of_one_name_are_refused(catalogue: Catalogue) -> None:
    twin = replace(catalogue.products[0], item=Item("other", "Other"))
    with pytest.raises(SlateError, match=r"catalogue\.toml: 'Overnight Rose Clay Mask' names two products"):
        Catalogue((*catalogue.products, twin))


def test_every_word_of_a_taste_or_a_query_means_something(catalogue: Catalogue) -> None:
    kinds = {product.kind for product in catalogue.products}
    tags = {tag for product in catalogue.products for tag in product.tags}
    brands = {product.item.brand for product in catalogue.products}
    for taste in read_shoppers().values():
        assert kinds.issuperset(taste.kinds), taste.name
        assert brands.issuperset(taste.brands), taste.name
        assert tags.issuperset(taste.scents + taste.likes + taste.avoids), taste.name
    for asked in read_words("stories.toml")["search"]:
        assert kinds.issuperset(asked["kinds"]), asked["id"]
        assert tags.issuperset(asked["tags"]), asked["id"]
