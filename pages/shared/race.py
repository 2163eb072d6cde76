"""A race while it runs: in a thread of its own, one at a time in the whole process, watched by a page that polls it.

It draws nothing. A race holds the inference gate from the student's pass to the teacher's last token, so that both are timed
alone; a remote teacher runs elsewhere and needs it for the student's pass only.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from queue import SimpleQueue
from typing import Literal

from spd_core.errors import SpdError
from spd_core.pipeline import RankingResult
from spd_core.race_record import RaceRecord, StudentRun, new_record
from spd_core.slate import Slate
from spd_core.teachers.answers import AnswerCancelled, TeacherAnswer, TokenEvent, WritingTeacher

LOGGER = logging.getLogger(__name__)
Phase = Literal["queued", "gate", "student", "teacher", "done", "cancelled"]
LEFT_ALONE_S = 60.0
"""A race that no page has looked at for so long is given up: its visitor has left."""
GATE_STEP_S = 0.1
"""How often a race that waits for the gate asks whether it is cancelled."""


@dataclass(frozen=True)
class View:
    """What there is to see of a race at one moment."""

    phase: Phase
    ahead: int = 0
    """Races before this one, while queued."""
    student: StudentRun | None = None
    events: tuple[TokenEvent, ...] = ()
    """Tokens so far."""
    answer: TeacherAnswer | None = None
    clock_ms: float | None = None
    """On the teacher's clock; None before its first token."""
    is_local: bool = True
    """Whether the teacher's passes and tokens can be seen; a remote one sends chunks."""

    @property
    def is_over(self) -> bool:
        """Whether nothing more will come."""
        return self.phase in ("done", "cancelled")


@dataclass(frozen=True, eq=False)
class Entry:
    """What is needed to run a race."""

    slate: Slate
    rank: Callable[[], RankingResult]
    """The student's pass."""
    teacher: WritingTeacher
    machine: dict[str, str | int]
    is_local: bool = True
    """Whether the teacher runs a model in this process."""


class Line:
    """The races of all visitors, first come, first served; one runs, the others wait.

    They run in a daemon thread, so that a server that is stopped does not wait for a teacher.
    """

    def __init__(self, gate: threading.Lock) -> None:
        self.gate = gate
        self.races: list[Race] = []
        """Those that have not ended, in the order they came."""
        self._waiting: SimpleQueue[tuple[Race, Future[None]]] = SimpleQueue()
        threading.Thread(target=self._serve, name="race", daemon=True).start()

    def enter(self, race: Race) -> Future[None]:
        """Future of a race that has joined the line."""
        future: Future[None] = Future()
        self.races.append(race)
        future.add_done_callback(lambda _: self.races.remove(race))
        self._waiting.put((race, future))
        return future

    def _serve(self) -> None:
        while True:
            race, future = self._waiting.get()
            if future.set_running_or_notify_cancel():
                try:
                    race.run(self.gate)
                except BaseException as error:  # noqa: BLE001 - it belongs to whoever looks at the race; the line goes on
                    future.set_exception(error)
                else:
                    future.set_result(None)

    def ahead(self, race: Race) -> int:
        """Races before this one."""
        return [*self.races, race].index(race)


class Race:
    """One race, from joining the line to its end."""

    def __init__(self, entry: Entry, line: Line, *, clock: Callable[[], float] = time.monotonic) -> None:
        self.entry, self.line, self.clock = entry, line, clock
        self.phase: Phase = "queued"
        self.student: StudentRun | None = None
        self.events: list[TokenEvent] = []
        self.answer: TeacherAnswer | None = None
        self.is_cancelled = threading.Event()
        self.looked_at = clock()
        self.future = line.enter(self)

    def cancel(self) -> None:
        """Give the race up; it ends at the teacher's next token, and leaves the line at once if it waits there."""
        self.is_cancelled.set()
        self.future.cancel()

    def look(self) -> View:
        """What there is to see now.

        Raises:
            SpdError: the race has failed.
        """
        self.looked_at = self.clock()
        if self.future.done() and not self.is_cancelled.is_set():
            self._raise_failure()
        phase, events = self.phase, tuple(self.events)
        if self.answer is not None and self.future.done():
            phase = "done"
        elif self.is_unwanted():
            phase = "cancelled"
        clock_ms = self.answer.ms if self.answer else events[-1].elapsed_ms if events else None
        return View(phase, self.line.ahead(self), self.student, events, self.answer, clock_ms, self.entry.is_local)

    def _raise_failure(self) -> None:
        error = self.future.exception()
        if isinstance(error, AnswerCancelled):
            self.is_cancelled.set()  # nobody looked for too long
        elif isinstance(error, SpdError):
            raise error
        elif error is not None:
            LOGGER.error("race of slate %r", self.entry.slate.slate_id, exc_info=error)
            raise SpdError("the race broke off through a defect, which the app's log describes; press Race again") from error

    @property
    def slate(self) -> Slate:
        """What is ranked."""
        return self.entry.slate

    def record(self) -> RaceRecord:
        """Record of a race that is done."""
        assert self.student is not None
        assert self.answer is not None
        entry, student = self.entry, self.student.model_dump(mode="json")
        return new_record(entry.slate, student, self.answer, self.events, entry.machine)

    def is_unwanted(self) -> bool:
        """Whether it was cancelled, or its visitor has left."""
        return self.is_cancelled.is_set() or self.clock() - self.looked_at > LEFT_ALONE_S

    def run(self, gate: threading.Lock) -> None:
        """Rank, then let the teacher write; called by the line when this race's turn has come.

        Raises:
            AnswerCancelled: it is no longer wanted.
            SpdError: one side cannot rank the slate.
        """
        self.phase = "gate"
        with ExitStack() as held:
            held.enter_context(_passed(gate, self.is_unwanted))
            self.phase = "student"
            self.student = StudentRun.model_validate(self.entry.rank().to_json())
            if not self.entry.is_local:
                held.close()
            if self.is_unwanted():
                raise AnswerCancelled("cancelled before the teacher began")
            self.phase = "teacher"
            self.answer = self.entry.teacher.answer(self.entry.slate, on_token=self._hear, is_cancelled=self.is_unwanted)

    def _hear(self, event: TokenEvent) -> None:
        if event.index == 0:
            self.events.clear()  # a remote teacher whose stream broke starts again
        self.events.append(event)


@contextmanager
def _passed(gate: threading.Lock, is_unwanted: Callable[[], bool]) -> Iterator[None]:
    """Hold the gate; give up waiting for it once the race is unwanted."""
    while not gate.acquire(timeout=GATE_STEP_S):
        if is_unwanted():
            raise AnswerCancelled("cancelled before the race began")
    try:
        if is_unwanted():
            raise AnswerCancelled("cancelled before the race began")
        yield
    finally:
        gate.release()


def view_of(record: RaceRecord) -> View:
    """The end of a recorded race."""
    answer = record.answer
    return View("done", 0, record.student, record.events, answer, answer.ms, answer.mode != "remote")


class Replay:
    """A recorded race, shown again at its own speed; no model runs."""

    def __init__(self, record: RaceRecord, *, clock: Callable[[], float] = time.monotonic) -> None:
        self.recorded, self.clock = record, clock
        self.start = clock()
        self.is_skipped = self.is_cancelled = False

    def cancel(self) -> None:
        """Stop watching."""
        self.is_cancelled = True

    def skip(self) -> None:
        """Go to the end."""
        self.is_skipped = True

    def look(self) -> View:
        """What was to be seen as long after the start as it is now; both sides start together."""
        record = self.recorded
        end_ms = max(record.student.ms, record.answer.ms)
        elapsed_ms = end_ms if self.is_skipped else (self.clock() - self.start) * 1e3
        if elapsed_ms >= end_ms:
            return view_of(record)
        phase: Phase = "cancelled" if self.is_cancelled else "teacher"
        events = tuple(event for event in record.events if event.elapsed_ms <= elapsed_ms)
        answer = record.answer if elapsed_ms >= record.answer.ms else None
        student = record.student if elapsed_ms >= record.student.ms else None
        clock_ms = min(elapsed_ms, record.answer.ms)
        return View(phase, 0, student, events, answer, clock_ms, record.answer.mode != "remote")

    @property
    def slate(self) -> Slate:
        """What was ranked."""
        return self.recorded.slate

    def record(self) -> RaceRecord:
        """The record that is shown."""
        return self.recorded
