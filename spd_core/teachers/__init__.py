"""Teachers by name; each is fitted on the histories of slates and then orders any slate.

Add one: a file with a class that has `name` and `rank(slate)`, and a line in `TEACHERS`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from spd_core.slate import Item, Slate
from spd_core.teachers.base import Teacher, rank_by_scores, with_purchase_first
from spd_core.teachers.input_order import InputOrder, RandomOrder
from spd_core.teachers.reference import ReferenceTeacher
from spd_core.teachers.signals import Affinity, Observations, Popularity, TitleSimilarity

TeacherFit = Callable[[Iterable[Slate], Iterable[Item]], Teacher]

TEACHERS: Mapping[str, TeacherFit] = {
    "reference": lambda slates, items: ReferenceTeacher.fit(slates, items),
    "tfidf": lambda slates, items: TitleSimilarity.fit(Observations.collect(slates, items)),
    "cooccurrence": lambda slates, items: Affinity.fit(Observations.collect(slates, items), "cooccurrence", "item_id"),
    "brand": lambda slates, items: Affinity.fit(Observations.collect(slates, items), "brand", "brand"),
    "category": lambda slates, items: Affinity.fit(Observations.collect(slates, items), "category", "category"),
    "popularity": lambda slates, items: Popularity.fit(Observations.collect(slates, items)),
    "input_order": lambda slates, items: InputOrder(),
    "random": lambda slates, items: RandomOrder(),
}
"""Name -> ``fit(slates, items)``: the slates are read at most once and only for their histories and items."""

__all__ = ["TEACHERS", "Teacher", "TeacherFit", "rank_by_scores", "with_purchase_first"]
