"""Greedy decoding with a KV cache: freely, token by token, or ordinal by ordinal along a trie of those still unused.

It knows token ids and one language model; nothing of slates or texts.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Protocol, cast

import torch
from torch import Tensor
from transformers import DynamicCache

from spd_core.errors import SpdError

Fork = tuple[int, ...]  # beginning of ordinals after which more than one token could follow


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
    """Forward passes made until every constrained writer is done: two before the first rank, then one a rank.

    Each pass reads the ordinals that were chosen and, side by side behind them, the forks of the trie for the next choice.
    Arguments as in `write_all`; `after_step` is called after each rank.
    """
    reader = _Reader(model, output_weights, prompts, pad_id)
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


class _Reader:
    """A model that has read B prompts and goes on reading, each token once."""

    def __init__(self, model: Any, output_weights: Tensor, prompts: Sequence[Sequence[int]], pad_id: int) -> None:
        self.model, self.output_weights, self.pad_id = model, output_weights, pad_id
        self.cache, self.passes = DynamicCache(config=model.config), 0
        self.mask = torch.zeros(len(prompts), 0, dtype=torch.int64, device=output_weights.device)  # (B, T read so far)
        self.read(prompts)

    def read(self, texts: Sequence[Sequence[int]], *, forks: Sequence[Fork] = ()) -> dict[Fork, Tensor]:
        """Read on, texts of any length a row, and look at forks behind them; `logits` (B, V) then foretell the next token.

        Args:
            texts: B token sequences; where all are empty, `logits` stay.
            forks: token sequences, every ancestor before its heirs. Each one's last token becomes one more input, which sees
                what was read, its ancestors and itself, and which is forgotten again.

        Returns:
            (B, V) logits after each of `forks`.
        """
        ids, real = _left_padded(texts, self.pad_id, self.output_weights.device)
        before, length = self.mask, ids.shape[1]
        if not length and not forks:
            return {}
        positions = (before.sum(dim=1, keepdim=True) + real.cumsum(dim=1) - 1).clamp_min(0)
        self.mask = torch.cat([before, real], dim=1)
        if forks:
            last = torch.tensor([fork[-1] for fork in forks], device=ids.device).expand(len(ids), -1)
            depth = torch.tensor([len(fork) - 1 for fork in forks], device=ids.device)
            ids = torch.cat([ids, last], dim=1)
            positions = torch.cat([positions, self.mask.sum(dim=1, keepdim=True) + depth], dim=1)
            mask = {"attention_mask": self._tree_bias(before, real, forks)}
        else:
            mask = {} if bool(self.mask.all()) else {"attention_mask": self.mask}
        states = self._forward(ids, positions, **mask)
        if length:
            self.logits = self._logits(states[:, length - 1])
        if not forks:
            return {}
        self.cache.crop(-len(forks))
        seen = self._logits(states[:, length:])  # (B, forks, V)
        return {fork: seen[:, index] for index, fork in enumerate(forks)}

    def _tree_bias(self, before: Tensor, real: Tensor, forks: Sequence[Fork]) -> Tensor:
        """(B, 1, L + G, T + L + G) attention bias: L new tokens are read in turn, G forks after them side by side."""
        (rows, new), device, dtype = real.shape, real.device, self.output_weights.dtype
        in_turn = torch.ones(new, new, dtype=torch.bool, device=device).tril() & real.bool()[:, None]  # (B, L, L)
        family = torch.tensor([[fork[: len(other)] == other for other in forks] for fork in forks], device=device)
        tokens = torch.cat([in_turn, in_turn.new_zeros(rows, new, len(forks))], dim=2)
        heirs = torch.cat([real.bool()[:, None].expand(-1, len(forks), -1), family.expand(rows, -1, -1)], dim=2)
        past = before.bool()[:, None].expand(-1, new + len(forks), -1)
        seen = torch.cat([past, torch.cat([tokens, heirs], dim=1)], dim=2)
        return torch.zeros(seen.shape, dtype=dtype, device=device).masked_fill_(~seen, torch.finfo(dtype).min)[:, None]

    def _logits(self, states: Tensor) -> Tensor:
        logits = states.flatten(0, -2) @ self.output_weights.T  # with three axes, torch copies the weights for each row
        return logits.unflatten(0, states.shape[:-1]).float().cpu()

    def _forward(self, ids: Tensor, positions: Tensor, **mask: Tensor) -> Tensor:
        self.passes += 1
        result: Any = self.model(input_ids=ids, position_ids=positions, cache=self.cache, use_cache=True, **mask)
        return cast(Tensor, result.last_hidden_state)


def _left_padded(texts: Sequence[Sequence[int]], pad_id: int, device: torch.device) -> tuple[Tensor, Tensor]:
    """(B, T) ids and their mask, 1 where real; rows may be empty."""
    length = max(len(text) for text in texts)
    ids = torch.full((len(texts), length), pad_id, dtype=torch.int64)
    mask = torch.zeros(len(texts), length, dtype=torch.int64)
    for row, text in enumerate(texts):
        ids[row, length - len(text) :] = torch.tensor(list(text), dtype=torch.int64)
        mask[row, length - len(text) :] = 1
    return ids.to(device), mask.to(device)
