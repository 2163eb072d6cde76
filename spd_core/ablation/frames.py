"""Figures of an ablation as tables. None leaves here without its number of slates and its source: `sourced` refuses it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import product
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from spd_core.ablation.effects import Key
from spd_core.ablation.results import FACTORS, CellResult, cell_name, shared_seeds
from spd_core.errors import SpdError

NOT_RUN = "not run yet"
RUN = "measured"
NOT_REPORTED = "not reported"
NOT_GIVEN = "not given"
"""Stands for n in figures of the paper, which does not say on how many slates they were measured."""
PAPER_SOURCE = "SPD paper, arXiv 2609.01807, ablations; its own data and hardware"
COMMAND = "python -m spd_core ablate --cell {cell}"
PAPER_CUBE: dict[tuple[str, str], float | None] = {
    ("clicks", "frozen"): 0.5187,
    ("clicks", "lora"): None,
    ("teacher", "frozen"): 0.5573,
    ("teacher", "lora"): 0.5842,
}
"""AUC by signal and backbone. Source: SPD paper, ablations; the cell clicks + LoRA is missing there."""
PAPER_HEADS = {"linear_probe": 0.5841, "self_attention": 0.5911, "slot_query": 0.5816}
"""AUC by head. Source: SPD paper, ablations."""
COLUMNS = ["cell", "label", "mean", "low", "high", "n", "source", "state", "seeds", "spread", "command"]


class Point(NamedTuple):
    """A cell under the label that a picture gives it."""

    label: str
    cell: str


def sourced(frame: pd.DataFrame) -> pd.DataFrame:
    """The same frame, if each of its figures has an n and a source and each gap says why it is one.

    Args:
        frame: with the columns `cell`, `mean` (NaN where there is no figure), `n`, `source` and `state`.

    Raises:
        SpdError: a column is missing; a figure has no n of at least 1, or no source; a row without a figure has no state.
    """
    missing = {"cell", "mean", "n", "source", "state"} - set(frame.columns)
    if missing:
        raise SpdError(f"a table of figures lacks the columns {', '.join(sorted(missing))}; it must not be shown")
    for row in frame.to_dict("records"):
        has_figure = row["mean"] is not None and not pd.isna(row["mean"])
        if has_figure and not (_is_count(row["n"], row["source"]) and _is_text(row["source"])):
            raise SpdError(
                f"cell {row['cell']!r}: {row['mean']:.4f} has n {row['n']!r} and source {row['source']!r}; a figure without "
                "both must not be shown. Run ablate again"
            )
        if not has_figure and not _is_text(row["state"]):
            raise SpdError(f"cell {row['cell']!r}: has neither a figure nor a reason; say that it was not run yet")
    return frame


def point_frame(points: Sequence[Point], results: Mapping[str, CellResult], *, decoder: str, metric: str) -> pd.DataFrame:
    """One line a point, in order: figure with interval, n, source, seeds; cells that were not run say so.

    Args:
        points: cells and their labels.
        results: by cell.
        decoder, metric: which figure.

    Returns:
        Columns `COLUMNS`; `spread` is the largest less the smallest mean of a seed, NaN for one seed. `sourced`.

    Raises:
        SpdError: a result without n or source, or cells measured on different slates.
    """
    same_slates(results[point.cell] for point in points if point.cell in results)
    lines = [_line(point, results.get(point.cell), decoder, metric) for point in points]
    return sourced(pd.DataFrame(lines, columns=COLUMNS))


def cube_frame(results: Mapping[str, CellResult], *, decoder: str, metric: str) -> pd.DataFrame:
    """One line for each of the 12 cells of the cube, run or not; as `point_frame`, with `head`, `signal`, `backbone`."""
    keys = list(product(*FACTORS.values()))
    frame = point_frame([Point(cell_name(*key), cell_name(*key)) for key in keys], results, decoder=decoder, metric=metric)
    for index, factor in enumerate(FACTORS):
        frame[factor] = [key[index] for key in keys]
    return frame


def measured_values(results: Mapping[str, CellResult], *, decoder: str, metric: str) -> dict[Key, NDArray[np.float64]]:
    """(n,) values of the slates for each cell of the cube that was run, means over the seeds that all of these cells have.

    Raises:
        SpdError: cells measured on different slates.
    """
    keys: list[Key] = [key for key in product(*FACTORS.values()) if cell_name(*key) in results]  # type: ignore[misc]
    cells = {key: results[cell_name(*key)] for key in keys}
    same_slates(cells.values())
    seeds = shared_seeds(cells.values())
    return {key: cell.values(decoder, metric, seeds) for key, cell in cells.items()}


def curve_frame(points: Sequence[Point], results: Mapping[str, CellResult]) -> pd.DataFrame:
    """One line a validation while training: `label`, `cell`, `signal`, `backbone`, `stage`, `seed`, `seen` slates of the
    stage, `at` slates of all stages so far, `mean` AUC, `loss_nats`, `n`, `source`, `state`; `sourced`.

    The first stage of a LoRA cell is the run of its frozen cell; only what comes after it is told there.
    """
    lines = [
        {
            "label": point.label,
            "cell": point.cell,
            "signal": results[point.cell].factors.signal,
            "backbone": results[point.cell].factors.backbone,
            "stage": step.stage,
            "seed": run.seed,
            "seen": step.seen,
            "at": step.seen + (0 if step.stage == run.stages[0].name else run.stages[0].seen),
            "mean": step.auc,
            "loss_nats": step.loss_nats,
            "n": step.n,
            "source": f"first slates of {results[point.cell].source.file}",
            "state": RUN,
        }
        for point in points
        if point.cell in results
        for run in results[point.cell].runs
        for step in run.curve
        if step.stage == run.stages[-1].name
    ]
    names = ["label", "cell", "signal", "backbone", "stage", "seed", "seen", "at"]
    names += ["mean", "loss_nats", "n", "source", "state"]
    return sourced(pd.DataFrame(lines, columns=names))


def paper_frame() -> pd.DataFrame:
    """The paper's figures (AUC): signal x backbone, then heads; `sourced`, with n told as not given."""
    cube = [(f"{signal}, {backbone}", value) for (signal, backbone), value in PAPER_CUBE.items()]
    heads = list(PAPER_HEADS.items())
    lines = [
        {
            "cell": name,
            "mean": np.nan if value is None else value,
            "n": NOT_GIVEN,
            "source": PAPER_SOURCE,
            "state": NOT_REPORTED if value is None else "reported",
            "group": group,
        }
        for group, rows in (("signal x backbone", cube), ("head", heads))
        for name, value in rows
    ]
    return sourced(pd.DataFrame(lines))


def same_slates(results: Iterable[CellResult]) -> None:
    """Raise `SpdError` naming two cells that were measured on different slates: side by side they would mislead."""
    first: CellResult | None = None
    for result in results:
        first = first or result
        if result.source.slates_sha256 != first.source.slates_sha256:
            raise SpdError(
                f"cells {first.cell!r} and {result.cell!r} were measured on different slates "
                f"({first.source.file}, n = {first.source.n}; {result.source.file}, n = {result.source.n}); "
                "run ablate on one file into one folder"
            )


def _line(point: Point, result: CellResult | None, decoder: str, metric: str) -> dict[str, Any]:
    if result is None:
        gap = dict.fromkeys(("mean", "low", "high", "spread"), np.nan)
        rest = {"n": 0, "source": "", "state": NOT_RUN, "seeds": 0, "command": COMMAND.format(cell=point.cell)}
        return {"cell": point.cell, "label": point.label, **gap, **rest}
    interval = result.interval(decoder, metric)
    seeds = result.by_seed(decoder, metric).mean(axis=1)
    return {
        "cell": point.cell,
        "label": point.label,
        "mean": interval.mean,
        "low": interval.low,
        "high": interval.high,
        "n": interval.n,
        "source": result.source.file,
        "state": RUN,
        "seeds": len(seeds),
        "spread": float(np.ptp(seeds)) if len(seeds) > 1 else np.nan,
        "command": "",
    }


def _is_count(value: object, source: object) -> bool:
    if value == NOT_GIVEN:
        return source == PAPER_SOURCE
    return isinstance(value, int | np.integer) and not isinstance(value, bool) and int(value) >= 1


def _is_text(value: object) -> bool:
    return isinstance(value, str) and bool(value.strip())
