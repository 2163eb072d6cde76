"""Greedy decoding with a KV cache: freely, token by token, or ordinal by ordinal along a trie of those still unused.

It knows token ids and one language model; nothing of slates or texts.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Protocol

import torch
from torch import Tensor

from spd_core.errors import SpdError
from spd_core.teachers.reading import CachedReader, Fork


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

    def forks(self) -> list[Fork]:
        """Forks of the unused ordinals; an ancestor stands before its heirs."""
        starts = {ids[:length] for ids in map(self.sequences.__getitem__, self.unused) for length in range(1, len(ids) + 1)}
        return _ancestors_first(starts & self._forks)

    def choose(self, first: Tensor, after: Mapping[Fork, Tensor]) -> list[int]:
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

    def _score(self, ids: tuple[int, ...], first: Tensor, after: Mapping[Fork, Tensor]) -> Tensor:
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
    reader = CachedReader(model, output_weights, prompts, pad_id)
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
    """Forward passes made until every constrained writer is done: two before the first rank, then one a rank.

    Each pass reads the ordinals that were chosen and, side by side behind them, the forks of the trie for the next choice.
    Arguments as in `write_all`; `after_step` is called after each rank.
    """
    reader = CachedReader(model, output_weights, prompts, pad_id)
    after = reader.read([[] for _ in prompts], forks=_forks(writers))
    while True:
        first, chosen = reader.logits.log_softmax(dim=1), []
        for row, writer in enumerate(writers):
            begin = len(writer.tokens)
            if not writer.is_done:
                writer.choose(first[row], {fork: logits[row].log_softmax(dim=0) for fork, logits in after.items()})
            chosen.append(writer.tokens[begin:])
        after_step()
        if all(writer.is_done for writer in writers):
            return reader.passes
        after = reader.read(chosen, forks=_forks(writers))


def _forks(writers: Sequence[ConstrainedWriter]) -> list[Fork]:
    """Forks of all writers that still write, as in `ConstrainedWriter.forks`."""
    return _ancestors_first({fork for writer in writers if not writer.is_done for fork in writer.forks()})


def _ancestors_first(forks: Iterable[Fork]) -> list[Fork]:
    return sorted(forks, key=lambda fork: (len(fork), fork))
