"""Bars of a metric with their intervals, a row a ranker or a slice of the slates; a click chooses a row."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import altair as alt
import pandas as pd

from spd_core.figures.labels import axis_labels, row_keys
from spd_core.figures.palette import palette

SELECTION = "bar"
"""Name of the click selection; its points carry `row`, a row key."""
AROUND = 70
"""Pixels of height for the axis."""
ROW = 30
"""Pixels of height for a bar."""


class Bar(NamedTuple):
    """One row: a mean with its 95 % interval."""

    title: str
    mean: float
    low: float
    high: float
    n: int


def bars_frame(bars: Sequence[Bar], picked: int | None = None) -> pd.DataFrame:
    """One line a bar: `row` key, `title`, `mean`, `low`, `high`, `n`, `picked`."""
    frame = pd.DataFrame(bars, columns=list(Bar._fields))
    frame.insert(0, "row", row_keys(len(bars)))
    frame["picked"] = [index == picked for index in range(len(bars))]
    return frame


def metric_bars(bars: Sequence[Bar], *, title: str, picked: int | None = None, dark: bool = False) -> alt.LayerChart:
    """Clickable bars from 0 to each mean, with a line over each interval.

    Args:
        bars: from top to bottom; titles are only labels, so equal ones are fine.
        title: of the axis.
        picked: index of the bar that is outlined.
        dark: whether the ground is dark.

    Returns:
        A chart whose selection is named `SELECTION`.
    """
    colors, frame = palette(dark=dark), bars_frame(bars, picked)
    top = max(1.0, float(frame["high"].max())) if len(frame) else 1.0
    axis = alt.Axis(orient="top", tickCount=5, format=".1f", labelColor=colors.ink, titleColor=colors.quiet, gridOpacity=0.4)
    scale = alt.Scale(domain=[0, top], nice=False)
    base = alt.Chart(frame).encode(
        y=alt.Y(
            "row:N",
            sort=row_keys(len(bars)),
            title=None,
            axis=axis_labels([bar.title for bar in bars], color=colors.ink, numbered=False),
        ),
        tooltip=[
            alt.Tooltip("title:N", title="Row"),
            alt.Tooltip("mean:Q", title=title, format=".4f"),
            alt.Tooltip("low:Q", title="From", format=".4f"),
            alt.Tooltip("high:Q", title="To", format=".4f"),
            alt.Tooltip("n:Q", title="Slates", format=",d"),
        ],
    )
    click = alt.selection_point(name=SELECTION, fields=["row"], on="click", empty=False)
    x = alt.X("mean:Q", scale=scale, title=title, axis=axis)
    blocks = base.mark_bar(cursor="pointer", color=colors.accent, cornerRadiusEnd=2, height=alt.RelativeBandSize(0.7)).encode(
        x=x,
        fillOpacity=alt.condition("datum.picked", alt.value(0.75), alt.value(0.4)),
        stroke=alt.condition("datum.picked", alt.value(colors.outline), alt.value("transparent")),
        strokeWidth=alt.value(2),
    )
    ranges = base.mark_rule(color=colors.ink, strokeWidth=2).encode(
        x=alt.X("low:Q", scale=scale, title=title, axis=axis), x2="high:Q"
    )
    chart: alt.LayerChart = (
        alt.layer(blocks.add_params(click), ranges).properties(height=ROW * len(bars) + AROUND).configure_view(strokeWidth=0)
    )
    return chart
