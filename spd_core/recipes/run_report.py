"""What a training run tells: a line on the log while it runs, and the facts that its checkpoint keeps."""

from __future__ import annotations

import logging
from typing import Any

from spd_core.checkpoint_config import TrainingFacts
from spd_core.recipes.preset import Preset
from spd_core.recipes.slate_sizes import largest_learned
from spd_core.recipes.training_data import teacher_name
from spd_core.training.examples import TrainingSet
from spd_core.training.loop import RunState

logger = logging.getLogger(__name__)


def training_facts(
    preset: Preset, state: RunState, data: TrainingSet, hashes: dict[str, str], *, minutes: float
) -> TrainingFacts:
    """What the checkpoint says of its training."""
    kept = (state.best_metrics, state.best_step)
    if preset.train_settings.keep == "last":
        kept = (state.last_metrics, state.last_step)
    return TrainingFacts(
        teacher=teacher_name(preset) if preset.train_settings.signal == "teacher" else "clicks",
        data=hashes,
        seed=preset.train_settings.seed,
        slates=state.slates,
        steps=state.step,
        minutes=round(max(minutes, state.seconds / 60), 1),
        largest_slate=largest_trained(preset, data),
        settings=preset.model_dump(mode="json"),
        metrics={"validation": kept[0] | {"step": kept[1], "slates": preset.valid_slates}},
    )


def largest_trained(preset: Preset, data: TrainingSet) -> int:
    """Most candidates of a slate in a run: those of the files, K where slates are filled up to any size, or more before.

    What the checkpoint that the run starts from has learned counts too.
    """
    before = largest_learned(preset.init) if preset.init is not None else None
    if preset.train_settings.extend_share > 0 and data.rank is not None:
        return max(preset.student.positions, before or 0)
    return max(before or 0, *(len(slate.candidates) for slate in data.slates))


def show_progress(entry: dict[str, Any]) -> None:
    """One line on the log for every validation and every tenth step."""
    if "valid" in entry:
        logger.info("step %d: %s", entry["step"], entry["valid"])
    elif entry["step"] % 10 == 0:
        logger.info(
            "step %d of %d, loss %.4f, %.0f tokens/s, %.1f minutes left",
            *(entry[key] for key in ("step", "total_steps", "loss_nats", "tokens_per_s", "minutes_left")),
        )
