"""What all cells of an ablation stand on: the same slates, the same held-out slates, the same states of the frozen backbone.

Also how a trained student is measured on the held-out slates, in every cell in the same way.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from spd_core.ablation import DECODERS_KEPT, Source
from spd_core.backbone import Backbone, load_backbone
from spd_core.errors import TrainingError
from spd_core.metrics import MetricCollector, MetricTable
from spd_core.prompts import Template, find_template
from spd_core.recipes.ablation_plan import AblationPlan, PlannedCell
from spd_core.recipes.label_files import file_hash
from spd_core.recipes.preset import data_file
from spd_core.recipes.ranker_kinds import decode
from spd_core.recipes.train import sample_slates, shuffled
from spd_core.recipes.training_data import read_training_set
from spd_core.slate import Slate
from spd_core.training.examples import check_signal
from spd_core.training.shared_states import Place, content_hash, share_states
from spd_core.training.sources import CachedSource

ORDER_SEED = 0
"""Of the draw of slates and of their candidates' order: the same for all cells and seeds, which share the states."""
SLATES_TOGETHER = 50

Scored = Iterable[tuple[Slate, NDArray[np.float32]]]


@dataclass(frozen=True)
class SlateSets:
    """The slates of an ablation."""

    train: tuple[Slate, ...]
    """Drawn, and their candidates shuffled; the first ones are those of the LoRA cells."""
    held_out: tuple[Slate, ...]
    hashes: Mapping[str, str]
    """SHA-256 of each training file by name."""
    held_out_hash: str


@dataclass(frozen=True)
class Ground:
    """Slates, backbone and states that the cells share."""

    plan: AblationPlan
    slates: SlateSets
    backbone: Backbone
    template: Template
    train_states: Mapping[Place, Path]
    held_out_states: Mapping[Place, Path]
    content: str
    """Hash of what the training states hold."""
    folder: Path
    device: str
    dtype: str


@dataclass(frozen=True)
class Measured:
    """A student's values on the held-out slates."""

    values: Mapping[str, Mapping[str, NDArray[np.float64]]]
    """Decoder -> metric -> (n,) values."""
    source: Source


def read_slate_sets(plan: AblationPlan) -> SlateSets:
    """Slates of a plan, drawn and shuffled as every cell gets them.

    Raises:
        SpdError: a missing file, a slate without label or ranking.
    """
    data, held_out, hashes = read_training_set(plan.preset)
    chosen = sample_slates(data, plan.frozen.slates, ORDER_SEED).slates
    check_signal(chosen, "clicks")
    held_out_hash = file_hash(data_file(plan.preset.valid))
    return SlateSets(tuple(shuffled(chosen, ORDER_SEED)), tuple(held_out), hashes, held_out_hash)


def prepare_ground(
    plan: AblationPlan, cells: Sequence[PlannedCell], slates: SlateSets, *, folder: Path, device: str, dtype: str
) -> Ground:
    """What the cells share, the states computed where they are missing.

    Args:
        plan, slates: of `read_slate_sets`.
        cells: to be run; their layers and readouts are computed together.
        folder: run folder; keeps the states.
        device, dtype: of the backbone.

    Raises:
        SpdError: the backbone is missing, or has fewer layers than a cell asks for.
    """
    layers = [cell.preset.student.layer for cell in cells]
    depth = None if None in layers else max(layer for layer in layers if layer is not None)
    backbone = load_backbone(plan.preset.backbone, device=device, dtype=dtype, depth=depth)
    template = find_template(plan.preset.template)
    places = list(dict.fromkeys(cell.place(backbone.layer_count) for cell in cells))
    states = folder / "states"
    return Ground(
        plan=plan,
        slates=slates,
        backbone=backbone,
        template=template,
        train_states=share_states(backbone, template, slates.train, places, states / "train"),
        held_out_states=share_states(backbone, template, slates.held_out, places, states / "held_out"),
        content=content_hash(backbone, template, slates.train),
        folder=folder,
        device=device,
        dtype=dtype,
    )


@torch.inference_mode()
def cached_scores(source: CachedSource) -> Iterator[tuple[Slate, NDArray[np.float32]]]:
    """Each slate of a source with its (N, K) score matrix, in order, by the head on cached states."""
    source.student.eval()
    for start in range(0, len(source.slates), SLATES_TOGETHER):
        indices = range(start, min(start + SLATES_TOGETHER, len(source.slates)))
        for batch in source.batches(indices, None):
            matrices = source.score(batch).float().cpu().numpy()
            for index, matrix in zip(indices, matrices, strict=True):
                slate = source.slates[index]
                yield slate, matrix[: len(slate.candidates)]


def measure(scored: Scored, ground: Ground) -> Measured:
    """Values of every metric and kept decoder on the held-out slates.

    Raises:
        SpdError: a score that is not finite, or no slate that can be measured.
    """
    collectors = {decoder: MetricCollector() for decoder in DECODERS_KEPT}
    for slate, matrix in scored:
        for decoder, collector in collectors.items():
            collector.add(slate, decode(slate, matrix, decoder))
    tables = {decoder: collector.table(decoder) for decoder, collector in collectors.items()}
    return Measured({decoder: table.values for decoder, table in tables.items()}, source_of(tables[DECODERS_KEPT[0]], ground))


def source_of(table: MetricTable, ground: Ground) -> Source:
    """What the values of a table were measured on."""
    file, excluded = ground.plan.preset.valid, Counter({reason: len(ids) for reason, ids in table.excluded.items() if ids})
    if not len(table):
        raise TrainingError(
            f"{file}: none of its first {len(ground.slates.held_out)} slates can be measured ({dict(excluded)})"
        )
    return Source(
        file=file,
        sha256=ground.slates.held_out_hash,
        n=len(table),
        slates_sha256=hashlib.sha256("\n".join(table.slate_ids).encode("utf-8", "surrogatepass")).hexdigest(),
        excluded=dict(excluded),
    )
