"""Labels: a teacher's rankings of slates, written down one JSON line a slate with how each came about, and found again.

Knows teachers, slates and lines. When to stop, go on or share the work is the recipe's business.
"""

from __future__ import annotations

import itertools
import os
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Self

from spd_core.datasets.files import display_name, read_lines
from spd_core.datasets.jsonl import decode, parse_json
from spd_core.errors import SlateError, choices
from spd_core.slate import Ranking, Slate, check_permutation
from spd_core.teachers.answers import TeacherAnswer, WritingTeacher
from spd_core.teachers.base import Teacher
from spd_core.teachers.ordinals import KINDS, AnswerKind

TOGETHER = 64
"""Slates handed to a writing teacher at once. A batch decides last bits of bfloat16 and so, now and then, a rank: batches
start at multiples of this in the input, wherever a run was stopped. A multiple of any batch that fits on one device."""
COMPUTED = "computed"
"""Mode of a teacher that writes nothing."""
COST = "cost"
"""Key of what differs from run to run."""


@dataclass(frozen=True)
class Label:
    """One slate's ranking by a teacher, as a line of a label file."""

    slate_id: str
    ranking: tuple[str, ...]
    """Item ids, best first; repaired where `kind` is not ``ok``."""
    kind: AnswerKind
    problems: tuple[str, ...]
    """In words; empty if `kind` is ``ok``."""
    text: str
    """As written, thinking included; empty for a teacher that writes nothing."""
    tokens: int
    """Tokens written."""
    prompt_tokens: int
    passes: int
    """Forward passes; 0 where there were none or they cannot be seen."""
    teacher: str
    mode: str
    """free, constrained or remote; `COMPUTED` for a teacher that writes nothing."""
    provenance: Mapping[str, Any] = field(default_factory=dict)
    """What the ranking depends on beside the slate: checkpoint, its fingerprint, template hash."""
    cost: Mapping[str, Any] = field(default_factory=dict)
    """Wall time and money: not part of the label, because no two runs agree on them."""

    @property
    def is_repaired(self) -> bool:
        """True where the ranking is more than what the teacher said."""
        return self.kind != "ok"

    @classmethod
    def of_answer(cls, answer: TeacherAnswer, provenance: Mapping[str, Any]) -> Self:
        """Label of a written answer."""
        return cls(
            slate_id=answer.slate_id,
            ranking=answer.permutation,
            kind=answer.kind,
            problems=answer.problems,
            text=answer.text,
            tokens=answer.tokens,
            prompt_tokens=answer.prompt_tokens,
            passes=answer.passes,
            teacher=answer.teacher,
            mode=answer.mode,
            provenance=provenance,
            cost={"ms": round(answer.ms, 3)} | answer.extra,
        )

    @classmethod
    def of_ranking(cls, ranking: Ranking, slate: Slate, provenance: Mapping[str, Any], *, ms: float = 0.0) -> Self:
        """Label of a ranking that was computed, not written, in `ms` of wall time."""
        return cls(
            slate_id=slate.slate_id,
            ranking=ranking.permutation,
            kind="ok",
            problems=(),
            text="",
            tokens=0,
            prompt_tokens=0,
            passes=0,
            teacher=ranking.name,
            mode=COMPUTED,
            provenance=provenance,
            cost={"ms": round(ms, 3)},
        )

    def to_json(self) -> dict[str, Any]:
        """JSON object of a line of the label file; without `cost`."""
        return {
            "slate_id": self.slate_id,
            "ranking": list(self.ranking),
            "kind": self.kind,
            "problems": list(self.problems),
            "is_repaired": self.is_repaired,
            "text": self.text,
            "tokens": self.tokens,
            "prompt_tokens": self.prompt_tokens,
            "passes": self.passes,
            "teacher": self.teacher,
            "mode": self.mode,
            "provenance": dict(self.provenance),
        }

    @classmethod
    def from_json(cls, record: object, where: str) -> Self:
        """Label of a JSON object; `where` opens each error message, e.g. ``labels.jsonl line 7``.

        Raises:
            SlateError: a key is missing, or its value cannot be that of a label.
        """
        fields = record if isinstance(record, Mapping) else {}
        slate_id, ranking, kind = (fields.get(key) for key in ("slate_id", "ranking", "kind"))
        if not isinstance(slate_id, str) or not isinstance(ranking, list) or not all(isinstance(i, str) for i in ranking):
            raise SlateError(f"{where}: is no label: it needs a slate_id and a ranking of item ids; re-run label")
        if kind not in KINDS:
            raise SlateError(f"{where}: {choices('kind', kind, KINDS)}; re-run label")
        return cls(
            slate_id=slate_id,
            ranking=tuple(ranking),
            kind=kind,
            problems=tuple(str(problem) for problem in fields.get("problems") or ()),
            text=str(fields.get("text", "")),
            tokens=int(fields.get("tokens") or 0),
            prompt_tokens=int(fields.get("prompt_tokens") or 0),
            passes=int(fields.get("passes") or 0),
            teacher=str(fields.get("teacher", "teacher")),
            mode=str(fields.get("mode", COMPUTED)),
            provenance=fields.get("provenance") or {},
            cost=fields.get(COST) or {},
        )


def label_slates(
    teacher: Teacher | WritingTeacher, slates: Iterable[Slate], *, provenance: Mapping[str, Any], together: int
) -> Iterator[Label]:
    """A label for each slate, in input order.

    Args:
        teacher: one that writes is asked for `together` slates at a time, any other for one after another.
        slates: read as they are needed; their labels, grades and stored teachers are not looked at.
        provenance: written into each label.
        together: slates of one request; 1 hands all of them over at once, for teachers whose answers do not depend on
            what else is asked.
    """
    ask = getattr(teacher, "answers", None)
    if ask is None:
        for slate in slates:
            begin = time.perf_counter()
            ranking = teacher.rank(slate)
            yield Label.of_ranking(ranking, slate, provenance, ms=(time.perf_counter() - begin) * 1e3)
        return
    stream = iter(slates)
    requests = [stream] if together == 1 else iter(lambda: tuple(itertools.islice(stream, together)), ())
    for request in requests:
        for answer in ask(request):
            yield Label.of_answer(answer, provenance)


def read_labels(path: str | os.PathLike[str]) -> Iterator[Label]:
    """Labels of a file that `label` wrote, one at a time.

    Raises:
        SlateError: the file cannot be read, or a line is not a label; names file and line.
    """
    for number, line in enumerate(read_lines(path), start=1):
        where = f"{display_name(path)} line {number}"
        text = decode(line, where).strip()
        if text:
            yield Label.from_json(parse_json(text, where), where)


@dataclass(frozen=True)
class LabelBook:
    """Labels of some files, to be looked up by slate."""

    entries: Mapping[str, Sequence[tuple[str, Label]]]
    """Slate id -> (name of the file, label), one for each file that holds it."""

    @classmethod
    def read(cls, paths: Iterable[str | os.PathLike[str]]) -> Self:
        """Book of all labels in the files."""
        entries: dict[str, list[tuple[str, Label]]] = {}
        for path in paths:
            for label in read_labels(path):
                entries.setdefault(label.slate_id, []).append((display_name(path), label))
        return cls(entries)

    @property
    def teachers(self) -> tuple[str, ...]:
        """Names of the teachers, each once."""
        return tuple(dict.fromkeys(label.teacher for found in self.entries.values() for _, label in found))

    def find(self, slate: Slate) -> Label | None:
        """The label of a slate; None if no file holds one.

        Raises:
            SlateError: the labels of that slate id are of other candidates, or two of them fit.
        """
        found = self.entries.get(slate.slate_id, ())
        fitting = [entry for entry in found if sorted(entry[1].ranking) == sorted(slate.item_ids)]
        if len(fitting) > 1:
            names = " and ".join(name for name, _ in fitting)
            raise SlateError(f"slate {slate.slate_id!r}: is labelled twice, in {names}; name one of them")
        if found and not fitting:
            name, label = found[0]
            check_permutation(label.ranking, slate.item_ids, f"slate {slate.slate_id!r}: label in {name}")
        return fitting[0][1] if fitting else None
