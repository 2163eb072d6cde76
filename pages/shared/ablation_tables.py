"""Figures of an ablation as tables for people, and as CSV."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping, Sequence

import pandas as pd

from pages.shared.rankings import neutral
from pages.shared.text import escaped
from spd_core.ablation import CellResult
from spd_core.ablation.frames import COLUMNS, NOT_REPORTED
from spd_core.metrics import Difference

SHORT = {
    "linear_probe": "linear probe",
    "self_attention": "self-attention",
    "slot_query": "slot-query",
    "teacher": "teacher rankings",
    "lora": "LoRA",
}
Results = Mapping[str, CellResult]


def short(level: str) -> str:
    """A level of a factor as people say it."""
    return SHORT.get(level, level)


def point_titles(cells: Sequence[str]) -> dict[str, str]:
    """Cell of the cube -> its levels in words."""
    return {cell: ", ".join(short(level) for level in cell.split("-")) for cell in cells}


def figure_table(
    table: pd.DataFrame, results: Results, *, metric: str, differences: Mapping[str, Difference] | None = None
) -> pd.DataFrame:
    """Cells as a table: figure with interval, n, source, seeds, budget; a cell that was not run has its command instead.

    Args:
        table: of `cube_frame` or `point_frame`, for an axis with the column `axis`.
        results: by cell.
        metric: name of the figure.
        differences: of each cell from another one, for an axis.
    """
    rows = []
    for row in table.to_dict("records"):
        is_run, result = not pd.isna(row["mean"]), results.get(row["cell"])
        place = {"Axis": escaped(row["axis"])} if "axis" in row else {}
        figure = f"{row['mean']:.4f} ({row['low']:.3f} to {row['high']:.3f})" if is_run else row["state"]
        rows.append(
            place
            | {
                "Cell": escaped(f"{row['label']} ({row['cell']})" if "axis" in row else row["cell"]),
                metric: figure,
            }
            | ({"Against the cube's cell": difference_text(differences.get(row["cell"]))} if differences is not None else {})
            | {
                "n": f"{row['n']:,}" if is_run else "",
                "Source": escaped(row["source"], 80) if is_run else f"`{row['command']}`",
                "Seeds": str(row["seeds"]) if is_run else "",
                "Seed spread": "" if pd.isna(row["spread"]) else f"{row['spread']:.4f}",
                "Trained on": budget_text(result) if result else "",
                "Minutes a seed": minutes_text(result) if result else "",
            }
        )
    return pd.DataFrame(rows)


def difference_text(difference: Difference | None) -> str:
    """A paired difference with its interval; nothing for a cell that is compared with none."""
    return "" if difference is None else f"{difference.mean:+.4f} ({difference.low:+.4f} to {difference.high:+.4f})"


def figure_source(table: pd.DataFrame) -> str:
    """Markdown line on what the figures of a table were measured on; all of them on the same slates."""
    run = table[table["mean"].notna()]
    if run.empty:
        return "Not run yet."
    return f"n = {run['n'].iloc[0]:,}, {escaped(run['source'].iloc[0], 60)}."


def budget_text(result: CellResult) -> str:
    """Slates seen in each stage of a cell's first run."""
    stages = result.runs[0].stages
    return ", then ".join(
        f"{short(stage.name)}: {stage.seen:,} of {stage.slates:,} slates in {stage.steps} steps" for stage in stages
    )


def minutes_text(result: CellResult) -> str:
    """Wall time of a cell's runs, mean over seeds, without the shared states."""
    minutes = [sum(stage.minutes for stage in run.stages) for run in result.runs]
    return f"{sum(minutes) / len(minutes):.1f}"


def paper_table(table: pd.DataFrame) -> pd.DataFrame:
    """The paper's figures with their source; what it does not report says so."""
    return pd.DataFrame(
        {
            "Cell": [", ".join(short(level) for level in name.split(", ")) for name in table["cell"]],
            "AUC": [NOT_REPORTED if pd.isna(mean) else f"{mean:.4f}" for mean in table["mean"]],
            "n": list(table["n"]),
            "Source": list(table["source"]),
        }
    )


def as_csv(tables: Sequence[pd.DataFrame]) -> str:
    """Figures as CSV; a text cell that a spreadsheet would run as a formula gets an apostrophe before it."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\r\n")
    writer.writerow(COLUMNS)
    for table in tables:
        for row in table[COLUMNS].astype(object).where(table[COLUMNS].notna(), "").itertuples(index=False):
            writer.writerow([neutral(value) if isinstance(value, str) else value for value in row])
    return out.getvalue()
