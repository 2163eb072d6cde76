"""The reference teacher: a ranking without a language model that a trained student should reach and then pass.

It sums four signals of `signals.py`, each brought to mean 0 and deviation 1 within the slate. It never reads a label,
and may label the slates it was fitted on.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Self

import numpy as np

from spd_core.errors import SpdError, choices
from spd_core.slate import Item, Ranking, Slate
from spd_core.teachers.base import rank_by_scores
from spd_core.teachers.signals import Affinity, Observations, TitleSimilarity, Vector

EQUAL_WEIGHTS: Mapping[str, float] = MappingProxyType({"tfidf": 1.0, "cooccurrence": 1.0, "brand": 1.0, "category": 1.0})
"""Weight of each signal's z-score; unequal weights were not clearly better on beauty `valid` (within .005 AUC)."""


@dataclass(frozen=True)
class ReferenceTeacher:
    """Similar titles, plus how often others hold the item, its brand and its category together with the history's."""

    signals: tuple[TitleSimilarity | Affinity, ...]
    weights: Mapping[str, float]
    name: str = "reference"

    @classmethod
    def fit(
        cls, slates: Iterable[Slate], items: Iterable[Item] = (), *, weights: Mapping[str, float] = EQUAL_WEIGHTS
    ) -> Self:
        """Teacher fitted on the histories of `slates` and the titles of all items seen.

        Args:
            slates: read once; labels, grades and stored teachers are ignored.
            items: a catalogue that tells brand and category of items which the histories name without them.
            weights: weight of each signal's z-score; a signal left out weighs 0.

        Raises:
            SpdError: a weight has an unknown name or is not finite.
        """
        unknown = sorted(set(weights) - set(EQUAL_WEIGHTS))
        if unknown:
            raise SpdError(choices("signal", unknown[0], EQUAL_WEIGHTS))
        for name, weight in weights.items():
            if not np.isfinite(weight):
                raise SpdError(f"weight of signal {name!r} is {weight!r}; it must be a finite number")
        seen = Observations.collect(slates, items)
        signals: tuple[TitleSimilarity | Affinity, ...] = (
            TitleSimilarity.fit(seen),
            Affinity.fit(seen, "cooccurrence", "item_id"),
            Affinity.fit(seen, "brand", "brand"),
            Affinity.fit(seen, "category", "category"),
        )
        return cls(signals, dict(weights))

    def scores(self, slate: Slate) -> Vector:
        """(N,) weighted sums of z-scores; all 0 where nothing is known of the user, and for one candidate."""
        total = np.zeros(len(slate.candidates))
        for signal in self.signals:
            total += self.weights.get(signal.name, 0.0) * standardise(signal.scores(slate))
        return total

    def rank(self, slate: Slate) -> Ranking:
        """Ranking by `scores`; equal scores keep the input order."""
        return rank_by_scores(self.scores(slate), slate, self.name)


def standardise(values: Vector) -> Vector:
    """(N,) values with mean 0 and standard deviation 1; zeros if they are all equal up to rounding."""
    deviation = values.std()
    if deviation <= 1e-9 * max(1.0, float(np.abs(values).max())):
        return np.zeros_like(values)
    return np.asarray((values - values.mean()) / deviation)
