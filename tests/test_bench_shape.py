"""`bench --preset`: every measurement is made or named with its reason; ratios are those of the medians."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from transformers import AutoModelForCausalLM, Qwen3Config

from spd_core import __main__ as command_line
from spd_core.errors import SpdError
from spd_core.latency import STAGES, Spread
from spd_core.prompts import build_prompt
from spd_core.recipes import bench_shape
from spd_core.recipes.bench import bench_shape as run_preset
from spd_core.recipes.bench_shape import measure_shape, software_facts
from spd_core.recipes.bench_writing import WAYS, answer_tokens, measure_writing, write_rankings
from spd_core.recipes.shape_report import RideCost, ShapeReport, WritingCost, write_shape_report
from spd_core.recipes.shapes import SHAPES, RandomModel, build_random_model, build_tokenizer, draw_slates, find_shape
from spd_core.tokenization import encode_prompt

PLACE = {"device": "cpu", "dtype": "float32"}
QUICK = PLACE | {"repeats": 2, "warmup": 0, "turns": 1}
FLAGS = ["--preset", "tiny-shape", "--device", "cpu", "--dtype", "float32", "--n", "1", "--warmup", "0", "--turns", "1"]


@pytest.fixture(scope="module")
def reports() -> list[ShapeReport]:
    """A run of the tiny shape, one report a measurement."""
    return list(measure_shape("tiny-shape", **QUICK))


@pytest.fixture(scope="module")
def model() -> RandomModel:
    """The tiny shape in float32 on the CPU."""
    return build_random_model(find_shape("tiny-shape"), **PLACE)


def spread(*samples_ms: float) -> Spread:
    return Spread.of(samples_ms)


def ride(path: str, batch: int, total_ms: float) -> RideCost:
    stages = {stage: spread(total_ms / len(STAGES)) for stage in STAGES}
    return RideCost(path, batch, 100, stages, spread(total_ms), spread(total_ms / 2), 2.0, 0.0)


def report_of(*rides: RideCost, writing: tuple[WritingCost, ...] = ()) -> ShapeReport:
    facts = {"candidates": 5, "parameters": 7, "gemm_tflops": 2.0, "prefill_gflop": 4.0, "warmup": 0}
    return ShapeReport(
        "tiny-shape", "made up", machine={"cpu": "x"}, date="2026-01-01", rides=rides, writing=writing, **facts
    )


def test_all_that_a_cpu_can_do_is_measured(reports: list[ShapeReport]) -> None:
    last = reports[-1]
    assert last.missing == {}
    assert {(cost.path, cost.batch) for cost in last.rides} == {
        (path, batch) for path in ("fused", "plain") for batch in (1, 2)
    }
    ways = {(way, batch) for way in ("constrained", "free", "generate") for batch in (1, 2)} | {("generate static", 1)}
    assert {(cost.way, cost.batch) for cost in last.writing} == ways
    assert all(list(cost.stages) == list(STAGES) for cost in last.rides)
    assert {spread.n for cost in last.rides for spread in (*cost.stages.values(), cost.total, cost.bare_prefill)} == {2}
    assert {cost.total.n for cost in last.writing} == {1}
    assert max(cost.score_gap for cost in last.rides) < 1e-3


def test_there_is_a_report_after_each_measurement(reports: list[ShapeReport]) -> None:
    assert [len(report.rides) + len(report.writing) for report in reports] == list(range(1, len(reports) + 1))


def test_every_way_writes_as_many_tokens_as_a_ranking_takes(model: RandomModel) -> None:
    assert answer_tokens(model, 12) == 9 + 2 * 3 + 11  # digits and separators
    assert answer_tokens(model, 5) == 9
    passes = {way: write_rankings(model, way, draw_slates(model.shape, 2)) for way in WAYS}
    assert passes.pop("constrained") == 4  # one an ordinal, the prefill the first; the last ordinal needs none
    assert set(passes.values()) == {9}


def test_an_unknown_way_is_named_with_the_known_ones(model: RandomModel) -> None:
    with pytest.raises(SpdError, match="unknown way of writing 'by hand'; choose from constrained, free, generate,"):
        measure_writing(model, "by hand", draw_slates(model.shape, 1), repeats=1)


def test_no_measurement_is_begun_when_time_is_up() -> None:
    *_, last = measure_shape("tiny-shape", budget_s=-1.0, **QUICK)
    assert not last.rides
    assert not last.writing
    assert len(last.missing) == 4 + 7
    assert all("not begun, as " in reason for reason in last.missing.values())


def test_what_fails_is_named_and_the_rest_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(student: object, path: str) -> object:
        raise RuntimeError(f"no kernel for {path}\nand a long trace")

    monkeypatch.setattr(bench_shape, "on_path", fail)
    *_, last = measure_shape("tiny-shape", **QUICK)
    assert last.missing["plain, batch 2"] == "RuntimeError: no kernel for plain"
    assert (len(last.rides), len(last.writing), len(last.missing)) == (0, 7, 4)
    assert "not measured: fused, batch 1: RuntimeError: no kernel for fused" in list(write_shape_report(last))
    monkeypatch.setattr("spd_core.recipes.bench.measure_shape", lambda preset: iter([last]))
    with pytest.raises(SpdError, match="'tiny-shape': no ride could be measured; fused, batch 1: RuntimeError: no kernel"):
        run_preset("tiny-shape")


@pytest.mark.parametrize(("option", "value"), [("repeats", 0), ("warmup", -1), ("turns", 0)])
def test_nothing_to_measure_is_refused(option: str, value: int) -> None:
    with pytest.raises(SpdError, match=rf"{option} (is )?{value}.*measure at least 1 after 0 or more"):
        next(measure_shape("tiny-shape", **QUICK | {option: value}))


def test_an_unknown_preset_is_named_with_the_known_ones() -> None:
    with pytest.raises(SpdError, match=r"unknown preset 'gpt'; choose from qwen3-0\.6b-shape, tiny-shape"):
        next(measure_shape("gpt", **QUICK))


def test_the_published_shape_has_as_many_weights_as_the_published_model() -> None:
    with torch.device("meta"):
        empty = AutoModelForCausalLM.from_config(Qwen3Config(**find_shape("qwen3-0.6b-shape").dimensions))
    attention = 1024 * 2048 * 2 + 1024 * 1024 * 2 + 2 * 128  # q and o, k and v, norms of q and k
    layer = attention + 3 * 1024 * 3072 + 2 * 1024
    assert sum(weight.numel() for weight in empty.parameters()) == 28 * layer + 151_936 * 1024 + 1024 == 596_049_920


@pytest.mark.parametrize("name", SHAPES)
def test_prompts_are_as_long_as_the_caps_allow(name: str) -> None:
    shape, tokenizer = SHAPES[name], build_tokenizer()
    slates = draw_slates(shape, 5)
    prompts = [encode_prompt(build_prompt(slate, shape.template), tokenizer) for slate in slates]
    lengths = [len(prompt.input_ids) for prompt in prompts]
    for prompt in prompts:
        used = [last - start + 1 for start, last in zip(prompt.starts, prompt.lasts, strict=True)]
        assert used == [shape.template.candidate_cap] * shape.candidates
    assert lengths[0] == lengths[4] == max(lengths)
    assert len(set(lengths[:4])) == 4  # so that a batch needs padding
    assert name != "qwen3-0.6b-shape" or 1450 <= min(lengths) <= max(lengths) <= 1550


def test_equal_seeds_give_equal_models(model: RandomModel) -> None:
    same, other = (build_random_model(model.shape, **PLACE, seed=seed) for seed in (0, 1))
    name = "layers.1.mlp.up_proj.weight"
    weight = model.backbone.model.get_parameter(name)
    assert torch.equal(weight, same.backbone.model.get_parameter(name))
    assert not torch.equal(weight, other.backbone.model.get_parameter(name))
    assert model.teacher().output_weights.data_ptr() == model.backbone.model.get_input_embeddings().weight.data_ptr()


def test_ratios_are_those_of_the_medians() -> None:
    writing = (WritingCost("generate", 2, 9, 9, spread(300.0)),)
    ratios = report_of(ride("fused", 1, 8.0), ride("fused", 2, 20.0), ride("recorded", 2, 5.0), writing=writing).ratios()
    assert ratios["1"] == {
        "fastest": "fused",
        "fastest_ms": 8.0,
        "gain": {"fused": 1.0},
        "writing_to_fastest": {},
        "writing_to_reference": {},
    }
    assert ratios["2"]["gain"] == {"fused": 1.0, "recorded": 4.0}
    assert ratios["2"]["writing_to_fastest"] == {"generate": 60.0}
    assert ratios["2"]["writing_to_reference"] == {"generate": 15.0}


def test_a_run_without_the_reference_compares_nothing_with_it() -> None:
    writing = (WritingCost("free", 1, 9, 9, spread(80.0)),)
    report = report_of(ride("plain", 1, 8.0), writing=writing)
    assert set(report.ratios()["1"]) == {"fastest", "fastest_ms", "writing_to_fastest"}
    assert any(line.startswith("free") and line.endswith("10.0x") for line in write_shape_report(report))


def test_the_json_says_random_and_holds_no_single_sample(reports: list[ShapeReport]) -> None:
    record = json.loads(json.dumps(reports[-1].to_json(), allow_nan=False))
    assert record["weights"] == "random"
    assert set(record["rides"][0]["total"]) == {"median_ms", "p95_ms", "n"}
    assert record["rides"][1]["slates_per_s"] == pytest.approx(2e3 / record["rides"][1]["total"]["median_ms"], rel=1e-3)
    assert record["ratios"].keys() == {"1", "2"}


def test_the_table_shows_the_share_of_the_peak() -> None:
    lines = list(write_shape_report(report_of(ride("fused", 2, 16.0))))
    assert "RANDOM weights: times only" in lines[0]
    (share,) = (line for line in lines if line.startswith("share of peak"))
    assert share.split()[-1] == "50%"  # 2 prompts of 4 GFLOP at 2 TFLOP/s take 4 ms; the bare prefill took 8


def test_the_driver_is_read_where_there_is_one(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    file = tmp_path / "version"
    monkeypatch.setattr(bench_shape, "DRIVER_FILE", file)
    assert "driver" not in software_facts()
    file.write_text("NVRM version: NVIDIA UNIX x86_64 Kernel Module  570.133.20  Sun Mar 30 2025\n", "utf-8")
    assert software_facts()["driver"] == "570.133.20"


def test_the_command_prints_and_writes_one_json_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "shape.json"
    assert command_line.main(["bench", *FLAGS, "--out", str(out)]) == 0
    *table, last = capsys.readouterr().out.splitlines()
    assert json.loads(last) == json.loads(out.read_text("utf-8"))
    assert json.loads(last)["preset"] == "tiny-shape"
    assert table[0].startswith("tiny-shape")


@pytest.mark.parametrize("words", [[], ["--checkpoint", "x", "--preset", "tiny-shape"]])
def test_bench_wants_either_a_checkpoint_or_a_preset(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert command_line.main(["bench", *words]) == 2
    assert "give either --checkpoint, an id or folder, or --preset" in capsys.readouterr().err


@pytest.mark.parametrize("words", [["--compile"], ["--capacity"], ["--teacher", "x"]])
def test_what_a_shape_cannot_have_is_refused(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert command_line.main(["bench", "--preset", "tiny-shape", *words]) == 2
    assert "--compile, --capacity and --teacher go with --checkpoint" in capsys.readouterr().err


@pytest.mark.parametrize("words", [["--preset", "tiny-shape"], ["--checkpoint", "x"]])
def test_a_place_that_cannot_be_written_is_told_first(
    words: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert command_line.main(["bench", *words, "--out", str(tmp_path / "no" / "x.json")]) == 2
    assert "in a folder that does not exist" in capsys.readouterr().err


@pytest.mark.gpu
def test_all_that_a_gpu_can_do_is_measured() -> None:
    *_, last = measure_shape("tiny-shape", device="cuda", repeats=2, warmup=1, turns=1)
    assert last.missing == {}
    assert {cost.path for cost in last.rides} == {"fused", "recorded", "plain", "compiled"}
    assert max(cost.score_gap for cost in last.rides) < 0.5
