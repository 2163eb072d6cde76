"""What an autoregressive teacher writes, `3>17>1`: ordinals from 1, best first; written, read back, judged and repaired.

It knows text and numbers, not models or slates. The prompt numbers its candidates in the same way.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, get_args

from spd_core.errors import SpdError

AnswerKind = Literal["ok", "format", "repetition", "missing", "out_of_range"]
KINDS: tuple[AnswerKind, ...] = get_args(AnswerKind)
SEPARATOR = ">"
"""Between two ordinals; one token, where " > " before a digit would cost two more and make the teacher look slower."""
THINK_OPEN, THINK_CLOSE = "<think>", "</think>"

FULL_WIDTH = {code: code - 0xFEE0 for code in range(0xFF01, 0xFF5F)}
"""Forms of ASCII characters that models put into East Asian text: digits, commas and the sign between two ordinals."""

_NUMBER = re.compile(r"-?[0-9]{1,9}")
_FENCED = re.compile(r"\s*```[a-zA-Z]*\s*\n(.*?)\n?\s*```\s*", re.DOTALL)
_LIST = re.compile(r"\[?-?[0-9]{1,9}\]?(?:(?:\s*[>,]\s*|\s+)\[?-?[0-9]{1,9}\]?)*\s*\.?")


@dataclass(frozen=True)
class ParsedAnswer:
    """What a teacher's text says about N candidates."""

    kind: AnswerKind
    """`ok`, or its gravest problem: format, then out of range, then repetition, then missing."""
    problems: tuple[str, ...]
    """Every problem in words, empty if `ok`."""
    ordinals: tuple[int, ...]
    """Numbers as they were written, also wrong ones."""
    order: tuple[int, ...]
    """(N,) candidate indices, best first: the answer itself if `ok`, else repaired: each valid ordinal where it was first
    named, then the unnamed ones in input order. A repaired order is to be looked at, not to be learned from."""
    thinking: str = ""
    """What stood inside <think> ... </think> before the answer."""

    @property
    def is_repaired(self) -> bool:
        """True where `order` is more than what the teacher said."""
        return self.kind != "ok"


def write_answer(order: Sequence[int]) -> str:
    """Text of a ranking of candidate indices, best first: ordinals joined by `SEPARATOR`."""
    return SEPARATOR.join(str(index + 1) for index in order)


def parse_answer(text: str, count: int) -> ParsedAnswer:
    """The ranking in a teacher's text, with everything that is wrong with it.

    Args:
        text: what the model wrote; ordinals may stand in square brackets and be separated by ``>``, commas or blanks, be
            full-width, and be fenced as code as a whole. What lies inside one leading <think> ... </think> is not part of
            the answer; thinking that never ends leaves none.
        count: N, candidates of the slate.

    Raises:
        SpdError: `count` is below 1.
    """
    if count < 1:
        raise SpdError(f"count is {count}; a ranking needs at least 1 candidate")
    thinking, answer = split_thinking(text)
    answer = without_fence(answer).translate(FULL_WIDTH)
    ordinals = tuple(int(number) for number in _NUMBER.findall(answer))
    valid = [number - 1 for number in ordinals if 1 <= number <= count]
    named = list(dict.fromkeys(valid))
    unnamed = [index for index in range(count) if index not in set(named)]
    problems: list[tuple[AnswerKind, str]] = []
    if not _LIST.fullmatch(answer.strip()):
        problems.append(("format", _format_problem(answer)))
    outside = [number for number in ordinals if not 1 <= number <= count]
    if outside:
        problems.append(("out_of_range", f"names {_listed(outside)}, but the candidates are 1 to {count}"))
    repeated = [index + 1 for index in named if valid.count(index) > 1]
    if repeated:
        problems.append(("repetition", f"names {_listed(repeated)} more than once"))
    if unnamed:
        problems.append(("missing", f"leaves out {_listed([index + 1 for index in unnamed])}"))
    kind = problems[0][0] if problems else "ok"
    return ParsedAnswer(kind, tuple(words for _, words in problems), ordinals, (*named, *unnamed), thinking)


def split_thinking(text: str) -> tuple[str, str]:
    """(thinking, answer) of a text that may open with <think>; without an end everything is thinking."""
    opening, found, rest = text.partition(THINK_OPEN)
    if found and not opening.strip():
        thinking, _, answer = rest.partition(THINK_CLOSE)
        return thinking, answer
    before, found, answer = text.partition(THINK_CLOSE)  # servers that strip the opening tag leave the closing one
    return (before, answer) if found else ("", text)


def without_fence(answer: str) -> str:
    """An answer without the code fence that surrounds all of it; as it is where there is none, or text beside it."""
    fenced = _FENCED.fullmatch(answer)
    return fenced[1] if fenced else answer


def _format_problem(answer: str) -> str:
    if not answer.strip():
        return "is empty"
    shown = " ".join(answer.split())
    return f"is not a list of ordinals: {shown[:40]!r}{' ...' if len(shown) > 40 else ''}"


def _listed(numbers: Sequence[int]) -> str:
    return ", ".join(str(number) for number in numbers[:5]) + (f" and {len(numbers) - 5} more" if len(numbers) > 5 else "")
