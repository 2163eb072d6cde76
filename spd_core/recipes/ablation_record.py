"""The result file of a cell as runs fill it: what an earlier run left, what is still to do, one more seed added."""

from __future__ import annotations

import datetime
from pathlib import Path
from typing import Any

from spd_core.ablation import CellResult, SeedRun, read_cell
from spd_core.errors import TrainingError
from spd_core.metrics import mean_interval
from spd_core.recipes.ablation_ground import Ground, Measured
from spd_core.recipes.ablation_plan import PlannedCell
from spd_core.recipes.provenance import source_commit


def seeds_to_do(result: CellResult | None, cell: PlannedCell) -> list[int]:
    """Seeds of a cell that its result does not hold yet."""
    return [seed for seed in cell.budget.seeds if result is None or seed not in result.seeds]


def finished(out: Path, cell: PlannedCell, ground: Ground | None = None) -> CellResult | None:
    """What an earlier run left of a cell; None if there is nothing.

    Raises:
        SpdError: it was made with other settings or training data, or is damaged.
    """
    file = out / f"{cell.name}.json"
    if not file.exists():
        return None
    result = read_cell(file)
    changed = changed_settings(result.settings, cell.settings())
    if ground is not None and result.data != dict(ground.slates.hashes):
        changed.append("training files")
    if changed:
        raise TrainingError(
            f"{file.name}: was made with other settings ({', '.join(changed)}); delete it to train the cell again, or use "
            "another --out"
        )
    return result


def changed_settings(old: Any, new: Any, place: str = "") -> list[str]:
    """Dotted names of the settings that differ, with both values."""
    if isinstance(old, dict) and isinstance(new, dict):
        keys = dict.fromkeys([*old, *new])
        return [
            text
            for key in keys
            for text in changed_settings(old.get(key), new.get(key), f"{place}.{key}" if place else str(key))
        ]
    return [] if old == new else [f"{place}: then {old}, now {new}"]


def with_run(
    result: CellResult | None,
    run: SeedRun,
    cell: PlannedCell,
    ground: Ground,
    measured: Measured,
    machine: dict[str, str | int],
) -> CellResult:
    """The cell's result with one more run, its metrics computed anew."""
    runs = (*(result.runs if result is not None else ()), run)
    if result is not None and result.source != measured.source:
        raise TrainingError(f"{cell.name}: an earlier seed was measured on other slates; use another --out")
    fresh = CellResult(
        plan=ground.plan.title,
        cell=cell.name,
        factors=cell.factors,
        changes=cell.changes,
        settings=cell.settings(),
        data=dict(ground.slates.hashes),
        source=measured.source,
        runs=runs,
        metrics={},
        date=datetime.date.today().isoformat(),
        machine=machine,
        commit=source_commit(),
    )
    metrics = {
        decoder: {metric: dict(mean_interval(fresh.values(decoder, metric))._asdict()) for metric in row}
        for decoder, row in run.values.items()
    }
    return fresh.model_copy(update={"metrics": metrics})
