"""`train` with role teacher: a language model that learns to write another teacher's rankings, ordinal by ordinal."""

from __future__ import annotations

import dataclasses
import logging
import time
from pathlib import Path

import torch
from accelerate import PartialState

from spd_core import checkpoint_files as files
from spd_core.backbone import load_backbone
from spd_core.backbone_files import find_backbone
from spd_core.checkpoint_config import (
    TeacherCheckpointConfig,
    read_any_config,
)
from spd_core.checkpoint_weights import adapter_tensors
from spd_core.errors import TrainingError
from spd_core.model import attach_lora
from spd_core.prompts import find_template
from spd_core.recipes.model_card import write_teacher_card
from spd_core.recipes.preset import Preset
from spd_core.recipes.run_report import show_progress, training_facts
from spd_core.recipes.shards import this_shard
from spd_core.recipes.training_data import read_training_set
from spd_core.teacher_checkpoints import save_teacher
from spd_core.teachers.autoregressive import AutoregressiveTeacher, output_weights_of
from spd_core.training.loop import Run, RunState, train
from spd_core.training.run_files import RunFiles
from spd_core.training.students import freeze_layers
from spd_core.training.writers import WritingLearner, random_order_nats

logger = logging.getLogger(__name__)


def train_teacher(preset: Preset, *, run_folder: Path, out: Path | None, device: str, dtype: str) -> RunState:
    """State of the finished run; its teacher is saved in `out`. Arguments and errors as in `train_preset`."""
    started = time.monotonic()
    if preset.train_settings.signal != "teacher":
        raise TrainingError("signal is 'clicks', which names one item and no order to write; a teacher learns rankings")
    device = this_shard(device).device
    data, valid, hashes = read_training_set(preset)
    teacher = fresh_teacher(
        preset, name=run_folder.name if out is None else files.checkpoint_id(out), device=device, dtype=dtype
    )
    freeze_layers(teacher.backbone.model, preset.train_settings.frozen_layers)
    if preset.train_settings.compile:
        teacher.backbone.model.compile(dynamic=True)
    learner = WritingLearner(teacher, data, valid, preset.train_settings)
    logger.info("a uniformly random valid permutation costs %.3f nats a token", random_floor(learner))
    state = train(Run(learner, preset.train_settings, RunFiles(run_folder / "lora"), show_progress))
    if out is not None and PartialState().is_main_process:
        facts = training_facts(preset, state, data, hashes, minutes=(time.monotonic() - started) / 60)
        card = write_teacher_card(teacher, preset.writer, facts)
        save_teacher(teacher, out, settings=preset.writer, facts=facts, model_card=card)
    return state


def random_floor(learner: WritingLearner) -> float:
    """Mean loss over the validation slates of a model that knows the format and nothing of the order."""
    floors = []
    for slate in learner.valid:
        _, answer = learner.encode(slate)
        tokens = [len(row) for row in answer]
        floors.append(random_order_nats(len(answer), tokens, discount=learner.settings.rank_discount))
    return sum(floors) / len(floors)


def fresh_teacher(preset: Preset, *, name: str, device: str, dtype: str) -> AutoregressiveTeacher:
    """Teacher that a run starts from, the same in every process: fresh adapters, or those of `preset.init` below.

    Raises:
        TrainingError: the preset has no LoRA, or `init` does not fit.
    """
    if preset.writer.lora is None:
        raise TrainingError("writer.lora is none: a frozen backbone has nothing to train; name a rank")
    torch.manual_seed(preset.train_settings.seed)
    backbone = load_backbone(preset.backbone, device=device, dtype=dtype)
    output_weights = output_weights_of(backbone, find_backbone(preset.backbone))
    backbone = dataclasses.replace(backbone, model=attach_lora(backbone.model, preset.writer.lora))
    teacher = AutoregressiveTeacher(backbone, output_weights, find_template(preset.template), name)
    if preset.init is not None:
        copied = copy_adapters(teacher, preset.init, preset)
        logger.info("%d adapter weights start from %s", copied, preset.init)
    return teacher


@torch.no_grad()
def copy_adapters(teacher: AutoregressiveTeacher, checkpoint: str, preset: Preset) -> int:
    """Number of adapter tensors taken from a checkpoint; those of layers that it lacks stay fresh.

    Raises:
        TrainingError: the checkpoint has another backbone, template or LoRA setting.
    """
    folder = files.find_checkpoint(checkpoint)
    config = read_any_config(folder)
    lora = config.teacher.lora if isinstance(config, TeacherCheckpointConfig) else config.student.lora
    for what, saved, wanted in (
        ("LoRA settings", lora, preset.writer.lora),
        ("template", config.template.hash, teacher.template.hash),
        ("backbone", config.backbone.fingerprint, teacher.backbone.fingerprint),
    ):
        if saved != wanted:
            raise TrainingError(f"init {checkpoint!r} has {what} {saved}, the preset {wanted}; they must be the same")
    own = adapter_tensors(teacher.backbone.model)
    saved_tensors = files.read_tensors(folder, files.ADAPTER_FILE, own, may_lack=True)
    for key, tensor in saved_tensors.items():
        own[key].copy_(tensor)
    return len(saved_tensors)
