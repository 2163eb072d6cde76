"""Attention followed from the readouts to the prompt: it belongs to the model's own pass and loses nothing on the way."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from spd_core import attention_rollout
from spd_core.attention_rollout import (
    CANDIDATE,
    FIRST,
    HISTORY,
    QUERY,
    WORDING,
    Rollout,
    layer_attention,
    prompt_groups,
    readout_weights,
    roll_out,
    sampled_layers,
)
from spd_core.backbone import load_backbone
from spd_core.checkpoints import random_student
from spd_core.errors import BackboneError, SpdError
from spd_core.latency import encode_slate
from spd_core.layer_states import base_model, hidden_by_layer
from spd_core.model import Student, StudentConfig
from spd_core.readouts import READOUTS
from spd_core.slate import Slate
from spd_core.tokenization import SlateBatch, collate_prompts


def prompt_of(student: Student, slate: Slate) -> SlateBatch:
    return collate_prompts([encode_slate(student, slate)], pad_id=student.backbone.tokenizer.pad_token_id)


def last(student: Student, slate: Slate, step: int = 1) -> Rollout:
    *_, rollout = roll_out(student, slate, step=step)
    return rollout


@pytest.mark.parametrize("folder", ["tiny_backbone_dir", "tiny_qwen3_dir"])
def test_weights_are_those_of_the_model_run_in_its_slow_form(
    folder: str, request: pytest.FixtureRequest, make_slate: Callable[..., Slate]
) -> None:
    path: Path = request.getfixturevalue(folder)
    backbone = load_backbone(str(path), device="cpu", dtype="float32")
    student = random_student(backbone, config=StudentConfig(head="linear_probe"))
    batch = prompt_of(student, make_slate(4))
    hidden = hidden_by_layer(student.model, batch)
    found = [layer_attention(base_model(student.model), number, hidden[number - 1]) for number in (1, 2)]
    backbone.model.set_attn_implementation("eager")
    with torch.inference_mode():
        told = backbone.model(input_ids=batch.input_ids, output_attentions=True).attentions
    for ours, theirs in zip(found, told, strict=True):
        assert torch.allclose(ours, theirs[0].mean(dim=0), atol=1e-5)


def test_adapters_that_are_not_merged_take_part(tiny_student: Student, make_slate: Callable[..., Slate]) -> None:
    batch = prompt_of(tiny_student, make_slate(4))
    hidden = hidden_by_layer(tiny_student.model, batch)
    adapted = layer_attention(base_model(tiny_student.model), 1, hidden[0])
    with tiny_student.model.disable_adapter():
        plain = layer_attention(base_model(tiny_student.model), 1, hidden[0])
    assert not torch.allclose(adapted, plain, atol=1e-3)


def test_no_token_looks_ahead_or_past_a_sliding_window(tiny_student: Student, make_slate: Callable[..., Slate]) -> None:
    base = base_model(tiny_student.model)
    states = hidden_by_layer(tiny_student.model, prompt_of(tiny_student, make_slate(3)))[0]
    weights = layer_attention(base, 1, states)
    assert float(torch.triu(weights, diagonal=1).abs().max()) == 0.0
    attention = base.layers[0].self_attn
    attention.sliding_window = 4
    try:
        narrow = layer_attention(base, 1, states)
    finally:
        del attention.sliding_window
    assert float(torch.tril(narrow, diagonal=-4).abs().max()) == 0.0
    assert bool((torch.diagonal(narrow, offset=-3) > 0).all())
    assert base.config._attn_implementation != "eager"


@pytest.mark.parametrize("readout", READOUTS)
def test_every_readout_comes_whole_from_the_parts_of_the_prompt(
    readout: str, tiny_student: Student, make_slate: Callable[..., Slate]
) -> None:
    config = tiny_student.config.model_copy(update={"readout": readout})
    student = Student(tiny_student.backbone, tiny_student.head, config, tiny_student.template).eval()
    rollout = last(student, make_slate(6, history=3, query="hand cream"))
    assert rollout.shares.shape == (6, 1 + 1 + 3 + 6 + 1)
    assert np.allclose(rollout.shares.sum(axis=1), 1, atol=1e-5)
    assert (rollout.shares >= 0).all()


def test_a_readout_has_nothing_of_candidates_shown_later(tiny_student: Student, make_slate: Callable[..., Slate]) -> None:
    rollout = last(tiny_student, make_slate(5))
    columns = [column for column, group in enumerate(rollout.groups) if group.kind == CANDIDATE]
    square = rollout.shares[:, columns]
    assert float(np.triu(square, k=1).max()) == 0.0
    assert (np.diag(square) > 0).all()
    assert rollout.own_share == pytest.approx(float(np.diag(square).mean()))


def test_rollout_by_hand_for_two_layers(tiny_student: Student, make_slate: Callable[..., Slate]) -> None:
    slate = make_slate(3)
    batch = prompt_of(tiny_student, slate)
    hidden = hidden_by_layer(tiny_student.model, batch)
    first, second = (layer_attention(base_model(tiny_student.model), number, hidden[number - 1]) for number in (1, 2))
    identity = torch.eye(len(first))
    whole = (second + identity) / 2 @ (first + identity) / 2
    _, of_token = prompt_groups(encode_slate(tiny_student, slate), slate)
    rows = whole[batch.readout_index[0]].numpy()
    expected = np.stack([np.bincount(of_token, weights=row) for row in rows])
    assert np.allclose(last(tiny_student, slate).shares, expected, atol=1e-5)


def test_progress_is_given_out_layer_by_layer_and_sampling_skips_layers(
    tiny_student: Student, make_slate: Callable[..., Slate]
) -> None:
    steps = list(roll_out(tiny_student, make_slate(3)))
    assert [step.followed for step in steps] == [(2,), (2, 1)]
    assert [step.is_complete for step in steps] == [False, True]
    (only,) = roll_out(tiny_student, make_slate(3), step=2)
    assert only.followed == only.planned == (2,)
    assert np.allclose(only.shares, steps[0].shares)


@pytest.mark.parametrize(("depth", "step", "layers"), [(6, 2, (6, 4, 2)), (5, 2, (5, 3, 1)), (3, 1, (3, 2, 1)), (4, 9, (4,))])
def test_layers_are_sampled_from_the_last_one_down(depth: int, step: int, layers: tuple[int, ...]) -> None:
    assert sampled_layers(depth, step) == layers


def test_no_step_is_refused() -> None:
    with pytest.raises(SpdError, match="step is 0; it must be at least 1"):
        sampled_layers(4, 0)


def test_groups_cover_every_token_once_and_name_what_they_are(
    tiny_student: Student, make_slate: Callable[..., Slate]
) -> None:
    slate = make_slate(4, history=[f"soap {k}" for k in range(11)], query="balm")
    encoded = encode_slate(tiny_student, slate)
    groups, of_token = prompt_groups(encoded, slate)
    assert sum(group.tokens for group in groups) == len(encoded.input_ids) == len(of_token)
    kinds = [group.kind for group in groups]
    assert kinds == [FIRST, QUERY, *[HISTORY] * 8, *[CANDIDATE] * 4, WORDING]
    assert groups[0].tokens == 1
    assert [group.index for group in groups if group.kind == HISTORY] == list(range(3, 11))  # the newest eight are read
    tokenizer = tiny_student.backbone.tokenizer
    texts = [
        tokenizer.decode([token for token, group in zip(encoded.input_ids, of_token, strict=True) if group == column])
        for column in range(len(groups))
    ]
    assert texts[1].strip() == "balm"
    assert texts[2].strip() == "soap 3"
    assert texts[10] == " Lumen Cream No 1 #1\n"


def test_slate_with_neither_history_nor_query_has_only_candidates(
    tiny_student: Student, make_slate: Callable[..., Slate]
) -> None:
    rollout = last(tiny_student, make_slate(1, history=0))
    assert [group.kind for group in rollout.groups] == [FIRST, CANDIDATE, WORDING]
    assert sum(rollout.share_of(kind) for kind in (FIRST, CANDIDATE, WORDING)) == pytest.approx(1)


@pytest.mark.parametrize("readout", READOUTS)
def test_readout_weights_give_the_readout(readout: str, tiny_student: Student, make_slate: Callable[..., Slate]) -> None:
    from spd_core.readouts import gather_readout

    batch = prompt_of(tiny_student, make_slate(4))
    hidden = hidden_by_layer(tiny_student.model, batch)[-1]
    weights = readout_weights(batch, readout)
    assert torch.allclose(weights @ hidden[0], gather_readout(hidden, batch, readout)[0], atol=1e-4)


def test_prompt_whose_attention_would_not_fit_is_refused_with_both_numbers(
    tiny_student: Student, make_slate: Callable[..., Slate], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(attention_rollout, "MOST_BYTES", 100_000)
    with pytest.raises(SpdError, match=r"slate 's1': the attention of one layer over \d+ tokens would take .* GB"):
        next(roll_out(tiny_student, make_slate(40)))


def test_backbone_of_another_build_is_refused(tiny_student: Student, make_slate: Callable[..., Slate]) -> None:
    class Odd(nn.Module):
        layers = nn.ModuleList([nn.Linear(2, 2)])

    with pytest.raises(BackboneError, match="backbone of type Odd: its attention weights cannot be read"):
        layer_attention(Odd(), 1, torch.zeros(1, 2, 2))
    assert dataclasses.is_dataclass(Rollout)
