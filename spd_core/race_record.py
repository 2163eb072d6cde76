"""Races on disk: what was ranked, by whom, on which machine, and when each token came, so that it can be watched again.

A record is one JSON object and holds everything the page shows; no model is needed to replay it.
"""

from __future__ import annotations

import itertools
import json
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

from spd_core.datasets.files import display_name, write_aside
from spd_core.datasets.jsonl import BYTE_ORDER_MARK, decode, parse_json
from spd_core.errors import SlateError, SpdError
from spd_core.slate import Ranking, Slate, check_permutation
from spd_core.teachers.answers import TeacherAnswer, TokenEvent

FORMAT = "spd-race"
VERSION = 1
MOST_BYTES = 5 * 2**20
"""A larger file is no race; one of 50 candidates has some 40 thousand bytes."""
AGAIN = "record the race again with `python -m spd_core race`"


class StudentRun(BaseModel):
    """The student's side of a race: what `rank` writes of a slate."""

    model_config = ConfigDict(frozen=True)

    slate_id: str
    ranking: tuple[str, ...]
    """Item ids, best first."""
    decoder: str
    timings_ms: dict[str, float]
    """Of each stage, and `total`."""
    provenance: dict[str, Any]
    warnings: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """The checkpoint that ranked."""
        return str(self.provenance.get("checkpoint", "student"))

    @property
    def ms(self) -> float:
        """Time of the one pass, from slate to ranking."""
        return self.timings_ms["total"]

    @property
    def order(self) -> Ranking:
        """The ranking under the student's name."""
        return Ranking(self.name, self.ranking)


class Step(NamedTuple):
    """One token as a record keeps it."""

    elapsed_ms: float
    characters: int
    """Length of the text so far."""
    named: int
    """Candidates named so far."""


@dataclass(frozen=True)
class RaceRecord:
    """One race from start to end."""

    slate: Slate
    student: StudentRun
    answer: TeacherAnswer
    events: tuple[TokenEvent, ...]
    """Tokens of the answer as they came; none where the teacher was not watched."""
    machine: Mapping[str, str | int]
    """What both ran on, e.g. `cpu`, `threads`, `dtype`."""
    recorded_at: str
    """Date and time in UTC, ISO 8601."""

    def to_json(self) -> dict[str, Any]:
        """JSON object that `parse_record` turns back into an equal record."""
        return {
            "format": FORMAT,
            "version": VERSION,
            "recorded_at": self.recorded_at,
            "machine": dict(self.machine),
            "slate": self.slate.to_json(),
            "student": self.student.model_dump(mode="json"),
            "teacher": self.answer.to_json(),
            "named": list(self.events[-1].order) if self.events else [],
            "events": [list(step) for step in _steps(self.events, self.answer.text)],
        }


def _steps(events: Sequence[TokenEvent], text: str) -> Iterator[Step]:
    """Each event as what it adds to the end; a character of which a token gave only a part counts once it is whole."""
    latest, named = Step(0.0, 0, 0), events[-1].order if events else ()
    for event in events:
        step = Step(
            round(event.elapsed_ms, 3),
            _shared(event.text, text),
            _shared(event.order, named),
        )
        latest = Step(*map(max, latest, step))  # type: ignore[arg-type]
        yield latest


def _shared(first: Sequence[object], second: Sequence[object]) -> int:
    """Length of the beginning that both have."""
    return sum(1 for _ in itertools.takewhile(lambda pair: pair[0] == pair[1], zip(first, second, strict=False)))


def new_record(
    slate: Slate,
    student: Mapping[str, Any],
    answer: TeacherAnswer,
    events: Iterable[TokenEvent],
    machine: Mapping[str, str | int],
) -> RaceRecord:
    """Record of a race that has just ended.

    Args:
        slate: that was ranked.
        student: JSON object of the student's result.
        answer: the teacher's.
        events: its tokens, in order.
        machine: of `describe_machine`.
    """
    now = datetime.now(UTC).isoformat(timespec="seconds")
    return RaceRecord(slate, StudentRun.model_validate(student), answer, tuple(events), dict(machine), now)


def record_bytes(record: RaceRecord) -> bytes:
    """The file of a record: JSON in ASCII, so that it survives any editor.

    Raises:
        SpdError: it holds NaN or infinity.
    """
    try:
        return (json.dumps(record.to_json(), allow_nan=False, indent=1) + "\n").encode("ascii")
    except ValueError as error:
        raise SpdError(f"race of slate {record.slate.slate_id!r}: cannot be written as JSON: {error}") from None


def write_record(path: str | os.PathLike[str], record: RaceRecord) -> None:
    """A file with the record, which appears once it is whole.

    Raises:
        SpdError: it cannot be written.
    """
    write_aside(path, [record_bytes(record)])


def read_record(path: str | os.PathLike[str]) -> RaceRecord:
    """The race in a file.

    Raises:
        SpdError: missing, too large, or damaged; names the file and what to do.
    """
    name = display_name(path)
    try:
        with Path(path).open("rb") as stream:
            data = stream.read(MOST_BYTES + 1)
    except OSError as error:
        raise SpdError(f"{name}: cannot be read: {error.strerror or error}; {AGAIN}") from None
    if len(data) > MOST_BYTES:
        raise SpdError(f"{name}: more than {MOST_BYTES:,} bytes, which no race has; {AGAIN}")
    return parse_record(data, name)


class _File(BaseModel):
    """Shape of the JSON object."""

    recorded_at: datetime
    machine: dict[str, str | int]
    slate: dict[str, Any]
    student: StudentRun
    teacher: dict[str, Any]
    named: tuple[int, ...]
    events: tuple[tuple[float, int, int], ...] = Field(max_length=100_000)


_ANSWER = TypeAdapter(TeacherAnswer)


def parse_record(data: bytes, name: str) -> RaceRecord:
    """The race in the bytes of a file.

    Args:
        data: UTF-8 JSON.
        name: opens error messages.

    Raises:
        SpdError: not such a record, or one whose parts do not fit each other.
    """
    fields = parse_json(decode(data.removeprefix(BYTE_ORDER_MARK), name), name)
    found = (fields.get("format"), fields.get("version")) if isinstance(fields, Mapping) else None
    if found != (FORMAT, VERSION):
        raise SpdError(f"{name}: not a recorded race of format {FORMAT!r} version {VERSION}; {AGAIN}")
    try:
        file = _File.model_validate(fields)
        answer = _ANSWER.validate_python(file.teacher)
        slate = Slate.from_json(file.slate)
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(str(part) for part in first["loc"])
        raise SpdError(f"{name}: {place} is {str(first['input'])[:60]!r}: {first['msg']}; {AGAIN}") from None
    except SlateError as error:
        raise SpdError(f"{name}: {error}; {AGAIN}") from None
    _check(name, slate, file, answer)
    events = _events([Step(*step) for step in file.events], file.named, answer.text)
    return RaceRecord(slate, file.student, answer, events, file.machine, str(fields["recorded_at"]))


def _events(steps: list[Step], named: tuple[int, ...], text: str) -> tuple[TokenEvent, ...]:
    return tuple(
        TokenEvent(index, text[: step.characters], step.elapsed_ms, named[: step.named]) for index, step in enumerate(steps)
    )


def _check(name: str, slate: Slate, file: _File, answer: TeacherAnswer) -> None:
    """Raise `SpdError` where the parts of a record do not fit each other."""
    count = len(slate.candidates)
    sides = ((file.student.slate_id, file.student.ranking, "student"), (answer.slate_id, answer.permutation, "teacher"))
    for slate_id, permutation, side in sides:
        if slate_id != slate.slate_id:
            raise SpdError(f"{name}: the {side} ranked slate {slate_id!r}, not {slate.slate_id!r}; {AGAIN}")
        try:
            check_permutation(permutation, slate.item_ids, f"{name}: {side}")
        except SlateError as error:
            raise SpdError(f"{str(error).removesuffix('; re-run label')}; {AGAIN}") from None
    if not file.student.timings_ms.get("total", 0) > 0 or not answer.ms > 0:
        raise SpdError(f"{name}: times must be above 0 ms; {AGAIN}")
    if len(set(file.named)) != len(file.named) or any(not 0 <= index < count for index in file.named):
        raise SpdError(f"{name}: `named` must hold candidate indices 0 to {count - 1}, each at most once; {AGAIN}")
    steps = [Step(0.0, 0, 0), *(Step(*step) for step in file.events)]
    limits = Step(float("inf"), len(answer.text), len(file.named))
    for number, (before, step) in enumerate(itertools.pairwise(steps), start=1):
        if not all(low <= value <= high for low, value, high in zip(before, step, limits, strict=True)):
            raise SpdError(f"{name}: event {number} is {tuple(step)}, but times, characters and names only grow; {AGAIN}")
