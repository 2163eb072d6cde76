"""The student against an autoregressive teacher on the same slates in one run: times, tokens, passes, speed-up."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from spd_core.errors import SpdError
from spd_core.latency import Spread, encode_slate
from spd_core.model import Student
from spd_core.pipeline import rank_slate
from spd_core.race import SpeedUp, timing_of
from spd_core.slate import Slate
from spd_core.teachers.answers import TeacherAnswer
from spd_core.teachers.autoregressive import MODES, AutoregressiveTeacher
from spd_core.training.examples import select_candidates

SIZES = (10, 20, 50)
"""Candidates of the slates that are measured, if the user names none."""


@dataclass(frozen=True)
class TeacherCost:
    """What one way of decoding costs on one slate, beside the student."""

    teacher: str
    mode: str
    total: Spread
    """Slate to last token."""
    tokens: int
    """Written."""
    passes: int
    """Forward passes, the prefill included; the student makes one."""
    kind: str
    """Of the answer: ok, or what is wrong with it."""
    token_ms: float | None
    """Median cost of a token that takes a pass of its own, the first left out; None if there was one pass."""
    speed_up: float
    """Median teacher ms / median student ms, direct output."""


@dataclass(frozen=True)
class Contest:
    """One slate, ranked by the student and by each teacher in turn."""

    slate_id: str
    candidates: int
    """N."""
    prompt_tokens: int
    """Of the student's prompt."""
    student: Spread
    """Slate to ranking."""
    teachers: tuple[TeacherCost, ...]

    def to_json(self) -> dict[str, Any]:
        """JSON object of all fields."""
        return asdict(self)


def measure_contest(
    student: Student, teachers: Sequence[AutoregressiveTeacher], slate: Slate, *, repeats: int, warmup: int = 1
) -> Contest:
    """Times of ranking one slate, student and teachers in turn.

    Args:
        student: in eval mode.
        teachers: each in its mode.
        slate: ranked again and again.
        repeats: n >= 1 measured turns of each.
        warmup: turns before that are not counted.

    Raises:
        SpdError: `repeats` < 1 or `warmup` < 0, or the slate cannot be ranked.
    """
    if repeats < 1 or warmup < 0:
        raise SpdError(f"repeats is {repeats} and warmup is {warmup}; measure at least 1 turn after 0 or more")
    own: list[float] = []
    answers: list[list[TeacherAnswer]] = [[] for _ in teachers]
    for _ in range(warmup + repeats):
        start = time.perf_counter()
        rank_slate(student, slate)
        own.append((time.perf_counter() - start) * 1e3)
        for kept, teacher in zip(answers, teachers, strict=True):
            kept.append(teacher.answer(slate))
    costs = tuple(_cost(own[warmup:], kept[warmup:], teacher.name) for kept, teacher in zip(answers, teachers, strict=True))
    tokens = len(encode_slate(student, slate).input_ids)
    return Contest(slate.slate_id, len(slate.candidates), tokens, Spread.of(own[warmup:]), costs)


def race_teacher(
    student: Student, teacher: AutoregressiveTeacher, slates: Sequence[Slate], *, repeats: int
) -> Iterator[Contest]:
    """The student against a teacher in each of its modes, slate by slate; arguments as in `measure_contest`."""
    rivals = [teacher.with_mode(mode) for mode in MODES]
    for slate in slates:
        yield measure_contest(student, rivals, slate, repeats=repeats)


def _cost(student_ms: Sequence[float], answers: Sequence[TeacherAnswer], name: str) -> TeacherCost:
    speed = SpeedUp.of([timing_of(ms, answer) for ms, answer in zip(student_ms, answers, strict=True)])
    last = answers[-1]
    return TeacherCost(
        teacher=name,
        mode=last.mode,
        total=Spread.of([answer.ms for answer in answers]),
        tokens=last.tokens,
        passes=last.passes,
        kind=last.kind,
        token_ms=speed.token_ms,
        speed_up=speed.direct,
    )


def slates_of_sizes(slate: Slate, sizes: Sequence[int]) -> list[Slate]:
    """The slate with its first N candidates for each size.

    Raises:
        SpdError: a size below 1 or beyond the slate's candidates.
    """
    count = len(slate.candidates)
    for size in sizes:
        if not 1 <= size <= count:
            raise SpdError(f"size {size} was asked for but slate {slate.slate_id!r} has 1 to {count} candidates to give")
    return [select_candidates(slate, range(size)) for size in sizes]


def write_contests(contests: Sequence[Contest]) -> Iterator[str]:
    """Lines of a table for people."""
    names = ("median ms", 11), ("p95 ms", 11), ("n", 4), ("tokens", 8), ("passes", 8), ("ms/token", 10), ("speed-up", 10)
    yield f"{'N':>4}{'who':>14}" + "".join(f"{name:>{width}}" for name, width in names) + "  answer"
    for contest in contests:
        own = contest.student
        yield f"{contest.candidates:>4}{'student':>14}{own.median_ms:>11.1f}{own.p95_ms:>11.1f}{own.n:>4}{'':>8}{1:>8}"
        for cost in contest.teachers:
            token = "" if cost.token_ms is None else f"{cost.token_ms:.1f}"
            yield (
                f"{contest.candidates:>4}{cost.mode:>14}{cost.total.median_ms:>11.1f}{cost.total.p95_ms:>11.1f}"
                f"{cost.total.n:>4}{cost.tokens:>8}{cost.passes:>8}{token:>10}{cost.speed_up:>9.1f}x  {cost.kind}"
            )
