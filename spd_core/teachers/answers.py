"""One answer of a teacher that writes: the ranking, whether it was valid as written, and what it cost."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass, field
from typing import Any, Literal, Protocol

from spd_core.errors import SpdError
from spd_core.slate import Ranking, Slate
from spd_core.teachers.ordinals import AnswerKind, parse_answer

Mode = Literal["free", "constrained", "remote"]


class AnswerCancelled(SpdError):
    """Whoever asked for an answer no longer wants it."""


@dataclass(frozen=True)
class TokenEvent:
    """One token that a teacher has just written."""

    index: int
    """0 for the first token of the answer."""
    text: str
    """Answer so far, this token included."""
    elapsed_ms: float
    """Since the slate was handed over."""
    order: tuple[int, ...]
    """Candidate indices named so far, best first; valid ones only, each once. A number counts when it has ended."""


OnToken = Callable[[TokenEvent], None]


@dataclass(frozen=True)
class TeacherAnswer:
    """What a teacher said of one slate."""

    slate_id: str
    teacher: str
    """Name of the teacher."""
    mode: Mode
    """How it was decoded: whatever the model says, only unused ordinals, or by a remote endpoint."""
    kind: AnswerKind
    problems: tuple[str, ...]
    """In words; empty if `kind` is ``ok``."""
    permutation: tuple[str, ...]
    """Item ids, best first; repaired for display where `kind` is not ``ok``."""
    text: str
    """As written, thinking included."""
    prompt_tokens: int
    tokens: int
    """Tokens written."""
    passes: int
    """Forward passes, the prefill included; 0 where they cannot be seen."""
    ms: float
    """Wall time; in a batch of B slates, 1/B of the batch's."""
    first_token_ms: float | None = None
    """Until the first token was there; None if it was not timed."""
    token_ms: tuple[float, ...] = ()
    """Time of each token since the start, where it was streamed."""
    extra: dict[str, Any] = field(default_factory=dict)
    """What only some teachers know, e.g. the cost of a remote call."""

    @property
    def is_repaired(self) -> bool:
        """True where the permutation is more than what the teacher said."""
        return self.kind != "ok"

    @property
    def ranking(self) -> Ranking:
        """The permutation as a ranking by the teacher's name."""
        return Ranking(self.teacher, self.permutation)

    def to_json(self) -> dict[str, Any]:
        """JSON object of all fields."""
        return asdict(self)


class WritingTeacher(Protocol):
    """A teacher that writes its rankings and can be watched, cancelled and counted."""

    @property
    def name(self) -> str:
        """Name written into each answer."""

    def rank(self, slate: Slate) -> Ranking:
        """Ranking of a slate, repaired where the answer was not valid."""

    def answer(
        self, slate: Slate, *, on_token: OnToken | None = None, is_cancelled: Callable[[], bool] = lambda: False
    ) -> TeacherAnswer:
        """Answer for one slate; `on_token` is called as tokens come, `is_cancelled` asked between them.

        Raises:
            AnswerCancelled: `is_cancelled` said so.
        """

    def answers(self, slates: Iterable[Slate]) -> Iterator[TeacherAnswer]:
        """Answers in input order, made many at a time."""


def judged(slate: Slate, text: str, *, teacher: str, mode: Mode, **cost: Any) -> TeacherAnswer:
    """Answer of a slate from the text that a teacher wrote.

    Args:
        slate: that was ranked.
        text: as written.
        teacher, mode: of the answer.
        cost: further fields of `TeacherAnswer`.
    """
    parsed = parse_answer(text, len(slate.candidates))
    permutation = tuple(slate.item_ids[index] for index in parsed.order)
    return TeacherAnswer(
        slate_id=slate.slate_id,
        teacher=teacher,
        mode=mode,
        kind=parsed.kind,
        problems=parsed.problems,
        permutation=permutation,
        text=text,
        **cost,
    )
