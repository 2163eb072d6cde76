"""Training: steps move the loss, a killed run gives the same curve, every choice is a function of the seed."""

from __future__ import annotations

import dataclasses
import itertools
import json
import random
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from spd_core.backbone import load_backbone
from spd_core.errors import TrainingError
from spd_core.model import LoraSettings, Student, StudentConfig, build_student
from spd_core.prompts import TEMPLATES
from spd_core.slate import Item, Ranking, Slate, UserContext
from spd_core.training.examples import (
    TrainingSet,
    check_signal,
    draw_size,
    plan_epoch,
    teacher_positions,
    vary_slate,
    vary_slates,
)
from spd_core.training.loop import Run, RunState, accumulate, train
from spd_core.training.masters import MasterWeights, rate_factor
from spd_core.training.run_files import RunFiles
from spd_core.training.settings import TrainSettings
from spd_core.training.sources import CachedSource, LiveSource, split_by_tokens
from spd_core.training.students import StudentLearner
from spd_core.training.validation import validate

SETTINGS = TrainSettings(epochs=3, batch_slates=4, learning_rate=3e-3, head_learning_rate=3e-3, eval_every=6, save_every=4)


@pytest.fixture(scope="module")
def slates() -> tuple[Slate, ...]:
    """16 slates whose teacher sorts by the number in the title."""
    return tuple(numbered_slate(k) for k in range(16))


def numbered_slate(seed: int, size: int = 6) -> Slate:
    numbers = random.Random(seed).sample(range(10), size)
    candidates = tuple(Item(f"i{number}", f"Cream {number}") for number in numbers)
    order = tuple(f"i{number}" for number in sorted(numbers))
    return Slate(
        f"s{seed}", UserContext((Item("h", "Soap"),)), candidates, label=(order[0],), teacher=Ranking("sorted", order)
    )


def new_student(folder: Path, *, lora: bool = True) -> Student:
    torch.manual_seed(0)
    backbone = load_backbone(str(folder), device="cpu", dtype="float32")
    config = StudentConfig(head_width=64, lora=LoraSettings(rank=2, alpha=4.0) if lora else None, readout="mean")
    return build_student(backbone, config, TEMPLATES["shop"])


def live_run(folder: Path, slates: tuple[Slate, ...], run_folder: Path, settings: TrainSettings = SETTINGS) -> Run:
    student = new_student(folder)
    source = LiveSource(student, TrainingSet(slates), settings)
    return Run(StudentLearner(student, source, source, settings), settings, RunFiles(run_folder))


def losses(run_folder: Path) -> list[float]:
    lines = (run_folder / "log.jsonl").read_text().splitlines()
    return [entry["loss_nats"] for entry in map(json.loads, lines) if "loss_nats" in entry]


def test_loss_falls_from_log_n(tiny_backbone_dir: Path, slates: tuple[Slate, ...], tmp_path: Path) -> None:
    settings = SETTINGS.model_copy(update={"epochs": 15})
    state = train(live_run(tiny_backbone_dir, slates, tmp_path, settings))
    curve = losses(tmp_path)
    assert state.step == len(curve) == 60
    assert curve[0] == pytest.approx(torch.log(torch.tensor(6.0)).item(), abs=0.6)
    assert sum(curve[-8:]) / 8 < 0.7 * curve[0]


def test_killed_run_gives_the_curve_of_an_uninterrupted_one(
    tiny_backbone_dir: Path, slates: tuple[Slate, ...], tmp_path: Path
) -> None:
    whole = live_run(tiny_backbone_dir, slates, tmp_path / "whole")
    train(whole)

    class Killed(Exception):
        pass

    def kill(entry: dict[str, object]) -> None:
        if entry["step"] == 7 and "loss_nats" in entry:
            raise Killed

    broken = dataclasses.replace(live_run(tiny_backbone_dir, slates, tmp_path / "cut"), progress=kill)
    with pytest.raises(Killed):
        train(broken)
    resumed = live_run(tiny_backbone_dir, slates, tmp_path / "cut")
    train(resumed)
    assert losses(tmp_path / "cut") == pytest.approx(losses(tmp_path / "whole"), abs=1e-5)
    for first, second in zip(whole.learner.module.parameters(), resumed.learner.module.parameters(), strict=True):
        torch.testing.assert_close(first, second)


@pytest.mark.parametrize("keep", ["best", "last"])
def test_run_ends_with_the_weights_to_keep(
    tiny_backbone_dir: Path, slates: tuple[Slate, ...], tmp_path: Path, keep: str
) -> None:
    settings = SETTINGS.model_copy(update={"keep": keep, "eval_every": 1, "learning_rate": 0.05, "head_learning_rate": 0.05})
    run = live_run(tiny_backbone_dir, slates, tmp_path, settings)
    state = train(run)
    assert state.best_step < state.last_step == state.step  # at this rate the last step is not the best one
    expected = state.best_metrics if keep == "best" else state.last_metrics
    assert validate(run.learner.student, run.learner.valid, 4).as_dict() == pytest.approx(expected, abs=1e-4)


def test_run_folder_of_other_settings_is_refused(tiny_backbone_dir: Path, slates: tuple[Slate, ...], tmp_path: Path) -> None:
    train(live_run(tiny_backbone_dir, slates, tmp_path))
    other = SETTINGS.model_copy(update={"seed": 5})
    with pytest.raises(TrainingError, match=r"other settings \(seed: saved 0, now 5\)"):
        train(live_run(tiny_backbone_dir, slates, tmp_path, other))


@pytest.mark.parametrize("parts", [{"accumulation": 2, "batch_slates": 4}, {"batch_tokens": 500, "batch_slates": 8}])
def test_gradient_of_a_step_does_not_depend_on_its_parts(
    tiny_backbone_dir: Path, slates: tuple[Slate, ...], tmp_path: Path, parts: dict[str, int]
) -> None:
    def gradients(settings: TrainSettings) -> list[torch.Tensor]:
        run = live_run(tiny_backbone_dir, slates, tmp_path / str(settings.batch_slates), settings)
        run.learner.module.eval()  # dropout draws differ with the shape of a batch
        masters = MasterWeights(run.learner.parameter_groups())
        accumulate(run, masters, list(range(8)), epoch=0)
        return [master.grad for master in masters.masters if master.grad is not None]

    whole = gradients(SETTINGS.model_copy(update={"batch_slates": 8}))
    assert len(whole) > 10
    for one, two in zip(whole, gradients(SETTINGS.model_copy(update=parts)), strict=True):
        torch.testing.assert_close(one, two, atol=1e-5, rtol=1e-3)


def test_divergence_stops_and_names_the_step(tiny_backbone_dir: Path, slates: tuple[Slate, ...], tmp_path: Path) -> None:
    run = live_run(tiny_backbone_dir, slates, tmp_path)
    with torch.no_grad():
        run.learner.module.head.score.bias.fill_(float("nan"))  # type: ignore[union-attr]
    with pytest.raises(TrainingError, match="step 1: loss nan"):
        train(run)


def test_frozen_states_are_cached_once_and_train_the_head(
    tiny_backbone_dir: Path, slates: tuple[Slate, ...], tmp_path: Path
) -> None:
    student = new_student(tiny_backbone_dir, lora=False)
    file = tmp_path / "states.safetensors"
    first = CachedSource(student, slates, file)
    written = file.stat().st_mtime_ns
    again = CachedSource(student, slates, file)
    assert file.stat().st_mtime_ns == written
    torch.testing.assert_close(first.states["items/s3"], again.states["items/s3"])
    fewer = tmp_path / "fewer.safetensors"
    CachedSource(student, slates[:2], fewer)
    CachedSource(student, slates, fewer)  # a file that lacks slates is replaced, not computed anew in each run
    assert fewer.stat().st_size == file.stat().st_size
    batch = next(first.batches([3], None))
    with torch.no_grad():
        student.eval()
        cached_scores = first.score(batch)
        source = LiveSource(student, TrainingSet(slates), SETTINGS)
        live = source.score(next(source.batches([3], None)))
    torch.testing.assert_close(cached_scores, live, atol=2e-2, rtol=2e-2)  # states are kept in bfloat16
    longer = SETTINGS.model_copy(update={"epochs": 20})
    state = train(Run(StudentLearner(student, first, first, longer), longer, RunFiles(tmp_path / "run")))
    assert state.best_metrics["auc"] > 0.7


def test_epochs_vary_the_order_and_repeat_with_the_seed(slates: tuple[Slate, ...]) -> None:
    data = TrainingSet(slates)
    first = [vary_slate(slates[0], data, seed=str(epoch), size=6).item_ids for epoch in range(6)]
    again = [vary_slate(slates[0], data, seed=str(epoch), size=6).item_ids for epoch in range(6)]
    assert first == again
    assert len(set(first)) > 1
    assert all(sorted(ids) == sorted(slates[0].item_ids) for ids in first)


def test_unshuffled_slates_stay_as_they_are_in_every_pass(slates: tuple[Slate, ...]) -> None:
    still = SETTINGS.model_copy(update={"shuffle": False})
    for epoch in range(3):
        assert vary_slates(slates, TrainingSet(slates), still, epoch=epoch, step_key=0, positions=6) == list(slates)
    whole = numbered_slate(3, size=10)
    fewer = vary_slate(whole, TrainingSet(slates), seed="0", size=5, shuffle=False).item_ids
    assert list(fewer) == [item_id for item_id in whole.item_ids if item_id in fewer]


def test_subsets_keep_the_label_and_the_teachers_order() -> None:
    slate = numbered_slate(3, size=10)
    for epoch in range(30):
        varied = vary_slate(slate, TrainingSet((slate,)), seed=str(epoch), size=5)
        assert len(varied.candidates) == 5
        assert any(varied.relevant())
        assert varied.teacher is not None
        assert list(varied.teacher.permutation) == sorted(varied.teacher.permutation)


def test_extended_slates_are_ranked_anew() -> None:
    slate = numbered_slate(3, size=5)
    pool = tuple(Item(f"i{number}", f"Cream {number}") for number in range(10, 40))

    def rank(wider: Slate) -> Ranking:
        return Ranking("sorted", tuple(sorted(wider.item_ids, key=lambda item_id: int(item_id[1:]))))

    varied = vary_slate(slate, TrainingSet((slate,), rank, pool), seed="0", size=20)
    numbers = [int(item_id[1:]) for item_id in varied.item_ids]
    assert len(set(numbers)) == 20
    assert set(slate.item_ids) <= set(varied.item_ids)
    assert teacher_positions(varied) == [sorted(numbers).index(number) for number in numbers]


def test_sizes_of_steps_follow_the_shares(slates: tuple[Slate, ...]) -> None:
    settings = SETTINGS.model_copy(update={"subset_share": 0.25, "extend_share": 0.25})
    data = TrainingSet(slates, rank=lambda slate: Ranking("as is", slate.item_ids))
    sizes = [draw_size(data, settings, epoch=0, step_key=k, count=10, positions=50) for k in range(400)]
    assert 60 < sum(size < 10 for size in sizes) < 140
    assert 60 < sum(size > 10 for size in sizes) < 140
    assert min(sizes) == 5
    assert max(sizes) == 50
    stored = [draw_size(TrainingSet(slates), settings, epoch=0, step_key=k, count=10, positions=50) for k in range(400)]
    assert max(stored) == 10


def test_parts_are_bounded_in_slates_and_padded_tokens() -> None:
    settings = SETTINGS.model_copy(update={"batch_slates": 4, "batch_tokens": 100})
    parts = list(split_by_tokens([10, 10, 10, 10, 10, 60, 40, 150], settings))
    assert parts == [[0, 1, 2, 3], [4], [5], [6], [7]]


def test_plan_holds_each_slate_at_most_once_and_groups_lengths() -> None:
    lengths = [(7 * k) % 100 for k in range(400)]
    plan = plan_epoch(lengths, batch=10, seed=1, epoch=0)
    flat = [index for batch in plan for index in batch]
    assert sorted(flat) == list(range(400))
    spread = [max(lengths[i] for i in batch) - min(lengths[i] for i in batch) for batch in plan]
    assert sum(spread) / len(spread) < 10
    assert plan != plan_epoch(lengths, batch=10, seed=1, epoch=1)


@pytest.mark.parametrize(("signal", "message"), [("teacher", "has no teacher ranking"), ("clicks", "has no label")])
def test_missing_signal_is_named(make_slate: Callable[..., Slate], signal: str, message: str) -> None:
    with pytest.raises(TrainingError, match=f"slate 's1': {message}"):
        check_signal([make_slate(3)], signal)


def test_empty_training_set_is_refused() -> None:
    with pytest.raises(TrainingError, match="got 0 training slates"):
        TrainingSet(())


def test_bfloat16_weights_move_by_less_than_their_spacing() -> None:
    parameter = torch.nn.Parameter(torch.ones(4, dtype=torch.bfloat16))
    masters = MasterWeights([([parameter], 1e-4, 0.0)])
    for _ in range(100):
        parameter.grad = torch.ones_like(parameter)
        masters.collect()
        masters.step(1.0, 10.0)
    assert masters.masters[0][0].item() == pytest.approx(0.99, abs=1e-3)
    assert parameter[0].item() == pytest.approx(0.99, abs=4e-3)


def test_rate_rises_then_falls_to_zero() -> None:
    factors = [rate_factor(step, 100, 0.1) for step in range(101)]
    assert factors[:10] == pytest.approx([0.1 * k for k in range(1, 11)])
    assert factors[10] == 1.0
    assert all(a >= b for a, b in itertools.pairwise(factors[10:]))
    assert factors[100] == pytest.approx(0.0, abs=1e-9)


def test_state_starts_at_step_zero() -> None:
    assert RunState().step == 0
