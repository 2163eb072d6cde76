"""`layers`: from which layer of the backbone the student's ranking can be read, and how the readouts change on the way."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from numpy.typing import NDArray

from spd_core.checkpoints import load_student
from spd_core.datasets import read_slates
from spd_core.datasets.files import display_name, write_aside
from spd_core.decoding import find_decoder, to_positions
from spd_core.errors import SpdError
from spd_core.inside import Inside, look_inside, mean_cosines, mean_norms
from spd_core.layer_probe import FOLDS, LayerScore, first_to_know, probe_layers
from spd_core.model import Student
from spd_core.recipes import BackboneOption, CheckpointOption, DeviceOption, DtypeOption, JsonOption
from spd_core.recipes.progress import with_progress
from spd_core.recipes.shards import Shard
from spd_core.slate import Slate

DECODER = "hungarian"
LIMIT = 200
"""Slates: with 17 layers of 576 numbers and 20 candidates they take about 160 MB."""


def layers_report(
    slates: str,
    *,
    checkpoint: str,
    limit: int = LIMIT,
    backbone: str | None = None,
    device: str = "auto",
    dtype: str = "auto",
) -> dict[str, Any]:
    """Report on one slate file: for each layer how well the ranking is read from it, mean norm and cosine of readouts.

    Args:
        slates: JSON lines or CSV; no labels are needed, what is read is the student's own ranking.
        checkpoint, backbone, device, dtype: of `load_student`.
        limit: slates at most, from the top of the file.

    Returns:
        JSON-ready report: ``layers`` from the embeddings (0) to the layer that the head reads, each with ``kendall_tau``
        and ``spearman`` (mean, 95 % interval, n), ``norm`` and ``cosine``; ``n``, ``skipped`` slates, provenance.

    Raises:
        SpdError: a bad line or option, or fewer usable slates than folds.
    """
    if limit < FOLDS:
        raise SpdError(f"limit is {limit}; it must be at least {FOLDS}, a slate for each fold")
    student = load_student(checkpoint, backbone=backbone, device=device, dtype=dtype)
    taken = list(itertools.islice(read_slates(slates), limit))
    usable = [slate for slate in taken if 2 <= len(slate.candidates) <= student.config.positions]
    if len(usable) < FOLDS:
        raise SpdError(
            f"{display_name(slates)}: {len(usable)} slates of 2 to {student.config.positions} candidates; at least {FOLDS} "
            "are needed, one for each fold"
        )
    seen = list(with_progress(_insides(student, usable), Shard(0, 1, device)))
    scores = probe_layers([inside.readouts for inside in seen], [_positions(inside) for inside in seen])
    return _report(student, seen, scores) | {
        "file": display_name(slates),
        "checkpoint": Path(checkpoint).name,
        "skipped": len(taken) - len(usable),
    }


def _insides(student: Student, slates: Sequence[Slate]) -> Iterator[Inside]:
    for slate in slates:
        yield look_inside(student, slate)


def _positions(inside: Inside) -> NDArray[np.int64]:
    return to_positions(find_decoder(DECODER)(inside.score_matrix.astype(np.float64)))


def _report(student: Student, seen: Sequence[Inside], scores: Sequence[LayerScore]) -> dict[str, Any]:
    norms = np.mean([mean_norms(inside.readouts) for inside in seen], axis=0)
    cosines = np.mean([mean_cosines(inside.readouts) for inside in seen], axis=0)
    rows = [
        score.to_json() | {"norm": float(norm), "cosine": float(cosine)}
        for score, norm, cosine in zip(scores, norms, cosines, strict=True)
    ]
    return {
        "n": len(seen),
        "mean_candidates": float(np.mean([inside.readouts.shape[1] for inside in seen])),
        "target": f"the student's own ranking ({DECODER})",
        "folds": FOLDS,
        "first_to_know": first_to_know([score.kendall_tau.mean for score in scores]),
        "layers": rows,
        "provenance": {
            "backbone": student.backbone.backbone_id,
            "backbone_fingerprint": student.backbone.fingerprint,
            "depth": student.backbone.depth,
            "readout": student.config.readout,
            "template_hash": student.template.hash,
            "device": student.backbone.device.type,
            "dtype": str(student.backbone.dtype).removeprefix("torch."),
        },
    }


def format_report(report: dict[str, Any]) -> str:
    """The report as a table for the terminal."""
    lines = [f"{report['checkpoint']} on {report['file']}: n = {report['n']} slates, {report['folds']} folds", ""]
    lines.append(f"{'layer':<8}{'Kendall tau':>28}{'Spearman':>28}{'norm':>12}{'cosine':>9}")
    for row in report["layers"]:
        cells = (f"{row[m]['mean']:.3f} ({row[m]['low']:.3f} to {row[m]['high']:.3f})" for m in ("kendall_tau", "spearman"))
        lines.append(
            f"{row['layer']:<8}" + "".join(f"{cell:>28}" for cell in cells) + f"{row['norm']:>12.2f}{row['cosine']:>9.3f}"
        )
    return "\n".join(lines)


def command(
    slates: Annotated[str, typer.Argument(help="Slates, labelled or not: JSON lines or CSV, .gz or not.")],
    checkpoint: CheckpointOption,
    out: Annotated[str | None, typer.Option(help="Report as JSON; the app looks for results/layers-CHECKPOINT.json.")] = None,
    limit: Annotated[int, typer.Option(help="Slates at most, from the top of the file.")] = LIMIT,
    backbone: BackboneOption = None,
    device: DeviceOption = "auto",
    dtype: DtypeOption = "auto",
    as_json: JsonOption = False,
) -> None:
    """Find from which layer of the backbone a checkpoint's ranking can be read."""
    report = layers_report(slates, checkpoint=checkpoint, limit=limit, backbone=backbone, device=device, dtype=dtype)
    if out is not None:
        write_aside(out, [json.dumps(report, indent=1, allow_nan=False).encode() + b"\n"])
    typer.echo(json.dumps(report, allow_nan=False) if as_json else format_report(report))
