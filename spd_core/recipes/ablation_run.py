"""One cell of an ablation trained and measured: the head on shared states first, then, for LoRA, adapters from there.

A killed run goes on inside its training run; a finished seed is in the cell's result file and never trained again.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import logging
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from spd_core.ablation import CellResult, CurvePoint, SeedRun, Stage, pack_values, write_cell
from spd_core.backbone import load_backbone
from spd_core.latency import describe_machine
from spd_core.model import Student, build_student
from spd_core.pipeline import score_slates
from spd_core.recipes.ablation_ground import Ground, Measured, cached_scores, measure
from spd_core.recipes.ablation_plan import PlannedCell
from spd_core.recipes.ablation_record import finished, seeds_to_do, with_run
from spd_core.recipes.run_report import show_progress
from spd_core.training.examples import TrainingSet
from spd_core.training.loop import Run, RunState, step_slates, train
from spd_core.training.run_files import RunFiles
from spd_core.training.settings import TrainSettings
from spd_core.training.sources import CachedSource, LiveSource
from spd_core.training.students import StudentLearner

logger = logging.getLogger(__name__)


@dataclasses.dataclass(frozen=True)
class Trained:
    """A student after one stage."""

    student: Student
    stage: Stage
    curve: tuple[CurvePoint, ...]


def run_cell(ground: Ground, cell: PlannedCell, out: Path) -> CellResult:
    """Result of a cell with all its seeds, its file written after each of them.

    Args:
        ground: shared by all cells.
        cell: of the ground's plan.
        out: folder of results; what it holds of this cell is kept.

    Raises:
        SpdError: the folder holds this cell with other settings, or training failed.
    """
    result = finished(out, cell, ground)
    for seed in seeds_to_do(result, cell):
        logger.info("cell %s, seed %d", cell.name, seed)
        run, measured, machine = run_seed(ground, cell, seed)
        result = with_run(result, run, cell, ground, measured, machine)
        write_cell(out, result)
    assert result is not None
    return result


def run_seed(ground: Ground, cell: PlannedCell, seed: int) -> tuple[SeedRun, Measured, dict[str, str | int]]:
    """One run of a cell, what it measured, and the machine it ran on."""
    trained = train_head(ground, cell, seed)
    stages = [trained]
    if cell.preset.student.lora is None:
        measured = measure(cached_scores(held_out_source(ground, cell, trained.student)), ground)
    else:
        stages.append(train_adapters(ground, cell, seed, trained.student))
        measured = measure(score_slates(stages[-1].student, ground.slates.held_out), ground)
    run = SeedRun(
        seed=seed,
        stages=tuple(stage.stage for stage in stages),
        curve=tuple(point for stage in stages for point in stage.curve),
        values={
            decoder: {metric: pack_values(numbers) for metric, numbers in row.items()}
            for decoder, row in measured.values.items()
        },
    )
    return run, measured, describe_machine(stages[-1].student)


def train_head(ground: Ground, cell: PlannedCell, seed: int) -> Trained:
    """A head trained on shared states; the frozen cell's run and the first stage of its LoRA cell are the same folder."""
    settings = cell.head_settings.model_copy(update={"seed": seed})
    torch.manual_seed(seed)
    student = build_student(ground.backbone, cell.frozen_student, ground.template)
    place = cell.place(ground.backbone.layer_count)
    source = CachedSource(student, ground.slates.train, ground.train_states[place])
    student.head.standardize.fit(source.all_states())  # type: ignore[union-attr, operator]
    learner = StudentLearner(student, source, held_out_source(ground, cell, student, ground.plan.curve_slates), settings)
    files = RunFiles(stage_folder(ground, cell, settings, "head"))
    state = train(Run(learner, settings, files, show_progress))
    return trained_stage("head", student, state, learner, files, slates=len(ground.slates.train))


def train_adapters(ground: Ground, cell: PlannedCell, seed: int, start: Student) -> Trained:
    """Adapters and head trained on live prompts, from a head that knows the frozen states."""
    preset = cell.preset
    settings = preset.train_settings.model_copy(update={"seed": seed})
    backbone = load_backbone(preset.backbone, device=ground.device, dtype=ground.dtype, depth=preset.student.layer)
    torch.manual_seed(seed)
    student = build_student(backbone, preset.student, ground.template)
    student.head.load_state_dict(start.head.state_dict())
    chosen = ground.slates.train[: cell.budget.slates]
    if settings.compile:
        student.model.compile(dynamic=True)
    curve = TrainingSet(ground.slates.held_out[: ground.plan.curve_slates])
    learner = StudentLearner(
        student, LiveSource(student, TrainingSet(chosen), settings), LiveSource(student, curve, settings), settings
    )
    files = RunFiles(stage_folder(ground, cell, settings, "lora"))
    state = train(Run(learner, settings, files, show_progress))
    return trained_stage("lora", student, state, learner, files, slates=len(chosen))


def held_out_source(ground: Ground, cell: PlannedCell, student: Student, count: int | None = None) -> CachedSource:
    """The held-out slates, or the first `count` of them, by their shared states."""
    place = cell.place(ground.backbone.layer_count)
    return CachedSource(student, ground.slates.held_out[:count], ground.held_out_states[place])


def stage_folder(ground: Ground, cell: PlannedCell, settings: TrainSettings, stage: str) -> Path:
    """Run folder of a stage, named by everything that decides it, so that equal stages share one."""
    config = cell.frozen_student if stage == "head" else cell.preset.student
    slates = len(ground.slates.train) if stage == "head" else cell.budget.slates
    decided = [
        config.model_dump_json(),
        settings.model_dump_json(),
        cell.head_settings.model_dump_json(),
        ground.content,
        slates,
    ]
    digest = hashlib.sha256(json.dumps(decided).encode()).hexdigest()[:12]
    return ground.folder / stage / f"{cell.factors.head}-{cell.factors.signal}-seed{settings.seed}-{digest}"


def trained_stage(
    name: str, student: Student, state: RunState, learner: StudentLearner, files: RunFiles, *, slates: int
) -> Trained:
    """What a finished stage is and cost."""
    facts = {"slates": slates, "seen": state.slates, "steps": state.step, "minutes": round(state.seconds / 60, 2)}
    stage = Stage.model_validate({"name": name} | facts)
    log = [json.loads(line) for line in files.log_file.read_text("utf-8").splitlines()]
    points = curve_points(name, log, step_slates(learner.settings), len(learner.valid.lengths))
    return Trained(student, stage, points)


def curve_points(stage: str, log: Sequence[dict[str, Any]], slates_a_step: int, n: int) -> tuple[CurvePoint, ...]:
    """Validations of a run's log, each with the mean loss since the one before."""
    points, losses = [], []
    for entry in log:
        if "valid" not in entry:
            losses.append(entry["loss_nats"])
            continue
        loss = round(sum(losses) / len(losses), 5) if losses else None
        seen = entry["step"] * slates_a_step
        fields = {"stage": stage, "seen": seen, "n": n, "auc": entry["valid"]["auc"], "loss_nats": loss}
        points.append(CurvePoint.model_validate(fields))
        losses = []
    return tuple(points)
