"""How much each of several changes moves one number: a bar a change, right of zero where it adds, left where it takes."""

from __future__ import annotations

from collections.abc import Sequence

import altair as alt
import numpy as np
import pandas as pd

from spd_core.figures.labels import axis_labels, row_keys
from spd_core.figures.palette import palette

AROUND = 70
"""Pixels of height for the axis."""


def changes_frame(labels: Sequence[str], shifts: Sequence[float]) -> pd.DataFrame:
    """One line a bar, in the order given: `item` row key, `label`, `shift`, and `text`, the shift with its sign."""
    texts = [f"{shift:+.2f}" for shift in shifts]
    return pd.DataFrame({"item": row_keys(len(labels)), "label": list(labels), "shift": list(shifts), "text": texts})


def changes_chart(labels: Sequence[str], shifts: Sequence[float], *, title: str, dark: bool = False) -> alt.LayerChart:
    """Bars from zero, in the order given, each with its number.

    Args:
        labels: (n,) what was changed; only labels, so equal ones are fine.
        shifts: (n,) how much the number moved.
        title: of the axis.
        dark: whether the ground is dark.
    """
    colors, frame = palette(dark=dark), changes_frame(labels, shifts)
    reach = 1.35 * max(float(np.abs(shifts).max(initial=0.0)), 1e-6)  # room for the numbers beside the longest bar
    axis = alt.Axis(orient="top", labelColor=colors.ink, titleColor=colors.quiet, tickCount=5, gridOpacity=0.4)
    x = alt.X("shift:Q", title=title, axis=axis, scale=alt.Scale(domain=[-reach, reach], nice=False))
    base = alt.Chart(frame).encode(
        y=alt.Y("item:O", sort=row_keys(len(labels)), title=None, axis=axis_labels(labels, color=colors.ink)),
        tooltip=[alt.Tooltip("label:N", title="Left out"), alt.Tooltip("shift:Q", title="Change", format="+.3f")],
    )
    bars = base.mark_bar(cornerRadius=2, height=alt.RelativeBandSize(0.6)).encode(
        x=x, color=alt.condition("datum.shift < 0", alt.value(colors.down), alt.value(colors.up))
    )
    numbers = base.mark_text(color=colors.ink, fontSize=12, baseline="middle")
    right = numbers.mark_text(color=colors.ink, align="left", dx=4).transform_filter("datum.shift >= 0")
    left = numbers.mark_text(color=colors.ink, align="right", dx=-4).transform_filter("datum.shift < 0")
    layers = alt.layer(bars, right.encode(x=x, text="text:N"), left.encode(x=x, text="text:N"))
    chart: alt.LayerChart = layers.properties(height=26 * len(frame) + AROUND).configure_view(strokeWidth=0)
    return chart
