"""Pictures of a whole file: at which ranks rankers differ, and how much better one is than the others."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import altair as alt
import pandas as pd

from spd_core.figures.labels import LABEL_WIDTH
from spd_core.figures.palette import palette

AROUND = 70
"""Pixels of height for the axis."""
NUMBER_SIZE = alt.ExprRef("containerSize()[0] < 420 ? 0 : clamp(containerSize()[0] / 52, 7, 11)")
"""Pixels of the numbers in the cells; on a phone there is no room for them, the table has them."""


def rank_shares_frame(shares: Mapping[str, Sequence[float]]) -> pd.DataFrame:
    """One line a cell: `ranker`, `rank` from 1, `share`.

    Args:
        shares: ranker's title -> share at each rank, 0 to 1.
    """
    lines = [(name, rank, share) for name, row in shares.items() for rank, share in enumerate(row, start=1)]
    return pd.DataFrame(lines, columns=["ranker", "rank", "share"])


def rank_shares_chart(shares: Mapping[str, Sequence[float]], *, title: str, dark: bool = False) -> alt.LayerChart:
    """Bars in a row a ranker, as high as the share at each rank, between a base line and a full one.

    Args:
        shares: ranker's title -> share at each rank, 0 to 1.
        title: what the share is of; for the tooltip.
        dark: whether the ground is dark.
    """
    colors, frame = palette(dark=dark), rank_shares_frame(shares)
    deepest = int(frame["rank"].max()) if len(frame) else 1
    frame["left"], frame["right"] = frame["rank"] - 0.42, frame["rank"] + 0.42
    scale = alt.Scale(domain=[0.5, deepest + 0.5], nice=False, zero=False)
    axis = alt.Axis(orient="top", tickMinStep=1, format="d", grid=False, labelColor=colors.ink, titleColor=colors.quiet)
    base = alt.Chart(frame).encode(
        y=alt.Y("ranker:N", sort=list(shares), title=None, axis=_labels(colors.ink)),
        tooltip=[
            alt.Tooltip("ranker:N", title="Ranker"),
            alt.Tooltip("rank:Q", title="Rank"),
            alt.Tooltip("share:Q", title=title, format=".1%"),
        ],
    )
    x = alt.X("left:Q", scale=scale, title="rank (1 is first)", axis=axis)
    cells = base.mark_rect(height=alt.RelativeBandSize(0.86), cornerRadius=2).encode(
        x=x,
        x2="right:Q",
        color=alt.Color("share:Q", scale=alt.Scale(domain=[0, 1], range=list(colors.sequential)), legend=None),
    )
    numbers = base.mark_text(fontSize=NUMBER_SIZE, baseline="middle").encode(
        x=alt.X("rank:Q", scale=scale),
        text=alt.Text("percent:N"),
        color=alt.condition(f"datum.share > {0.7 if dark else 0.45}", alt.value(colors.sequential[0]), alt.value(colors.ink)),
    )
    numbers = numbers.transform_calculate(percent="round(datum.share * 100)")
    layers = alt.layer(cells, numbers).resolve_scale(color="independent")
    chart: alt.LayerChart = layers.properties(height=30 * len(shares) + AROUND).configure_view(strokeWidth=0)
    return chart


def differences_frame(differences: Mapping[str, tuple[float, float, float]]) -> pd.DataFrame:
    """One line a row: `label`, `mean`, `low`, `high`, and `beyond`, whether 0 lies outside.

    Args:
        differences: label -> mean difference with the bounds of its interval.
    """
    lines = [(name, *values) for name, values in differences.items()]
    frame = pd.DataFrame(lines, columns=["label", "mean", "low", "high"])
    frame["beyond"] = (frame["low"] > 0) | (frame["high"] < 0)
    return frame


def differences_chart(
    differences: Mapping[str, tuple[float, float, float]], *, title: str, dark: bool = False
) -> alt.LayerChart:
    """A dot and its interval in each row, against a line at 0; filled where the interval leaves 0 out.

    Args:
        differences: label -> mean difference with the bounds of its interval.
        title: of the axis.
        dark: whether the ground is dark.
    """
    colors, frame = palette(dark=dark), differences_frame(differences)
    axis = alt.Axis(orient="top", labelColor=colors.ink, titleColor=colors.quiet, tickCount=4, format="+.2f", gridOpacity=0.4)
    base = alt.Chart(frame).encode(
        y=alt.Y("label:N", sort=list(differences), title=None, axis=_labels(colors.ink)),
        tooltip=[
            alt.Tooltip("label:N", title="Against"),
            alt.Tooltip("mean:Q", title="Difference", format="+.4f"),
            alt.Tooltip("low:Q", title="From", format="+.4f"),
            alt.Tooltip("high:Q", title="To", format="+.4f"),
        ],
    )
    zero = alt.Chart(pd.DataFrame({"at": [0.0]})).mark_rule(color=colors.quiet, strokeDash=[4, 3]).encode(x="at:Q")
    ranges = base.mark_rule(color=colors.accent, strokeWidth=3).encode(x=alt.X("low:Q", title=title, axis=axis), x2="high:Q")
    dots = base.mark_point(size=90, color=colors.accent, strokeWidth=2, opacity=1).encode(
        x="mean:Q", fill=alt.condition("datum.beyond", alt.value(colors.accent), alt.value("transparent"))
    )
    layers = alt.layer(zero, ranges, dots)
    chart: alt.LayerChart = layers.properties(height=28 * len(frame) + AROUND).configure_view(strokeWidth=0)
    return chart


def _labels(color: str) -> alt.Axis:
    """Row labels that are our own words, so that they may be the key as well."""
    return alt.Axis(labelColor=color, labelLimit=LABEL_WIDTH, ticks=False, domain=False, labelOverlap=False)
