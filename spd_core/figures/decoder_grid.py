"""The orders of several decoders side by side: a row a candidate, a column a decoder, in each cell the rank it gets."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import altair as alt
import numpy as np
import pandas as pd
from numpy.typing import NDArray

from spd_core.figures.labels import axis_labels, row_keys
from spd_core.figures.palette import palette

SAME = "same rank as the first"
UP, DOWN = "ranked higher", "ranked lower"
SHIFTS = (UP, DOWN, SAME)
NUMBER_SIZE = alt.ExprRef("clamp(containerSize()[0] / 36, 9, 12)")
"""Pixels of the numbers in the cells: six columns of two ranks and an arrow fit on a phone."""


def grid_frame(titles: Sequence[str], positions: Mapping[str, NDArray[np.integer]]) -> pd.DataFrame:
    """One line a cell, as `decoder_grid` draws it.

    Args:
        titles: (N,) any text, in the order of the first decoder.
        positions: decoder's title -> (N,) position of each of these candidates, 0 first. The first one is compared with.

    Returns:
        N * len(positions) rows: `item` row key, `candidate`, `decoder`, `rank` from 1, `shift` (one of `SHIFTS`) and
        `label`: the rank, with an arrow and the number of places where it differs.
    """
    first = np.arange(len(titles)) if not positions else np.asarray(next(iter(positions.values())))
    parts = []
    for decoder, places in positions.items():
        rise = first - np.asarray(places)
        parts.append(
            pd.DataFrame(
                {
                    "item": row_keys(len(titles)),
                    "candidate": list(titles),
                    "decoder": decoder,
                    "rank": np.asarray(places) + 1,
                    "shift": np.select([rise > 0, rise < 0], [UP, DOWN], SAME),
                    "label": [_label(int(place) + 1, int(by)) for place, by in zip(places, rise, strict=True)],
                }
            )
        )
    return pd.concat(parts, ignore_index=True)


def decoder_grid(
    titles: Sequence[str], positions: Mapping[str, NDArray[np.integer]], *, marked: Sequence[bool], dark: bool = False
) -> alt.LayerChart:
    """Ranks of every candidate under every decoder; cells that differ from the first decoder are filled and carry an arrow.

    Args:
        titles: (N,) row labels, in the order of the first decoder; only labels, so equal ones are fine.
        positions: decoder's title -> (N,) position of each of these candidates, 0 first.
        marked: (N,) candidates with a star before their title, e.g. the bought one.
        dark: whether the ground is dark.
    """
    colors = palette(dark=dark)
    frame = grid_frame(titles, positions)
    starred = [("★ " if star else "") + title for star, title in zip(marked, titles, strict=True)]
    base = alt.Chart(frame).encode(
        x=alt.X(
            "decoder:N",
            sort=list(positions),
            title=None,
            axis=alt.Axis(
                orient="top",
                labelAngle=-60,
                labelColor=colors.ink,
                labelLimit=140,
                labelOverlap=False,
                ticks=False,
                domain=False,
            ),
        ),
        y=alt.Y("item:N", sort=row_keys(len(titles)), title=None, axis=axis_labels(starred, color=colors.ink)),
        tooltip=[
            alt.Tooltip("candidate:N", title="Candidate"),
            alt.Tooltip("decoder:N", title="Decoder"),
            alt.Tooltip("rank:Q", title="Rank"),
            alt.Tooltip("shift:N", title="Against the first"),
        ],
    )
    cells = base.mark_rect(cornerRadius=3, opacity=0.3, stroke=None).encode(
        color=alt.Color(
            "shift:N",
            scale=alt.Scale(domain=list(SHIFTS), range=[colors.up, colors.down, "transparent"]),
            legend=None,
        )
    )
    numbers = base.mark_text(fontSize=NUMBER_SIZE, baseline="middle").encode(
        text="label:N",
        color=alt.condition(f"datum.shift == '{SAME}'", alt.value(colors.quiet), alt.value(colors.ink)),
    )
    chart = alt.layer(cells, numbers).resolve_scale(color="independent")
    return chart.properties(height=26 * len(titles) + 110).configure_view(strokeWidth=0)


def _label(rank: int, rise: int) -> str:
    return f"{rank}" if not rise else f"{rank}{'▲' if rise > 0 else '▼'}{abs(rise)}"
