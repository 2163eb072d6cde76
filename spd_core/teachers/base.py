"""What a teacher is: something that orders a slate; plus the two ways an order is made from what is known.

Knows nothing of language models: a teacher may be one, or a count of purchases, or the input order.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from spd_core.slate import Ranking, Slate, check_permutation

PURCHASE_SUFFIX = "+purchase"
"""Added to a teacher's name where the labelled items were moved to the front of its ranking."""


class Teacher(Protocol):
    """Orders a slate, best candidate first."""

    @property
    def name(self) -> str:
        """Name written beside each ranking, e.g. ``reference``."""

    def rank(self, slate: Slate) -> Ranking:
        """Ranking of all candidates of `slate`; never looks at its label, grades or stored teacher."""


def rank_by_scores(scores: Sequence[float] | NDArray[np.float64], slate: Slate, name: str) -> Ranking:
    """Ranking of the candidates by falling score; equal scores keep the input order.

    Args:
        scores: (N,) finite numbers, one a candidate in input order; higher is better.
        slate: the slate that was scored.
        name: who ranked, written into the ranking.
    """
    order = np.argsort(-np.asarray(scores, dtype=np.float64), kind="stable")
    item_ids = slate.item_ids
    return Ranking(name, tuple(item_ids[index] for index in order))


def with_purchase_first(ranking: Ranking, slate: Slate) -> Ranking:
    """The same ranking with the labelled items moved to the front, named ``<name>+purchase``.

    Labelled items keep their order among themselves, and so do the rest; a label outside the slate is ignored, so that
    a slate without a label keeps its ranking.

    Raises:
        SlateError: the ranking does not hold each candidate of the slate once.
    """
    check_permutation(ranking.permutation, slate.item_ids, f"slate {slate.slate_id!r}: ranking {ranking.name!r}")
    bought = set(slate.label or ())
    first = tuple(item_id for item_id in ranking.permutation if item_id in bought)
    rest = tuple(item_id for item_id in ranking.permutation if item_id not in bought)
    return Ranking(ranking.name + PURCHASE_SUFFIX, first + rest, ranking.extra)
