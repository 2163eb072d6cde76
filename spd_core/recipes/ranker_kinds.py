"""The kinds of rankers that a table may hold, each with what it takes to rank slates and what its rankings depend on.

Those that ask a model can give their work as bytes and read rankings from it, so that work may be kept; see `ranking_store`.
They know no names of the command line and load nothing; `rankers` does.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from spd_core.decoding import find_decoder
from spd_core.errors import SpdError
from spd_core.model import Student
from spd_core.pipeline import score_slates
from spd_core.slate import Ranking, Slate
from spd_core.teachers import Teacher
from spd_core.teachers.answers import WritingTeacher
from spd_core.teachers.labelling import LabelBook
from spd_core.teachers.ordinals import AnswerKind


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


@runtime_checkable
class Costly(Ranker, Protocol):
    """A ranker whose work is worth keeping."""

    @property
    def identity(self) -> Mapping[str, Any]:
        """All that tells its work from any other's, ready for JSON; empty where it is not worth keeping."""

    def work(self, slates: Sequence[Slate]) -> Iterator[bytes]:
        """What the model makes of each slate, in input order."""

    def read(self, slate: Slate, made: bytes) -> list[Ranked]:
        """Rankings of a slate from what the model made of it."""


@dataclass(frozen=True)
class StudentRanker:
    """One pass of a student, read by several decoders; its work is the score matrix."""

    student: Student
    decoders: Mapping[str, str]
    """Name -> key of `DECODERS`."""
    provenance: Mapping[str, Any]
    """Of `student_facts`."""

    @property
    def names(self) -> tuple[str, ...]:
        """One for each decoder."""
        return tuple(self.decoders)

    @property
    def identity(self) -> Mapping[str, Any]:
        """Of the matrix, whoever decodes it."""
        return {"form": "student", **self.provenance}

    def rank_all(self, slates: Sequence[Slate]) -> Iterator[list[Ranked]]:
        """Rankings by each decoder."""
        return map(self.read, slates, self.work(slates))

    def work(self, slates: Sequence[Slate]) -> Iterator[bytes]:
        """(N, K) score matrix of each slate as float32."""
        for _, scores in score_slates(self.student, slates):
            yield scores.astype("<f4").tobytes()

    def read(self, slate: Slate, made: bytes) -> list[Ranked]:
        """Rankings by each decoder of a matrix that `work` has given."""
        scores = np.frombuffer(made, "<f4").reshape(len(slate.candidates), -1)
        return [Ranked(name, decode(slate, scores, decoder)) for name, decoder in self.decoders.items()]


@dataclass(frozen=True)
class TeacherRanker:
    """Any teacher that writes nothing: a ranker without a language model, or one that asks it in a single pass."""

    names: tuple[str]
    teacher: Teacher
    provenance: Mapping[str, Any] = field(default_factory=dict)
    """Empty for rankers without a language model."""

    @property
    def identity(self) -> Mapping[str, Any]:
        """Of a ranker that asks a language model; empty for the others, which are quicker than any lookup."""
        return {"form": self.names[0].partition(":")[0], **self.provenance} if self.provenance else {}

    def rank_all(self, slates: Sequence[Slate]) -> Iterator[list[Ranked]]:
        """One ranking a slate."""
        for slate in slates:
            yield [Ranked(self.names[0], self.teacher.rank(slate))]

    def work(self, slates: Sequence[Slate]) -> Iterator[bytes]:
        """The order of each slate."""
        for slate in slates:
            yield written_order(slate, self.teacher.rank(slate))

    def read(self, slate: Slate, made: bytes) -> list[Ranked]:
        """The ranking that `work` has given."""
        return [read_order(self.names[0], slate, made)]


@dataclass(frozen=True)
class WritingRanker:
    """A teacher that writes; an answer that is not valid counts as what it was repaired to."""

    names: tuple[str]
    teacher: WritingTeacher
    provenance: Mapping[str, Any]
    mode: str

    @property
    def identity(self) -> Mapping[str, Any]:
        """Of the answers; each mode has its own."""
        return {"form": "teacher", "mode": self.mode, **self.provenance}

    def rank_all(self, slates: Sequence[Slate]) -> Iterator[list[Ranked]]:
        """One ranking a slate, with the answer's kind."""
        return map(self.read, slates, self.work(slates))

    def work(self, slates: Sequence[Slate]) -> Iterator[bytes]:
        """The order of each slate with the kind of its answer."""
        for slate, answer in zip(slates, self.teacher.answers(slates), strict=True):
            yield written_order(slate, answer.ranking, answer.kind)

    def read(self, slate: Slate, made: bytes) -> list[Ranked]:
        """The ranking that `work` has given."""
        return [read_order(self.names[0], slate, made)]


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


def provenance_of(rankers: Iterable[Ranker]) -> dict[str, dict[str, Any]]:
    """Name of each ranking that depends on more than its name -> what it depends on."""
    return {name: dict(ranker.provenance) for ranker in rankers for name in ranker.names if ranker.provenance}


def decode(slate: Slate, scores: NDArray[np.float32], decoder: str) -> Ranking:
    """Ranking of a slate by one decoder of its score matrix."""
    order = find_decoder(decoder)(scores.astype(np.float64))
    return Ranking(decoder, tuple(slate.item_ids[index] for index in order))


def written_order(slate: Slate, ranking: Ranking, kind: AnswerKind | None = None) -> bytes:
    """A ranking as bytes: the candidates' indices, best first, and the kind of the answer it comes from."""
    place_of = {item_id: place for place, item_id in enumerate(slate.item_ids)}
    return json.dumps({"order": [place_of[item_id] for item_id in ranking.permutation], "kind": kind}).encode()


def read_order(name: str, slate: Slate, made: bytes) -> Ranked:
    """The ranking of `written_order`, under a ranker's name."""
    record = json.loads(made)
    return Ranked(name, Ranking(name, tuple(slate.item_ids[index] for index in record["order"])), record["kind"])
