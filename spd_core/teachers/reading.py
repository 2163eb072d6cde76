"""A language model that reads on from a KV cache, and looks ahead along several branches in the same pass.

It knows token ids and one language model; nothing of slates or texts.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

import torch
from torch import Tensor
from transformers import DynamicCache

Fork = tuple[int, ...]  # beginning of ordinals after which more than one token could follow


class CachedReader:
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
