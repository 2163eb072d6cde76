"""`train`: presets are read strictly, teachers are attached, and a whole run ends in a checkpoint that loads."""

from __future__ import annotations

import dataclasses
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from spd_core.checkpoint_config import read_config
from spd_core.checkpoints import load_student
from spd_core.datasets import load_slates, write_jsonl
from spd_core.errors import TrainingError
from spd_core.pipeline import rank_slate
from spd_core.recipes.preset import Preset, data_file, preset_names
from spd_core.recipes.run_report import largest_trained
from spd_core.recipes.train import train_preset
from spd_core.recipes.training_data import read_training_set
from spd_core.slate import Ranking, Slate
from spd_core.training.examples import TrainingSet
from spd_core.training.settings import Polish

ROOT = Path(__file__).resolve().parent.parent


@pytest.fixture(scope="module")
def slate_file(make_slate: Callable[..., Slate], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """16 labelled slates with a stored teacher that reverses the input order."""
    slates = []
    for k in range(16):
        slate = make_slate(5, f"s{k}", titles=[f"Oil {(k + j) % 7}" for j in range(5)], label=("c3",))
        slates.append(dataclasses.replace(slate, teacher=Ranking("reversed", slate.item_ids[::-1])))
    file = tmp_path_factory.mktemp("data") / "slates.jsonl"
    write_jsonl(file, slates)
    return file


@pytest.fixture
def preset(slate_file: Path, tiny_backbone_dir: Path) -> Preset:
    return Preset.model_validate(
        {
            "train": (str(slate_file),),
            "valid": str(slate_file),
            "valid_slates": 4,
            "backbone": str(tiny_backbone_dir),
            "student": {"head_width": 64, "readout": "mean", "lora": {"rank": 2}},
            "warm_start": {"slates": 8, "epochs": 1, "batch_slates": 4},
            "train_settings": {"epochs": 1, "batch_slates": 4, "eval_every": 2},
        }
    )


@pytest.mark.parametrize("name", preset_names())
def test_every_preset_is_valid(name: str) -> None:
    preset = Preset.read(name)
    assert preset.train
    assert preset.student.positions >= 50


def test_paper_preset_keeps_the_papers_choices() -> None:
    student = Preset.read("paper").student
    assert (student.head, student.positions, student.head_width) == ("self_attention", 50, 512)
    assert (student.readout, student.layer, student.user_token) == ("last", None, False)
    assert student.lora is not None
    assert student.lora.rank == 64


def test_a_run_ends_in_a_checkpoint_that_loads_and_tells_its_story(
    preset: Preset, slate_file: Path, tiny_backbone_dir: Path, make_slate: Callable[..., Slate], tmp_path: Path
) -> None:
    out = tmp_path / "tiny-trained"
    state = train_preset(preset, run_folder=tmp_path / "run", out=out, device="cpu", dtype="float32")
    assert state.step == 4
    facts = read_config(out).training
    assert facts is not None
    assert (facts.teacher, facts.slates, facts.steps) == ("stored", 16, 4)
    assert list(facts.data) == [slate_file.name]
    assert len(facts.data[slate_file.name]) == 64
    assert str(tmp_path) not in (out / "README.md").read_text()
    student = load_student(out, backbone=str(tiny_backbone_dir), device="cpu", dtype="float32")
    assert sorted(rank_slate(student, make_slate(5)).item_ids) == ["c1", "c2", "c3", "c4", "c5"]


def test_a_slate_larger_than_any_seen_in_training_is_ranked_with_a_warning(
    preset: Preset, slate_file: Path, tiny_backbone_dir: Path, make_slate: Callable[..., Slate], tmp_path: Path
) -> None:
    train_preset(preset, run_folder=tmp_path / "run", out=tmp_path / "small", device="cpu", dtype="float32")
    largest = max(len(slate.candidates) for slate in load_slates(slate_file))
    student = load_student(tmp_path / "small", backbone=str(tiny_backbone_dir), device="cpu", dtype="float32")
    told = f"{largest + 1} candidates, but this checkpoint learned from slates of at most {largest}"
    assert not any(told in warning for warning in rank_slate(student, make_slate(largest)).warnings)
    assert any(told in warning for warning in rank_slate(student, make_slate(largest + 1)).warnings)
    assert f"| largest slate seen | {largest} candidates |" in (tmp_path / "small" / "README.md").read_text()


def test_slates_that_are_filled_up_count_as_k_candidates(preset: Preset, make_slate: Callable[..., Slate]) -> None:
    wide = preset.model_copy(update={"train_settings": preset.train_settings.model_copy(update={"extend_share": 0.1})})
    slates = (make_slate(5),)
    assert largest_trained(wide, TrainingSet(slates, rank=lambda slate: Ranking("any", slate.item_ids))) == 50
    assert largest_trained(wide, TrainingSet(slates)) == largest_trained(preset, TrainingSet(slates)) == 5


def test_frozen_backbone_trains_the_head_alone(preset: Preset, tmp_path: Path) -> None:
    frozen = preset.model_copy(update={"student": preset.student.model_copy(update={"lora": None})})
    state = train_preset(frozen, run_folder=tmp_path / "run", out=tmp_path / "frozen", device="cpu", dtype="float32")
    assert state.step == 4
    assert (tmp_path / "run" / "states.safetensors").is_file()
    assert not (tmp_path / "frozen" / "adapter").exists()


def test_polish_trains_the_head_alone_at_its_own_temperature(preset: Preset, tmp_path: Path) -> None:
    train_preset(preset, run_folder=tmp_path / "a", out=tmp_path / "plain", device="cpu", dtype="float32")
    polished = preset.model_copy(update={"polish": Polish(slates=8, epochs=2, batch_slates=4, tau=2.5)})
    train_preset(polished, run_folder=tmp_path / "b", out=tmp_path / "polished", device="cpu", dtype="float32")
    assert read_config(tmp_path / "polished").student.tau == 2.5
    facts = read_config(tmp_path / "polished").training
    assert facts is not None
    assert (facts.steps, facts.slates) == (4 + 4, 16 + 16)
    assert facts.metrics["validation"]["step"] == 8  # the figures are those after the polish, and say so
    heads = [load_file(tmp_path / name / "head.safetensors") for name in ("plain", "polished")]
    assert any(not torch.equal(heads[0][name], heads[1][name]) for name in heads[0])
    adapters = [load_file(tmp_path / name / "adapter" / "adapter_model.safetensors") for name in ("plain", "polished")]
    assert all(torch.equal(adapters[0][name], adapters[1][name]) for name in adapters[0])


def test_a_run_can_start_from_a_checkpoint(preset: Preset, tmp_path: Path) -> None:
    train_preset(preset, run_folder=tmp_path / "first", out=tmp_path / "one", device="cpu", dtype="float32")
    nothing = preset.train_settings.model_copy(update={"learning_rate": 1e-12, "head_learning_rate": 1e-12, "epochs": 0.25})
    again = preset.model_copy(update={"init": str(tmp_path / "one"), "train_settings": nothing})
    train_preset(again, run_folder=tmp_path / "second", out=tmp_path / "two", device="cpu", dtype="float32")
    one, two = (load_file(tmp_path / name / "head.safetensors") for name in ("one", "two"))
    assert all(torch.equal(one[name], two[name]) for name in one)
    adapters = [load_file(tmp_path / name / "adapter" / "adapter_model.safetensors") for name in ("one", "two")]
    assert all(torch.equal(adapters[0][name], adapters[1][name]) for name in adapters[0])
    other = again.model_copy(update={"student": preset.student.model_copy(update={"tau": 0.5})})
    with pytest.raises(TrainingError, match="was made with other student settings"):
        train_preset(other, run_folder=tmp_path / "third", out=None, device="cpu", dtype="float32")


def test_named_teacher_replaces_the_stored_one_and_purchase_comes_first(preset: Preset) -> None:
    data, valid, _ = read_training_set(preset.changed(teacher="tfidf+purchase"))
    for slate in (*data.slates, *valid):
        assert slate.teacher is not None
        assert slate.teacher.name == "tfidf+purchase"
        assert slate.teacher.permutation[0] == "c3"
    assert data.rank is not None


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"teacher": "oracle"}, "unknown teacher 'oracle'; choose from brand"),
        ({"train": ("missing.jsonl",)}, "data file 'missing.jsonl' is neither here nor in .*set SPD_DATA"),
        ({"epochs": -1}, "epochs is -1"),
    ],
)
def test_bad_settings_are_named(preset: Preset, change: dict[str, object], message: str) -> None:
    with pytest.raises(TrainingError, match=message):
        read_training_set(preset.changed(**change))


def test_unknown_preset_and_bad_toml_are_named(tmp_path: Path) -> None:
    with pytest.raises(TrainingError, match=r"unknown preset 'nope'; choose from beauty-spd.*paper"):
        Preset.read("nope")
    file = tmp_path / "bad.toml"
    file.write_text('train = ["a"]\nvalid = "b"\n[student]\nhead = "mlp"\n')
    with pytest.raises(TrainingError, match=r"student.head is 'mlp'"):
        Preset.read(str(file))


def test_data_folder_comes_from_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "x.jsonl").touch()
    monkeypatch.setenv("SPD_DATA", str(tmp_path))
    assert data_file("x.jsonl") == tmp_path / "x.jsonl"


TWO_PROCESSES = """
import sys, torch
from pathlib import Path
from spd_core.recipes.preset import Preset
from spd_core.recipes.run_report import largest_trained
from spd_core.recipes.train import train_preset
from spd_core.heads import SelfAttentionHead
SelfAttentionHead.__init__.__kwdefaults__["dropout"] = 0.0  # draws differ with the shape of a batch
preset = Preset.model_validate_json(Path(sys.argv[1]).read_text())
train_preset(preset, run_folder=Path(sys.argv[2]), out=None, device="cpu", dtype="float32")
"""


def test_two_processes_give_the_losses_of_one_with_twice_the_batch(preset: Preset, tmp_path: Path) -> None:
    script = tmp_path / "run.py"
    script.write_text(TWO_PROCESSES)
    environment = os.environ | {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", "ACCELERATE_USE_CPU": "true"}

    def losses(name: str, batch: int, launcher: list[str]) -> list[float]:
        settings = preset.train_settings.model_copy(update={"batch_slates": batch, "epochs": 2.0})
        changed = preset.model_copy(update={"train_settings": settings, "warm_start": None})
        (tmp_path / f"{name}.json").write_text(changed.model_dump_json())
        command = [*launcher, str(script), str(tmp_path / f"{name}.json"), str(tmp_path / name)]
        subprocess.run(command, check=True, env=environment, capture_output=True, timeout=240)
        lines = (tmp_path / name / "lora" / "log.jsonl").read_text().splitlines()
        return [entry["loss_nats"] for entry in map(json.loads, lines) if "loss_nats" in entry]

    one = losses("one", 8, [sys.executable])
    # torchrun sets the variables that `accelerate launch` sets too; the latter starts several CPU processes only through MPI
    two = losses("two", 4, [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"])
    assert len(one) == len(two) == 4
    assert two == pytest.approx(one, abs=1e-4)
