"""Attention rollout: through which tokens of the prompt a candidate's readout was mixed together.

Attention is followed from the last layer down to the embeddings, one layer at a time, and only for the N readouts; of each
layer's weights only the mean over its heads is ever kept. It tells where a state was mixed from. It does not tell why a
ranking came out: values, norms and the layers between attentions are not in it.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from spd_core.backbone import decoder_layers
from spd_core.errors import BackboneError, SpdError
from spd_core.latency import encode_slate
from spd_core.layer_states import base_model, hidden_by_layer
from spd_core.model import Student
from spd_core.slate import Slate
from spd_core.tokenization import EncodedPrompt, SlateBatch, collate_prompts

FIRST, HISTORY, QUERY, CANDIDATE, WORDING = "first token", "history", "query", "candidate", "wording"
MOST_BYTES = 1_200_000_000
"""Memory that one layer's attention may take."""
BYTES_A_WEIGHT = 12
"""Scores, their softmax in float32 and its copy in the model's dtype, at most 4 bytes each."""


@dataclass(frozen=True, slots=True)
class Group:
    """Tokens of the prompt that are counted together."""

    kind: str
    """`FIRST`, `HISTORY`, `QUERY`, `CANDIDATE` (with what closes its line) or `WORDING`."""
    index: int
    """Of the history item or candidate in the slate, 0 first; -1 for the other kinds."""
    tokens: int


@dataclass(frozen=True, eq=False)
class Rollout:
    """How much of each readout comes from each part of the prompt, as far as the layers have been followed."""

    shares: NDArray[np.float64]
    """(N, G) each row sums to 1; rows are the candidates in input order."""
    groups: tuple[Group, ...]
    """(G,) in the order of the prompt, the first token first and the wording last."""
    followed: tuple[int, ...]
    """Layers followed so far, counted from 1, the deepest first."""
    planned: tuple[int, ...]
    """All that will be."""

    @property
    def is_complete(self) -> bool:
        """Whether the embeddings have been reached."""
        return self.followed == self.planned

    def share_of(self, kind: str) -> float:
        """Share of one kind of group, mean over the readouts."""
        return float(self.shares[:, [group.kind == kind for group in self.groups]].sum(axis=1).mean())

    @property
    def own_share(self) -> float:
        """Share that a readout has from its own candidate's tokens, mean over the readouts."""
        own = [(group.index, column) for column, group in enumerate(self.groups) if group.kind == CANDIDATE]
        return float(np.mean([self.shares[row, column] for row, column in own]))


def sampled_layers(depth: int, step: int) -> tuple[int, ...]:
    """Every `step`-th layer from the last one down, counted from 1: ``sampled_layers(6, 2)`` is 6, 4, 2.

    Raises:
        SpdError: `step` is below 1.
    """
    if step < 1:
        raise SpdError(f"step is {step}; it must be at least 1 (every layer)")
    return tuple(range(depth, 0, -step))


def roll_out(student: Student, slate: Slate, *, step: int = 1) -> Iterator[Rollout]:
    """Attention rollout of a slate's readouts, given out after every layer, so that whoever watches can stop.

    In each layer a token's state is half its own and half what its attention fetched: A = (W + I) / 2 with W the mean
    over heads; the readout's weights over tokens are multiplied by A from the last layer to the first.

    Args:
        student: in eval mode.
        slate: N <= K candidates.
        step: follow every `step`-th layer; those between count as if they only passed states on.

    Raises:
        SpdError: N > K, a prompt too long, a step below 1, or a backbone whose attention cannot be asked for its weights.
    Source: Abnar and Zuidema, Quantifying attention flow in transformers (ACL 2020), section 3.
    """
    backbone, base = student.backbone, base_model(student.model)
    planned = sampled_layers(backbone.depth, step)
    encoded = encode_slate(student, slate)
    batch = collate_prompts([encoded], pad_id=backbone.tokenizer.pad_token_id, max_tokens=backbone.max_tokens)
    _check_memory(base, slate, len(encoded.input_ids))
    hidden = hidden_by_layer(student.model, batch.to(backbone.device))
    groups, of_token = prompt_groups(encoded, slate)
    flow = readout_weights(batch, student.config.readout).to(backbone.device)  # (N, T)
    for done, number in enumerate(planned, start=1):
        flow = 0.5 * (flow + flow @ layer_attention(base, number, hidden[number - 1]))
        yield Rollout(_summed(flow, of_token, len(groups)), groups, planned[:done], planned)


def layer_attention(base: nn.Module, number: int, states: Tensor) -> Tensor:
    """(T, T) float32 attention of one layer, mean over its heads; row t is what token t looks at and sums to 1.

    The layer's own attention module computes it, in the slow form that gives its weights out; a light copy of the module
    is asked, so that other passes keep the fast form.

    Args:
        base: Hugging Face model, adapters included.
        number: layer, counted from 1.
        states: (1, T, D) states before that layer.

    Raises:
        BackboneError: the layer is not built like a Llama's.
    """
    layer: Any = decoder_layers(base)[number - 1]
    if not all(hasattr(layer, part) for part in ("self_attn", "input_layernorm")) or not hasattr(base, "rotary_emb"):
        raise BackboneError(
            f"backbone of type {type(base).__name__}: its attention weights cannot be read; choose a decoder such as Llama "
            "or Qwen3"
        )
    attention = copy.copy(layer.self_attn)
    attention.config = copy.copy(attention.config)
    attention.config._attn_implementation = "eager"
    count = states.shape[1]
    places = torch.arange(count, device=states.device)
    with torch.inference_mode():
        rotary = base.rotary_emb(states, position_ids=places[None])  # type: ignore[operator]
        mask = _causal(places, getattr(attention, "sliding_window", None), states.dtype)
        normed = layer.input_layernorm(states)
        _, weights = attention(hidden_states=normed, position_embeddings=rotary, attention_mask=mask)  # (1, H, T, T)
        mean = weights[0].mean(dim=0, dtype=torch.float32)
        return mean / mean.sum(dim=1, keepdim=True)


def _causal(places: Tensor, window: int | None, dtype: torch.dtype) -> Tensor:
    """(1, 1, T, T) to be added to attention scores: 0 where a token may look, the lowest number elsewhere."""
    distance = places[:, None] - places[None, :]
    allowed = (distance >= 0) & (distance < (window or len(places)))
    return torch.where(allowed, 0.0, torch.finfo(dtype).min).to(dtype)[None, None]


def readout_weights(batch: SlateBatch, readout: str) -> Tensor:
    """(N, T) weight of each token in each candidate's readout, rows summing to 1; for a batch of one prompt."""
    places = torch.arange(batch.input_ids.shape[1])
    first = batch.span_start[0] if readout == "mean" else batch.readout_index[0]
    last = batch.readout_index[0]
    if readout == "newline":
        first = last = batch.close_index[0]
    inside = ((places >= first[:, None]) & (places <= last[:, None])).float()
    return inside / inside.sum(dim=1, keepdim=True)


def prompt_groups(encoded: EncodedPrompt, slate: Slate) -> tuple[tuple[Group, ...], NDArray[np.int64]]:
    """The groups of a prompt, and the (T,) group of each token; the first token is a group of its own.

    The first token draws much attention whatever it says (an attention sink), so it must not count for its neighbours.
    """
    context = list(encoded.context)
    spans: list[tuple[str, int, int, int]] = []
    if slate.user.query is not None:
        spans.append((QUERY, -1, *context.pop(0)))
    older = len(slate.user.history) - len(context)
    spans += [(HISTORY, older + place, start, end) for place, (start, end) in enumerate(context)]
    lines = zip(encoded.starts, encoded.closes, strict=True)
    spans += [(CANDIDATE, index, start, close + 1) for index, (start, close) in enumerate(lines)]
    of_token = np.full(len(encoded.input_ids), len(spans) + 1)
    for column, (_, _, start, end) in enumerate(spans, start=1):
        of_token[start:end] = column
    of_token[0] = 0
    counts = np.bincount(of_token, minlength=len(spans) + 2)
    named = [(FIRST, -1), *((kind, index) for kind, index, _, _ in spans), (WORDING, -1)]
    return tuple(Group(kind, index, int(count)) for (kind, index), count in zip(named, counts, strict=True)), of_token


def _summed(flow: Tensor, of_token: NDArray[np.int64], groups: int) -> NDArray[np.float64]:
    """(N, G) the (N, T) weights summed over the tokens of each group."""
    member = np.zeros((len(of_token), groups))
    member[np.arange(len(of_token)), of_token] = 1.0
    shares: NDArray[np.float64] = flow.double().cpu().numpy() @ member
    return shares


def _check_memory(base: nn.Module, slate: Slate, tokens: int) -> None:
    heads = int(base.config.num_attention_heads)  # type: ignore[union-attr, arg-type]
    need = heads * tokens**2 * BYTES_A_WEIGHT
    if need > MOST_BYTES:
        raise SpdError(
            f"slate {slate.slate_id!r}: the attention of one layer over {tokens:,} tokens would take {need / 1e9:.1f} GB; at "
            f"most {MOST_BYTES / 1e9:.1f} GB are used, so give fewer candidates or shorter texts"
        )
