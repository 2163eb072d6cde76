"""Prompts as padded token ids, with the place of every candidate known by construction.

Each piece is encoded alone, user text with special tokens split, so a readout index is a sum of lengths and not a search.
This module knows the tokenizer, not the model.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from spd_core.errors import PromptError
from spd_core.prompts import Prompt

PaddingSide = Literal["right", "left"]
TEMPLATE_TEXTS = 4096
"""Kept encoded for all tokenizers together: ordinals, headings, ratings."""


@dataclass(frozen=True)
class SlateBatch:
    """Token ids of B prompts and where their N candidates (padded) lie; masks are True where real."""

    input_ids: Tensor
    """(B, T) int64."""
    attention_mask: Tensor
    """(B, T) bool."""
    readout_index: Tensor
    """(B, N) int64, last token of each candidate's description; 0 where padded."""
    span_start: Tensor
    """(B, N) int64, first token of each description."""
    close_index: Tensor
    """(B, N) int64, last token of the candidate's line (the newline that closes it)."""
    candidate_mask: Tensor
    """(B, N) bool."""
    context_mask: Tensor
    """(B, T) bool, True at the tokens of history items and query."""
    used_tokens: Tensor
    """(B, N) int64, description tokens in the prompt."""
    cut_tokens: Tensor
    """(B, N) int64, description tokens beyond the cap."""

    def to(self, device: torch.device | str) -> SlateBatch:
        """The same batch with all tensors on `device`; copies to a GPU go through pinned memory, so that none waits."""
        is_cuda = torch.device(device).type == "cuda"

        def moved(tensor: Tensor) -> Tensor:
            if is_cuda and tensor.device.type == "cpu":
                return tensor.pin_memory().to(device, non_blocking=True)
            return tensor.to(device)

        return SlateBatch(**{f.name: moved(getattr(self, f.name)) for f in dataclasses.fields(self)})

    @property
    def head_mask(self) -> Tensor | None:
        """`candidate_mask` as heads take it: None for a slate alone, which has no padding."""
        return None if len(self.candidate_mask) == 1 else self.candidate_mask

    @property
    def token_count(self) -> int:
        """Real tokens in the batch."""
        return int(self.attention_mask.sum())


@dataclass(frozen=True)
class EncodedPrompt:
    """Token ids of one prompt and the spans of its candidates, unpadded."""

    slate_id: str
    input_ids: list[int]
    starts: list[int]
    lasts: list[int]
    closes: list[int]
    cut: list[int]
    context: list[tuple[int, int]]
    """Half-open token ranges of history items and query."""


def encode_prompt(prompt: Prompt, tokenizer: Any) -> EncodedPrompt:
    """Token ids of one prompt, each piece encoded alone and cut at its cap.

    Args:
        prompt: pieces in order.
        tokenizer: a fast Hugging Face tokenizer prepared by `backbone` (special tokens in text are split).

    Raises:
        PromptError: a description yields no token at all.
    """
    backend = tokenizer.backend_tokenizer
    texts = [piece.text for piece in prompt.pieces if piece.cap is not None]
    encodings = iter(backend.encode_batch_fast(texts, add_special_tokens=False))  # fast: keeps no character offsets
    result = EncodedPrompt(prompt.slate_id, [], [], [], [], [], [])
    for piece in prompt.pieces:
        whole = template_ids(backend, piece.text) if piece.cap is None else next(encodings).ids
        ids = whole[: piece.cap]
        start = len(result.input_ids)
        result.input_ids.extend(ids)
        end = len(result.input_ids)
        if piece.kind == "description":
            if not ids:
                raise PromptError(f"slate {prompt.slate_id!r}: candidate {piece.candidate} gives no token; give it a title")
            result.starts.append(start)
            result.lasts.append(end - 1)
            result.cut.append(len(whole) - len(ids))
        elif piece.kind == "close":
            result.closes.append(end - 1)
        elif piece.kind in ("history", "query"):
            result.context.append((start, end))
    return result


@functools.lru_cache(maxsize=TEMPLATE_TEXTS)
def template_ids(backend: Any, text: str) -> tuple[int, ...]:
    """Token ids of a text that belongs to the template, which comes again in every prompt.

    Args:
        backend: of a fast tokenizer; its settings must not change afterwards.
        text: without a cap, such as the line end of a candidate with its ordinal.
    """
    return tuple(backend.encode(text, add_special_tokens=False).ids)


def tokenize_slates(
    prompts: Sequence[Prompt], tokenizer: Any, *, max_tokens: int | None = None, padding_side: PaddingSide = "right"
) -> SlateBatch:
    """A batch of prompts as padded ids with readout indices.

    Args:
        prompts: B >= 1 prompts.
        tokenizer: fast tokenizer with a pad token.
        max_tokens: longest prompt the model takes; None sets no bound.
        padding_side: where pad tokens go; the ranking does not depend on it.

    Returns:
        `SlateBatch` with T = the longest prompt and N = the largest slate.

    Raises:
        PromptError: no prompt, or one is longer than `max_tokens`; the message gives both numbers.
    """
    if not prompts:
        raise PromptError("got 0 prompts; give at least one slate")
    return collate_prompts(
        [encode_prompt(prompt, tokenizer) for prompt in prompts],
        pad_id=tokenizer.pad_token_id,
        max_tokens=max_tokens,
        padding_side=padding_side,
    )


def collate_prompts(
    encoded: Sequence[EncodedPrompt], *, pad_id: int, max_tokens: int | None = None, padding_side: PaddingSide = "right"
) -> SlateBatch:
    """Encoded prompts of any lengths as one padded `SlateBatch`; arguments and errors as in `tokenize_slates`."""
    for prompt in encoded:
        if max_tokens is not None and len(prompt.input_ids) > max_tokens:
            raise PromptError(
                f"slate {prompt.slate_id!r}: the prompt has {len(prompt.input_ids)} tokens but the model takes "
                f"{max_tokens}; use fewer candidates or lower the caps of the template"
            )
    length = max(len(prompt.input_ids) for prompt in encoded)
    width = max(len(prompt.lasts) for prompt in encoded)
    # NumPy fills small arrays in half the time that PyTorch takes.
    input_ids = np.full((len(encoded), length), pad_id, dtype=np.int64)
    attention_mask = np.zeros((len(encoded), length), dtype=np.bool_)
    context_mask = np.zeros((len(encoded), length), dtype=np.bool_)
    table = np.zeros((4, len(encoded), width), dtype=np.int64)
    candidate_mask = np.zeros((len(encoded), width), dtype=np.bool_)
    for row, prompt in enumerate(encoded):
        offset = length - len(prompt.input_ids) if padding_side == "left" else 0
        real = slice(offset, offset + len(prompt.input_ids))
        input_ids[row, real] = prompt.input_ids
        attention_mask[row, real] = True
        for first, end in prompt.context:
            context_mask[row, offset + first : offset + end] = True
        count = len(prompt.lasts)
        table[:3, row, :count] = np.array([prompt.lasts, prompt.starts, prompt.closes]) + offset
        table[3, row, :count] = prompt.cut
        candidate_mask[row, :count] = True
    readout, start, close, cut = table
    used = np.where(candidate_mask, readout - start + 1, 0)
    arrays = (input_ids, attention_mask, readout, start, close, candidate_mask, context_mask, used, cut)
    return SlateBatch(*map(torch.from_numpy, arrays))
