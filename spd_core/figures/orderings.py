"""Two orders of one slate side by side, a line a candidate."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import altair as alt
import numpy as np
import pandas as pd
from numpy.typing import NDArray

from spd_core.figures.labels import row_keys
from spd_core.figures.palette import palette

Side = Literal["left", "right"]
Moves = tuple[str, str, str]
MOVES: Moves = ("moved up", "moved down", "stayed")
LEFT_ROOM, TITLES, RIGHT_ROOM = -0.25, 1.3, 2.5
"""Where the picture begins, titles begin, and both end, in units of the distance between the two orders."""


def orderings_frame(
    titles: Sequence[str],
    positions: NDArray[np.integer],
    marked: Sequence[bool],
    *,
    moves: Moves = MOVES,
    loud: int | None = None,
) -> pd.DataFrame:
    """One line a candidate, in the first order: what the slope chart draws.

    Args:
        titles: (N,) any text.
        positions: (N,) position of each candidate in the second order, 0 first.
        marked: (N,) candidates to point out, e.g. the bought one.
        moves: names for up, down and neither.
        loud: how many of the longest moves stand out; None treats all alike.

    Returns:
        N rows: `item` row key, `candidate`, `before` and `after` (places from 1), `move` (one of `moves`), `marked`, `loud`.
    """
    before = np.arange(1, len(titles) + 1)
    after = np.asarray(positions) + 1
    move = np.select([after < before, after > before], moves[:2], moves[2])
    longest = np.argsort(np.argsort(-np.abs(after - before), kind="stable"))
    stands_out = (longest < (len(titles) if loud is None else loud)) & ((after != before) | (loud is None))
    columns = {"item": row_keys(len(titles)), "candidate": list(titles), "before": before, "after": after, "move": move}
    return pd.DataFrame(columns | {"marked": list(marked), "loud": stands_out})


def slope_chart(
    titles: Sequence[str],
    positions: NDArray[np.integer],
    *,
    marked: Sequence[bool],
    before: str = "as shown",
    after: str = "ranked",
    moves: Moves = MOVES,
    loud: int | None = None,
    dark: bool = False,
) -> alt.LayerChart:
    """Slope chart from one order (left, that of the titles) to another (right); lines that rise were moved up.

    Args:
        titles: (N,) labels on the right.
        positions: (N,) position of each candidate in the second order, 0 first.
        marked: (N,) candidates drawn bold with a star before their title.
        before: heading of the left side.
        after: heading of the right side.
        moves: names for a line that rises, falls, or does neither.
        loud: how many of the longest moves are drawn strongly and the others faintly; None draws all alike.
        dark: whether the ground is dark.
    """
    colors = palette(dark=dark)
    frame = orderings_frame(titles, positions, marked, moves=moves, loud=loud)
    frame["label"] = [("★ " if star else "") + title for star, title in zip(marked, titles, strict=True)]
    room = alt.Scale(domain=[LEFT_ROOM, RIGHT_ROOM], nice=False, zero=False)
    places = alt.Scale(domain=[len(titles) + 0.5, 0.2], nice=False, zero=False)
    move = alt.Color(
        "move:N",
        scale=alt.Scale(domain=list(moves), range=[colors.up, colors.down, colors.quiet]),
        legend=alt.Legend(orient="bottom", title=None, symbolType="stroke"),
    )
    base = alt.Chart(frame)
    lines = base.mark_rule(strokeCap="round").encode(
        x=alt.X("left:Q", scale=room, axis=None),
        x2="right:Q",
        y=alt.Y("before:Q", scale=places, axis=None),
        y2="after:Q",
        color=move,
        strokeWidth=alt.condition("datum.marked", alt.value(4), alt.value(1.8)),
        opacity=alt.condition("datum.loud || datum.marked", alt.value(0.9), alt.value(0.35)),
        tooltip=[
            alt.Tooltip("candidate:N", title="Candidate"),
            alt.Tooltip("before:Q", title=before.capitalize()),
            alt.Tooltip("after:Q", title=after.capitalize()),
        ],
    )
    sides = [
        _numbers(base, "before", -0.05, "right", colors.quiet),
        _numbers(base, "after", 1.05, "left", colors.ink),
        _titles(base, colors.ink),
        _heading(before, -0.05, "right", colors.quiet),
        _heading(after, 1.05, "left", colors.quiet),
    ]
    chart = alt.layer(lines.transform_calculate(left="0", right="1"), *sides)
    return chart.properties(height=24 * len(titles) + 110).configure_view(strokeWidth=0)


def _numbers(base: alt.Chart, field: str, at: float, align: Side, color: str) -> alt.Chart:
    return base.mark_text(align=align, baseline="middle", color=color, fontSize=12).encode(
        x=alt.X(datum=at, type="quantitative"), y=f"{field}:Q", text=f"{field}:Q"
    )


def _titles(base: alt.Chart, color: str) -> alt.Chart:
    share = (RIGHT_ROOM - TITLES) / (RIGHT_ROOM - LEFT_ROOM)
    fits = alt.ExprRef(f"width * {share:.3f}")
    return base.mark_text(align="left", baseline="middle", color=color, fontSize=12, limit=fits).encode(
        x=alt.X(datum=TITLES, type="quantitative"), y="after:Q", text="label:N"
    )


def _heading(text: str, at: float, align: Side, color: str) -> alt.Chart:
    return (
        alt.Chart(pd.DataFrame({"text": [text]}))
        .mark_text(align=align, baseline="middle", color=color, fontSize=12, fontStyle="italic")
        .encode(x=alt.X(datum=at, type="quantitative"), y=alt.Y(datum=0.35, type="quantitative"), text="text:N")
    )
