"""A ruler of tokens for each candidate: a square a token, those read out with a dot, those cut as empty squares."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import altair as alt
import pandas as pd

from spd_core.figures.labels import axis_labels, row_keys
from spd_core.figures.palette import palette

STATES = ("description", "closes the line", "cut")
CUT_DRAWN = 8
"""Cut tokens drawn at most for a candidate; their number stands beside them."""
GAP = 0.5
"""Between what is in the prompt and what is not, in tokens."""
AROUND = 60
"""Pixels of height for the axis."""


@dataclass(frozen=True)
class TokenRow:
    """The tokens of one candidate."""

    kept: tuple[str, ...]
    closing: tuple[str, ...]
    cut: tuple[str, ...]
    readout: tuple[int, ...]
    """Indices into `kept` followed by `closing`."""


def token_frame(rows: Sequence[TokenRow]) -> pd.DataFrame:
    """One line a token that is drawn.

    Returns:
        Columns `item` row key, `left` and `right` in tokens, `number` from 1, `token` text, `state` (one of `STATES`),
        `is_read_out`.
    """
    lines = []
    for key, row in zip(row_keys(len(rows)), rows, strict=True):
        inside = [*((text, STATES[0]) for text in row.kept), *((text, STATES[1]) for text in row.closing)]
        tokens = [*inside, *((text, STATES[2]) for text in row.cut[:CUT_DRAWN])]
        for index, (text, state) in enumerate(tokens):
            left = index + (GAP if state == STATES[2] else 0)
            lines.append((key, left + 0.08, left + 0.92, index + 1, text, state, index in row.readout))
    return pd.DataFrame(lines, columns=["item", "left", "right", "number", "token", "state", "is_read_out"])


def token_ruler(rows: Sequence[TokenRow], titles: Sequence[str], *, dark: bool = False) -> alt.LayerChart:
    """Chart with a row a candidate and a square a token.

    Args:
        rows: (N,) tokens of each candidate.
        titles: (N,) row labels; only labels, so equal or numeric ones are fine.
        dark: whether the ground is dark.
    """
    colors, frame = palette(dark=dark), token_frame(rows)
    reach = float(frame["right"].max()) + 3
    y = alt.Y("item:O", sort=row_keys(len(rows)), title=None, axis=axis_labels(titles, color=colors.ink))
    axis = alt.Axis(orient="top", tickMinStep=1, format="d", grid=False, labelColor=colors.ink, titleColor=colors.quiet)
    scale = alt.Scale(domain=[0, reach], nice=False)
    state = alt.Scale(domain=list(STATES), range=[colors.sequential[2], colors.quiet, "transparent"])
    edge = alt.Scale(domain=list(STATES), range=[colors.accent, colors.quiet, colors.down])
    base = alt.Chart(frame).encode(y=y)
    squares = base.mark_rect(strokeWidth=1.2, cornerRadius=1).encode(
        x=alt.X("left:Q", scale=scale, title="tokens of the candidate", axis=axis),
        x2="right:Q",
        fill=alt.Fill("state:N", scale=state, legend=None),
        stroke=alt.Stroke("state:N", scale=edge, legend=None),
        tooltip=[
            alt.Tooltip("token:N", title="Token"),
            alt.Tooltip("number:Q", title="Number"),
            alt.Tooltip("state:N", title="Part"),
            alt.Tooltip("is_read_out:N", title="Read out"),
        ],
    )
    dots = base.transform_filter("datum.is_read_out").transform_calculate(middle="(datum.left + datum.right) / 2")
    marks = dots.mark_circle(color=colors.ink, size=26, opacity=1).encode(x="middle:Q")
    chart = alt.layer(squares, marks, _counts(rows, y, colors.ink))
    return chart.properties(height=26 * len(rows) + AROUND).configure_view(strokeWidth=0)


def _counts(rows: Sequence[TokenRow], y: alt.Y, color: str) -> alt.Chart:
    """How many tokens were cut, written after the last square."""
    lines = [
        (key, len(row.kept) + len(row.closing) + min(len(row.cut), CUT_DRAWN) + GAP + 0.2, f"{len(row.cut):,} cut")
        for key, row in zip(row_keys(len(rows)), rows, strict=True)
        if row.cut
    ]
    frame = pd.DataFrame(lines, columns=["item", "left", "text"])
    text = alt.Chart(frame).mark_text(align="left", baseline="middle", color=color, fontSize=11)
    return text.encode(y=y, x="left:Q", text="text:N")
