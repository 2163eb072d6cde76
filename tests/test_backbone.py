"""Laws of prefill and readout, on two architectures: padding, batches, cuts, and what the causal order implies."""

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import BertConfig, BertModel, GPT2Config, GPT2Model

from spd_core import backbone as module
from spd_core.backbone import (
    DTYPES,
    Backbone,
    candidate_states,
    choose_device,
    choose_dtype,
    load_backbone,
    load_tokenizer,
    prefill,
)
from spd_core.errors import BackboneError
from spd_core.prompts import TEMPLATES, build_prompt
from spd_core.readouts import READOUTS, gather_readout, gather_user_state
from spd_core.slate import Slate
from spd_core.tokenization import SlateBatch, tokenize_slates

MakeSlate = Callable[..., Slate]


@pytest.fixture(scope="module", params=["tiny_backbone_dir", "tiny_qwen3_dir"])
def folder(request: pytest.FixtureRequest) -> str:
    """Folder of each backbone that the laws must hold for."""
    return str(request.getfixturevalue(request.param))


@pytest.fixture(scope="module")
def backbone(folder: str) -> Backbone:
    """Such a backbone in float32, uncut."""
    return load_backbone(folder, device="cpu", dtype="float32")


def batch_of(slates: list[Slate], backbone: Backbone, **options: Any) -> SlateBatch:
    return tokenize_slates([build_prompt(slate, TEMPLATES["shop"]) for slate in slates], backbone.tokenizer, **options)


def states_of(slates: list[Slate], backbone: Backbone, readout: str = "last", **options: Any) -> torch.Tensor:
    with torch.inference_mode():
        return candidate_states(backbone, batch_of(slates, backbone, **options), readout)


@pytest.mark.parametrize("side", ["left", "right"])
@pytest.mark.parametrize("readout", READOUTS)
def test_a_padded_batch_reads_out_each_slate_as_alone(
    make_slate: MakeSlate, backbone: Backbone, readout: str, side: str
) -> None:
    slates = [make_slate(2, history=1), make_slate(9, history=6), make_slate(5, history=0, query="dry hair")]
    together = states_of(slates, backbone, readout, padding_side=side)
    for row, slate in enumerate(slates):
        alone = states_of([slate], backbone, readout)[0]
        assert torch.allclose(together[row, : len(alone)], alone, atol=1e-4 * float(alone.abs().max().clamp_min(1)))


def test_states_are_one_float32_vector_a_candidate(make_slate: MakeSlate, backbone: Backbone) -> None:
    states = states_of([make_slate(3), make_slate(1)], backbone)
    assert states.shape == (2, 3, backbone.hidden_size)
    assert states.dtype == torch.float32


def test_a_candidate_sees_those_before_it_and_none_after(make_slate: MakeSlate, backbone: Backbone) -> None:
    one = states_of([make_slate(4, titles=["Oil", "Comb", "Soap", "Cream"])], backbone)[0]
    other = states_of([make_slate(4, titles=["Oil", "Comb", "Brush", "Cream"])], backbone)[0]
    changed = (one - other).abs().amax(dim=1) > 1e-3
    assert changed.tolist() == [False, False, True, True]


def test_a_cut_backbone_gives_the_states_between_its_layers(make_slate: MakeSlate, backbone: Backbone, folder: str) -> None:
    batch = batch_of([make_slate(3)], backbone)
    with torch.inference_mode():
        full = backbone.model(input_ids=batch.input_ids, output_hidden_states=True, use_cache=False)
    for depth in (1, backbone.layer_count // 2, backbone.layer_count):
        cut = load_backbone(folder, device="cpu", dtype="float32", depth=depth)
        with torch.inference_mode():
            states = prefill(cut.model, batch)
        assert torch.allclose(states, full.hidden_states[depth], atol=1e-4 * float(states.abs().max()))
        assert (cut.depth, cut.layer_count) == (depth, backbone.layer_count)
        assert len(cut.model.layers) == depth
        assert cut.fingerprint == backbone.fingerprint
    assert torch.equal(full.hidden_states[-1], full.last_hidden_state)  # uncut: after the final norm, the paper's choice


@pytest.mark.model
def test_the_embedded_backbone_is_cut_like_the_others(make_slate: MakeSlate) -> None:
    full, cut = (load_backbone(device="cpu", dtype="float32", depth=depth) for depth in (None, 16))
    assert (full.layer_count, full.hidden_size, cut.depth) == (30, 576, 16)
    batch = batch_of([make_slate(3)], full)
    with torch.inference_mode():
        hidden = full.model(input_ids=batch.input_ids, output_hidden_states=True, use_cache=False).hidden_states[16]
        assert torch.allclose(prefill(cut.model, batch), hidden, atol=1e-4 * float(hidden.abs().max()))


@pytest.mark.parametrize("depth", [0, 3, -1])
def test_a_cut_outside_the_backbone_is_refused(tiny_backbone_dir: Path, depth: int) -> None:
    with pytest.raises(BackboneError, match=f"layer {depth} was asked for but the backbone has layers 1 to 2"):
        load_backbone(str(tiny_backbone_dir), device="cpu", depth=depth)


def test_a_loaded_backbone_is_frozen_and_has_no_language_head(backbone: Backbone) -> None:
    assert not backbone.model.training
    assert not any(p.requires_grad for p in backbone.model.parameters())
    assert not any("lm_head" in name for name, _ in backbone.model.named_parameters())


def test_readouts_pick_last_newline_and_mean_of_the_description(make_slate: MakeSlate, tiny_backbone: Backbone) -> None:
    batch = batch_of([make_slate(3), make_slate(2, titles=["Oil", "Hand soap with rose"])], tiny_backbone)
    hidden = torch.randn(*batch.input_ids.shape, 4, generator=torch.Generator().manual_seed(0))
    last, newline, mean = (gather_readout(hidden, batch, readout) for readout in ("last", "newline", "mean"))
    for row, k in batch.candidate_mask.nonzero().tolist():
        span = hidden[row, batch.span_start[row, k] : batch.readout_index[row, k] + 1]
        assert torch.equal(last[row, k], span[-1])
        assert torch.equal(newline[row, k], hidden[row, batch.close_index[row, k]])
        assert torch.allclose(mean[row, k], span.mean(dim=0), atol=1e-6)


def test_padding_does_not_make_a_readout_nan(make_slate: MakeSlate, tiny_backbone: Backbone) -> None:
    for readout in READOUTS:
        assert bool(states_of([make_slate(1), make_slate(4)], tiny_backbone, readout).isfinite().all())


def test_an_unknown_readout_is_refused_with_the_list(make_slate: MakeSlate, tiny_backbone: Backbone) -> None:
    with pytest.raises(BackboneError, match="unknown readout 'first'; choose from last, mean, newline"):
        states_of([make_slate(1)], tiny_backbone, "first")


def test_the_user_state_is_the_mean_over_history_and_query(make_slate: MakeSlate, tiny_backbone: Backbone) -> None:
    batch = batch_of([make_slate(2, history=3, query="dry hair"), make_slate(2, history=0)], tiny_backbone)
    hidden = torch.randn(*batch.input_ids.shape, 4, generator=torch.Generator().manual_seed(0))
    user = gather_user_state(hidden, batch)
    assert torch.allclose(user[0], hidden[0, batch.context_mask[0]].mean(dim=0), atol=1e-6)
    assert user[1].tolist() == [0.0] * 4


def test_left_padding_without_any_pad_is_no_padding(make_slate: MakeSlate, tiny_backbone: Backbone) -> None:
    left = states_of([make_slate(3)], tiny_backbone, padding_side="left")
    assert torch.equal(left, states_of([make_slate(3)], tiny_backbone))


@pytest.mark.parametrize("dtype", DTYPES)
def test_the_dtype_asked_for_is_computed_in(tiny_backbone_dir: Path, make_slate: MakeSlate, dtype: str) -> None:
    backbone = load_backbone(str(tiny_backbone_dir), device="cpu", dtype=dtype)
    assert backbone.dtype == DTYPES[dtype]
    assert states_of([make_slate(3)], backbone).dtype == torch.float32
    assert backbone.device == torch.device("cpu")


@pytest.mark.parametrize(("native", "dtype"), [(True, torch.bfloat16), (False, torch.float32)])
def test_auto_takes_bfloat16_only_where_the_cpu_multiplies_it(
    monkeypatch: pytest.MonkeyPatch, native: bool, dtype: torch.dtype
) -> None:
    monkeypatch.setattr(module, "cpu_multiplies_bf16", lambda: native)
    assert choose_dtype("auto", torch.device("cpu")) == dtype


@pytest.mark.parametrize("available", [True, False])
def test_auto_takes_cuda_where_there_is_one(monkeypatch: pytest.MonkeyPatch, available: bool) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: available)
    assert choose_device("auto") == torch.device("cuda" if available else "cpu")
    assert choose_device("cpu") == torch.device("cpu")


@pytest.mark.parametrize("device", ["cuda", "cuda:1"])
def test_cuda_that_is_not_there_is_refused(monkeypatch: pytest.MonkeyPatch, device: str) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(
        BackboneError, match=f"device '{device}' was asked for but PyTorch sees no CUDA GPU; use --device cpu"
    ):
        choose_device(device)


def test_an_unknown_device_is_refused_with_the_list() -> None:
    with pytest.raises(BackboneError, match="unknown device 'tpu'; choose from auto, cpu, cuda"):
        choose_device("tpu")


def test_an_unknown_dtype_is_refused_with_the_list() -> None:
    with pytest.raises(BackboneError, match="unknown dtype 'int8'; choose from auto, bfloat16, float16, float32"):
        choose_dtype("int8", torch.device("cpu"))


def test_a_model_that_keeps_its_layers_elsewhere_is_refused(tiny_backbone_dir: Path, tmp_path: Path) -> None:
    GPT2Model(GPT2Config(vocab_size=600, n_embd=8, n_layer=1, n_head=1)).save_pretrained(tmp_path)
    with pytest.raises(BackboneError, match="backbone of type GPT2Model has no `layers`; choose a decoder such as Llama"):
        load_backbone(str(tmp_path), device="cpu")


def test_a_model_that_is_no_decoder_is_refused(tmp_path: Path) -> None:
    shape = {"hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 1, "intermediate_size": 8}
    BertModel(BertConfig(vocab_size=600, **shape)).save_pretrained(tmp_path)
    with pytest.raises(BackboneError, match="backbone of type BertModel has no `layers`"):
        load_backbone(str(tmp_path), device="cpu")


def test_a_backbone_without_a_fast_tokenizer_is_refused(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(module.AutoTokenizer, "from_pretrained", lambda *args, **options: object())
    with pytest.raises(BackboneError, match=r"backbone slow: has no fast tokenizer \(tokenizer.json\); choose another model"):
        load_tokenizer(tmp_path / "slow")


def test_names_of_backbones_are_hub_ids_or_folder_names(tiny_backbone_dir: Path) -> None:
    assert load_backbone(str(tiny_backbone_dir), device="cpu").backbone_id == "tiny-llama"
    assert module.backbone_name("Qwen/Qwen3-0.6B", Path("/cache/snapshots/c1899de2")) == "Qwen/Qwen3-0.6B"
    assert module.backbone_name(None, Path("/cache/SmolLM2-135M-Instruct")) == "SmolLM2-135M-Instruct"


def test_the_longest_prompt_is_the_models(tiny_backbone: Backbone) -> None:
    assert tiny_backbone.max_tokens == 4096
    assert dataclasses.replace(tiny_backbone, depth=1).max_tokens == 4096
