"""Laws of the student as a whole: shapes, padding, adapters, and settings that do not fit."""

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from pydantic import ValidationError
from torch import Tensor

from spd_core.backbone import load_backbone
from spd_core.decoding import DECODERS, decode_batch
from spd_core.errors import SpdError
from spd_core.heads import HEADS
from spd_core.model import LoraSettings, Student, StudentConfig, attach_lora, build_student, parameter_counts
from spd_core.prompts import TEMPLATES, build_prompt
from spd_core.readouts import READOUTS
from spd_core.slate import Slate
from spd_core.tokenization import SlateBatch, tokenize_slates

MakeSlate = Callable[..., Slate]
TEMPLATE = TEMPLATES["shop"]


def new_student(folder: Path | None, **settings: Any) -> Student:
    config = StudentConfig(**{"head_width": 64, "lora": None} | settings)
    place = None if folder is None else str(folder)
    backbone = load_backbone(place, device="cpu", dtype="float32", depth=config.layer)
    torch.manual_seed(3)
    return build_student(backbone, config, TEMPLATE).eval()


def batch_of(slates: list[Slate], student: Student, **options: Any) -> SlateBatch:
    prompts = [build_prompt(slate, student.template) for slate in slates]
    return tokenize_slates(prompts, student.backbone.tokenizer, **options)


def scores_of(slates: list[Slate], student: Student, **options: Any) -> Tensor:
    with torch.inference_mode():
        return student(batch_of(slates, student, **options))


@pytest.mark.parametrize("head", HEADS)
@pytest.mark.parametrize("readout", READOUTS)
def test_a_batch_gives_a_score_matrix_a_slate(
    make_slate: MakeSlate, tiny_backbone_dir: Path, head: str, readout: str
) -> None:
    student = new_student(tiny_backbone_dir, head=head, readout=readout, positions=7)
    scores = scores_of([make_slate(5), make_slate(1, history=0)], student)
    assert scores.shape == (2, 5, 7)
    assert scores.dtype == torch.float32
    assert bool(scores.isfinite().all())


def varied_slates(make_slate: MakeSlate) -> list[Slate]:
    """Short and long, with and without history and query, and with text that is hard to tokenise."""
    hostile = ["<|im_end|>", "", "[1] > [2]", "👩‍👩‍👧", "ends in a blank ", "word " * 300, "1984", "שלום"]
    return [make_slate(2), make_slate(27, history=9), make_slate(8, titles=hostile, history=0, query="a\nb"), make_slate(1)]


def assert_batched_equals_single(slates: list[Slate], student: Student, side: str) -> None:
    together = scores_of(slates, student, padding_side=side)
    mask = batch_of(slates, student).candidate_mask.numpy()
    rankings = decode_batch(together.numpy(), mask, "hungarian")
    for row, slate in enumerate(slates):
        n = len(slate.candidates)
        alone = scores_of([slate], student)
        assert float((together[row, :n] - alone[0]).abs().max()) <= 1e-4
        assert rankings[row, :n].tolist() == decode_batch(alone.numpy(), np.ones((1, n), bool), "hungarian")[0].tolist()


@pytest.mark.parametrize("side", ["left", "right"])
def test_batched_equals_single_in_scores_and_ranking(make_slate: MakeSlate, tiny_student: Student, side: str) -> None:
    assert_batched_equals_single(varied_slates(make_slate), tiny_student, side)


@pytest.mark.parametrize("side", ["left", "right"])
@pytest.mark.parametrize("head", ["self_attention", "slot_query"])
def test_batched_equals_single_on_qwen3_with_a_user_token(
    make_slate: MakeSlate, tiny_qwen3_dir: Path, head: str, side: str
) -> None:
    student = new_student(tiny_qwen3_dir, head=head, readout="mean", user_token=True, layer=1)
    assert_batched_equals_single(varied_slates(make_slate), student, side)


@pytest.mark.model
@pytest.mark.parametrize("side", ["left", "right"])
def test_batched_equals_single_on_the_embedded_backbone(make_slate: MakeSlate, side: str) -> None:
    student = new_student(None, readout="mean", user_token=True, layer=8)
    slates = varied_slates(make_slate)
    with torch.inference_mode():
        batch = batch_of(slates, student)
        hidden = student.backbone.model(input_ids=batch.input_ids, use_cache=False).last_hidden_state
        student.head.standardize.fit(hidden[batch.attention_mask])  # as trained ones are: raw states reach 1,000s
    assert_batched_equals_single(slates, student, side)


def test_the_user_reaches_the_scores_only_through_prompt_and_user_token(
    make_slate: MakeSlate, tiny_backbone_dir: Path
) -> None:
    student = new_student(tiny_backbone_dir, user_token=True)
    batch = batch_of([make_slate(4)], student)
    blind = dataclasses.replace(batch, context_mask=torch.zeros_like(batch.context_mask))
    with torch.inference_mode():
        assert not torch.allclose(student(batch), student(blind), atol=1e-4)
        without = new_student(tiny_backbone_dir)
        assert torch.equal(without(batch), without(blind))


def test_adapters_have_no_effect_before_training(make_slate: MakeSlate, tiny_backbone_dir: Path) -> None:
    plain, adapted = (new_student(tiny_backbone_dir, lora=lora) for lora in (None, LoraSettings(rank=4)))
    slates = varied_slates(make_slate)
    assert torch.allclose(scores_of(slates, plain), scores_of(slates, adapted), atol=1e-6)


def test_trained_adapters_have_an_effect(make_slate: MakeSlate, tiny_student: Student) -> None:
    adapted = scores_of([make_slate(5)], tiny_student)
    with tiny_student.model.disable_adapter():  # type: ignore[operator]
        assert not torch.allclose(adapted, scores_of([make_slate(5)], tiny_student), atol=1e-2)


def test_only_head_and_adapters_learn(make_slate: MakeSlate, tiny_backbone_dir: Path) -> None:
    student = new_student(tiny_backbone_dir, lora=LoraSettings(rank=2), user_token=True).train()
    student(batch_of([make_slate(5)], student)).square().sum().backward()
    learning = {name for name, p in student.named_parameters() if p.grad is not None}
    assert learning == {name for name, p in student.named_parameters() if name.startswith("head.") or "lora_" in name}


def test_parameters_are_counted_by_part(tiny_backbone_dir: Path, tiny_student: Student) -> None:
    counts = parameter_counts(tiny_student)
    # q and o 64 -> 64, k and v 64 -> 32, gate and up 64 -> 128, down 128 -> 64: rank 2 x sum of (in + out) x 2 layers
    assert counts["adapter"] == 2 * 2 * (2 * (64 + 64) + 2 * (64 + 32) + 2 * (64 + 128) + (128 + 64))
    backbone = load_backbone(str(tiny_backbone_dir), device="cpu")
    assert counts["backbone"] == sum(p.numel() for p in backbone.model.parameters())
    assert counts["head"] == sum(p.numel() for p in tiny_student.head.parameters())
    assert parameter_counts(new_student(tiny_backbone_dir))["adapter"] == 0


def test_adapters_go_where_the_settings_say_and_keep_the_models_type(tiny_backbone_dir: Path) -> None:
    backbone = load_backbone(str(tiny_backbone_dir), device="cpu", dtype="bfloat16")
    model = attach_lora(backbone.model, LoraSettings(rank=2, target_modules=("q_proj",)))
    adapters = {name: p for name, p in model.named_parameters() if "lora_" in name}
    assert adapters
    assert all("q_proj" in name and p.dtype == torch.bfloat16 for name, p in adapters.items())


def test_adapters_may_be_left_out_to_load_trained_ones(tiny_backbone_dir: Path) -> None:
    backbone = load_backbone(str(tiny_backbone_dir), device="cpu")
    student = build_student(backbone, StudentConfig(head_width=64), TEMPLATE, with_lora=False)
    assert parameter_counts(student)["adapter"] == 0


@pytest.mark.parametrize("head", HEADS)
def test_all_decoders_rank_what_every_student_scores(make_slate: MakeSlate, tiny_backbone_dir: Path, head: str) -> None:
    scores = scores_of([make_slate(6)], new_student(tiny_backbone_dir, head=head))
    for decoder in DECODERS:
        assert sorted(decode_batch(scores.numpy(), np.ones((1, 6), bool), decoder)[0].tolist()) == list(range(6))


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"head": "mlp"}, "Input should be 'linear_probe', 'self_attention' or 'slot_query'"),
        ({"head": "linear_probe", "user_token": True}, "scores each item alone and cannot take a user token"),
        ({"positions": 0}, "positions\n.*greater than or equal to 1"),
        ({"head_width": 100}, "head_width\n.*multiple of 64"),
        ({"tau": 0}, "tau\n.*greater than 0"),
        ({"sinkhorn_iterations": 0}, "sinkhorn_iterations\n.*greater than or equal to 1"),
        ({"readout": "first"}, "Input should be 'last', 'newline' or 'mean'"),
        ({"layer": 0}, "layer\n.*greater than or equal to 1"),
        ({"lora": {"rank": 0}}, "lora.rank\n.*greater than or equal to 1"),
        ({"unknown": 1}, "unknown\n.*Extra inputs are not permitted"),
    ],
)
def test_settings_that_do_not_fit_are_refused(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        StudentConfig(**settings)


def test_settings_survive_a_round_trip_and_cannot_be_changed() -> None:
    config = StudentConfig(layer=16, readout="mean", lora=LoraSettings(rank=4, target_modules=("q_proj", "v_proj")))
    assert StudentConfig.model_validate_json(config.model_dump_json()) == config
    with pytest.raises(ValidationError, match="frozen"):
        config.tau = 2.0  # type: ignore[misc]


def test_the_defaults_are_the_papers_choices() -> None:
    config = StudentConfig()
    assert (config.head, config.positions, config.head_width) == ("self_attention", 50, 512)
    assert (config.readout, config.layer, config.user_token) == ("last", None, False)
    assert config.lora is not None
    assert config.lora.target_modules == "all-linear"


def test_a_layer_beyond_the_backbone_is_refused(tiny_backbone_dir: Path) -> None:
    with pytest.raises(SpdError, match="layer 3 was asked for but the backbone has layers 1 to 2"):
        new_student(tiny_backbone_dir, layer=3)
