"""Where each candidate may stand in rankings that are nearly as good as the best: a row a candidate, a column a rank."""

from __future__ import annotations

from collections.abc import Sequence

import altair as alt
import numpy as np
import pandas as pd
from numpy.typing import NDArray

from spd_core.figures.labels import axis_labels, row_keys
from spd_core.figures.palette import palette

AROUND = 70
"""Pixels of height for the axis."""


def reachable_frame(titles: Sequence[str], odds: NDArray[np.floating], reachable: NDArray[np.bool_]) -> pd.DataFrame:
    """One line a cell that is drawn; ranks from 1.

    Args:
        titles: (N,) any text, best rank first.
        odds: (N, N) how many times less likely the best ranking with the candidate of rank r at rank c is; 1 on the diagonal.
        reachable: (N, N) which of these cells are drawn.

    Returns:
        Rows with `item` row key, `candidate`, `held` and `rank`, `odds`, `likelihood` = 1 / odds, `is_best`.
    """
    rows, columns = np.nonzero(reachable)
    places = rows.tolist()
    keys = row_keys(len(titles))
    return pd.DataFrame(
        {
            "item": [keys[row] for row in places],
            "candidate": [titles[row] for row in places],
            "held": rows + 1,
            "rank": columns + 1,
            "odds": odds[rows, columns],
            "likelihood": 1.0 / odds[rows, columns],
            "is_best": rows == columns,
        }
    )


def reachable_chart(
    titles: Sequence[str], odds: NDArray[np.floating], reachable: NDArray[np.bool_], *, dark: bool = False
) -> alt.LayerChart:
    """Chart with a filled cell for every rank that a candidate can take, fainter where less likely, and a dot at its own.

    Args:
        titles: (N,) row labels, best rank first; only labels, so equal ones are fine.
        odds: (N, N) as in `reachable_frame`.
        reachable: (N, N) which cells are drawn.
        dark: whether the ground is dark.
    """
    colors, count = palette(dark=dark), len(titles)
    frame = reachable_frame(titles, odds, reachable)
    frame["left"], frame["right"] = frame["rank"] - 0.46, frame["rank"] + 0.46
    ranks = alt.Scale(domain=[0.5, count + 0.5], nice=False, zero=False)
    axis = alt.Axis(orient="top", tickMinStep=1, format="d", grid=False, labelColor=colors.ink, titleColor=colors.quiet)
    base = alt.Chart(frame).encode(
        y=alt.Y("item:O", sort=row_keys(count), title=None, axis=axis_labels(titles, color=colors.ink)),
        tooltip=[
            alt.Tooltip("candidate:N", title="Candidate"),
            alt.Tooltip("held:Q", title="Rank"),
            alt.Tooltip("rank:Q", title="Could stand at"),
            alt.Tooltip("odds:Q", title="Odds against, to 1", format=".3g"),
        ],
    )
    x = alt.X("left:Q", scale=ranks, title="rank (1 is first)", axis=axis)
    cells = base.mark_rect(color=colors.accent, cornerRadius=3, height=alt.RelativeBandSize(0.84)).encode(
        x=x,
        x2="right:Q",
        opacity=alt.Opacity("likelihood:Q", scale=alt.Scale(domain=[0, 1], range=[0.15, 0.75]), legend=None),
    )
    dots = (
        base.mark_circle(color=colors.ink, size=60, opacity=1)
        .transform_filter("datum.is_best")
        .encode(x=alt.X("rank:Q", scale=ranks))
    )
    chart: alt.LayerChart = alt.layer(cells, dots).properties(height=26 * count + AROUND).configure_view(strokeWidth=0)
    return chart
