"""A teacher's ranking beside a student's on one slate: how far they agree, who is right, how much faster one is.

It knows rankings, labels, text and milliseconds, and nothing of models. Races on disk are in `race_record`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from spd_core.errors import SpdError
from spd_core.metrics import METRICS, exclusion, kendall_tau, positions_of, rbo, slate_metrics, top_k_overlap
from spd_core.slate import Ranking, Slate
from spd_core.teachers.answers import TeacherAnswer
from spd_core.teachers.ordinals import parse_answer, split_thinking

OVERLAP_DEPTHS = (1, 5, 10)
"""Depths of which the top-k overlap is told."""


@dataclass(frozen=True, eq=False)
class Comparison:
    """Two rankings of one slate held against each other."""

    teacher: NDArray[np.int64]
    """(N,) position of each candidate in the teacher's ranking, 0 first."""
    student: NDArray[np.int64]
    """(N,) its position in the student's."""
    kendall_tau: float
    """NaN for a single candidate."""
    rbo: float
    overlaps: Mapping[int, float]
    """Depth k -> share of one top k that is in the other; only for k < N, beyond which it is 1 for any two orders."""
    metrics: Mapping[str, tuple[float, float]]
    """Metric -> (teacher's, student's); empty where the slate's label cannot tell orders apart."""
    relevant: tuple[int, ...]
    """Candidates that the label or the grades call right, in input order."""

    @property
    def gaps(self) -> NDArray[np.int64]:
        """(N,) places by which the student puts each candidate lower than the teacher; negative if higher."""
        return self.student - self.teacher

    @property
    def disagreements(self) -> NDArray[np.int64]:
        """(N,) candidate indices, the largest gap first; equal gaps in the teacher's order."""
        return np.lexsort((self.teacher, -np.abs(self.gaps)))


def compare_rankings(slate: Slate, teacher: Ranking, student: Ranking) -> Comparison:
    """Where two rankings of a slate agree, where they differ, and which of them the label prefers.

    Args:
        slate: that both have ranked.
        teacher, student: each holds every candidate once.

    Raises:
        SlateError: a ranking does not hold each candidate once.
    """
    first, second = positions_of(teacher, slate), positions_of(student, slate)
    count = len(first)
    judged = not exclusion(slate)
    pairs = zip(METRICS, slate_metrics(slate, first), slate_metrics(slate, second), strict=True) if judged else ()
    return Comparison(
        teacher=first,
        student=second,
        kendall_tau=kendall_tau(first, second),
        rbo=rbo(first, second),
        overlaps={depth: top_k_overlap(first, second, depth) for depth in OVERLAP_DEPTHS if depth < count},
        metrics={name: (one, other) for name, one, other in pairs},
        relevant=tuple(index for index, flag in enumerate(slate.relevant()) if flag),
    )


class Timing(NamedTuple):
    """What one race cost both sides."""

    student_ms: float
    """From slate to ranking."""
    teacher_ms: float
    """From slate to the last token."""
    token_ms: float | None
    """A token that takes a pass of its own, on average, the first one's prefill left out; None where fewer than two moments
    were seen."""


def timing_of(student_ms: float, answer: TeacherAnswer) -> Timing:
    """Cost of a race from the student's time and the teacher's answer.

    A constrained teacher writes a whole ordinal with its separator in one pass, which a thinking teacher could not: there a
    pass counts as a token, not the two or three tokens that it brings.

    Raises:
        SpdError: a time is not above 0.
    """
    if student_ms <= 0 or answer.ms <= 0:
        raise SpdError(f"student {student_ms} ms, teacher {answer.ms} ms: a speed-up needs times above 0; race again")
    times = answer.token_ms
    is_one_by_one = answer.mode != "constrained"  # though a remote endpoint may send several of them at a time
    tokens = max(answer.tokens, len(times)) if is_one_by_one else len(times)
    step = (times[-1] - times[0]) / (tokens - 1) if len(times) > 1 else None
    return Timing(student_ms, answer.ms, step)


@dataclass(frozen=True)
class SpeedUp:
    """How many times faster the student is than its teacher, from the medians of the same races.

    Direct output: teacher ms / student ms. After T thinking tokens: (teacher ms + T x ms a token) / student ms, which is
    computed and not measured: the teacher has not thought.
    """

    student_ms: float
    teacher_ms: float
    token_ms: float | None
    """None where no race tells it."""
    races: int
    """n, races measured."""

    @classmethod
    def of(cls, timings: Sequence[Timing]) -> SpeedUp:
        """Medians over n races.

        Raises:
            SpdError: no race.
        """
        if not timings:
            raise SpdError("got 0 races; run at least one before asking for a speed-up")
        steps = [timing.token_ms for timing in timings if timing.token_ms is not None]
        return cls(
            student_ms=float(np.median([timing.student_ms for timing in timings])),
            teacher_ms=float(np.median([timing.teacher_ms for timing in timings])),
            token_ms=float(np.median(steps)) if steps else None,
            races=len(timings),
        )

    @property
    def direct(self) -> float:
        """Teacher ms / student ms, both measured."""
        return self.teacher_ms / self.student_ms

    def thinking_ms(self, tokens: int) -> float:
        """Teacher's time had it written `tokens` thinking tokens first; computed.

        Raises:
            SpdError: a negative number of tokens, or the cost of a token is not known.
        """
        if tokens < 0 or self.token_ms is None:
            cost = "unknown" if self.token_ms is None else f"{self.token_ms} ms"
            raise SpdError(f"{tokens} thinking tokens at {cost} each; needs 0 tokens or more and a teacher that was timed")
        return self.teacher_ms + tokens * self.token_ms

    def after_thinking(self, tokens: int) -> float:
        """`thinking_ms` / student ms; raises as `thinking_ms` does."""
        return self.thinking_ms(tokens) / self.student_ms


def written_count(answer: TeacherAnswer) -> int:
    """How many candidates a teacher named itself; the rest of a repaired ranking was put after them."""
    count = len(answer.permutation)
    return len({ordinal for ordinal in parse_answer(answer.text, count).ordinals if 1 <= ordinal <= count})


Mark = Literal["ordinal", "repeated", "out_of_range", "separator", "format", "thinking"]
_PIECES = re.compile(r"(?P<number>-?[0-9]{1,9})|(?P<separator>[\s>,.\[\]]+)|(?P<other>(?:(?!-?[0-9])[^\s>,.\[\]])+)")


class Piece(NamedTuple):
    """A part of a teacher's text, and what it is."""

    text: str
    mark: Mark


def marked_answer(text: str, count: int) -> tuple[Piece, ...]:
    """A teacher's text cut into pieces, each with what is wrong with it; joined, they are the text again.

    Args:
        text: as written.
        count: N, candidates of the slate.

    Returns:
        Numbers are `ordinal`, `repeated` (named before) or `out_of_range`; between them `separator`, or `format` where it is
        no part of a list; what precedes the answer inside <think> ... </think> is `thinking`.
    """
    answer = split_thinking(text)[1]
    before = text[: len(text) - len(answer)]
    thinking = (Piece(before, "thinking"),) if before else ()
    return (*thinking, *_answer_pieces(answer, count))


def _answer_pieces(answer: str, count: int) -> Iterator[Piece]:
    seen: set[int] = set()
    for match in _PIECES.finditer(answer):
        if match["number"] is None:
            yield Piece(match[0], "separator" if match["separator"] else "format")
            continue
        ordinal = int(match[0])
        is_inside = 1 <= ordinal <= count
        yield Piece(match[0], ("repeated" if ordinal in seen else "ordinal") if is_inside else "out_of_range")
        seen.add(ordinal)
