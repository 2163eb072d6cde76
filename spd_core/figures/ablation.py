"""Cells of an ablation as dots with their intervals, and their learning curves; a cell that was not run says so."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import altair as alt
import pandas as pd

from spd_core.errors import SpdError
from spd_core.figures.labels import LABEL_WIDTH
from spd_core.figures.palette import palette

AROUND = 70
"""Pixels of height for the axis."""
KINDS = {"frozen": "circle", "LoRA": "diamond"}
"""Kind of backbone -> shape, so that nothing is told by color alone."""


def shared_domain(frames: Sequence[pd.DataFrame]) -> tuple[float, float]:
    """Axis range that holds every interval of the frames with a little room; 0 to 1 where there is none.

    Args:
        frames: with `mean` and perhaps `low` and `high`, NaN where there is no figure.
    """
    numbers = pd.concat([frame[name] for frame in frames for name in ("low", "mean", "high") if name in frame]).dropna()
    if numbers.empty:
        return 0.0, 1.0
    room = 0.06 * (float(numbers.max()) - float(numbers.min())) or 0.01
    return float(numbers.min()) - room, float(numbers.max()) + room


def interval_chart(frame: pd.DataFrame, *, title: str, domain: tuple[float, float], dark: bool = False) -> alt.LayerChart:
    """A row a cell: a dot at its mean, a line over its interval if there is one, or why there is no figure.

    Args:
        frame: `label` (unique), `kind` (key of `KINDS`), `mean`, `low`, `high` (NaN: no interval), `n`, `source`, `state`.
        title: of the axis.
        domain: its range, the same for charts that are read together.
        dark: whether the ground is dark.

    Raises:
        SpdError: two rows with one label.
    """
    colors, labels = palette(dark=dark), frame["label"].tolist()
    if len(set(labels)) < len(labels):
        raise SpdError(f"row labels must differ, got {labels}")
    scale = alt.Scale(domain=list(domain), nice=False, zero=False)
    axis = alt.Axis(orient="top", tickCount=4, format=".2f", labelColor=colors.ink, titleColor=colors.quiet, gridOpacity=0.4)
    names = alt.Axis(
        labelColor=colors.ink, labelLimit=LABEL_WIDTH, ticks=False, domain=False, labelOverlap=False, labelFlush=False
    )
    y = alt.Y("label:N", scale=alt.Scale(domain=labels), title=None, axis=names)
    color = alt.Color("kind:N", scale=alt.Scale(domain=list(KINDS), range=[colors.up, colors.down]), legend=None)
    shape = alt.Shape("kind:N", scale=alt.Scale(domain=list(KINDS), range=list(KINDS.values())), legend=None)
    run, gaps = frame[frame["mean"].notna()], frame[frame["mean"].isna()]
    base = alt.Chart(run).encode(y=y, color=color, tooltip=_tooltip())
    x = alt.X("mean:Q", scale=scale, title=title, axis=axis)
    ranges = base.transform_filter("isValid(datum.low)").mark_rule(strokeWidth=3, opacity=0.55)
    dots = base.mark_point(size=110, filled=True, opacity=1).encode(x=x, shape=shape)
    words = alt.Chart(gaps).mark_text(align="left", color=colors.quiet, fontStyle="italic", fontSize=12)
    layers = [
        ranges.encode(x=alt.X("low:Q", scale=scale, title=title, axis=axis), x2="high:Q"),
        dots,
        words.encode(y=y, x=alt.value(6), text="state:N"),
    ]
    chart: alt.LayerChart = alt.layer(*layers).properties(height=30 * len(labels) + AROUND).configure_view(strokeWidth=0)
    return chart


def curve_chart(frame: pd.DataFrame, *, domain: tuple[float, float], dark: bool = False) -> alt.LayerChart:
    """AUC on held-out slates against slates seen while training, a line a cell and seed.

    Args:
        frame: `label`, `signal`, `kind` (key of `KINDS`), `seed`, `at` (slates seen), `mean`, `n`, `source`.
        domain: range of the AUC axis.
        dark: whether the ground is dark.
    """
    colors = palette(dark=dark)
    ink: dict[str, Any] = {"labelColor": colors.ink, "titleColor": colors.quiet, "gridOpacity": 0.4}
    signals = sorted(frame["signal"].unique())
    color = alt.Color(
        "signal:N",
        scale=alt.Scale(domain=signals, range=[colors.down, colors.accent]),
        legend=alt.Legend(orient="bottom", title=None, labelColor=colors.ink),
    )
    dash = alt.StrokeDash("kind:N", scale=alt.Scale(domain=list(KINDS), range=[[1, 0], [5, 3]]), legend=None)
    shape = alt.Shape("kind:N", scale=alt.Scale(domain=list(KINDS), range=list(KINDS.values())), legend=None)
    base = alt.Chart(frame).encode(
        x=alt.X("at:Q", title="slates seen", axis=alt.Axis(tickCount=4, format=",d", **ink)),
        y=alt.Y(
            "mean:Q",
            title="AUC",
            scale=alt.Scale(domain=list(domain), nice=False, zero=False),
            axis=alt.Axis(tickCount=4, format=".2f", **ink),
        ),
        color=color,
        detail=["label:N", "seed:N"],
        tooltip=[
            alt.Tooltip("label:N", title="Cell"),
            alt.Tooltip("seed:N", title="Seed"),
            alt.Tooltip("at:Q", title="Slates seen", format=",d"),
            alt.Tooltip("mean:Q", title="AUC", format=".3f"),
            alt.Tooltip("n:Q", title="Held-out slates", format=",d"),
        ],
    )
    lines = base.mark_line(strokeWidth=2).encode(strokeDash=dash)
    points = base.mark_point(size=45, filled=True, opacity=1).encode(shape=shape)
    chart: alt.LayerChart = alt.layer(lines, points).properties(height=240).configure_view(strokeWidth=0)
    return chart


def _tooltip() -> list[alt.Tooltip]:
    return [
        alt.Tooltip("label:N", title="Cell"),
        alt.Tooltip("mean:Q", title="Mean", format=".4f"),
        alt.Tooltip("low:Q", title="From", format=".4f"),
        alt.Tooltip("high:Q", title="To", format=".4f"),
        alt.Tooltip("n:N", title="n"),
        alt.Tooltip("source:N", title="Source"),
    ]
