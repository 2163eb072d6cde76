"""The readouts of a slate as points in two dimensions, numbered and shaded by rank."""

from __future__ import annotations

from collections.abc import Sequence

import altair as alt
import numpy as np
import pandas as pd
from numpy.typing import NDArray

from spd_core.figures.palette import palette

HEIGHT = 460


def point_frame(points: NDArray[np.floating], titles: Sequence[str], positions: NDArray[np.integer]) -> pd.DataFrame:
    """One line a candidate: `candidate`, `rank` from 1, `first` and `second` coordinate.

    Args:
        points: (N, 2).
        titles: (N,) any text.
        positions: (N,) position in the ranking, 0 first.
    """
    values = np.asarray(points, dtype=np.float64)
    return pd.DataFrame(
        {"candidate": list(titles), "rank": np.asarray(positions) + 1, "first": values[:, 0], "second": values[:, 1]}
    )


def readout_points(
    points: NDArray[np.floating],
    titles: Sequence[str],
    *,
    positions: NDArray[np.integer],
    shares: NDArray[np.floating],
    marked: Sequence[bool],
    dark: bool = False,
) -> alt.LayerChart:
    """Scatter of the readouts; the number beside a point is its rank.

    Args:
        points: (N, 2) coordinates.
        titles: (N,) for the tooltip.
        positions: (N,) position in the ranking, 0 first.
        shares: (2,) share of the variance along each axis.
        marked: (N,) candidates drawn as a star, e.g. the bought one.
        dark: whether the ground is dark.
    """
    colors = palette(dark=dark)
    frame = point_frame(points, titles, positions)
    frame["shape"] = np.where(list(marked), "right", "other")
    axis = alt.Axis(labels=False, ticks=False, grid=True, titleColor=colors.quiet)
    names = [
        f"{word} direction, {share:.0%} of the variance" for word, share in zip(("first", "second"), shares, strict=True)
    ]
    base = alt.Chart(frame).encode(
        x=alt.X("first:Q", title=names[0], axis=axis, scale=alt.Scale(padding=24)),
        y=alt.Y("second:Q", title=names[1], axis=axis, scale=alt.Scale(padding=24)),
        tooltip=[alt.Tooltip("rank:Q", title="Rank"), alt.Tooltip("candidate:N", title="Candidate")],
    )
    dots = base.mark_point(filled=True, size=130, opacity=1, stroke=colors.ink, strokeWidth=0.6).encode(
        color=alt.Color(
            "rank:Q",
            scale=alt.Scale(domain=[1, max(2, len(frame))], range=[colors.sequential[5], colors.sequential[1]]),
            legend=alt.Legend(title="rank", orient="bottom", gradientLength=140, gradientThickness=8, tickCount=3),
        ),
        shape=alt.Shape("shape:N", scale=alt.Scale(domain=["other", "right"], range=["circle", "diamond"]), legend=None),
        size=alt.Size("shape:N", scale=alt.Scale(domain=["other", "right"], range=[110, 260]), legend=None),
    )
    numbers = base.mark_text(dx=11, dy=-8, fontSize=11, color=colors.ink).encode(text="rank:Q")
    return alt.layer(dots, numbers).properties(height=HEIGHT).configure_view(strokeWidth=0)
