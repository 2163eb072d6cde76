"""The score matrix as a heatmap: one row a candidate, one column a rank position, the decoder's choice outlined."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import altair as alt
import numpy as np
import pandas as pd
from numpy.typing import NDArray

from spd_core.figures.labels import axis_labels, row_keys
from spd_core.figures.layers import find_layer
from spd_core.figures.palette import Palette, palette

SELECTION = "cell"
"""Name of the click selection; its points carry `item` (a row key) and `position` (from 1)."""
AROUND = 120
"""Pixels of height for the axis and the legend, which Streamlit counts as part of the chart."""
LOG_FLOOR = -20.0
"""Darkest shade of the log layer, in nats; smaller values look alike and keep their number in the tooltip."""


def heatmap_frame(values: NDArray[np.floating], positions: NDArray[np.integer], titles: Sequence[str]) -> pd.DataFrame:
    """One line a cell, as `score_heatmap` draws it and as the table beside it shows it.

    Args:
        values: (N, C) of one layer.
        positions: (N,) position of each candidate, 0 first.
        titles: (N,) any text; equal titles stay apart.

    Returns:
        N * C rows: `item` row key, `candidate` title, `position` from 1, `value`, `assigned`.
    """
    count, columns = values.shape
    column = np.tile(np.arange(columns), count)
    return pd.DataFrame(
        {
            "item": np.repeat(row_keys(count), columns),
            "candidate": np.repeat(np.asarray(titles, dtype=object), columns),
            "position": column + 1,
            "value": np.asarray(values, dtype=np.float64).ravel(),
            "assigned": np.repeat(np.asarray(positions), columns) == column,
        }
    )


def score_heatmap(
    values: NDArray[np.floating],
    positions: NDArray[np.integer],
    titles: Sequence[str],
    *,
    layer: str,
    row_order: Sequence[int] | None = None,
    picked: tuple[int, int] | None = None,
    is_clickable: bool = True,
    is_skewed: bool = False,
    dark: bool = False,
) -> alt.LayerChart:
    """Heatmap of one layer of a score matrix.

    Args:
        values: (N, C) of that layer; -inf is drawn as the lowest shade.
        positions: (N,) position of each candidate, 0 first; its cell is outlined.
        titles: (N,) row labels; only labels, so equal or numeric ones are fine.
        layer: key of `LAYERS`.
        row_order: candidate indices from top to bottom; None is the input order.
        picked: (candidate, position) from 0 that is ringed.
        is_clickable: whether a click on a cell selects it.
        is_skewed: whether a few values are far above the rest; the shades then follow their square root. Values >= 0 only.
        dark: whether the ground is dark.

    Returns:
        A chart; where it is clickable, its selection is named `SELECTION`.

    Raises:
        SpdError: unknown layer.
    """
    look, colors = find_layer(layer), palette(dark=dark)
    keys = row_keys(len(titles))
    order = [keys[index] for index in (row_order if row_order is not None else range(len(keys)))]
    frame = heatmap_frame(values, positions, titles)
    frame["shade"] = frame["value"].clip(lower=LOG_FLOOR) if layer == "log" else frame["value"]
    base = alt.Chart(frame).encode(
        x=alt.X(
            "position:O",
            title="rank position",
            axis=alt.Axis(labelAngle=0, labelOverlap=True, labelColor=colors.ink, ticks=False, domain=False),
        ),
        y=alt.Y("item:O", sort=order, title=None, axis=axis_labels(titles, color=colors.ink)),
    )
    cells = base.mark_rect(cursor="pointer" if is_clickable else "default").encode(
        color=_color(frame["shade"], look.title, colors, is_diverging=look.is_diverging, is_skewed=is_skewed),
        tooltip=[
            alt.Tooltip("candidate:N", title="Candidate"),
            alt.Tooltip("position:O", title="Rank position"),
            alt.Tooltip("value:Q", title=look.title, format=".4~g"),
            alt.Tooltip("assigned:N", title="Placed here"),
        ],
    )
    if is_clickable:
        cells = cells.add_params(alt.selection_point(name=SELECTION, fields=["item", "position"], on="click", empty=False))
    rings = [_ring(base, frame["assigned"], colors.outline, 2.5)]
    if picked is not None:
        is_picked = (frame["item"] == keys[picked[0]]) & (frame["position"] == picked[1] + 1)
        rings.append(_ring(base, is_picked, colors.ink, 3.0, dash=[3, 2]))
    chart = alt.layer(cells, *rings)
    return chart.properties(height=26 * len(keys) + AROUND).configure_view(strokeWidth=0)


def _ring(base: alt.Chart, rows: pd.Series, color: str, width: float, dash: list[int] | None = None) -> alt.Chart:
    ring = base.mark_rect(filled=False, stroke=color, strokeWidth=width, strokeDash=dash or [1, 0], cornerRadius=2)
    ring.data = base.data[rows]
    return ring


def _color(shade: pd.Series, title: str, colors: Palette, *, is_diverging: bool, is_skewed: bool) -> alt.Color:
    finite = shade[np.isfinite(shade)]
    low, high = (float(finite.min()), float(finite.max())) if len(finite) else (0.0, 1.0)
    options: dict[str, Any] = {"range": list(colors.sequential), "type": "sqrt" if is_skewed else "linear"}
    if is_diverging:
        reach = max(abs(low), abs(high)) or 1.0
        low, high, options = -reach, reach, {"range": list(colors.diverging), "domainMid": 0}
    elif low == high:
        low, high = low - 0.5, high + 0.5
    legend = alt.Legend(title=title, orient="bottom", gradientLength=140, gradientThickness=8, titleOrient="top", tickCount=3)
    return alt.Color("shade:Q", scale=alt.Scale(domain=[low, high], clamp=True, **options), legend=legend)
