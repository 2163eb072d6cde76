"""The joined and the compiled prefill: the same states, taken only where they are right, faster and asked for one prompt."""

from __future__ import annotations

import copy
import dataclasses
import logging
import shutil
from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn
from transformers import LlamaConfig, LlamaModel

from spd_core import quick_pass
from spd_core.backbone import Backbone, base_states
from spd_core.errors import BackboneError
from spd_core.fused_llama import FusedLlama
from spd_core.latency import StageClock, describe_machine, encode_slate, measure_latency, ride_prompts
from spd_core.model import LoraSettings, Student, StudentConfig, attach_lora, build_student
from spd_core.prompts import find_template
from spd_core.quick_pass import QuickPass, compiled_pass, probe, quicken, quicken_aside
from spd_core.recipes.bench_passes import OWN, PASS_TITLES, measure_passes, write_passes
from spd_core.recipes.shapes import build_random_model, find_shape
from spd_core.slate import Slate

MakeSlate = Callable[..., Slate]
COMPILER_SECONDS = 300


@pytest.fixture
def student(tiny_backbone: Backbone) -> Student:
    """A student of its own, so that what makes it quick touches no other."""
    torch.manual_seed(3)
    config = StudentConfig(positions=12, head_width=64, lora=None)
    return build_student(tiny_backbone, config, find_template("shop")).eval()


@pytest.fixture
def joined(monkeypatch: pytest.MonkeyPatch) -> None:
    """The joined form stands for what a compiler makes of it."""
    monkeypatch.setattr(quick_pass, "compiled_pass", lambda student: FusedLlama(student.model).eval().forward)
    monkeypatch.setattr(quick_pass, "time_gain", lambda student, run, length: 2.0)


@torch.inference_mode()
@pytest.mark.parametrize("length", [1, 16, 17, 31, 200])  # tiles are filled up to 16 tokens
def test_joined_weights_give_the_states_of_the_model(tiny_backbone: Backbone, student: Student, length: int) -> None:
    ids = probe(student, length)
    torch.testing.assert_close(
        FusedLlama(tiny_backbone.model)(ids), base_states(tiny_backbone.model, ids), atol=1e-5, rtol=1e-4
    )


@torch.inference_mode()
@pytest.mark.parametrize(("length", "filled"), [(1, 16), (16, 16), (17, 32)])
def test_layers_read_whole_tiles(tiny_backbone: Backbone, student: Student, length: int, filled: int) -> None:
    fused, seen = FusedLlama(tiny_backbone.model), []
    for layer in fused.layers:
        layer.register_forward_pre_hook(lambda module, inputs: seen.append(inputs[0].shape[1]))
    assert fused(probe(student, length)).shape[1] == length
    assert seen == [filled] * len(fused.layers)


@torch.inference_mode()
def test_frequencies_that_depend_on_the_length_are_those_of_the_prompt() -> None:
    torch.manual_seed(0)
    rope = {"rope_type": "dynamic", "factor": 4.0, "rope_theta": 1e4}
    sizes = {"hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2, "num_attention_heads": 4}
    config = LlamaConfig(**sizes, num_key_value_heads=2, vocab_size=97, max_position_embeddings=100, rope_parameters=rope)
    model = LlamaModel(config).eval()
    ids = torch.randint(97, (1, 100))
    own = base_states(model, ids)
    torch.testing.assert_close(FusedLlama(model)(ids), own, atol=1e-5, rtol=1e-4)
    torch.testing.assert_close(base_states(model, ids), own)


@torch.inference_mode()
def test_a_model_that_is_not_cut_keeps_its_final_norm(tiny_backbone: Backbone, student: Student) -> None:
    assert not isinstance(tiny_backbone.model.norm, nn.Identity)
    cut = dataclasses.replace(tiny_backbone, model=FusedLlama(tiny_backbone.model))
    cut.model.norm = nn.Identity()
    ids = probe(student, 9)
    assert not torch.allclose(cut.model(ids), base_states(tiny_backbone.model, ids), atol=1e-2)


def test_other_models_are_refused_by_name(tiny_backbone: Backbone) -> None:
    changed = copy.deepcopy(tiny_backbone.model)
    qwen = build_random_model(find_shape("tiny-shape"), device="cpu", dtype="float32").backbone.model
    with pytest.raises(BackboneError, match="backbone of type 'qwen3' has no joined form"):
        FusedLlama(qwen)
    with pytest.raises(BackboneError, match="backbone of type 'Linear' has no joined form"):
        FusedLlama(nn.Linear(2, 2))
    changed.config.hidden_act, changed.config.mlp_bias = "gelu", True
    with pytest.raises(BackboneError, match="backbone has mlp_bias, hidden_act; the joined form knows Llama without biases"):
        FusedLlama(changed)
    changed.config.hidden_act, changed.config.mlp_bias = "silu", False
    adapted = attach_lora(changed, LoraSettings(rank=2)).get_base_model()
    with pytest.raises(BackboneError, match="backbone has adapters that are not merged"):
        FusedLlama(adapted)


def test_a_quick_student_gives_the_same_scores_and_says_so(student: Student, make_slate: MakeSlate, joined: None) -> None:
    prompts = [encode_slate(student, make_slate(n, f"s{n}")) for n in (5, 7)]

    def scores() -> list[Tensor]:
        rides = (
            ride_prompts(student, group, "hungarian", StageClock(torch.device("cpu"))) for group in (prompts[:1], prompts)
        )
        return [torch.from_numpy(ride.scores) for ride in rides]

    before, asked = scores(), []
    assert "prefill" not in describe_machine(student)
    found = quicken(student)
    assert (found.gain, found.difference < 1e-5, found.seconds > 0) == (2.0, True, True)
    student.quick = lambda ids: asked.append(tuple(ids.shape)) or found.run(ids)
    for one, other in zip(before, scores(), strict=True):
        torch.testing.assert_close(one, other, atol=1e-4, rtol=1e-4)
    assert asked == [(1, len(prompts[0].input_ids))]  # a batch with padding is not for it
    assert describe_machine(student)["prefill"] == "compiled"
    measure_latency(student, make_slate(5), repeats=1, warmup=0)
    assert len(asked) == 3  # the ride and the bare prefill beside it: both sides of the ratio are run alike


@pytest.mark.parametrize(
    ("run", "gain", "message"),
    [
        (lambda own: lambda ids: own(ids) * 1.01, 2.0, r"differs by 0\.01 of the states, 0\.001 are allowed; not used"),
        (lambda own: lambda ids: own(ids) * float("nan"), 2.0, "differs by nan of the states"),
        (lambda own: own, 1.04, r"is 1\.04 times as fast, 1\.05 are wanted; not used"),
    ],
)
def test_a_pass_that_is_wrong_or_slow_is_not_taken(
    student: Student,
    monkeypatch: pytest.MonkeyPatch,
    run: Callable[..., Callable[[Tensor], Tensor]],
    gain: float,
    message: str,
) -> None:
    monkeypatch.setattr(quick_pass, "compiled_pass", lambda student: run(FusedLlama(student.model).forward))
    monkeypatch.setattr(quick_pass, "time_gain", lambda student, run, length: gain)
    with pytest.raises(BackboneError, match=message):
        quicken(student)
    assert student.quick is None


def test_a_machine_without_a_compiler_leaves_the_student_as_it_came(
    student: Student, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(*_: object, **__: object) -> Callable[[Tensor], Tensor]:
        def call(*_: Tensor) -> Tensor:
            raise RuntimeError("No working C++ compiler found\nwith a long story")

        return call

    monkeypatch.setattr(torch, "compile", broken)
    caplog.set_level(logging.INFO, logger="spd_core")
    thread = quicken_aside(student)
    thread.join(timeout=60)
    assert student.quick is None
    (told,) = caplog.messages
    assert told == (
        "no compiled pass: the pass could not be compiled (No working C++ compiler found); the student runs as it came"
    )
    with pytest.raises(BackboneError, match="could not be compiled"):
        quicken(student)


def test_a_student_is_made_quick_beside_its_work(student: Student, joined: None, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, logger="spd_core")
    thread = quicken_aside(student)
    assert thread.daemon
    thread.join(timeout=60)
    assert student.quick is not None
    assert caplog.messages[-1].endswith("2.00 times as fast")


def test_gain_is_the_ratio_of_the_median_times(student: Student, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = iter(range(10**6))
    monkeypatch.setattr(quick_pass.time, "perf_counter", lambda: float(next(clock)))

    def slow(ids: Tensor) -> Tensor:
        for _ in range(3):
            next(clock)
        return ids

    assert quick_pass.time_gain(student, slow, 5) == 0.25


@pytest.mark.timeout(COMPILER_SECONDS)
@pytest.mark.skipif(not (shutil.which("g++") or shutil.which("clang++")), reason="no C++ compiler here")
def test_a_compiled_pass_takes_any_length_and_the_ways_of_running_agree(
    student: Student, make_slate: MakeSlate, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(quick_pass, "PROBE_TOKENS", (33, 60))
    run = compiled_pass(student)
    with torch.inference_mode():
        for length in (1, 2, 17, 128):
            ids = probe(student, length)
            torch.testing.assert_close(run(ids), base_states(student.model, ids), atol=1e-4, rtol=1e-3)
    found = measure_passes(student, [make_slate(5), make_slate(7)], repeats=2, warmup=0)
    assert [row.name for row in found] == [*PASS_TITLES, *PASS_TITLES]
    assert all(row.difference < 1e-4 and row.time.n == 2 and row.tflops > 0 for row in found)
    assert all(row.gain == 1.0 for row in found if row.name == OWN)
    assert [row.candidates for row in found[::4]] == [5, 7]
    lines = list(write_passes(found, 1.0))
    assert len(lines) == 10
    assert "%" in lines[1]
    assert "%" not in list(write_passes(found, None))[1]


def test_ways_that_cannot_run_here_are_left_out_and_named(
    student: Student, make_slate: MakeSlate, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(student: Student) -> QuickPass:
        raise BackboneError("no compiler here")

    monkeypatch.setattr("spd_core.recipes.bench_passes.compiled_pass", broken)
    found = measure_passes(student, [make_slate(3)], repeats=1)
    assert [row.name for row in found] == ["written out", OWN, "joined"]
    assert caplog.messages == ["no compiler here"]
