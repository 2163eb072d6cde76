"""Greedy decoding with a KV cache: freely, token by token, or ordinal by ordinal along a trie of those still unused.

It knows token ids and one language model; nothing of slates or texts.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

import torch
from torch import Tensor
from transformers import DynamicCache

from spd_core.errors import SpdError


class Writer(Protocol):
    """Keeps the tokens of one answer."""

    tokens: list[int]

    @property
    def is_done(self) -> bool:
        """True once nothing more is to be written."""


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
    """The likeliest unused ordinal as a whole, again and again: always a permutation.

    The ordinals are the leaves of a trie of token sequences, each closed by the separator: 1 and 12 part at the second
    token. A leaf's score is the sum of the log probabilities on its way. Deciding token by token instead would favour the
    1 that 1 and 10 to 19 share: with 20 candidates that alone brought the order near chance.
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
        """Indices of the ordinals that are written."""
        closed = [ids + self.separator for ids in self.sequences]
        steps = {ids[: length + 1] for ids in closed for length in range(len(ids))}
        children = Counter(step[:-1] for step in steps)
        self._forks = {parent for parent, count in children.items() if parent and count > 1}

    @property
    def is_done(self) -> bool:
        """True once every ordinal is written."""
        return len(self.order) == len(self.sequences)

    @property
    def unused(self) -> list[int]:
        """Indices of the ordinals that are not written yet, in input order."""
        return [index for index in range(len(self.sequences)) if index not in self.order]

    def forks(self) -> list[tuple[int, ...]]:
        """Beginnings of unused ordinals after which more than one token could follow; an ancestor stands before its heirs."""
        starts = {ids[:length] for ids in map(self.sequences.__getitem__, self.unused) for length in range(1, len(ids) + 1)}
        return sorted(starts & self._forks, key=lambda start: (len(start), start))

    def choose(self, first: Tensor, after: Mapping[tuple[int, ...], Tensor]) -> list[int]:
        """Tokens of the likeliest unused ordinal, now written; where one is left after it, that one's too.

        Args:
            first: (V,) log probabilities of the next token.
            after: (V,) log probabilities after each of `forks`; others are not looked at.
        """
        begin, unused = len(self.tokens), self.unused
        scores = torch.stack([self._score(self.sequences[index] + self.separator, first, after) for index in unused])
        self.push(unused[int(scores.argmax())])
        if len(self.unused) == 1:
            self.push(self.unused[0])
        return self.tokens[begin:]

    def push(self, index: int) -> None:
        """Write the ordinal of a candidate index; a separator closes each but the last."""
        self.order.append(index)
        self.tokens += [*self.sequences[index], *(() if self.is_done else self.separator)]

    def _score(self, ids: tuple[int, ...], first: Tensor, after: Mapping[tuple[int, ...], Tensor]) -> Tensor:
        later = [after[ids[:length]][ids[length]] for length in range(1, len(ids)) if ids[:length] in self._forks]
        return first[ids[0]] + sum(later)


@torch.inference_mode()
def write_all(
    model: Any,
    output_weights: Tensor,
    prompts: Sequence[Sequence[int]],
    writers: Sequence[FreeWriter],
    *,
    pad_id: int,
    after_step: Callable[[], None] = lambda: None,
) -> int:
    """Forward passes made until every free writer is done; one pass a token, the prefill included.

    Args:
        model: base model whose `last_hidden_state` the output weights read.
        output_weights: (V, D) of the language head.
        prompts: B token sequences.
        writers: one a prompt; changed in place.
        pad_id: fills the shorter prompts on the left.
        after_step: called after each step; may raise to stop.
    """
    reader = _Reader(model, output_weights, prompts, pad_id)
    while True:
        chosen = [w.tokens[-1:] if w.is_done else [w.choose(row)] for w, row in zip(writers, reader.logits, strict=True)]
        after_step()
        if all(writer.is_done for writer in writers):
            return reader.passes
        reader.read(chosen)


@torch.inference_mode()
def write_permutations(
    model: Any,
    output_weights: Tensor,
    prompts: Sequence[Sequence[int]],
    writers: Sequence[ConstrainedWriter],
    *,
    pad_id: int,
    after_step: Callable[[], None] = lambda: None,
) -> int:
    """Forward passes made until every constrained writer is done: the prefill, and at most two a rank.

    One pass looks at the forks of the trie, all side by side; the next one reads what was chosen. Arguments as in
    `write_all`; `after_step` is called after each rank.
    """
    reader = _Reader(model, output_weights, prompts, pad_id)
    while True:
        forks = sorted({fork for w in writers for fork in w.forks() if not w.is_done}, key=lambda fork: (len(fork), fork))
        first, after = reader.logits.log_softmax(dim=1), reader.look_ahead(forks)
        chosen = []
        for row, writer in enumerate(writers):
            begin = len(writer.tokens)
            if not writer.is_done:
                writer.choose(first[row], {fork: logits[row].log_softmax(dim=0) for fork, logits in after.items()})
            chosen.append(writer.tokens[begin:])
        after_step()
        if all(writer.is_done for writer in writers):
            return reader.passes
        reader.read(chosen)


class _Reader:
    """A model that has read B prompts and goes on reading, each token once."""

    def __init__(self, model: Any, output_weights: Tensor, prompts: Sequence[Sequence[int]], pad_id: int) -> None:
        self.model, self.output_weights, self.pad_id = model, output_weights, pad_id
        self.cache, self.passes = DynamicCache(config=model.config), 0
        self.mask = torch.zeros(len(prompts), 0, dtype=torch.int64, device=output_weights.device)  # (B, T read so far)
        self.read(prompts)

    def read(self, texts: Sequence[Sequence[int]]) -> None:
        """Read on, texts of any length a row; `logits` (B, V) then foretell the token after each."""
        ids, real = _left_padded(texts, self.pad_id, self.output_weights.device)
        positions = (self.mask.sum(dim=1, keepdim=True) + real.cumsum(dim=1) - 1).clamp_min(0)
        self.mask = torch.cat([self.mask, real], dim=1)
        whole = {} if bool(self.mask.all()) else {"attention_mask": self.mask}
        states = self._forward(ids, positions, **whole)[:, -1]  # (B, D)
        self.logits = (states @ self.output_weights.T).float().cpu()

    def look_ahead(self, forks: Sequence[tuple[int, ...]]) -> dict[tuple[int, ...], Tensor]:
        """(B, V) logits after each of `forks`, read side by side in one pass and forgotten again.

        Args:
            forks: token sequences, every ancestor before its heirs; each one's last token becomes one input, which sees what
                was read, its ancestors and itself.
        """
        if not forks:
            return {}
        device, rows = self.mask.device, len(self.mask)
        ids = torch.tensor([fork[-1] for fork in forks], device=device).expand(rows, -1)
        depth = torch.tensor([len(fork) - 1 for fork in forks], device=device)
        family = torch.tensor([[fork[: len(other)] == other for other in forks] for fork in forks], device=device)
        seen = torch.cat([self.mask.bool()[:, None].expand(-1, len(forks), -1), family.expand(rows, -1, -1)], dim=2)
        dtype = self.output_weights.dtype
        bias = torch.zeros(seen.shape, dtype=dtype, device=device).masked_fill_(~seen, torch.finfo(dtype).min)
        states = self._forward(ids, self.mask.sum(dim=1, keepdim=True) + depth, attention_mask=bias[:, None])
        self.cache.crop(-len(forks))
        logits = (states @ self.output_weights.T).float().cpu()  # (B, G, V)
        return {fork: logits[:, index] for index, fork in enumerate(forks)}

    def _forward(self, ids: Tensor, positions: Tensor, **mask: Tensor) -> Tensor:
        self.passes += 1
        output = self.model(input_ids=ids, position_ids=positions, cache=self.cache, use_cache=True, **mask)
        states: Tensor = output.last_hidden_state
        return states


def _left_padded(texts: Sequence[Sequence[int]], pad_id: int, device: torch.device) -> tuple[Tensor, Tensor]:
    """(B, T) ids and their mask, 1 where real; a row may be empty, the whole may not."""
    length = max(len(text) for text in texts)
    ids = torch.full((len(texts), length), pad_id, dtype=torch.int64)
    mask = torch.zeros(len(texts), length, dtype=torch.int64)
    for row, text in enumerate(texts):
        ids[row, length - len(text) :] = torch.tensor(list(text), dtype=torch.int64)
        mask[row, length - len(text) :] = 1
    return ids.to(device), mask.to(device)
