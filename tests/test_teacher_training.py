"""Teaching a model to write: the loss sees the answer alone, a run learns an order, and ends in a checkpoint that loads."""

from __future__ import annotations

import dataclasses
import itertools
import math
import random
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch

from spd_core.backbone import load_backbone
from spd_core.checkpoint_config import TeacherSettings, read_teacher_config
from spd_core.checkpoints import save_student
from spd_core.datasets import write_jsonl
from spd_core.errors import TrainingError
from spd_core.model import LoraSettings, Student, attach_lora
from spd_core.recipes.preset import Preset
from spd_core.recipes.train_teacher import copy_adapters, fresh_teacher, train_teacher
from spd_core.slate import Ranking, Slate
from spd_core.teacher_checkpoints import load_teacher
from spd_core.teachers.autoregressive import AutoregressiveTeacher
from spd_core.training.examples import TrainingSet, teacher_positions
from spd_core.training.masters import MasterWeights
from spd_core.training.settings import TrainSettings
from spd_core.training.sources import Variation
from spd_core.training.students import freeze_layers, trainable_adapters
from spd_core.training.writers import WritingLearner, collate_answers, random_order_nats, rank_weight

MakeSlate = Callable[..., Slate]
SETTINGS = TrainSettings(batch_slates=4, learning_rate=1e-2)


def ranked_slates(make_slate: MakeSlate, count: int, n: int) -> list[Slate]:
    """Slates whose teacher puts the items in falling order of their title's number; the first one is the label."""
    slates = []
    for k in range(count):
        numbers = random.Random(k).sample(range(1, 10), n)
        slate = make_slate(n, f"s{k}", history=1, titles=[f"Oil {number}" for number in numbers])
        order = sorted(range(n), key=lambda i: -numbers[i])
        ids = tuple(slate.item_ids[i] for i in order)
        slates.append(dataclasses.replace(slate, teacher=Ranking("falling", ids), label=ids[:1]))
    return slates


@pytest.fixture
def trainable(tiny_backbone_dir: Path, tiny_teacher: AutoregressiveTeacher) -> AutoregressiveTeacher:
    """A teacher with fresh adapters of its own to train."""
    torch.manual_seed(0)
    backbone = load_backbone(str(tiny_backbone_dir), device="cpu", dtype="float32")
    adapted = dataclasses.replace(backbone, model=attach_lora(backbone.model, LoraSettings(rank=8, alpha=16.0)))
    return dataclasses.replace(tiny_teacher, backbone=adapted)


def learner_of(teacher: AutoregressiveTeacher, slates: list[Slate]) -> WritingLearner:
    return WritingLearner(teacher, TrainingSet(tuple(slates)), slates, SETTINGS)


def test_the_loss_is_the_weighted_cross_entropy_of_the_answer_tokens(
    tiny_teacher: AutoregressiveTeacher, make_slate: MakeSlate
) -> None:
    slates = [*ranked_slates(make_slate, 1, 5), *ranked_slates(make_slate, 2, 3)]
    learner = learner_of(tiny_teacher, slates)
    batch = collate_answers([learner.encode(slate) for slate in slates], tiny_teacher.backbone)
    total = weight_sum = 0.0
    with torch.no_grad():
        loss = float(learner.loss(batch))
        for slate in slates:
            prompt, answer = learner.encode(slate)
            written = list(itertools.chain(*answer))
            hidden = tiny_teacher.backbone.model(torch.tensor([prompt + written])).last_hidden_state[0]
            logs = (hidden @ tiny_teacher.output_weights.T).log_softmax(dim=1)
            place = len(prompt) - 1
            for rank, tokens in enumerate(answer):
                for token in tokens:
                    total -= rank_weight(rank) * float(logs[place, token])
                    weight_sum += rank_weight(rank)
                    place += 1
    assert loss == pytest.approx(total / weight_sum, rel=1e-4)


def test_the_answer_is_the_teachers_ranking(tiny_teacher: AutoregressiveTeacher, make_slate: MakeSlate) -> None:
    (slate,) = ranked_slates(make_slate, 1, 4)
    _, answer = learner_of(tiny_teacher, [slate]).encode(slate)
    text = tiny_teacher.backbone.tokenizer.decode(list(itertools.chain(*answer)), skip_special_tokens=True)
    position = {int(ordinal) - 1: rank for rank, ordinal in enumerate(text.split(">"))}
    assert [position[i] for i in range(4)] == teacher_positions(slate)


def test_the_random_floor_is_what_a_uniform_writer_pays() -> None:
    # 2 candidates, one token each and a separator or end: log 2 at rank 0, nothing at rank 1.
    assert random_order_nats(2, [2, 2]) == pytest.approx(math.log(2) / (2 + 2 * rank_weight(1)))
    assert random_order_nats(2, [2, 2], discount=False) == pytest.approx(math.log(2) / 4)
    assert random_order_nats(1, [2]) == 0.0


def test_without_the_discount_every_answer_token_weighs_alike(
    tiny_teacher: AutoregressiveTeacher, make_slate: MakeSlate
) -> None:
    learner = learner_of(tiny_teacher, ranked_slates(make_slate, 1, 4))
    encoded = [learner.encode(learner.data.slates[0])]
    assert set(collate_answers(encoded, tiny_teacher.backbone, discount=False).weights.tolist()) == {1.0}
    assert len(set(collate_answers(encoded, tiny_teacher.backbone).weights.tolist())) == 4


def test_training_teaches_the_format_within_a_few_steps(trainable: AutoregressiveTeacher, make_slate: MakeSlate) -> None:
    learner = learner_of(trainable, ranked_slates(make_slate, 4, 3))
    masters = MasterWeights(learner.parameter_groups())
    losses = []
    for step in range(40):
        for batch in learner.batches(range(4), Variation(epoch=step, step_key=step)):
            loss = learner.loss(batch)
            loss.backward()
            losses.append(float(loss.detach()))
            masters.collect()
        masters.step(1.0, 1.0)
    assert losses[0] > math.log(tiny_vocabulary(trainable)) / 2  # knows nothing yet
    assert losses[-1] < losses[0] / 4


def tiny_vocabulary(teacher: AutoregressiveTeacher) -> int:
    return len(teacher.output_weights)


def test_validation_reports_the_order_and_the_share_of_valid_answers(
    tiny_teacher: AutoregressiveTeacher, make_slate: MakeSlate
) -> None:
    slates = ranked_slates(make_slate, 3, 4)
    report = learner_of(tiny_teacher, slates).validate()
    answers = list(tiny_teacher.with_mode("free").answers(slates))
    assert report.valid_share == pytest.approx(np.mean([not answer.is_repaired for answer in answers]))
    firsts = [answer.permutation[0] == slate.label[0] for slate, answer in zip(slates, answers, strict=True)]  # type: ignore[index]
    assert report.recall_at_1 == pytest.approx(np.mean(firsts))
    assert set(report.as_dict()) == {"auc", "recall_at_1", "kendall_tau", "valid_share"}


def test_frozen_layers_keep_their_adapters(trainable: AutoregressiveTeacher, make_slate: MakeSlate) -> None:
    model = trainable.backbone.model
    before = {name: p.detach().clone() for name, p in model.named_parameters() if "lora_" in name}
    everything = len(trainable_adapters(model))
    freeze_layers(model, 1)
    assert len(trainable_adapters(model)) == everything // 2
    learner = learner_of(trainable, ranked_slates(make_slate, 4, 3))
    masters = MasterWeights(learner.parameter_groups())
    for step in range(2):
        for batch in learner.batches(range(4), Variation(epoch=0, step_key=step)):
            learner.loss(batch).backward()
            masters.collect()
        masters.step(1.0, 1.0)
    moved = {name for name, p in model.named_parameters() if "lora_" in name and not torch.equal(p, before[name])}
    assert moved
    assert all(".layers.1." in name for name in moved)


@pytest.fixture
def slate_file(make_slate: MakeSlate, tmp_path: Path) -> Path:
    file = tmp_path / "slates.jsonl"
    write_jsonl(file, ranked_slates(make_slate, 8, 3))
    return file


def preset_of(slate_file: Path, tiny_backbone_dir: Path, **changes: object) -> Preset:
    record = {
        "role": "teacher",
        "train": (str(slate_file),),
        "valid": str(slate_file),
        "valid_slates": 4,
        "backbone": str(tiny_backbone_dir),
        "writer": TeacherSettings(lora=LoraSettings(rank=2, alpha=4.0)),
        "train_settings": SETTINGS.model_copy(update={"keep": "last", "eval_every": 1, "save_every": 1}),
    }
    return Preset.model_validate(record | changes)


def test_a_run_ends_in_a_checkpoint_that_loads(
    slate_file: Path, tiny_backbone_dir: Path, tmp_path: Path, make_slate: MakeSlate
) -> None:
    preset = preset_of(slate_file, tiny_backbone_dir)
    state = train_teacher(preset, run_folder=tmp_path / "run", out=tmp_path / "mine", device="cpu", dtype="float32")
    assert state.step == 2
    config = read_teacher_config(tmp_path / "mine")
    assert config.training is not None
    assert config.training.metrics["validation"].keys() >= {"auc", "valid_share"}
    assert "learned to write" in (tmp_path / "mine" / "README.md").read_text("utf-8")
    teacher = load_teacher(tmp_path / "mine", backbone=str(tiny_backbone_dir), device="cpu", dtype="float32")
    assert teacher.answer(make_slate(3)).kind == "ok"


def test_a_stopped_run_goes_on_to_the_same_weights(slate_file: Path, tiny_backbone_dir: Path, tmp_path: Path) -> None:
    preset = preset_of(slate_file, tiny_backbone_dir)
    settings = preset.train_settings.model_copy(update={"epochs": 2.0})
    whole = preset.model_copy(update={"train_settings": settings})
    train_teacher(whole, run_folder=tmp_path / "a", out=tmp_path / "whole", device="cpu", dtype="float32")
    stopped = RuntimeError("stopped")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("spd_core.recipes.train_teacher.show_progress", _stop_at(2, stopped))
        with pytest.raises(RuntimeError):
            train_teacher(whole, run_folder=tmp_path / "b", out=tmp_path / "rest", device="cpu", dtype="float32")
    train_teacher(whole, run_folder=tmp_path / "b", out=tmp_path / "rest", device="cpu", dtype="float32")
    first, second = (read_teacher_config(tmp_path / name).files for name in ("whole", "rest"))
    assert first == second


def _stop_at(step: int, error: Exception) -> Callable[[dict[str, object]], None]:
    def stop(entry: dict[str, object]) -> None:
        if entry["step"] == step and "valid" in entry:
            raise error

    return stop


def test_a_teacher_can_start_from_a_students_adapters(
    slate_file: Path, tiny_backbone_dir: Path, tiny_student: Student, tmp_path: Path
) -> None:
    save_student(tiny_student, tmp_path / "student", facts=None, model_card="")
    preset = preset_of(slate_file, tiny_backbone_dir, init=str(tmp_path / "student"))
    teacher = fresh_teacher(preset, name="t", device="cpu", dtype="float32")
    own = {name: p for name, p in teacher.backbone.model.named_parameters() if "lora_" in name}
    theirs = {name: p for name, p in tiny_student.model.named_parameters() if "lora_" in name}
    assert own.keys() == theirs.keys()
    for name, tensor in theirs.items():
        assert torch.equal(own[name], tensor.bfloat16().float())


def test_adapters_of_another_rank_are_refused(
    slate_file: Path, tiny_backbone_dir: Path, tiny_student: Student, tmp_path: Path
) -> None:
    save_student(tiny_student, tmp_path / "student", facts=None, model_card="")
    writer = TeacherSettings(lora=LoraSettings(rank=4, alpha=4.0))
    preset = preset_of(slate_file, tiny_backbone_dir, init=str(tmp_path / "student"), writer=writer)
    with pytest.raises(TrainingError, match=r"has LoRA settings .*rank=2.*, the preset .*rank=4.*; they must be the same"):
        fresh_teacher(preset, name="t", device="cpu", dtype="float32")


def test_layers_that_a_checkpoint_lacks_stay_fresh(
    slate_file: Path, tiny_backbone_dir: Path, tiny_student: Student, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = save_student(tiny_student, tmp_path / "student", facts=None, model_card="")
    preset = preset_of(slate_file, tiny_backbone_dir)
    teacher = fresh_teacher(preset, name="t", device="cpu", dtype="float32")
    from safetensors.torch import load_file, save_file

    file = folder / "adapter" / "adapter_model.safetensors"
    lowest = {name: tensor for name, tensor in load_file(file).items() if ".layers.0." in name}
    save_file(lowest, file)
    assert copy_adapters(teacher, str(folder), preset) == len(lowest)
    upper = [p for name, p in teacher.backbone.model.named_parameters() if "lora_B" in name and ".layers.1." in name]
    assert all(not p.any() for p in upper)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"train_settings": SETTINGS.model_copy(update={"signal": "clicks"})}, "signal is 'clicks', which names one item"),
        ({"writer": TeacherSettings(lora=None)}, "writer.lora is none: a frozen backbone has nothing to train"),
    ],
)
def test_what_cannot_teach_is_refused(
    slate_file: Path, tiny_backbone_dir: Path, tmp_path: Path, changes: dict[str, object], message: str
) -> None:
    preset = preset_of(slate_file, tiny_backbone_dir, **changes)
    with pytest.raises(TrainingError, match=message):
        train_teacher(preset, run_folder=tmp_path / "run", out=None, device="cpu", dtype="float32")
