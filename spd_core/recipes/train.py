"""`train`: a student from a preset, its head warmed up on cached states, its adapters trained, saved with a model card.

A killed run goes on where its run folder stopped. Under `accelerate launch` each process takes its share of every batch.
"""

from __future__ import annotations

import dataclasses
import logging
import random
import time
from pathlib import Path
from typing import Annotated

import torch
import typer
from accelerate import PartialState

from spd_core.backbone import load_backbone
from spd_core.checkpoint_files import checkpoint_id
from spd_core.checkpoints import load_student, save_student
from spd_core.errors import TrainingError
from spd_core.model import Student, build_student
from spd_core.prompts import find_template
from spd_core.recipes.model_card import write_card
from spd_core.recipes.preset import Preset
from spd_core.recipes.run_report import show_progress, training_facts
from spd_core.recipes.shards import this_shard
from spd_core.recipes.train_teacher import train_teacher
from spd_core.recipes.training_data import read_training_set
from spd_core.slate import Slate
from spd_core.training.examples import TrainingSet, select_candidates
from spd_core.training.loop import Run, RunState, train
from spd_core.training.run_files import RunFiles
from spd_core.training.settings import Polish, TrainSettings, WarmStart
from spd_core.training.sources import CachedSource, LiveSource
from spd_core.training.students import StudentLearner, freeze_layers

logger = logging.getLogger(__name__)


def train_preset(preset: Preset, *, run_folder: Path, out: Path | None, device: str, dtype: str) -> RunState:
    """State of the finished run; its student is saved in `out`.

    Args:
        preset: all settings.
        run_folder: log, cached states and resumable state; kept after the run.
        out: checkpoint folder; None saves nothing.
        device, dtype: of the backbone.

    Raises:
        SpdError: bad settings or data, or training diverged.
    """
    started = time.monotonic()
    device = this_shard(device).device
    data, valid, hashes = read_training_set(preset)
    student = fresh_student(preset, device=device, dtype=dtype)
    settings = preset.train_settings
    if student.config.lora is None:
        state = train_frozen(student, data, valid, settings, run_folder)
    else:
        if preset.warm_start is not None and preset.init is None:
            warm_up_head(student, data, valid, preset, run_folder / "warm_start")
        freeze_layers(student.model, settings.frozen_layers)
        if settings.compile:
            student.model.compile(dynamic=True)
        live = LiveSource(student, data, settings)
        valid_source = LiveSource(student, TrainingSet(tuple(valid)), settings)
        run = Run(
            StudentLearner(student, live, valid_source, settings), settings, RunFiles(run_folder / "lora"), show_progress
        )
        state = train(run)
        if preset.polish is not None:
            state = joined(state, polish_head(student, data, valid, preset, run_folder / "polish"))
    if out is not None and PartialState().is_main_process:
        facts = training_facts(preset, state, data, hashes, minutes=(time.monotonic() - started) / 60)
        save_student(student, out, facts=facts, model_card=write_card(checkpoint_id(out), student, facts))
    return state


def fresh_student(preset: Preset, *, device: str, dtype: str) -> Student:
    """Student that a run starts from, the same in every process: untrained, or with the weights of `preset.init`."""
    torch.manual_seed(preset.train_settings.seed)
    if preset.init is not None:
        return continued_student(preset, preset.init, device=device, dtype=dtype)
    backbone = load_backbone(preset.backbone, device=device, dtype=dtype, depth=preset.student.layer)
    return build_student(backbone, preset.student, find_template(preset.template))


def continued_student(preset: Preset, checkpoint: str, *, device: str, dtype: str) -> Student:
    """Student of a checkpoint with its head and adapters ready to be trained on.

    Raises:
        TrainingError: the preset asks for another student or wording than the checkpoint holds.
    """
    student = load_student(checkpoint, backbone=preset.backbone, device=device, dtype=dtype, merge=False)
    if student.config != preset.student or student.template != find_template(preset.template):
        raise TrainingError(
            f"checkpoint {checkpoint!r} was made with other student settings or another template than the preset names; "
            "copy them into the preset, or leave out init"
        )
    student.head.requires_grad_(True)
    for name, parameter in student.model.named_parameters():
        parameter.requires_grad_("lora_" in name)
    return student


def train_frozen(student: Student, data: TrainingSet, valid: list[Slate], settings: TrainSettings, folder: Path) -> RunState:
    """State of a run that trains the head alone on states cached once."""
    source = CachedSource(student, shuffled(data.slates, settings.seed), folder / "states.safetensors")
    student.head.standardize.fit(source.all_states())  # type: ignore[union-attr, operator]
    valid_source = CachedSource(student, valid, folder / "valid_states.safetensors")
    learner = StudentLearner(student, source, valid_source, settings)
    return train(Run(learner, settings, RunFiles(folder / "head"), show_progress))


def warm_up_head(student: Student, data: TrainingSet, valid: list[Slate], preset: Preset, folder: Path) -> None:
    """Train the head on frozen states, before the adapters (which start without effect) move."""
    warm = preset.warm_start or WarmStart()
    settings = head_settings(preset.train_settings, warm)
    train_frozen(student, sample_slates(data, warm.slates, settings.seed), valid, settings, folder)


def polish_head(student: Student, data: TrainingSet, valid: list[Slate], preset: Preset, folder: Path) -> RunState:
    """Train the head on states of the adapted backbone, at the temperature that the student then keeps."""
    polish = preset.polish or Polish()
    settings = head_settings(preset.train_settings, polish)
    student.config = student.config.model_copy(update={"tau": polish.tau})
    chosen = sample_slates(data, polish.slates, settings.seed + 1)
    source = CachedSource(student, shuffled(chosen.slates, settings.seed + 1), folder / "states.safetensors")
    valid_source = CachedSource(student, valid, folder / "valid_states.safetensors")
    learner = StudentLearner(student, source, valid_source, settings)
    return train(Run(learner, settings, RunFiles(folder / "head"), show_progress))


def joined(first: RunState, second: RunState) -> RunState:
    """Two stages as one run: the second's figures, counted from the start of the first."""
    return dataclasses.replace(
        second,
        **{name: getattr(first, name) + getattr(second, name) for name in ("step", "slates", "tokens", "seconds")},
        best_step=first.step + second.best_step,
        last_step=first.step + second.last_step,
    )


def head_settings(settings: TrainSettings, stage: WarmStart | Polish) -> TrainSettings:
    """Settings of a stage that trains the head alone."""
    own = {name: getattr(stage, name) for name in ("epochs", "head_learning_rate", "batch_slates")}
    return settings.model_copy(update=own | {"eval_every": 50, "compile": False})


def sample_slates(data: TrainingSet, count: int, seed: int) -> TrainingSet:
    """At most `count` of the slates, drawn without replacement."""
    chosen = random.Random(seed).sample(data.slates, min(count, len(data.slates)))
    return dataclasses.replace(data, slates=tuple(chosen))


def shuffled(slates: tuple[Slate, ...], seed: int) -> list[Slate]:
    """The slates, each with its candidates in a random order: cached states hold one order only."""
    result = []
    for slate in slates:
        order = list(range(len(slate.candidates)))
        random.Random(f"{seed}/{slate.slate_id}").shuffle(order)
        result.append(select_candidates(slate, order))
    return result


def command(
    preset: Annotated[str | None, typer.Option(help="Name of a preset, or a TOML file; default: by --role.")] = None,
    role: Annotated[str | None, typer.Option(help="student or teacher; what the preset says if left out.")] = None,
    train_files: Annotated[list[str] | None, typer.Option("--train", help="Training slates; may be given often.")] = None,
    valid: Annotated[str | None, typer.Option(help="Validation slates.")] = None,
    teacher: Annotated[str | None, typer.Option(help="stored, labels, or a teacher's name, perhaps with +purchase.")] = None,
    labels: Annotated[list[str] | None, typer.Option(help="File that label wrote, for --teacher labels; repeatable.")] = None,
    ungated: Annotated[bool, typer.Option("--ungated", help="Learn from labels whose gate failed.")] = False,
    repaired: Annotated[bool, typer.Option("--repaired", help="Learn from repaired rankings too.")] = False,
    run: Annotated[Path | None, typer.Option(help="Run folder: log and resumable state.")] = None,
    out: Annotated[Path | None, typer.Option(help="Checkpoint folder to write.")] = None,
    init: Annotated[str | None, typer.Option(help="Checkpoint to start from instead of a fresh student.")] = None,
    backbone: Annotated[str | None, typer.Option(help="Hub id or folder.")] = None,
    epochs: Annotated[float | None, typer.Option(help="Passes over the training slates.")] = None,
    batch_slates: Annotated[int | None, typer.Option(help="Slates of one forward pass.")] = None,
    max_slates: Annotated[int | None, typer.Option(help="First slates of each training file.")] = None,
    seed: Annotated[int | None, typer.Option(help="Seed of everything random.")] = None,
    device: Annotated[str, typer.Option(help="auto, cpu or cuda.")] = "auto",
    dtype: Annotated[str, typer.Option(help="auto, float32, bfloat16 or float16.")] = "auto",
) -> None:
    """Train a student or a teacher from a preset; a rerun of the same command goes on where a killed one stopped."""
    preset = preset or ("beauty-teacher" if role == "teacher" else "beauty-spd")
    chosen = Preset.read(preset).changed(
        role=role,
        train=tuple(train_files) if train_files else None,
        valid=valid,
        teacher=teacher,
        labels=tuple(labels) if labels else None,
        ungated=ungated or None,
        repaired=repaired or None,
        init=init,
        backbone=backbone,
        max_slates=max_slates,
        epochs=epochs,
        batch_slates=batch_slates,
        seed=seed,
    )
    name = Path(preset).stem
    run_folder = run or Path("runs") / name
    if out is None and (Path("sample_data") / "checkpoints" / name).exists():
        raise TrainingError(f"a checkpoint {name!r} is already there; name the folder to write with --out")
    target = out or Path("sample_data") / "checkpoints" / name
    recipe = train_teacher if chosen.role == "teacher" else train_preset
    recipe(chosen, run_folder=run_folder, out=target, device=device, dtype=dtype)
    if PartialState().is_main_process:
        flag = f"--ranker teacher:{target}" if chosen.role == "teacher" else f"--checkpoint {target}"
        typer.echo(f"saved {target}; measure it with `python -m spd_core evaluate SLATES.jsonl {flag}`")
