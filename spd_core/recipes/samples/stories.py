"""The hand-picked slates (demo) and the graded queries (search), read from `stories.toml`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from random import Random
from typing import Any

from spd_core.errors import SlateError
from spd_core.recipes.samples.catalogue import MARK, Catalogue, Product, read_words
from spd_core.recipes.samples.shoppers import Taste, as_slate, draw_products, read_shoppers, shuffled, utility
from spd_core.slate import Slate, UserContext

FIT_UTILITY = 1.2
"""A filler's utility stays below this: less than one favorite brand, so that it cannot compete with the label."""
PER_GRADE = {3: 4, 2: 4, 1: 5}
"""Most candidates of each grade in a search slate; grade 0 fills up."""
SEARCHER_TEMPERATURE = 0.3
"""Below that of the shoppers' histories: with two or three items, one odd purchase would be half the story."""
GRADE_STORY = "A search over the invented catalogue: grade 3 is all that was asked for, 2 a part of it, 1 next door."


def demo_slates(catalogue: Catalogue, seed: int) -> Iterator[Slate]:
    """The presets in file order; history, label and rivals as written, the rest drawn from what does not fit."""
    for words in read_words("stories.toml")["demo"]:
        user_id, taste = find_shopper(words["shopper"])
        bought = catalogue.find(words["label"])
        history = [catalogue.find(key) for key in words["history"]]
        picked = [bought, *(catalogue.find(key) for key in words["rivals"])]
        rng = Random(f"{seed}:demo:{words['id']}")
        fillers = [
            product
            for product in shuffled(catalogue.products, rng)
            if product not in picked + history and utility(taste, product) < FIT_UTILITY
        ]
        yield as_slate(
            f"demo-{words['id']}",
            UserContext(tuple(product.shown for product in history), user_id, extra=taste.description),
            shuffled((picked + fillers)[: words["n"]], rng),
            bought=bought,
            story=words["story"],
            why=words["why"],
        )


def search_slates(catalogue: Catalogue, seed: int) -> Iterator[Slate]:
    """The queries in file order, each with graded candidates; the label names those of grade 2 and 3."""
    for words in read_words("stories.toml")["search"]:
        rng = Random(f"{seed}:search:{words['id']}")
        candidates = _graded_candidates(words, shuffled(catalogue.products, rng), rng)
        grades = tuple(float(grade(product, words)) for product in candidates)
        ids = [product.item.item_id for product in candidates]
        yield Slate(
            f"search-{words['id']}",
            _searcher(words, catalogue, rng, candidates),
            tuple(product.shown for product in candidates),
            label=tuple(item_id for item_id, value in zip(ids, grades, strict=True) if value >= 2),
            grades=grades,
            extra={"story": GRADE_STORY} | MARK,
        )


def grade(product: Product, words: Mapping[str, Any]) -> int:
    """How well a product answers a query, 0 to 3, by the rule at the top of `stories.toml`."""
    asked = set(words["tags"])
    found = asked & product.tags
    is_match = found == asked and words.get("brand", product.item.brand) == product.item.brand
    if product.kind not in words["kinds"]:
        return int(is_match)
    return 3 if is_match else 2 if found else 1


def find_shopper(name: str) -> tuple[str, Taste]:
    """User id and taste of the shopper of that name.

    Raises:
        SlateError: no shopper has that name.
    """
    for user_id, taste in read_shoppers().items():
        if taste.name == name:
            return user_id, taste
    raise SlateError(f"no shopper is called {name!r}; use a name of shoppers.toml")


def _graded_candidates(words: Mapping[str, Any], products: Sequence[Product], rng: Random) -> list[Product]:
    picked: list[Product] = []
    for value, most in PER_GRADE.items():
        picked += [product for product in products if grade(product, words) == value][:most]
    fillers = [product for product in products if grade(product, words) == 0]
    return shuffled((picked + fillers)[: words["n"]], rng)


def _searcher(words: Mapping[str, Any], catalogue: Catalogue, rng: Random, shown: Sequence[Product]) -> UserContext:
    """Who searches: nobody in particular, or a shopper with a short history."""
    if "shopper" not in words:
        return UserContext(query=words["query"])
    user_id, taste = find_shopper(words["shopper"])
    new = [product for product in catalogue.products if product not in shown]
    history = draw_products(taste, new, rng, count=words["bought"], temperature=SEARCHER_TEMPERATURE)
    return UserContext(tuple(product.shown for product in history), user_id, words["query"], taste.description)
