"""`ablate`: the cells of an ablation plan trained and measured, one result file a cell; finished ones are passed over."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from spd_core.ablation import (
    CellResult,
    cell_name,
    effect_sentence,
    interaction_sentence,
    interactions,
    main_effects,
    measured_values,
    read_cell,
)
from spd_core.backbone import load_backbone
from spd_core.backbone_files import find_backbone
from spd_core.errors import TrainingError
from spd_core.latency import encode_slate
from spd_core.model import build_student
from spd_core.prompts import find_template
from spd_core.recipes import DeviceOption, DtypeOption
from spd_core.recipes.ablation_ground import SlateSets, prepare_ground, read_slate_sets
from spd_core.recipes.ablation_plan import AblationPlan, PlannedCell
from spd_core.recipes.ablation_record import finished, seeds_to_do
from spd_core.recipes.ablation_run import run_cell
from spd_core.recipes.ablation_students import save_students
from spd_core.words import plural

logger = logging.getLogger(__name__)

SHOWN_DECODER, OTHER_DECODERS = "hungarian", ("expected_position", "first_column")
SHOWN_METRICS = ("AUC", "Recall@1", "NDCG@10")
SAMPLED = 40
"""Slates tokenised for the estimate."""


@dataclass(frozen=True)
class CellEstimate:
    """What one cell still costs."""

    cell: PlannedCell
    seeds: list[int]
    """To be run."""
    forward_tokens: int
    """Through the backbone without gradients: curve and measurement."""
    training_tokens: int
    """Through the backbone and back."""


@dataclass(frozen=True)
class Estimate:
    """What a plan still costs."""

    cells: list[CellEstimate]
    state_tokens: int
    """Of the states that the cells share, if none are there yet."""
    depth: int | None
    """Layers of that pass; None: all."""
    tokens_a_slate: float
    sampled: int
    """Slates that `tokens_a_slate` is the mean of."""

    @property
    def tokens(self) -> int:
        """All of them."""
        return self.state_tokens + sum(row.forward_tokens + row.training_tokens for row in self.cells)


def ablate(
    plan: AblationPlan,
    cells: Sequence[PlannedCell],
    *,
    out: Path,
    run_folder: Path,
    students: Path | None = None,
    device: str = "auto",
    dtype: str = "auto",
) -> list[Path]:
    """Result files of the cells, those that were there already included.

    Args:
        plan: what the cells are of.
        cells: of `plan.cells`, in the order in which they are run.
        out: folder of results.
        run_folder: states and training runs, kept for a rerun.
        students: folder for a checkpoint of each cell's first seed; None saves none.
        device, dtype: of the backbone.

    Raises:
        SpdError: bad data or settings, a result with other settings, or a training run that failed.
    """
    open_cells = [cell for cell in cells if seeds_to_do(finished(out, cell), cell)]
    unsaved = [cell for cell in cells if students is not None and not (students / cell.name).exists()]
    if open_cells or unsaved:
        slates, needed = read_slate_sets(plan), [cell for cell in cells if cell in open_cells or cell in unsaved]
        ground = prepare_ground(plan, needed, slates, folder=run_folder, device=device, dtype=dtype)
        for number, cell in enumerate(open_cells, start=1):
            result = run_cell(ground, cell, out)
            auc = result.interval("hungarian", "AUC")
            logger.info("%d of %d: %s AUC %.4f (%.3f to %.3f), n = %d", number, len(open_cells), cell.name, *auc)
        if students is not None:
            save_students(ground, unsaved, students)
    return [out / f"{cell.name}.json" for cell in cells]


def estimate(plan: AblationPlan, cells: Sequence[PlannedCell], slates: SlateSets, out: Path) -> Estimate:
    """Tokens that the cells still have to be read, from the mean length of some prompts.

    Raises:
        SpdError: the backbone is missing, or a result was made with other settings.
    """
    student_of = plan.preset.student.model_copy(update={"lora": None})
    backbone = load_backbone(plan.preset.backbone, device="cpu", dtype="auto", depth=1)
    student = build_student(backbone, student_of, find_template(plan.preset.template))
    sample = [*slates.train[: SAMPLED // 2], *slates.held_out[: SAMPLED // 2]]
    mean = sum(len(encode_slate(student, slate).input_ids) for slate in sample) / len(sample)
    rows = []
    for cell in cells:
        seeds = seeds_to_do(finished(out, cell), cell)
        read, learned = cell_slates(plan, cell, slates) if cell.preset.student.lora is not None else (0, 0)
        rows.append(CellEstimate(cell, seeds, round(read * len(seeds) * mean), round(learned * len(seeds) * mean)))
    is_open = any(row.seeds for row in rows)
    shared = (len(slates.train) + len(slates.held_out)) * mean if is_open else 0
    layers = [row.cell.preset.student.layer for row in rows if row.seeds]
    depth = None if None in layers else max((layer for layer in layers if layer is not None), default=None)
    return Estimate(rows, round(shared), depth, mean, len(sample))


def cell_slates(plan: AblationPlan, cell: PlannedCell, slates: SlateSets) -> tuple[int, int]:
    """Slates that one seed of a LoRA cell reads without gradients, and with them."""
    settings = cell.preset.train_settings
    count = min(cell.budget.slates, len(slates.train))
    a_step = settings.batch_slates * settings.accumulation
    steps = max(1, round(settings.epochs * max(1, count // a_step)))
    validations = steps // settings.eval_every + (steps % settings.eval_every > 0)
    curve = min(plan.curve_slates, len(slates.held_out))
    return validations * curve + len(slates.held_out), steps * a_step


def format_estimate(found: Estimate) -> str:
    """The plan as lines for the terminal."""
    width = max(len(row.cell.name) for row in found.cells) + 2
    lines = [f"{'cell':<{width}}{'layers':>8}{'to run':>14}{'forward tokens':>16}{'trained tokens':>16}"]
    for row in found.cells:
        layers = row.cell.preset.student.layer or "all"
        seeds = f"seed {' '.join(map(str, row.seeds))}" if row.seeds else "done"
        lines.append(f"{row.cell.name:<{width}}{layers:>8}{seeds:>14}{row.forward_tokens:>16,}{row.training_tokens:>16,}")
    lines.append(f"{'shared states':<{width}}{found.depth or 'all':>8}{'':>14}{found.state_tokens:>16,}{0:>16,}")
    return "\n".join(
        [
            *lines,
            "",
            f"{found.tokens:,} tokens in all, estimated from {found.tokens_a_slate:.0f} a slate (mean of {found.sampled}); "
            "a trained token costs about three forward ones. States that are there already are not computed again.",
        ]
    )


def format_results(results: Sequence[CellResult]) -> Iterator[str]:
    """Lines of a table with a row a cell, then what the factors of the cube do as far as these cells tell."""
    figures = [*((SHOWN_DECODER, metric) for metric in SHOWN_METRICS), *((name, "AUC") for name in OTHER_DECODERS)]
    heads = [metric if decoder == SHOWN_DECODER else f"{metric}, {decoder}" for decoder, metric in figures]
    width = max(len(result.cell) for result in results) + 2
    yield f"{'cell':<{width}}{'seeds':>6}{'n':>6}" + "".join(f"{head:>24}" for head in heads)
    for result in results:
        cells = []
        for decoder, metric in figures:
            mean, low, high, _ = result.interval(decoder, metric)
            cells.append(f"{mean:.3f} ({low:.3f}-{high:.3f})")
        yield f"{result.cell:<{width}}{len(result.seeds):>6}{result.source.n:>6}" + "".join(f"{cell:>24}" for cell in cells)
    cube = {result.cell: result for result in results if result.cell == cell_name(*result.factors.key)}
    values = measured_values(cube, decoder=SHOWN_DECODER, metric="AUC")
    yield from (effect_sentence(effect, "AUC") for effect in main_effects(values))
    yield from (interaction_sentence(found, "AUC") for found in interactions(values))


def command(
    preset: Annotated[str, typer.Option(help="Name of an ablation plan, or a TOML file.")] = "beauty-cube",
    cell: Annotated[list[str] | None, typer.Option(help="Cell to run, e.g. self_attention-teacher-lora; repeatable.")] = None,
    axis: Annotated[list[str] | None, typer.Option(help="cube, or an axis of the plan; repeatable. Default: all.")] = None,
    out: Annotated[Path, typer.Option(help="Folder of results; the app shows those in the default one.")] = Path(
        "sample_data/results/ablation"
    ),
    run: Annotated[Path | None, typer.Option(help="Run folder: shared states and resumable training runs.")] = None,
    students: Annotated[
        Path | None, typer.Option(help="Folder for a checkpoint of each cell's first seed, e.g. for frontier; default: none.")
    ] = None,
    teacher: Annotated[str | None, typer.Option(help="Other teacher than the plan's: stored, labels, or a name.")] = None,
    labels: Annotated[list[str] | None, typer.Option(help="File that label wrote, for --teacher labels; repeatable.")] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Print the cells and an estimate of their tokens, run none.")
    ] = False,
    device: DeviceOption = "auto",
    dtype: DtypeOption = "auto",
) -> None:
    """Train and measure the cells of an ablation plan; a rerun of the same command goes on where a killed one stopped."""
    plan = AblationPlan.read(preset)
    changed = plan.preset.changed(teacher=teacher, labels=tuple(labels) if labels else None)
    plan = plan.model_copy(update={"preset": changed})
    cells = plan.cells(names=tuple(cell or ()), axes=tuple(axis or ()))
    find_backbone(plan.preset.backbone)
    if dry_run:
        typer.echo(format_estimate(estimate(plan, cells, read_slate_sets(plan), out)))
        return
    if out.exists() and not out.is_dir():
        raise TrainingError(f"{out} is a file; --out names the folder of results")
    folder = run or Path("runs") / "ablate" / Path(preset).stem
    files = ablate(plan, cells, out=out, run_folder=folder, students=students, device=device, dtype=dtype)
    typer.echo("\n".join(format_results([read_cell(file) for file in files])))
    typer.echo(f"{plural(len(files), 'cell')} in {out}; see them on the page Ablations of the app")
