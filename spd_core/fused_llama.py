"""A Llama prefill in fewer and larger steps: one product for queries, keys and values, one for gate and up projection.

It computes what the Hugging Face model computes, for one prompt without padding; a compiler can fuse what lies between the
products. It copies the weights that it joins and shares the others, so the model must not change afterwards.
"""

from __future__ import annotations

from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.nn import functional

from spd_core.errors import BackboneError

TILE_TOKENS = 16
"""Rows of a tile of the CPU's matrix units: a prompt that fills whole tiles is read faster than one a token shorter."""


class FusedLlama(nn.Module):
    """Hidden states of a prompt, by the joined weights of a Llama base model."""

    def __init__(self, model: nn.Module) -> None:
        """Join the weights of a model.

        Args:
            model: `LlamaModel` in eval mode, cut or not, adapters merged.

        Raises:
            BackboneError: it is another kind of model, or has biases, another activation, or adapters apart.
        """
        super().__init__()
        check_llama(model)
        base: Any = model
        self.embed_tokens, self.rotary_emb, self.norm = base.embed_tokens, base.rotary_emb, base.norm
        self.layers = nn.ModuleList(FusedLayer(layer, base.config) for layer in base.layers)

    def forward(self, input_ids: Tensor) -> Tensor:
        """(1, T, D) states of one prompt in the model's dtype.

        The prompt is lengthened to whole tiles; attention is causal, so no real token reads what stands behind it.

        Args:
            input_ids: (1, T) token ids, all real.
        """
        length = input_ids.shape[1]
        added = -length % TILE_TOKENS
        states: Tensor = self.embed_tokens(torch.cat([input_ids, input_ids[:, -1:].expand(-1, added)], dim=1))
        places = torch.arange(length, device=input_ids.device)[None]  # of real tokens: some frequencies depend on the last
        cos, sin = (functional.pad(turn, (0, 0, 0, added)) for turn in self.rotary_emb(states, places))  # (1, T, head width)
        for layer in self.layers:
            states = layer(states, cos[:, :, None], sin[:, :, None])
        return cast(Tensor, self.norm(states[:, :length]))


class FusedLayer(nn.Module):
    """One decoder layer with joined projections."""

    def __init__(self, layer: Any, config: Any) -> None:
        super().__init__()
        attention, mlp = layer.self_attn, layer.mlp
        self.heads, self.key_heads = config.num_attention_heads, config.num_key_value_heads
        self.head_width = attention.head_dim
        self.epsilon = layer.input_layernorm.variance_epsilon
        self.attention_norm, self.mlp_norm = layer.input_layernorm.weight, layer.post_attention_layernorm.weight
        self.query_key_value = joined(attention.q_proj, attention.k_proj, attention.v_proj)
        self.output, self.down = attention.o_proj.weight, mlp.down_proj.weight
        self.gate_up = joined(mlp.gate_proj, mlp.up_proj)

    def forward(self, states: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        """(1, T, D) states after the layer.

        Args:
            states: (1, T, D) before it.
            cos, sin: (1, T, 1, head width) of the rotary position embedding.
        """
        states = states + self._attend(rms_normed(states, self.attention_norm, self.epsilon), cos, sin)
        normed = rms_normed(states, self.mlp_norm, self.epsilon)
        gate, up = functional.linear(normed, self.gate_up).chunk(2, dim=-1)
        return states + functional.linear(functional.silu(gate) * up, self.down)

    def _attend(self, normed: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        rows, length, _ = normed.shape
        turned = self.heads + self.key_heads
        parts = functional.linear(normed, self.query_key_value)
        parts = parts.view(rows, length, turned + self.key_heads, self.head_width)
        query_key, value = parts[:, :, :turned], parts[:, :, turned:]
        query_key = query_key * cos + half_turned(query_key) * sin
        query, key = query_key[:, :, : self.heads], query_key[:, :, self.heads :]
        mixed = functional.scaled_dot_product_attention(
            query.transpose(1, 2), key.transpose(1, 2), value.transpose(1, 2), is_causal=True, enable_gqa=True
        )
        return functional.linear(mixed.transpose(1, 2).reshape(rows, length, -1), self.output)


def check_llama(model: nn.Module) -> None:
    """Raise `BackboneError` unless `FusedLlama` computes exactly what `model` does."""
    config: Any = getattr(model, "config", None)
    kind = getattr(config, "model_type", type(model).__name__)
    if kind != "llama" or not hasattr(model, "rotary_emb"):
        raise BackboneError(f"backbone of type {kind!r} has no joined form; it runs as it is, only Llama has one")
    odd = [
        name
        for name, value, usual in (
            ("attention_bias", config.attention_bias, False),
            ("mlp_bias", config.mlp_bias, False),
            ("hidden_act", config.hidden_act, "silu"),
        )
        if value != usual
    ]
    if any("lora_" in name for name, _ in model.named_parameters()):
        odd.append("adapters that are not merged")
    if odd:
        raise BackboneError(f"backbone has {', '.join(odd)}; the joined form knows Llama without biases, silu, merged only")


def joined(*projections: nn.Linear) -> nn.Parameter:
    """(sum of outputs, inputs) weights of several projections of the same input as one."""
    return nn.Parameter(torch.cat([projection.weight.detach() for projection in projections]), requires_grad=False)


def rms_normed(states: Tensor, weight: Tensor, epsilon: float) -> Tensor:
    """States divided by their root mean square, in float32, then weighted in their own dtype, as Llama does."""
    wide = states.float()
    wide = wide * torch.rsqrt(wide.pow(2).mean(dim=-1, keepdim=True) + epsilon)
    return weight * wide.to(states.dtype)


def half_turned(states: Tensor) -> Tensor:
    """(..., W) states with their halves swapped and the new first one negated: a quarter turn of each pair."""
    first, second = states.chunk(2, dim=-1)
    return torch.cat((-second, first), dim=-1)
