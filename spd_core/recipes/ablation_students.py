"""Students of an ablation's cells as checkpoints, so that they can be ranked with, looked into and timed like any other."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from pathlib import Path

from spd_core.backbone import load_backbone
from spd_core.checkpoint_config import TrainingFacts
from spd_core.checkpoints import save_student
from spd_core.model import Student
from spd_core.recipes.ablation_ground import Ground
from spd_core.recipes.ablation_plan import PlannedCell
from spd_core.recipes.ablation_run import Trained, train_adapters, train_head
from spd_core.recipes.model_card import write_card

logger = logging.getLogger(__name__)


def save_students(ground: Ground, cells: Sequence[PlannedCell], folder: Path) -> list[Path]:
    """Checkpoints of the first seed of each cell, named like the cells; those that are there already are kept.

    Args:
        ground: that the cells were trained on; finished runs in its folder are not trained again.
        cells: of its plan.
        folder: made if it is not there.

    Raises:
        SpdError: training failed, or something else has the name of a cell.
    """
    folder.mkdir(parents=True, exist_ok=True)
    for cell in cells:
        if (folder / cell.name).exists():
            continue
        seed, config = cell.budget.seeds[0], cell.preset.student
        stages = [train_head(ground, cell, seed)]
        if config.lora is not None:
            stages.append(train_adapters(ground, cell, seed, stages[0].student))
        student = stages[-1].student
        if config.lora is None:  # its head was trained on states of a deeper backbone; it is saved with its own
            own = load_backbone(cell.preset.backbone, device=ground.device, dtype=ground.dtype, depth=config.layer)
            student = Student(own, student.head, config, ground.template)
        facts = facts_of(ground, cell, stages, seed)
        save_student(student, folder / cell.name, facts=facts, model_card=write_card(cell.name, student, facts))
        logger.info("student of %s saved in %s", cell.name, folder / cell.name)
    return [folder / cell.name for cell in cells]


def facts_of(ground: Ground, cell: PlannedCell, stages: Sequence[Trained], seed: int) -> TrainingFacts:
    """What the checkpoint says of its training; figures of the cell are in its result file, not here."""
    return TrainingFacts(
        teacher="clicks" if cell.factors.signal == "clicks" else cell.preset.teacher,
        data=dict(ground.slates.hashes),
        seed=seed,
        slates=sum(trained.stage.seen for trained in stages),
        steps=sum(trained.stage.steps for trained in stages),
        minutes=round(sum(trained.stage.minutes for trained in stages), 1),
        largest_slate=max(len(slate.candidates) for slate in ground.slates.train),
        settings=cell.settings(),
    )
