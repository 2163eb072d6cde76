"""Rankings that come with the slates: the teacher's order that a slate stores, and the order of a candidate's attribute."""

from __future__ import annotations

import math
from dataclasses import dataclass

from spd_core.errors import SlateError
from spd_core.slate import Candidate, Ranking, Slate
from spd_core.teachers.base import rank_by_scores


@dataclass(frozen=True)
class StoredOrder:
    """The ranking that stands in the slate: unlike the teachers, it shows what the slate stores."""

    name: str = "stored"

    def rank(self, slate: Slate) -> Ranking:
        """Ranking of the slate's own teacher.

        Raises:
            SlateError: the slate stores none.
        """
        if slate.teacher is None:
            raise SlateError(f"slate {slate.slate_id!r}: stores no teacher's ranking; leave out the ranker {self.name!r}")
        return Ranking(self.name, slate.teacher.permutation)


@dataclass(frozen=True)
class AttributeOrder:
    """The candidates by a number that each of them carries, the lowest first: a rank, a price, a distance."""

    attribute: str
    """Key of the candidate's JSON object, e.g. ``initial_rank``."""

    @property
    def name(self) -> str:
        """As it is asked for."""
        return f"by:{self.attribute}"

    def rank(self, slate: Slate) -> Ranking:
        """Ranking by rising values; equal ones keep the input order.

        Raises:
            SlateError: a candidate has no finite number under that key.
        """
        return rank_by_scores([-self._value(slate, candidate) for candidate in slate.candidates], slate, self.name)

    def _value(self, slate: Slate, candidate: Candidate) -> float:
        value = candidate.to_json().get(self.attribute)
        if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
            raise SlateError(
                f"slate {slate.slate_id!r}: candidate {candidate.item_id!r} has {self.attribute} {value!r}; the ranker "
                f"{self.name!r} needs a number of every candidate"
            )
        return float(value)
