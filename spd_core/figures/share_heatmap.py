"""Who takes how much from whom: a heatmap of shares, a row a reader and a column a source."""

from __future__ import annotations

from collections.abc import Sequence

import altair as alt
import numpy as np
import pandas as pd
from numpy.typing import NDArray

from spd_core.figures.labels import axis_labels, row_keys
from spd_core.figures.palette import palette

AROUND = 130
"""Pixels of height for the axis and the legend."""


def share_frame(shares: NDArray[np.floating], readers: Sequence[str], sources: Sequence[str]) -> pd.DataFrame:
    """One line a cell: `item` and `column` keys, `reader`, `source`, `share`.

    Args:
        shares: (R, C) in 0..1.
        readers: (R,) any text; equal ones stay apart.
        sources: (C,) any text.
    """
    rows, columns = np.asarray(shares).shape
    return pd.DataFrame(
        {
            "item": np.repeat(row_keys(rows), columns),
            "column": np.tile(row_keys(columns), rows),
            "reader": np.repeat(np.asarray(readers, dtype=object), columns),
            "source": np.tile(np.asarray(sources, dtype=object), rows),
            "share": np.asarray(shares, dtype=np.float64).ravel(),
        }
    )


def share_heatmap(
    shares: NDArray[np.floating],
    *,
    readers: Sequence[str],
    sources: Sequence[str],
    ticks: Sequence[str],
    source_title: str,
    is_skewed: bool = False,
    dark: bool = False,
) -> alt.Chart:
    """Heatmap of shares.

    Args:
        shares: (R, C) in 0..1, rows and columns as drawn.
        readers: (R,) full names of the rows, for the tooltip and, numbered, as row labels.
        sources: (C,) full names of the columns, for the tooltip.
        ticks: (C,) short column labels of our own, e.g. numbers.
        source_title: of the horizontal axis.
        is_skewed: whether a few shares are far above the rest; the shades then follow their square root.
        dark: whether the ground is dark.
    """
    colors, frame = palette(dark=dark), share_frame(shares, readers, sources)
    names = dict(zip(row_keys(len(ticks)), ticks, strict=True))
    top = max(float(frame["share"].max()), 1e-9)
    lookup = "{" + ",".join(f'"{key}":"{name}"' for key, name in names.items()) + "}"
    return (
        alt.Chart(frame)
        .mark_rect()
        .encode(
            x=alt.X(
                "column:O",
                title=source_title,
                axis=alt.Axis(
                    orient="top", labelExpr=f"({lookup})[datum.value]", labelAngle=-60, labelOverlap=True,
                    labelColor=colors.ink, titleColor=colors.quiet, ticks=False, domain=False,
                ),
            ),
            y=alt.Y("item:O", title=None, axis=axis_labels(readers, color=colors.ink)),
            color=alt.Color(
                "share:Q",
                scale=alt.Scale(domain=[0, top], range=list(colors.sequential), type="sqrt" if is_skewed else "linear"),
                legend=alt.Legend(title="share", orient="bottom", gradientLength=140, gradientThickness=8, titleOrient="top",
                                  tickCount=3, format=".2~%"),
            ),
            tooltip=[
                alt.Tooltip("reader:N", title="Reader"),
                alt.Tooltip("source:N", title="Takes from"),
                alt.Tooltip("share:Q", title="Share", format=".2%"),
            ],
        )
        .properties(height=20 * len(readers) + AROUND)
        .configure_view(strokeWidth=0)
    )  # fmt: skip
