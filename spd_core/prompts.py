"""A slate written as one prompt: an ordered list of text pieces that says which piece describes which candidate.

The template is data and has a hash, because a head trained on one wording reads another one wrongly. This module knows
nothing of tokens; caps are carried along for `tokenization` to apply.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass, field
from functools import cached_property
from typing import Literal

from spd_core.errors import PromptError, choices
from spd_core.slate import Item, Slate

PieceKind = Literal["literal", "history", "query", "description", "close"]
EMPTY_TEXT = "(no title)"


@dataclass(frozen=True)
class Template:
    """The wording of the prompt and its token budget; equal texts and caps have equal hashes."""

    name: str
    preamble: str = ""
    """Opens every prompt."""
    query_before: str = "Query:"
    """Stands before the query's text; left out with it when there is no query."""
    history_header: str = "Bought before:\n"
    """Stands before the history; left out with it when the history is empty."""
    history_before: str = "-"
    """Stands before each history item."""
    candidates_header: str = "Candidates:\n"
    candidate_before: str = ""
    """Stands before each candidate's description; may use {ordinal}."""
    candidate_after: str = " #{ordinal}\n"
    """Closes each candidate. The ordinal comes after the description, so that its state has read the item."""
    answer_header: str = "Best first:"
    """What an autoregressive teacher continues; a student never reads it."""
    fields: tuple[str, ...] = ("category", "brand", "title")
    """Item fields that make a description, in order; one that another field already contains is skipped. Of a category
    path the last level is used. The title comes last, so that a cap cuts its tail (sizes, pack counts) first."""
    history_limit: int = 8
    """Newest history items kept."""
    query_cap: int = 48
    """Most tokens of the query."""
    history_cap: int = 16
    """Most tokens of one history item."""
    candidate_cap: int = 20
    """Most tokens of one candidate's description."""

    def __post_init__(self) -> None:
        for cap in ("query_cap", "history_cap", "candidate_cap"):
            if getattr(self, cap) < 1:
                raise PromptError(f"template {self.name!r}: {cap} is {getattr(self, cap)}; it must be at least 1")

    @cached_property
    def hash(self) -> str:
        """First 16 hex digits of the SHA-256 of everything but the name."""
        wording = {key: value for key, value in asdict(self).items() if key != "name"}
        return hashlib.sha256(json.dumps(wording, sort_keys=True).encode()).hexdigest()[:16]


TEMPLATES = {
    template.name: template
    for template in (
        Template("shop"),
        Template("films", history_header="Watched before:\n", fields=("title", "category"), history_limit=10),
        Template("passages", candidates_header="Passages:\n", fields=("title",), candidate_cap=44),
    )
}


def find_template(name: str) -> Template:
    """The template of that name.

    Raises:
        PromptError: no template has that name; the message lists the names.
    """
    if name not in TEMPLATES:
        raise PromptError(choices("template", name, TEMPLATES))
    return TEMPLATES[name]


@dataclass(frozen=True, slots=True)
class Piece:
    """A stretch of prompt text that is tokenised on its own, so that no merge crosses its border."""

    text: str
    kind: PieceKind
    candidate: int | None = None
    """Index of the candidate that the piece belongs to."""
    cap: int | None = None
    """Most tokens kept; None keeps all."""


@dataclass(frozen=True)
class Prompt:
    """The pieces of one slate's prompt in order; `"".join(piece.text)` is the text before any cap."""

    slate_id: str
    pieces: tuple[Piece, ...]
    candidate_count: int
    template_hash: str
    answer_header: str = field(default="", repr=False)

    @property
    def text(self) -> str:
        """The whole prompt as a person would read it, uncut."""
        return "".join(piece.text for piece in self.pieces)


def clean_text(text: str) -> str:
    """`text` on one line: white space runs become one blank, lone surrogates the replacement character; never empty."""
    whole = text if text.isascii() else text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return " ".join(whole.split()) or EMPTY_TEXT


def field_text(item: Item, name: str) -> str:
    """Text of one field of an item, empty if it has none; of a category path ``A > B > C`` the last level."""
    text = getattr(item, name) or ""
    return (text.rsplit(" > ", 1)[-1] if name == "category" else text).strip()


def describe(item: Item, fields: tuple[str, ...]) -> str:
    """One line that describes an item: its fields in order, leaving out what another field already says."""
    texts = [field_text(item, name) for name in fields]
    folded = [text.casefold() for text in texts]
    kept: list[int] = []
    for index, text in enumerate(folded):
        others = [folded[place] for place in kept] + [other for other in folded[index + 1 :] if other != text]
        if text and not any(text in other for other in others):
            kept.append(index)
    return clean_text(" ".join(texts[index] for index in kept))


def build_prompt(slate: Slate, template: Template) -> Prompt:
    """The prompt of a slate: user context first, then the candidates in input order with ordinals from 1.

    Args:
        slate: any valid slate.
        template: wording and caps.

    Returns:
        A `Prompt` in which each candidate has exactly one piece of kind ``description`` and one of kind ``close``.
    """
    pieces = [Piece(template.preamble, "literal")] if template.preamble else []
    if slate.user.query is not None:
        pieces += [
            Piece(template.query_before, "literal"),
            Piece(" " + clean_text(slate.user.query), "query", cap=template.query_cap),
            Piece("\n", "literal"),
        ]
    history = slate.user.history[-template.history_limit :] if template.history_limit else ()
    if history:
        pieces.append(Piece(template.history_header, "literal"))
    for item in history:
        rating = "" if item.rating is None else f" ({item.rating:g}/5)"
        pieces += [
            Piece(template.history_before, "literal"),
            Piece(" " + describe(item, template.fields), "history", cap=template.history_cap),
            Piece(rating + "\n", "literal"),
        ]
    pieces.append(Piece(template.candidates_header, "literal"))
    for index, item in enumerate(slate.candidates):
        before = template.candidate_before.format(ordinal=index + 1)
        pieces += [Piece(before, "literal", index)] if before else []
        pieces += [
            Piece(" " + describe(item, template.fields), "description", index, template.candidate_cap),
            Piece(template.candidate_after.format(ordinal=index + 1), "close", index),
        ]
    return Prompt(slate.slate_id, tuple(pieces), len(slate.candidates), template.hash, template.answer_header)
