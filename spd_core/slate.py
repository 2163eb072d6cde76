"""The records that travel through the project: items, users, slates, rankings; standard library only.

A slate knows its user, its candidates and what is known about the right order. It knows nothing of prompts, tokens or
models. All records are frozen; unknown JSON keys are kept in `extra` and written back.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Self

from spd_core.errors import SlateError
from spd_core.json_values import identifier, mapping, optional_ids, optional_number, optional_numbers, optional_text, sequence

ITEM_KEYS = ("item_id", "title", "brand", "category", "rating")
USER_KEYS = ("user_id", "history", "query")
SLATE_KEYS = ("slate_id", "user", "candidates", "label", "grades", "teacher")


@dataclass(frozen=True, slots=True)
class Item:
    """One thing of the catalogue: a candidate, or an entry of a user's history."""

    item_id: str
    title: str
    brand: str | None = None
    category: str | None = None
    rating: float | None = None
    extra: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def from_json(cls, record: object, where: str) -> Self:
        """Item of a JSON object; `where` opens each error message, e.g. ``slate 's1' candidate 3``."""
        fields = mapping(record, where)
        title = fields.get("title", "")
        if not isinstance(title, str):
            raise SlateError(f"{where}: title is {title!r}; it must be a string")
        return cls(
            item_id=identifier(fields.get("item_id"), f"{where}: item_id"),
            title=title,
            brand=optional_text(fields, "brand", where),
            category=optional_text(fields, "category", where),
            rating=optional_number(fields.get("rating"), f"{where}: rating"),
            extra={key: value for key, value in fields.items() if key not in ITEM_KEYS},
        )

    def to_json(self) -> dict[str, Any]:
        """JSON object that `from_json` turns back into an equal item."""
        record: dict[str, Any] = {"item_id": self.item_id, "title": self.title}
        optional = {"brand": self.brand, "category": self.category, "rating": self.rating}
        record |= {key: value for key, value in optional.items() if value is not None}
        return record | dict(self.extra)


Candidate = Item
"""A candidate is an item; the name says the role it plays in a slate."""


@dataclass(frozen=True, slots=True)
class UserContext:
    """What is known about the user before the slate is shown: history, oldest first, and perhaps a query."""

    history: tuple[Item, ...] = ()
    user_id: str | None = None
    query: str | None = None
    extra: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def from_json(cls, record: object, where: str) -> Self:
        """User context of a JSON object; a missing history is an empty one."""
        fields = mapping(record, f"{where}: user")
        history = sequence(fields.get("history") or [], f"{where}: user.history")
        user_id = fields.get("user_id")
        return cls(
            history=tuple(Item.from_json(item, f"{where}: history item {index}") for index, item in enumerate(history)),
            user_id=None if user_id is None else identifier(user_id, f"{where}: user_id"),
            query=optional_text(fields, "query", where),
            extra={key: value for key, value in fields.items() if key not in USER_KEYS},
        )

    def to_json(self) -> dict[str, Any]:
        """JSON object that `from_json` turns back into an equal context."""
        record: dict[str, Any] = {} if self.user_id is None else {"user_id": self.user_id}
        record["history"] = [item.to_json() for item in self.history]
        if self.query is not None:
            record["query"] = self.query
        return record | dict(self.extra)


@dataclass(frozen=True, slots=True)
class Ranking:
    """An order of a slate's candidates by item id, best first, with the name of who made it."""

    name: str
    permutation: tuple[str, ...]
    extra: Mapping[str, Any] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """JSON object with `name` and `permutation`."""
        return {"name": self.name, "permutation": list(self.permutation)} | dict(self.extra)


@dataclass(frozen=True, slots=True)
class Slate:
    """A user and the candidates to be ordered for them, with what is known about the right order.

    Invariants: at least one candidate; item ids are unique within the slate; `grades` is aligned with `candidates`; the
    teacher's permutation holds each candidate once. `label` may name items that are not in the slate.
    """

    slate_id: str
    user: UserContext
    candidates: tuple[Candidate, ...]
    label: tuple[str, ...] | None = None
    grades: tuple[float, ...] | None = None
    teacher: Ranking | None = None
    extra: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        where = f"slate {self.slate_id!r}"
        ids = self.item_ids
        if not ids:
            raise SlateError(f"{where}: has no candidates; a slate needs at least one")
        if len(set(ids)) != len(ids):
            twice = next(item_id for index, item_id in enumerate(ids) if item_id in ids[:index])
            raise SlateError(f"{where}: item_id {twice!r} appears twice; ids must be unique within a slate")
        if self.grades is not None and len(self.grades) != len(ids):
            raise SlateError(f"{where}: {len(self.grades)} grades for {len(ids)} candidates; give one grade a candidate")
        if self.teacher is not None:
            check_permutation(self.teacher.permutation, ids, f"{where}: teacher {self.teacher.name!r}")

    @property
    def item_ids(self) -> tuple[str, ...]:
        """Candidate ids in input order."""
        return tuple(candidate.item_id for candidate in self.candidates)

    def relevant(self) -> tuple[bool, ...]:
        """Whether each candidate is relevant, in input order: named by `label`, else graded above 0; all False if neither."""
        if self.label is not None:
            named = set(self.label)
            return tuple(item_id in named for item_id in self.item_ids)
        return tuple(grade > 0 for grade in self.grades) if self.grades is not None else (False,) * len(self.candidates)

    def gains(self) -> tuple[float, ...]:
        """Gain of each candidate for NDCG, in input order: its grade, else 1 for a labelled item and 0 for the rest."""
        return self.grades if self.grades is not None else tuple(float(flag) for flag in self.relevant())

    @classmethod
    def from_json(cls, record: object, where: str = "slate") -> Self:
        """Slate of a JSON object.

        Args:
            record: a mapping as in the slate contract (README, "The data's way").
            where: opens error messages until the slate's own id is known, e.g. ``train.jsonl line 7``.

        Raises:
            SlateError: a key is missing or has the wrong type, a number is not finite, or an invariant is broken.
        """
        fields = mapping(record, where)
        slate_id = identifier(fields.get("slate_id"), f"{where}: slate_id")
        here = f"slate {slate_id!r}"
        candidates = sequence(fields.get("candidates"), f"{here}: candidates")
        return cls(
            slate_id=slate_id,
            user=UserContext.from_json(fields.get("user") or {}, here),
            candidates=tuple(Item.from_json(item, f"{here}: candidate {n}") for n, item in enumerate(candidates)),
            label=optional_ids(fields.get("label"), f"{here}: label"),
            grades=optional_numbers(fields.get("grades"), f"{here}: grades"),
            teacher=_optional_ranking(fields.get("teacher"), here),
            extra={key: value for key, value in fields.items() if key not in SLATE_KEYS},
        )

    def to_json(self) -> dict[str, Any]:
        """JSON object that `from_json` turns back into an equal slate."""
        record: dict[str, Any] = {
            "slate_id": self.slate_id,
            "user": self.user.to_json(),
            "candidates": [candidate.to_json() for candidate in self.candidates],
        }
        if self.label is not None:
            record["label"] = list(self.label)
        if self.grades is not None:
            record["grades"] = list(self.grades)
        if self.teacher is not None:
            record["teacher"] = self.teacher.to_json()
        return record | dict(self.extra)


def check_permutation(permutation: Sequence[str], item_ids: Sequence[str], where: str) -> None:
    """Raise `SlateError` unless `permutation` holds each of `item_ids` exactly once."""
    if len(permutation) != len(item_ids):
        raise SlateError(f"{where}: ranks {len(permutation)} candidates but the slate has {len(item_ids)}; re-run label")
    strangers = set(permutation) - set(item_ids)
    if strangers:
        raise SlateError(f"{where}: ranks {sorted(strangers)[0]!r}, which is not in the slate; re-run label")
    if len(set(permutation)) != len(permutation):
        raise SlateError(f"{where}: ranks an item twice; re-run label")


def _optional_ranking(value: object, where: str) -> Ranking | None:
    if value is None:
        return None
    fields = mapping(value, f"{where}: teacher")
    permutation = optional_ids(fields.get("permutation"), f"{where}: teacher.permutation")
    if permutation is None:
        raise SlateError(f"{where}: teacher has no permutation; re-run label")
    extra = {key: entry for key, entry in fields.items() if key not in ("name", "permutation")}
    return Ranking(str(fields.get("name", "teacher")), permutation, extra)
