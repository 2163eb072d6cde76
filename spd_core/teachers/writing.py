"""Token by token: greedy decoding with a KV cache, freely or along a trie of the ordinals that are still unused.

It knows token ids and one language model; nothing of slates or texts.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

import torch
from torch import Tensor
from transformers import DynamicCache

from spd_core.errors import SpdError


class Writer(Protocol):
    """Chooses the tokens of one answer."""

    tokens: list[int]

    @property
    def is_done(self) -> bool:
        """True once nothing more is to be written."""

    def choose(self, logits: Tensor) -> int:
        """Next token from the (V,) logits; it is part of `tokens` from then on."""


class FreeWriter:
    """Whatever the model finds likeliest, until it ends its answer or has had its share of tokens."""

    def __init__(self, *, end_ids: Sequence[int], most_tokens: int) -> None:
        self.tokens: list[int] = []
        self.end_ids = frozenset(end_ids)
        self.most_tokens = most_tokens

    @property
    def is_done(self) -> bool:
        """True after an end token, or at the limit."""
        return len(self.tokens) >= self.most_tokens or bool(self.tokens and self.tokens[-1] in self.end_ids)

    def choose(self, logits: Tensor) -> int:
        """The likeliest token; the first one of equals."""
        token = int(logits.argmax())
        self.tokens.append(token)
        return token


class ConstrainedWriter:
    """The likeliest token among those that lead to an unused ordinal: always a permutation.

    A trie of token sequences, one an ordinal with the separator behind it, so that `1` and `12` part at the second token.
    Greedy decoding decides token by token: `1` may win because 1 and 10 to 19 share it.
    """

    def __init__(self, ordinals: Sequence[Sequence[int]], separator: Sequence[int]) -> None:
        """Args: token ids of each ordinal 1..N, and of what stands between two.

        Raises:
            SpdError: no ordinal, one without tokens, or two that are written alike.
        """
        self.sequences = [tuple(ids) for ids in ordinals]
        if not self.sequences or not all(self.sequences) or len(set(self.sequences)) < len(self.sequences):
            raise SpdError("the tokenizer does not write each ordinal in tokens of its own; choose another backbone")
        self.separator = tuple(separator)
        self.tokens: list[int] = []
        self.order: list[int] = []
        """Indices of the ordinals that are complete."""
        self._prefix: tuple[int, ...] = ()

    @property
    def is_done(self) -> bool:
        """True once every ordinal is written."""
        return len(self.order) == len(self.sequences)

    def allowed(self) -> list[int]:
        """Token ids that may come next, sorted."""
        length = len(self._prefix)
        open_sequences = self._open_sequences().values()
        return sorted({ids[length] for ids in open_sequences if ids[:length] == self._prefix})

    def choose(self, logits: Tensor) -> int:
        """The likeliest allowed token; the first one of equals."""
        allowed = self.allowed()
        token = allowed[int(logits[allowed].argmax())]
        self.push(token)
        return token

    def push(self, token: int) -> None:
        """Write an allowed token."""
        self.tokens.append(token)
        self._prefix += (token,)
        for index, ids in self._open_sequences().items():
            if ids == self._prefix:
                self.order.append(index)
                self._prefix = ()
                return

    def _open_sequences(self) -> dict[int, tuple[int, ...]]:
        """Index -> tokens of each unused ordinal; a separator follows each but the last."""
        unused = [index for index in range(len(self.sequences)) if index not in self.order]
        after = self.separator if len(unused) > 1 else ()
        return {index: self.sequences[index] + after for index in unused}


@torch.inference_mode()
def write_all(
    model: Any,
    output_weights: Tensor,
    prompts: Sequence[Sequence[int]],
    writers: Sequence[Writer],
    *,
    pad_id: int,
    after_step: Callable[[], None] = lambda: None,
) -> int:
    """Forward passes made until every writer is done; one pass a token, the prefill included.

    Args:
        model: base model whose `last_hidden_state` the output weights read.
        output_weights: (V, D) of the language head.
        prompts: B token sequences.
        writers: one a prompt; changed in place.
        pad_id: fills the shorter prompts on the left.
        after_step: called after each step; may raise to stop.
    """
    mask, ids = _left_padded(prompts, pad_id, output_weights.device)
    positions = (mask.cumsum(dim=1) - 1).clamp_min(0)  # (B, T)
    cache, passes = DynamicCache(config=model.config), 0
    while True:
        inputs = {"input_ids": ids, "position_ids": positions, "cache": cache, "use_cache": True}
        if not bool(mask.all()):
            inputs["attention_mask"] = mask
        hidden = model(**inputs).last_hidden_state[:, -1]  # (B, D)
        logits = (hidden @ output_weights.T).float().cpu()  # (B, V)
        passes += 1
        chosen = [pad_id if w.is_done else w.choose(row) for w, row in zip(writers, logits, strict=True)]
        after_step()
        if all(writer.is_done for writer in writers):
            return passes
        ids = torch.tensor(chosen, device=mask.device)[:, None]
        positions = positions[:, -1:] + 1
        mask = torch.cat([mask, mask.new_ones(len(writers), 1)], dim=1)


def _left_padded(prompts: Sequence[Sequence[int]], pad_id: int, device: torch.device) -> tuple[Tensor, Tensor]:
    length = max(len(prompt) for prompt in prompts)
    ids = torch.full((len(prompts), length), pad_id, dtype=torch.int64)
    mask = torch.zeros(len(prompts), length, dtype=torch.int64)
    for row, prompt in enumerate(prompts):
        ids[row, length - len(prompt) :] = torch.tensor(list(prompt))
        mask[row, length - len(prompt) :] = 1
    return mask.to(device), ids.to(device)
