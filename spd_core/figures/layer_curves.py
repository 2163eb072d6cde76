"""One figure over the layers of the backbone, with its interval where it has one."""

from __future__ import annotations

from collections.abc import Sequence

import altair as alt
import numpy as np
import pandas as pd

from spd_core.figures.palette import palette


def layer_frame(
    values: Sequence[float], low: Sequence[float] | None = None, high: Sequence[float] | None = None
) -> pd.DataFrame:
    """One line a layer: `layer` (0 is the embeddings), `value`, `low`, `high` (the value itself without an interval)."""
    middle = np.asarray(values, dtype=np.float64)
    return pd.DataFrame(
        {
            "layer": np.arange(len(middle)),
            "value": middle,
            "low": middle if low is None else np.asarray(low, dtype=np.float64),
            "high": middle if high is None else np.asarray(high, dtype=np.float64),
        }
    )


def layer_curve(
    frame: pd.DataFrame, *, title: str, marked: int | None = None, note: str = "", height: int = 240, dark: bool = False
) -> alt.LayerChart:
    """Line over the layers with a band from low to high.

    Args:
        frame: of `layer_frame`.
        title: of the upright axis.
        marked: layer with an upright line, named by `note`.
        note: short text of our own.
        height: in pixels.
        dark: whether the ground is dark.
    """
    colors = palette(dark=dark)
    axis = alt.Axis(format="d", tickMinStep=1, grid=False, labelColor=colors.ink, titleColor=colors.quiet)
    upright = alt.Axis(labelColor=colors.ink, titleColor=colors.quiet, tickCount=5, format=".3~r")
    base = alt.Chart(frame).encode(
        x=alt.X("layer:Q", title="layer (0: embeddings)", axis=axis, scale=alt.Scale(nice=False)),
        tooltip=[
            alt.Tooltip("layer:Q", title="Layer"),
            alt.Tooltip("value:Q", title=title, format=".3f"),
            alt.Tooltip("low:Q", title="Low", format=".3f"),
            alt.Tooltip("high:Q", title="High", format=".3f"),
        ],
    )
    band = base.mark_area(color=colors.accent, opacity=0.2).encode(y=alt.Y("low:Q", title=title, axis=upright), y2="high:Q")
    line = base.mark_line(color=colors.accent, strokeWidth=2.5, point={"size": 40, "color": colors.accent}).encode(
        y="value:Q"
    )
    layers = [band, line]
    if marked is not None:
        at = alt.Chart(pd.DataFrame({"layer": [marked], "name": [note]}))
        is_late = marked > len(frame) / 2
        layers.append(at.mark_rule(color=colors.outline, strokeDash=[5, 3], strokeWidth=1.5).encode(x="layer:Q"))
        text = at.mark_text(color=colors.outline, align="right" if is_late else "left", dx=-5 if is_late else 5, fontSize=11)
        layers.append(text.encode(x="layer:Q", y=alt.value(alt.ExprRef("height - 10")), text="name:N"))
    return alt.layer(*layers).properties(height=height).configure_view(strokeWidth=0)
