"""Attention maps of the scoring heads, as shares that belong to the scores of the same pass."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from spd_core.head_attention import head_attention
from spd_core.heads import HEADS, build_head
from spd_core.heads.standardize import Standardize

ATTENDING = ("self_attention", "slot_query")
POSITIONS = 7


def make_head(name: str, *, user_token: bool = False) -> nn.Module:
    torch.manual_seed(3)
    return build_head(name, 16, POSITIONS, width=128, user_token=user_token).eval()


def random_states() -> tuple[Tensor, Tensor, Tensor]:
    generator = torch.Generator().manual_seed(0)
    states = torch.randn(2, 5, 16, generator=generator)
    mask = torch.ones(2, 5, dtype=torch.bool)
    mask[1, 3:] = False
    return states, mask, torch.randn(2, 16, generator=generator)


@pytest.mark.parametrize("name", HEADS)
def test_scores_are_those_of_the_head(name: str) -> None:
    head = make_head(name)
    states, mask, _ = random_states()
    with torch.inference_mode():
        plain = head(states, mask)
    looked = head_attention(head, states, mask)
    assert torch.allclose(looked.scores[mask], plain[mask], atol=1e-5)


@pytest.mark.parametrize("name", ATTENDING)
def test_with_a_user_token_the_scores_are_those_of_the_head_and_the_user_is_the_last_one_looked_at(name: str) -> None:
    head = make_head(name, user_token=True)
    states, mask, user = random_states()
    with torch.inference_mode():
        plain = head(states, mask, user)
    looked = head_attention(head, states, mask, user)
    assert torch.allclose(looked.scores[mask], plain[mask], atol=1e-5)
    assert all(weights.shape[-1] == 6 for weights in looked.layers)
    assert all((weights[..., -1] > 0).all() for weights in looked.layers)


@pytest.mark.parametrize(("name", "readers"), [("self_attention", 5), ("slot_query", POSITIONS)])
def test_each_reader_shares_one_look_among_the_real_candidates(name: str, readers: int) -> None:
    states, mask, _ = random_states()
    looked = head_attention(make_head(name), states, mask)
    assert len(looked.layers) == 2
    for weights in looked.layers:
        assert weights.shape == (2, 2, readers, 5)
        assert torch.allclose(weights.sum(dim=-1), torch.ones(2, 2, readers), atol=1e-5)
        assert float(weights[1, :, :, 3:].abs().max()) == 0.0
        assert float(weights.min()) >= 0.0


@pytest.mark.parametrize("name", ATTENDING)
def test_weights_times_values_are_what_the_first_layer_hands_on(name: str) -> None:
    head = make_head(name)
    states, mask, _ = random_states()
    handed: list[Tensor] = []
    attention = next(module for module in head.modules() if isinstance(module, nn.MultiheadAttention))
    seen: list[Tensor] = []
    attention.register_forward_hook(lambda _, inputs, output: (seen.append(inputs[2]), handed.append(output[0]))[0])
    weights = head_attention(head, states, mask).layers[0]  # (B, H, Q, M)
    with torch.inference_mode():
        values = seen[0] @ attention.in_proj_weight.chunk(3)[2].T + attention.in_proj_bias.chunk(3)[2]
        values = values.unflatten(2, (2, -1)).transpose(1, 2)  # (B, H, M, width of a head)
        mixed = attention.out_proj((weights @ values).transpose(1, 2).flatten(2))
    assert torch.allclose(mixed[0], handed[0][0], atol=1e-5)


def test_linear_probe_looks_at_nobody() -> None:
    states, mask, _ = random_states()
    assert head_attention(make_head("linear_probe"), states, mask).layers == ()


def test_permuting_candidates_permutes_the_maps() -> None:
    states = random_states()[0][:1]
    mask, order = torch.ones(1, 5, dtype=torch.bool), torch.tensor([3, 0, 4, 1, 2])
    head = make_head("self_attention")
    plain, permuted = (head_attention(head, one, mask).layers[1] for one in (states, states[:, order]))
    assert torch.allclose(permuted, plain[:, :, order][:, :, :, order], atol=1e-5)


@pytest.mark.parametrize("name", ATTENDING)
def test_the_shared_head_is_left_alone(name: str) -> None:
    head = make_head(name).train()
    states, mask, _ = random_states()
    head_attention(head, states, mask)
    assert head.training
    assert not any(module._forward_pre_hooks for module in head.modules())
    assert isinstance(head.standardize, Standardize)
