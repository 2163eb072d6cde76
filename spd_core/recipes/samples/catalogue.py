"""The products of the invented shop, read from `catalogue.toml`; only prices depend on the seed.

A product is an item plus what the choice model looks at (kind, tags, price band). It knows nothing of shoppers.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import resources
from random import Random
from typing import Any

from spd_core.errors import SlateError
from spd_core.slate import Item

BAND_LIMITS = (10, 20, 45)
"""Dollars below which a price is in band 1, 2 and 3; the rest is band 4."""
MARK = {"synthetic": True}
"""Stands in every record that is written."""


@dataclass(frozen=True, slots=True)
class Product:
    """A catalogue item with its kind, its tags and its price band (1 cheapest .. 4)."""

    item: Item
    key: str
    """Name and shade without brand and size; unique, stories refer to it."""
    kind: str
    scents: tuple[str, ...]
    concerns: tuple[str, ...]
    band: int

    @property
    def tags(self) -> frozenset[str]:
        """Scents and concerns together."""
        return frozenset(self.scents + self.concerns)

    @property
    def shown(self) -> Item:
        """The item as slates carry it: id, title, brand, category and price."""
        item = self.item
        return Item(item.item_id, item.title, item.brand, item.category, extra={"price": item.extra["price"]})


@dataclass(frozen=True)
class Catalogue:
    """All products in file order, with look-up by key, kind and brand."""

    products: tuple[Product, ...]

    def __post_init__(self) -> None:
        keys = [product.key for product in self.products]
        twice = sorted({key for key in keys if keys.count(key) > 1})
        if twice:
            raise SlateError(f"catalogue.toml: {twice[0]!r} names two products; give one another name or shade")

    def find(self, key: str) -> Product:
        """The product of that key.

        Raises:
            SlateError: no product has that key.
        """
        for product in self.products:
            if product.key == key:
                return product
        raise SlateError(f"no product is called {key!r}; use a name (and shade) of catalogue.toml")


def read_words(name: str) -> dict[str, Any]:
    """The content of the TOML file of that name beside this module."""
    return tomllib.loads(resources.files(__package__).joinpath(name).read_text(encoding="utf-8"))


def read_catalogue(seed: int) -> Catalogue:
    """The catalogue: every product line of `catalogue.toml`, with prices drawn from the seed."""
    words = read_words("catalogue.toml")
    return Catalogue(
        tuple(
            _product(line, brand, item_id=f"{brand['code']}-{number:02d}", words=words, seed=seed)
            for brand in words["brand"]
            for number, line in enumerate(brand["products"], start=1)
        )
    )


def _product(line: str, brand: Mapping[str, Any], *, item_id: str, words: Mapping[str, Any], seed: int) -> Product:
    kind, name, size, tag_text, shade = (*(part.strip() for part in line.split("|")), "")[:5]
    category, usual_price = words["kinds"][kind]
    tags = tuple(tag.strip() for tag in tag_text.split(",") if tag.strip())
    scents = tuple(tag for tag in tags if tag in words["scents"])
    concerns = tuple(tag for tag in tags if tag not in scents)
    price = _price(usual_price * brand.get("tier", 1.0), Random(f"{seed}:price:{item_id}"))
    band = 1 + sum(price >= limit for limit in BAND_LIMITS)
    title = f"{brand['name']} {name}"
    title += f"{brand.get('shade_join', ', ')}{shade}" if shade else ""
    title += f"{brand.get('size_join', ', ')}{size}" if size else ""
    extra = {"price": price, "price_band": "$" * band, "size": size, "shade": shade}
    extra |= {"scent": ", ".join(scents), "concern": ", ".join(concerns)}
    item = Item(item_id, title, brand["name"], category, extra={k: v for k, v in extra.items() if v} | MARK)
    return Product(item, f"{name}, {shade}" if shade else name, kind, scents, concerns, band)


def _price(usual: float, rng: Random) -> float:
    """A price within 15 % of the usual one that ends as shop prices do."""
    dollars = max(2, round(usual * (0.85 + 0.3 * rng.random())))
    return round(dollars - 1 + (0.49, 0.95, 0.99)[int(3 * rng.random())], 2)
