"""Rankings that know nothing: the order given, and a random one. They are the floors of every measurement."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

import numpy as np

from spd_core.slate import Ranking, Slate


@dataclass(frozen=True)
class InputOrder:
    """The candidates as they were given."""

    name: str = "input_order"

    def rank(self, slate: Slate) -> Ranking:
        """Ranking in input order."""
        return Ranking(self.name, slate.item_ids)


@dataclass(frozen=True)
class RandomOrder:
    """A shuffle that depends only on the seed, the slate's id and which items it holds."""

    seed: int = 0
    name: str = "random"

    def rank(self, slate: Slate) -> Ranking:
        """Ranking drawn uniformly; the same on every machine, in every run and for every input order."""
        digest = hashlib.sha256(f"{self.seed}:{slate.slate_id}".encode("utf-8", "surrogatepass")).digest()
        shuffled = np.random.default_rng(int.from_bytes(digest[:8], "big")).permutation(len(slate.candidates))
        item_ids = sorted(slate.item_ids)
        return Ranking(self.name, tuple(item_ids[index] for index in shuffled))
