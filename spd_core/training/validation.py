"""How good a student is on held-out slates during training: a short report, not the evaluation."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

import numpy as np
import torch

from spd_core.decoding import find_decoder, to_positions
from spd_core.metrics import kendall_tau, pair_auc
from spd_core.model import Student
from spd_core.training.sources import Source


@dataclass(frozen=True)
class Validation:
    """Means over the validation slates."""

    auc: float
    """Of the Hungarian decoder; share of (relevant, irrelevant) pairs in the right order."""
    recall_at_1: float
    """Of the Hungarian decoder."""
    auc_expected_position: float
    auc_first_column: float
    kendall_tau: float
    """Hungarian ranking against the teacher's."""

    def as_dict(self) -> dict[str, float]:
        """Rounded values by name."""
        return {name: round(value, 5) for name, value in dataclasses.asdict(self).items()}


@torch.inference_mode()
def validate(student: Student, source: Source, batch_slates: int) -> Validation:
    """Report on all slates of `source`; leaves the student in eval mode."""
    with torch.compiler.set_stance("force_eager"):  # a graph for evaluation would take minutes to compile
        return _validate(student.eval(), source, batch_slates)


def _validate(student: Student, source: Source, batch_slates: int) -> Validation:
    rows: list[tuple[float, ...]] = []
    order = sorted(range(len(source.lengths)), key=lambda i: source.lengths[i])
    for start in range(0, len(order), batch_slates):
        for batch in source.batches(order[start : start + batch_slates], None):
            matrices = source.score(batch).double().cpu().numpy()
            targets = [tensor.cpu().numpy() for tensor in batch.targets]
            for matrix, positions, relevant, mask in zip(matrices, *targets, strict=True):
                rows.append(report_slate(matrix[mask], positions[mask], relevant[mask]))
    means = np.nanmean(np.asarray(rows, dtype=np.float64), axis=0)
    return Validation(*(float(value) for value in means))


def report_slate(matrix: np.ndarray, positions: np.ndarray, relevant: np.ndarray) -> tuple[float, ...]:
    """Metrics of one slate in the order of `Validation`'s fields; NaN where a metric is not defined."""
    ranks = {name: to_positions(find_decoder(name)(matrix)) for name in ("hungarian", "expected_position", "first_column")}
    hungarian = ranks["hungarian"]
    return (
        pair_auc(relevant, hungarian),
        float(relevant[hungarian == 0].any()) if relevant.any() else float("nan"),
        pair_auc(relevant, ranks["expected_position"]),
        pair_auc(relevant, ranks["first_column"]),
        kendall_tau(hungarian, positions) if len(positions) > 1 else float("nan"),
    )
