"""A student as the training loop sees it: score matrices from a source, Sinkhorn or click loss, decoded validation."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from torch import Tensor, nn

from spd_core.loss import click_cross_entropy, sinkhorn_cross_entropy
from spd_core.model import Student, StudentConfig
from spd_core.training.settings import TrainSettings
from spd_core.training.sources import Source, TrainingBatch, Variation
from spd_core.training.validation import Validation, validate

LAYER_NUMBER = re.compile(r"\blayers\.([0-9]+)\.")


@dataclass(frozen=True)
class StudentLearner:
    """A student with its training and validation slates."""

    student: Student
    source: Source
    valid: Source
    settings: TrainSettings

    @property
    def module(self) -> nn.Module:
        """The student."""
        return self.student

    @property
    def lengths(self) -> list[int]:
        """Of the training source."""
        return self.source.lengths

    def batches(self, indices: Sequence[int], vary: Variation) -> Iterator[TrainingBatch]:
        """Of the training source."""
        return self.source.batches(indices, vary)

    def loss(self, batch: TrainingBatch) -> Tensor:
        """Scalar mean loss over the slates of a batch, as the settings' signal asks for."""
        return slate_loss(self.source.score(batch), batch, self.student.config, self.settings)

    def parameter_groups(self) -> list[tuple[list[Any], float, float]]:
        """(parameters, peak rate, decay) of the adapters, of the head's matrices, and of its vectors (never decayed)."""
        adapters = trainable_adapters(self.student.model)
        matrices = [p for p in self.student.head.parameters() if p.ndim > 1]
        vectors = [p for p in self.student.head.parameters() if p.ndim <= 1]
        rate = self.settings.head_learning_rate
        return [
            (adapters, self.settings.learning_rate, 0.0),
            (matrices, rate, self.settings.weight_decay),
            (vectors, rate, 0.0),
        ]

    def validate(self) -> Validation:
        """Report on all validation slates."""
        return validate(self.student, self.valid, self.settings.batch_slates)


def trainable_adapters(model: nn.Module) -> list[Any]:
    """Adapter weights of a model that are not frozen."""
    return [p for name, p in model.named_parameters() if "lora_" in name and p.requires_grad]


def freeze_layers(model: nn.Module, count: int) -> None:
    """Freeze the adapters of the lowest `count` layers: they keep their weights and need no backward pass."""
    for name, parameter in model.named_parameters():
        layer = LAYER_NUMBER.search(name)
        if "lora_" in name and layer is not None and int(layer[1]) < count:
            parameter.requires_grad_(False)


def slate_loss(matrix: Tensor, batch: TrainingBatch, config: StudentConfig, settings: TrainSettings) -> Tensor:
    """Scalar mean loss over the slates of a batch, as the settings' signal asks for."""
    targets, sinkhorn = batch.targets, {"tau": config.tau, "iterations": config.sinkhorn_iterations}
    clicks = settings.signal == "clicks" or settings.click_weight > 0
    click = click_cross_entropy(matrix, targets.relevant, targets.candidate_mask, **sinkhorn) if clicks else None  # type: ignore[arg-type]
    if settings.signal == "clicks":
        assert click is not None
        return click
    loss = sinkhorn_cross_entropy(matrix, targets.positions, targets.candidate_mask, **sinkhorn)  # type: ignore[arg-type]
    return loss if click is None else loss + settings.click_weight * click
