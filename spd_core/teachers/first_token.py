"""Ranking by the first token of an answer: candidates are labelled with letters, and the letters' logits are the scores.

One pass like a student's, but no head and no training: the language model is asked which letter it would write first. As it
comes, a small model prefers letters and places to items, so that such a ranking is near chance; it is called `zero-shot`.
"""

from __future__ import annotations

import dataclasses
import itertools
import string
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Self

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from spd_core.backbone import Backbone
from spd_core.errors import PromptError, SlateError
from spd_core.prompts import Piece, Prompt, Template, build_prompt
from spd_core.slate import Ranking, Slate
from spd_core.teachers.autoregressive import AutoregressiveTeacher, text_ids
from spd_core.teachers.base import rank_by_scores
from spd_core.teachers.next_token import next_token_logits, single_tokens, with_cue
from spd_core.tokenization import EncodedPrompt, encode_prompt

LETTERS = string.ascii_uppercase + string.ascii_lowercase
ORDINAL = "{ordinal}"
BATCH_SLATES = 8
"""Slates of one pass in `rankings`; memory stays that of a few thousand tokens."""


@dataclass(frozen=True)
class FirstTokenRanker:
    """One pass over the slate with a letter for each candidate; the likelier a letter comes next, the better its candidate.

    Source: Reddy et al., FIRST: Faster Improved Listwise Reranking with Single Token Decoding, EMNLP 2024; without its
    training loss.
    """

    backbone: Backbone
    """At full depth; adapters, if any, merged or attached."""
    output_weights: Tensor = field(repr=False)
    """(V, D) of the language head."""
    template: Template
    """Wording of the students; letters stand where it writes ordinals."""
    name: str = "first_token"

    @classmethod
    def of(cls, model: AutoregressiveTeacher) -> Self:
        """Ranker that asks the language model of a teacher; of the zero-shot one it is the backbone as it came."""
        return cls(model.backbone, model.output_weights, model.template, f"first_token:{model.name}")

    def scores(self, slate: Slate) -> NDArray[np.float64]:
        """(N,) logits of the letters, in input order; raises as `rank` does."""
        return next(self._scores([slate]))

    def rank(self, slate: Slate) -> Ranking:
        """Ranking by `scores`; equal scores keep the input order.

        Raises:
            SlateError: more candidates than letters; the message gives both numbers.
            PromptError: the prompt is longer than the model's context, or the template writes no ordinals.
            SpdError: a letter is not one token of the backbone.
        """
        return rank_by_scores(self.scores(slate), slate, self.name)

    def rankings(self, slates: Iterable[Slate], *, batch_slates: int = BATCH_SLATES) -> Iterator[Ranking]:
        """Rankings in input order, `batch_slates` consecutive slates a pass; raises as `rank` does."""
        stream = iter(slates)
        while batch := list(itertools.islice(stream, batch_slates)):
            for slate, scores in zip(batch, self._scores(batch), strict=True):
                yield rank_by_scores(scores, slate, self.name)

    def encode(self, slate: Slate) -> EncodedPrompt:
        """Token ids of the lettered prompt and the cue behind it, after which a letter comes."""
        prompt = lettered_prompt(slate, self.template)
        cue = text_ids(self.backbone.tokenizer, prompt.answer_header)
        return with_cue(encode_prompt(prompt, self.backbone.tokenizer), cue)

    def _scores(self, slates: Sequence[Slate]) -> Iterator[NDArray[np.float64]]:
        for slate in slates:
            _check_size(slate)
        sizes = [len(slate.candidates) for slate in slates]
        letters = single_tokens(self.backbone, LETTERS[: max(sizes)])
        logits = next_token_logits(self.backbone, self.output_weights, [self.encode(slate) for slate in slates], letters)
        for size, row in zip(sizes, logits, strict=True):
            yield row[:size]


def lettered_prompt(slate: Slate, template: Template) -> Prompt:
    """The students' prompt with letters in place of ordinals; its answer header ends where a letter must follow.

    Each letter is a piece of its own, so that neither a title nor the text around it can merge with it into another token.

    Args:
        slate: of at most 52 candidates.
        template: wording and caps.

    Raises:
        SlateError: more candidates than letters.
        PromptError: the template writes no ordinals.
    """
    _check_size(slate)
    labels = [text for text in (template.candidate_after, template.candidate_before) if ORDINAL in text]
    if not labels:
        raise PromptError(
            f"template {template.name!r} writes no ordinal beside a candidate, so a letter has no place; "
            f"put {ORDINAL} into its candidate_before or candidate_after"
        )
    prompt = build_prompt(slate, template)
    pieces = [part for piece in prompt.pieces for part in _with_letter(piece, template)]
    lead = labels[0].partition(ORDINAL)[0].format() or " "
    return dataclasses.replace(prompt, pieces=tuple(pieces), answer_header=template.answer_header.rstrip() + lead)


def _with_letter(piece: Piece, template: Template) -> Iterator[Piece]:
    if piece.candidate is None or piece.kind == "description":
        yield piece
        return
    wording = template.candidate_after if piece.kind == "close" else template.candidate_before
    *before, last = wording.split(ORDINAL)
    for text in before:
        yield Piece(text.format(), "literal", piece.candidate)
        yield Piece(LETTERS[piece.candidate], "literal", piece.candidate)
    yield dataclasses.replace(piece, text=last.format())


def _check_size(slate: Slate) -> None:
    count = len(slate.candidates)
    if count > len(LETTERS):
        raise SlateError(
            f"slate {slate.slate_id!r} has {count} candidates but first-token ranking has {len(LETTERS)} letters "
            f"(A to Z, a to z); give fewer candidates or another ranker"
        )
