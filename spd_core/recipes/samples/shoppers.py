"""The invented shoppers, the choice model that makes their purchases, and the slates of their visits.

The choice model is a multinomial logit: shopper s values product p at the `utility` u(s, p) and takes p from a set with
probability proportional to exp(u / temperature). History and label come from the same model, so what a shopper bought
does tell what they buy next; at the temperatures below it does not tell it with certainty.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import cycle
from random import Random
from typing import Any

from spd_core.recipes.samples.catalogue import MARK, Catalogue, Product, read_words
from spd_core.slate import Slate, UserContext

BRAND_WEIGHT, KIND_WEIGHT, SCENT_WEIGHT, LIKE_WEIGHT = 1.6, 1.4, 0.9, 1.0
AVOID_WEIGHT, BUDGET_WEIGHT = 3.0, 0.8
"""Weights of `utility`; tried by eye until the histories read like their personas."""
HISTORY_TEMPERATURE, LABEL_TEMPERATURE = 0.6, 0.5
SLATE_SIZES = (8, 20, 10, 5, 20, 10, 8, 20, 30, 10, 20, 5, 20, 8, 50)
"""Sizes of the visits, taken in turn over all shoppers."""


@dataclass(frozen=True, slots=True)
class Taste:
    """What a shopper wants; the fields are those of `shoppers.toml`."""

    name: str
    persona: str
    brands: tuple[str, ...]
    kinds: tuple[str, ...]
    scents: tuple[str, ...]
    likes: tuple[str, ...]
    avoids: tuple[str, ...]
    budget: int
    only_scents: bool = False

    @classmethod
    def from_words(cls, words: Mapping[str, Any]) -> Taste:
        """Taste of one ``[[shopper]]`` table."""
        values: dict[str, Any] = {key: tuple(v) if isinstance(v, list) else v for key, v in words.items()}
        return cls(**values)

    @property
    def description(self) -> dict[str, Any]:
        """The keys that a slate's user carries about this shopper."""
        return {"name": self.name, "persona": self.persona}


def read_shoppers() -> dict[str, Taste]:
    """All shoppers by user id, in file order."""
    tables = read_words("shoppers.toml")["shopper"]
    return {f"shopper-{number:02d}": Taste.from_words(table) for number, table in enumerate(tables, start=1)}


def utility(taste: Taste, product: Product) -> float:
    """How much a shopper values a product: matches of brand, kind, scent and likes, less dislikes and price.

    A favorite brand, a wanted kind and a liked scent count once each, likes at most twice, dislikes once, and each
    price band above the budget once. For an `only_scents` shopper a scent outside the liked ones is a dislike.
    """
    scented = set(product.scents)
    wrong_scent = taste.only_scents and bool(scented - set(taste.scents))
    return (
        BRAND_WEIGHT * (product.item.brand in taste.brands)
        + KIND_WEIGHT * (product.kind in taste.kinds)
        + SCENT_WEIGHT * bool(scented & set(taste.scents))
        + LIKE_WEIGHT * min(2, len(product.tags & set(taste.likes)))
        - AVOID_WEIGHT * (wrong_scent or bool(product.tags & set(taste.avoids)))
        - BUDGET_WEIGHT * max(0, product.band - taste.budget)
    )


def choose(taste: Taste, products: Sequence[Product], rng: Random, *, temperature: float) -> Product:
    """One product, drawn with probability proportional to exp(utility / temperature) (Gumbel-max)."""
    # 1 - random() lies in (0, 1], the inner maximum keeps log(-log(1)) finite
    noise = [-math.log(max(1e-12, -math.log(1.0 - rng.random()))) for _ in products]
    values = [utility(taste, product) / temperature + drawn for product, drawn in zip(products, noise, strict=True)]
    return products[values.index(max(values))]


def draw_products(
    taste: Taste, products: Sequence[Product], rng: Random, *, count: int, temperature: float = HISTORY_TEMPERATURE
) -> list[Product]:
    """`count` different products by the choice model, in the order drawn."""
    drawn: list[Product] = []
    while len(drawn) < count:
        left = [product for product in products if product not in drawn]
        drawn.append(choose(taste, left, rng, temperature=temperature))
    return drawn


def reasons(taste: Taste, product: Product) -> str:
    """Why the product fits the shopper, in words; what the choice model added up."""
    known = ["a favorite brand"] if product.item.brand in taste.brands else []
    known += ["the kind of thing they look for"] if product.kind in taste.kinds else []
    known += [tag for tag in product.scents + product.concerns if tag in taste.scents + taste.likes]
    known += ["within budget"] if product.band <= taste.budget else []
    return ", ".join(known) or "nobody knows why"


def shopper_slates(catalogue: Catalogue, seed: int) -> Iterator[Slate]:
    """The visits of all shoppers, two or three each; what is bought on one visit is in the history of the next."""
    sizes = cycle(SLATE_SIZES)
    for number, (user_id, taste) in enumerate(read_shoppers().items()):
        rng = Random(f"{seed}:{user_id}")
        history = draw_products(taste, catalogue.products, rng, count=3 + int(7 * rng.random()))
        visits = 3 if number % 3 == 0 else 2
        for visit in range(1, visits + 1):
            size = next(sizes)
            candidates = _candidates(taste, catalogue, history, rng, size=size)
            bought = choose(taste, candidates, rng, temperature=LABEL_TEMPERATURE)
            persona = taste.persona[0].lower() + taste.persona[1:]
            yield as_slate(
                f"{user_id}-visit-{visit}-n{size}",
                UserContext(tuple(product.shown for product in history), user_id, extra=taste.description),
                candidates,
                bought=bought,
                story=f"{taste.name}, visit {visit} of {visits}: {persona}",
                why=f"Bought {bought.key}: {reasons(taste, bought)}.",
            )
            history = [*history, bought]


def as_slate(
    slate_id: str, user: UserContext, candidates: Sequence[Product], *, bought: Product, story: str, why: str
) -> Slate:
    """A synthetic slate whose label is the bought product."""
    return Slate(
        slate_id,
        user,
        tuple(product.shown for product in candidates),
        label=(bought.item.item_id,),
        extra={"story": story, "why": why} | MARK,
    )


def shuffled(products: Sequence[Product], rng: Random) -> list[Product]:
    """The products in random order; uses only `Random.random`, which no Python version changes."""
    drawn = [(rng.random(), index) for index in range(len(products))]
    return [products[index] for _, index in sorted(drawn)]


def _candidates(taste: Taste, catalogue: Catalogue, history: Sequence[Product], rng: Random, *, size: int) -> list[Product]:
    """A slate of `size`: a fifth fits the shopper, the rest are neighbors by kind and by brand, and strangers."""
    new = [product for product in shuffled(catalogue.products, rng) if product not in history]
    fitting = draw_products(taste, new, rng, count=max(2, size // 5))
    kinds, brands = {product.kind for product in fitting}, {product.item.brand for product in fitting}
    others = [product for product in new if product not in fitting]
    same_kind = [product for product in others if product.kind in kinds][: max(1, round(0.3 * size))]
    same_brand = [p for p in others if p.item.brand in brands and p not in same_kind][: max(1, size // 5)]
    near = fitting + same_kind + same_brand
    strangers = [product for product in others if product not in near]
    return shuffled((near + strangers)[:size], rng)
