"""The score matrix as a visitor explores it: which view, which cell, and what the numbers of that cell are."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
import streamlit as st

from pages.shared import frame, state
from pages.shared.rankings import positions
from pages.shared.text import escaped, ordinal, shown
from spd_core.figures.heatmap import SELECTION, score_heatmap
from spd_core.figures.labels import row_index
from spd_core.figures.layers import LAYERS, MatrixViews, leading_share
from spd_core.pipeline import RankingResult
from spd_core.slate import Slate
from spd_core.words import plural

LARGE_RESIDUAL = 0.05
"""A row sum this far off is visible in the picture; chosen by eye."""
CHART_KEY = "score matrix"


@dataclass(frozen=True)
class Explored:
    """One slate's matrix with everything the page shows of it."""

    slate: Slate
    result: RankingResult
    views: MatrixViews
    layer: str
    in_rank_order: bool

    @property
    def titles(self) -> list[str]:
        """Short titles in input order."""
        return [shown(item.title, 60) for item in self.slate.candidates]

    @property
    def columns(self) -> int:
        """Columns drawn."""
        return int(self.views.values[self.layer].shape[1])


def show_heatmap(explored: Explored, picked: tuple[int, int]) -> None:
    """The clickable picture with its caption."""
    chart = score_heatmap(
        explored.views.values[explored.layer],
        positions(explored.result),
        explored.titles,
        layer=explored.layer,
        row_order=explored.result.ranking.tolist() if explored.in_rank_order else None,
        picked=picked,
        dark=frame.is_dark(),
    )
    alt = f"Heatmap of {plural(len(explored.titles), 'candidate')} by {plural(explored.columns, 'rank position')}."
    st.altair_chart(chart, width="stretch", key=CHART_KEY, on_select=_take_click, selection_mode=SELECTION, alt=alt)
    st.caption(f"{LAYERS[explored.layer].meaning} Outlined: where the decoder puts each candidate. Dashed: the cell chosen.")


def pick_cell(explored: Explored) -> tuple[int, int]:
    """Candidate and position (from 0) to look at: the menus' twin of a click on the picture."""
    count, columns = len(explored.titles), explored.columns
    candidates = list(range(count))
    places = list(range(columns))
    best = int(explored.result.ranking[0])
    item = state.choose("cell item", candidates, best)
    position = state.choose("cell position", places, 0)
    of_item, of_position = state.bind("cell item", item), state.bind("cell position", position)
    item = st.selectbox("Candidate", candidates, **of_item, format_func=lambda i: f"{i + 1} · {explored.titles[i]}")
    position = st.selectbox("Rank position", places, **of_position, format_func=lambda j: ordinal(j + 1))
    return state.remember("cell item", item), state.remember("cell position", position)


def show_cell(explored: Explored, picked: tuple[int, int]) -> None:
    """The numbers of one cell."""
    item, position = picked
    placed = int(positions(explored.result)[item])
    numbers = {
        "Raw score": _cell(explored.views.values["raw"], item, position, ".3f"),
        "Double-centred": _cell(explored.views.values["centred"], item, position, "+.3f"),
        "Sinkhorn probability": _cell(explored.views.values["probability"], item, position, ".4f"),
        "Placed by the decoder": "here" if placed == position else f"{ordinal(placed + 1)} instead",
    }
    st.markdown(f"**{escaped(explored.titles[item])}** at the {ordinal(position + 1)} place")
    st.table(pd.DataFrame({"Number": numbers.keys(), "Value": numbers.values()}), border="horizontal", hide_header=True)


def show_residual(explored: Explored) -> None:
    """How far Sinkhorn is from its goal, in a number and, if it is far, in words."""
    residual = explored.views.residual
    st.markdown(f"Sinkhorn residual **{residual:.2g}** :gray[(largest distance of a row sum from 1)]")
    if residual > LARGE_RESIDUAL:
        st.warning(
            f"Not converged: some rows still miss their sum of 1 by {residual:.2f}. The temperature is too cold for so few "
            "iterations; raise either. The ranking is not affected, it uses the raw scores.",
            icon=":material/warning:",
        )


def facts(explored: Explored) -> str:
    """Markdown line with the matrix's size, the total of the assignment and how close it is to one single order."""
    matrix = explored.result.score_matrix.astype(np.float64)
    count, columns = matrix.shape
    total = float(matrix[explored.result.ranking, np.arange(count)].sum())
    share = leading_share(matrix[:, :count])
    return (
        f"{count} by {columns} scores, of which the first {plural(count, 'column')} "
        f"{'is' if count == 1 else 'are'} used. Total score of this ranking **{total:.2f}**. "
        f"First singular value: **{share:.0%}** of the centred energy :gray[(near 100 %: one order and little else)]."
    )


def value_frame(explored: Explored) -> pd.DataFrame:
    """The picture as a table: a row a candidate, a column a position."""
    values = explored.views.values[explored.layer]
    frame_ = pd.DataFrame(values, columns=[ordinal(position + 1) for position in range(values.shape[1])])
    frame_.insert(0, "Candidate", explored.titles)
    frame_.insert(1, "Placed", [ordinal(int(place) + 1) for place in positions(explored.result)])
    return frame_.iloc[explored.result.ranking] if explored.in_rank_order else frame_


def _cell(values: np.ndarray[Any, Any], item: int, position: int, form: str) -> str:
    return format(values[item, position], form) if position < values.shape[1] else "not used by this slate"


def _take_click() -> None:
    points: Sequence[Mapping[str, Any]] = state.selected_points(CHART_KEY, SELECTION)
    if points:
        state.put("cell item", row_index(str(points[0]["item"])))
        state.put("cell position", int(points[0]["position"]) - 1)
