"""How far each item's rank moved over several rankings of one slate: a dot and a range a candidate."""

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


def rank_spread_frame(titles: Sequence[str], positions: NDArray[np.integer], given: NDArray[np.integer]) -> pd.DataFrame:
    """One line a candidate, in input order: what the spread chart draws; ranks from 1.

    Args:
        titles: (N,) any text.
        positions: (R, N) rank of each candidate in each ranking, 0 first.
        given: (N,) its rank in the ranking to compare with.

    Returns:
        N rows: `item` row key, `candidate`, `best`, `median`, `worst`, `mean`, `std`, `given`.
    """
    ranks = np.asarray(positions) + 1
    return pd.DataFrame(
        {
            "item": row_keys(len(titles)),
            "candidate": list(titles),
            "best": ranks.min(axis=0),
            "median": np.median(ranks, axis=0),
            "worst": ranks.max(axis=0),
            "mean": ranks.mean(axis=0),
            "std": ranks.std(axis=0),
            "given": np.asarray(given) + 1,
        }
    )


def rank_spread_chart(
    titles: Sequence[str],
    positions: NDArray[np.integer],
    *,
    given: NDArray[np.integer],
    order: Sequence[int],
    dark: bool = False,
) -> alt.LayerChart:
    """Chart with a row a candidate: a line from best to worst rank, a dot at the median, a diamond at another rank.

    Args:
        titles: (N,) row labels; only labels, so equal or numeric ones are fine.
        positions: (R, N) rank of each candidate in each ranking, 0 first.
        given: (N,) rank drawn as a diamond.
        order: candidate indices from top to bottom.
        dark: whether the ground is dark.
    """
    colors, keys = palette(dark=dark), row_keys(len(titles))
    frame = rank_spread_frame(titles, positions, given)
    ranks = alt.Scale(domain=[0.5, len(titles) + 0.5], nice=False, zero=False)
    axis = alt.Axis(orient="top", tickMinStep=1, format="d", grid=True, labelColor=colors.ink, titleColor=colors.quiet)
    base = alt.Chart(frame).encode(
        y=alt.Y("item:O", sort=[keys[index] for index in order], title=None, axis=axis_labels(titles, color=colors.ink)),
        tooltip=[
            alt.Tooltip("candidate:N", title="Candidate"),
            alt.Tooltip("best:Q", title="Best rank"),
            alt.Tooltip("median:Q", title="Median rank"),
            alt.Tooltip("worst:Q", title="Worst rank"),
            alt.Tooltip("std:Q", title="Standard deviation", format=".2f"),
            alt.Tooltip("given:Q", title="Rank in the order given"),
        ],
    )
    ranges = base.mark_rule(color=colors.accent, strokeWidth=5, opacity=0.4, strokeCap="round").encode(
        x=alt.X("best:Q", scale=ranks, title="rank (1 is first)", axis=axis), x2="worst:Q"
    )
    diamonds = base.mark_point(shape="diamond", color=colors.down, size=120, strokeWidth=2, filled=False, opacity=1)
    dots = base.mark_circle(color=colors.accent, size=90, opacity=1)
    chart = alt.layer(ranges, dots.encode(x="median:Q"), diamonds.encode(x="given:Q"))
    return chart.properties(height=26 * len(keys) + AROUND).configure_view(strokeWidth=0)
