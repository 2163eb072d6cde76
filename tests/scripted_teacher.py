"""A teacher that writes what a test tells it, at times that a test tells it, and waits where a test wants to look."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Sequence

from spd_core.slate import Ranking, Slate
from spd_core.teachers.answers import AnswerCancelled, OnToken, TeacherAnswer, TokenEvent, judged
from spd_core.teachers.ordinals import parse_answer


class ScriptedTeacher:
    """Writes `pieces`, one every `step_ms` of a clock that nobody waits for."""

    name = "scripted"

    def __init__(self, pieces: Sequence[str], *, step_ms: float = 50.0, hold_at: int | None = None) -> None:
        self.pieces, self.step_ms, self.hold_at = pieces, step_ms, hold_at
        self.is_held, self.release = threading.Event(), threading.Event()
        self.written = 0
        self.alive = 0
        """Answers under way at this moment."""
        self.most_alive = 0

    def with_mode(self, mode: str) -> ScriptedTeacher:
        """Itself; it has one way of writing."""
        return self

    def rank(self, slate: Slate) -> Ranking:
        """Ranking of a slate."""
        return self.answer(slate).ranking

    def answers(self, slates: Iterable[Slate]) -> Iterator[TeacherAnswer]:
        """An answer a slate."""
        return map(self.answer, slates)

    def answer(
        self, slate: Slate, *, on_token: OnToken | None = None, is_cancelled: Callable[[], bool] = lambda: False
    ) -> TeacherAnswer:
        """What was told, for any slate."""
        self.alive += 1
        self.most_alive = max(self.most_alive, self.alive)
        try:
            return self._answer(slate, on_token, is_cancelled)
        finally:
            self.alive -= 1

    def _answer(self, slate: Slate, on_token: OnToken | None, is_cancelled: Callable[[], bool]) -> TeacherAnswer:
        text, times = "", []
        for index, piece in enumerate(self.pieces):
            if index == self.hold_at:
                self.is_held.set()
                assert self.release.wait(timeout=60), "the test never let the teacher go on"
            if is_cancelled():
                raise AnswerCancelled(f"slate {slate.slate_id!r}: cancelled")
            text += piece
            self.written += 1
            times.append((index + 1) * self.step_ms)
            if on_token is not None:
                on_token(TokenEvent(index, text, times[-1], _named(text, len(slate.candidates))))
        cost = {"prompt_tokens": 100, "tokens": len(times), "passes": len(times), "ms": times[-1]}
        timing = {"first_token_ms": times[0], "token_ms": tuple(times)}
        return judged(slate, text, teacher=self.name, mode="free", **cost, **timing)


def _named(text: str, count: int) -> tuple[int, ...]:
    ordinals = parse_answer(text.rstrip("0123456789"), count).ordinals
    return tuple(dict.fromkeys(number - 1 for number in ordinals if 1 <= number <= count))


def pieces_of(text: str) -> list[str]:
    """A piece a character."""
    return list(text)
