"""A prompt as the model reads it: every piece with the tokens kept, the tokens cut, and those whose state the head reads.

It knows tokenizer and prompt, not the weights. Token texts are stretches of the prompt's own text and join to it again.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from spd_core.errors import BackboneError, choices
from spd_core.prompts import Piece, Prompt
from spd_core.readouts import READOUTS
from spd_core.suspicious_text import Flag, find_suspicious

USER_KINDS = ("history", "query", "description")
"""Pieces that hold text of shoppers and sellers."""


@dataclass(frozen=True)
class PieceView:
    """One piece of the prompt in tokens."""

    piece: Piece
    start: int
    """Index of its first token in the prompt."""
    kept: tuple[str, ...]
    """Text of each token in the prompt; of a character split over tokens the first holds it, the others are empty."""
    cut: tuple[str, ...]
    """Text of each token beyond the cap."""
    readout: tuple[int, ...]
    """Indices into `kept` of the tokens whose states the head reads."""
    control_tokens: int
    """Kept tokens of user text that the model takes for control tokens; 0 unless the tokenizer is set up wrongly."""
    flags: tuple[Flag, ...]
    """Suspicious text, found in the whole piece, cut or not."""

    @property
    def kept_text(self) -> str:
        """What the model reads."""
        return "".join(self.kept)

    @property
    def cut_text(self) -> str:
        """What it does not read."""
        return "".join(self.cut)


@dataclass(frozen=True)
class PromptView:
    """All pieces of one prompt in order."""

    slate_id: str
    pieces: tuple[PieceView, ...]
    readout: str
    template_hash: str

    @property
    def token_count(self) -> int:
        """Tokens of the whole prompt."""
        return sum(len(piece.kept) for piece in self.pieces)

    @property
    def cut_count(self) -> int:
        """Tokens left out of it."""
        return sum(len(piece.cut) for piece in self.pieces)

    @property
    def descriptions(self) -> tuple[PieceView, ...]:
        """(N,) description of each candidate in input order."""
        return tuple(piece for piece in self.pieces if piece.piece.kind == "description")

    @property
    def closings(self) -> tuple[PieceView, ...]:
        """(N,) text that closes each candidate's line."""
        return tuple(piece for piece in self.pieces if piece.piece.kind == "close")

    def lines(self) -> list[list[PieceView]]:
        """The pieces grouped into the lines of the prompt."""
        grouped: list[list[PieceView]] = [[]]
        for piece in self.pieces:
            grouped[-1].append(piece)
            if piece.piece.text.endswith("\n"):
                grouped.append([])
        return [line for line in grouped if line]


def view_prompt(prompt: Prompt, tokenizer: Any, *, readout: str) -> PromptView:
    """The prompt piece by piece, tokenised and cut as for ranking.

    Args:
        prompt: of `build_prompt`.
        tokenizer: a fast Hugging Face tokenizer prepared by `backbone`.
        readout: key of `READOUTS`: ``mean`` reads all tokens of a description, ``last`` its last one, ``newline`` the
            last token of the candidate's line.

    Returns:
        A view whose kept tokens are, one by one, those of `encode_prompt`.

    Raises:
        BackboneError: unknown readout.
    """
    if readout not in READOUTS:
        raise BackboneError(choices("readout", readout, READOUTS))
    special = set(tokenizer.all_special_tokens)
    special_ids = set(tokenizer.all_special_ids)
    own_words = [piece.text for piece in prompt.pieces if piece.kind == "literal"] + [prompt.answer_header]
    encodings = tokenizer.backend_tokenizer.encode_batch([piece.text for piece in prompt.pieces], add_special_tokens=False)
    views: list[PieceView] = []
    start = 0
    for piece, encoding in zip(prompt.pieces, encodings, strict=True):
        texts = token_texts(piece.text, encoding.offsets)
        end = len(texts) if piece.cap is None else min(piece.cap, len(texts))
        is_user = piece.kind in USER_KINDS
        views.append(
            PieceView(
                piece=piece,
                start=start,
                kept=texts[:end],
                cut=texts[end:],
                readout=_readout_of(piece, end, readout),
                control_tokens=sum(token in special_ids for token in encoding.ids[:end]) if is_user else 0,
                flags=find_suspicious(piece.text, special_tokens=sorted(special), own_words=own_words) if is_user else (),
            )
        )
        start += end
    return PromptView(prompt.slate_id, tuple(views), readout, prompt.template_hash)


def token_texts(text: str, offsets: Sequence[tuple[int, int]]) -> tuple[str, ...]:
    """Text of each token, so that all together join to `text`.

    Args:
        text: what was encoded.
        offsets: character range of each token; several tokens of one character share its range.
    """
    ends = [0]
    for _, end in offsets:
        ends.append(max(ends[-1], end))
    if offsets:
        ends[-1] = len(text)
    return tuple(text[begin:end] for begin, end in pairwise(ends))


def _readout_of(piece: Piece, kept: int, readout: str) -> tuple[int, ...]:
    if piece.kind == "description" and readout == "mean":
        return tuple(range(kept))
    is_last = (piece.kind, readout) in (("description", "last"), ("close", "newline"))
    return (kept - 1,) if is_last else ()
