"""Rankers by name, as `evaluate --ranker` and `label --teacher` take them: floors, students, teachers, label files.

All of them rank some slates at a time and tell what came of each, so that one table can hold them all.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from spd_core.checkpoints import load_student
from spd_core.datasets import read_slates
from spd_core.decoding import DECODERS, find_decoder
from spd_core.errors import SpdError, choices
from spd_core.model import Student
from spd_core.pipeline import score_slates
from spd_core.recipes.preset import data_file
from spd_core.recipes.provenance import model_facts, teacher_facts
from spd_core.recipes.training_data import read_items
from spd_core.slate import Ranking, Slate
from spd_core.teacher_checkpoints import ZERO_SHOT, load_teacher, zero_shot_teacher
from spd_core.teachers import TEACHERS, Teacher
from spd_core.teachers.answers import WritingTeacher
from spd_core.teachers.autoregressive import MODES, AutoregressiveTeacher
from spd_core.teachers.labelling import LabelBook
from spd_core.teachers.ordinals import AnswerKind

STUDENT, TEACHER, LABELS = "student", "teacher", "labels"
FORMS = (*TEACHERS, "student:ID", "student:ID:DECODER", "teacher:ID", "teacher:ID:free", "labels:FILE")
"""Every form that a ranker's name can have."""


class Ranked(NamedTuple):
    """One slate's ranking by one ranker."""

    name: str
    """Of the ranker, as it was asked for."""
    ranking: Ranking
    kind: AnswerKind | None = None
    """What the written answer was; None where nothing was written. Repaired if it is not ``ok``."""


class Ranker(Protocol):
    """Ranks slates under one name, or under several that share the work."""

    @property
    def names(self) -> tuple[str, ...]:
        """As they were asked for."""

    @property
    def provenance(self) -> Mapping[str, Any]:
        """What its rankings depend on beside the slates; empty where that is its name alone."""

    def rank_all(self, slates: Sequence[Slate]) -> Iterator[list[Ranked]]:
        """Rankings of each slate under each name, in input order."""


@dataclass(frozen=True)
class Loading:
    """How the models of rankers are loaded, and what the others are fitted on."""

    backbone: str | None = None
    device: str = "auto"
    dtype: str = "auto"
    fit: Sequence[str] = ()
    """Slate files whose histories are counted; none takes the file that is ranked."""
    catalogue: str | None = None
    """File of items."""


@dataclass(frozen=True)
class StudentRanker:
    """One pass of a student, read by several decoders."""

    student: Student
    decoders: Mapping[str, str]
    """Name -> key of `DECODERS`."""

    @property
    def names(self) -> tuple[str, ...]:
        """One for each decoder."""
        return tuple(self.decoders)

    @property
    def provenance(self) -> Mapping[str, Any]:
        """Backbone, dtype, device and template."""
        return model_facts(self.student.backbone, self.student.template)

    def rank_all(self, slates: Sequence[Slate]) -> Iterator[list[Ranked]]:
        """Rankings by each decoder."""
        for slate, scores in score_slates(self.student, slates):
            yield [Ranked(name, decode(slate, scores, decoder)) for name, decoder in self.decoders.items()]


@dataclass(frozen=True)
class FloorRanker:
    """A ranker without a language model."""

    names: tuple[str]
    teacher: Teacher
    provenance: Mapping[str, Any] = field(default_factory=dict)

    def rank_all(self, slates: Sequence[Slate]) -> Iterator[list[Ranked]]:
        """One ranking a slate."""
        for slate in slates:
            yield [Ranked(self.names[0], self.teacher.rank(slate))]


@dataclass(frozen=True)
class WritingRanker:
    """A teacher that writes; an answer that is not valid counts as what it was repaired to."""

    names: tuple[str]
    teacher: WritingTeacher
    provenance: Mapping[str, Any] = field(default_factory=dict)

    def rank_all(self, slates: Sequence[Slate]) -> Iterator[list[Ranked]]:
        """One ranking a slate, with the answer's kind."""
        for answer in self.teacher.answers(slates):
            yield [Ranked(self.names[0], answer.ranking, answer.kind)]


@dataclass(frozen=True)
class LabelRanker:
    """Rankings read from a label file."""

    names: tuple[str]
    book: LabelBook
    provenance: Mapping[str, Any] = field(default_factory=dict)

    def rank_all(self, slates: Sequence[Slate]) -> Iterator[list[Ranked]]:
        """One ranking a slate, with the kind of the answer it comes from.

        Raises:
            SlateError: the file's label is of other candidates.
            SpdError: the file has no label of a slate.
        """
        for slate in slates:
            label = self.book.find(slate)
            if label is None:
                raise SpdError(
                    f"{self.names[0]}: has no label of slate {slate.slate_id!r}; label the whole file, or use --limit"
                )
            yield [Ranked(self.names[0], Ranking(label.teacher, label.ranking), label.kind)]


def build_rankers(names: Sequence[str], loading: Loading) -> list[Ranker]:
    """The rankers of those names, models loaded and floors fitted; decoders of one student share its pass.

    Raises:
        SpdError: a name of no known form, an unknown checkpoint, decoder or mode, or a missing file.
    """
    students: dict[str, dict[str, str]] = {}
    floors, others = [], []
    for name in dict.fromkeys(names):
        form, _, rest = name.partition(":")
        if form == STUDENT and rest:
            checkpoint, decoder = split_choice(rest)
            find_decoder(decoder or next(iter(DECODERS)))
            students.setdefault(checkpoint, {})[name] = decoder or next(iter(DECODERS))
        elif form in (TEACHER, LABELS) and rest:
            others.append(name)
        elif name in TEACHERS:
            floors.append(name)
        else:
            raise SpdError(choices("ranker", name, FORMS))
    rankers: list[Ranker] = [student_ranker(checkpoint, chosen, loading) for checkpoint, chosen in students.items()]
    rankers += [other_ranker(name, loading) for name in others]
    return rankers + [FloorRanker((name,), teacher) for name, teacher in fit_floors(floors, loading).items()]


def student_ranker(checkpoint: str, decoders: Mapping[str, str], loading: Loading) -> StudentRanker:
    """Ranker of a student's checkpoint; `decoders` as there."""
    student = load_student(checkpoint, backbone=loading.backbone, device=loading.device, dtype=loading.dtype)
    return StudentRanker(student, decoders)


def other_ranker(name: str, loading: Loading) -> Ranker:
    """Ranker of ``labels:FILE``, ``teacher:ID`` or ``teacher:ID:MODE``."""
    form, _, rest = name.partition(":")
    if form == LABELS:
        book = LabelBook.read([data_file(rest)])
        return LabelRanker((name,), book, {"teacher": ", ".join(book.teachers)})
    checkpoint, mode = split_choice(rest)
    teacher = autoregressive_teacher(checkpoint, mode or "constrained", loading)
    return WritingRanker((name,), teacher, teacher_facts(teacher, checkpoint))


def autoregressive_teacher(checkpoint: str, mode: str, loading: Loading) -> AutoregressiveTeacher:
    """Teacher of a checkpoint, or ``zero-shot``: the backbone as it came.

    Raises:
        SpdError: unknown checkpoint or mode.
    """
    if mode not in MODES:
        raise SpdError(choices("decoding mode", mode, MODES))
    if checkpoint == ZERO_SHOT:
        return zero_shot_teacher(loading.backbone, mode=mode, device=loading.device, dtype=loading.dtype)
    return load_teacher(checkpoint, mode=mode, backbone=loading.backbone, device=loading.device, dtype=loading.dtype)


def checkpoint_of(name: str) -> str | None:
    """Checkpoint that a ranker's name holds: an id or a folder; None for rankers without one."""
    form, _, rest = name.partition(":")
    return split_choice(rest)[0] if form in (STUDENT, TEACHER) else None


def split_choice(text: str) -> tuple[str, str | None]:
    """(checkpoint, what stands behind its last colon): ``beauty-spd:greedy``; None if nothing does or it is of a path."""
    checkpoint, colon, choice = text.rpartition(":")
    return (checkpoint, choice) if colon and "/" not in choice else (text, None)


def fit_floors(names: Sequence[str], loading: Loading) -> dict[str, Teacher]:
    """Rankers without a language model by name, fitted on the histories of the slate files of `loading`.

    Raises:
        SpdError: a missing file.
    """
    if not names:
        return {}
    seen = [slate for name in loading.fit for slate in read_slates(data_file(name))]
    items = list(read_items(data_file(loading.catalogue))) if loading.catalogue else []
    return {name: TEACHERS[name](seen, items) for name in names}


def decode(slate: Slate, scores: NDArray[np.float32], decoder: str) -> Ranking:
    """Ranking of a slate by one decoder of its score matrix."""
    order = find_decoder(decoder)(scores.astype(np.float64))
    return Ranking(decoder, tuple(slate.item_ids[index] for index in order))
