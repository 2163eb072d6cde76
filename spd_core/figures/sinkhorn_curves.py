"""How Sinkhorn converges, how sure each item is of its place, and at which temperatures it changes its mind."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import altair as alt
import numpy as np
import pandas as pd
from numpy.typing import NDArray

from spd_core.figures.labels import axis_labels, row_keys
from spd_core.figures.palette import Palette, palette
from spd_core.sinkhorn_flips import TemperatureSweep

LOWEST = 1e-12
"""Residuals below are drawn here: what is left is rounding."""
AROUND = 70
"""Pixels of height for an axis."""
WIDE_ENOUGH = 0.16
"""Decades of temperature that a position's number needs inside its bar."""


def residual_frame(residuals: NDArray[np.floating]) -> pd.DataFrame:
    """One line a round: `round` from 1, `residual`, `drawn` (at least `LOWEST`, for the logarithmic axis)."""
    values = np.asarray(residuals, dtype=np.float64)
    return pd.DataFrame({"round": np.arange(1, len(values) + 1), "residual": values, "drawn": np.maximum(values, LOWEST)})


def residual_chart(
    residuals: NDArray[np.floating], marked: Mapping[str, int], *, limit: float, dark: bool = False
) -> alt.LayerChart:
    """Residual over the rounds on a logarithmic axis, with named rounds and the limit below which it may be believed.

    Args:
        residuals: (L,) after each round.
        marked: name -> round from 1, e.g. that of training; drawn as upright lines with their names.
        limit: level drawn as a dotted line.
        dark: whether the ground is dark.
    """
    colors, frame = palette(dark=dark), residual_frame(residuals)
    axis = alt.Axis(labelColor=colors.ink, titleColor=colors.quiet, format="d", tickMinStep=1, grid=False)
    line = (
        alt.Chart(frame)
        .mark_line(color=colors.accent, strokeWidth=2.5, point={"size": 18, "color": colors.accent})
        .encode(
            x=alt.X("round:Q", title="round", axis=axis, scale=alt.Scale(domain=[1, max(2, len(frame))], nice=False)),
            y=alt.Y(
                "drawn:Q",
                title="residual",
                scale=alt.Scale(type="log", clamp=True),
                axis=alt.Axis(format="~e", labelColor=colors.ink, titleColor=colors.quiet, tickCount=6),
            ),
            tooltip=[alt.Tooltip("round:Q", title="Round"), alt.Tooltip("residual:Q", title="Residual", format=".2e")],
        )
    )
    level = alt.Chart(pd.DataFrame({"drawn": [limit]})).mark_rule(color=colors.down, strokeDash=[2, 3]).encode(y="drawn:Q")
    return (
        alt.layer(line, level, *_upright(marked, "round", colors, last=len(frame)))
        .properties(height=230)
        .configure_view(strokeWidth=0)
    )


def certainty_frame(titles: Sequence[str], entropy: NDArray[np.floating], positions: NDArray[np.integer]) -> pd.DataFrame:
    """One line a candidate: `item` row key, `candidate`, `entropy` in nats, `effective` positions, `rank` from 1."""
    return pd.DataFrame(
        {
            "item": row_keys(len(titles)),
            "candidate": list(titles),
            "entropy": np.asarray(entropy, dtype=np.float64),
            "effective": np.exp(np.asarray(entropy, dtype=np.float64)),
            "rank": np.asarray(positions) + 1,
        }
    )


def certainty_chart(
    titles: Sequence[str],
    entropy: NDArray[np.floating],
    *,
    positions: NDArray[np.integer],
    row_order: Sequence[int],
    dark: bool = False,
) -> alt.LayerChart:
    """A bar a candidate: over how many positions its row is spread, 1 to N.

    Args:
        titles: (N,) row labels; only labels, so equal or numeric ones are fine.
        entropy: (N,) nats.
        positions: (N,) position in the ranking, 0 first.
        row_order: candidate indices from top to bottom.
        dark: whether the ground is dark.
    """
    colors, keys = palette(dark=dark), row_keys(len(titles))
    frame = certainty_frame(titles, entropy, positions)
    axis = alt.Axis(orient="top", labelColor=colors.ink, titleColor=colors.quiet, grid=True)
    base = alt.Chart(frame).encode(
        y=alt.Y("item:O", sort=[keys[index] for index in row_order], title=None, axis=axis_labels(titles, color=colors.ink)),
        x=alt.X("effective:Q", title="positions it is spread over", axis=axis, scale=alt.Scale(domain=[0, len(keys) * 1.08])),
        tooltip=[
            alt.Tooltip("candidate:N", title="Candidate"),
            alt.Tooltip("rank:Q", title="Rank"),
            alt.Tooltip("effective:Q", title="Effective positions", format=".2f"),
            alt.Tooltip("entropy:Q", title="Entropy, nats", format=".3f"),
        ],
    )
    bars = base.mark_bar(color=colors.accent, opacity=0.75, cornerRadiusEnd=2, size=13)
    numbers = base.mark_text(align="left", dx=4, fontSize=11, color=colors.ink).encode(
        text=alt.Text("effective:Q", format=".1f")
    )
    return alt.layer(bars, numbers).properties(height=20 * len(keys) + AROUND).configure_view(strokeWidth=0)


def segment_frame(titles: Sequence[str], sweep: TemperatureSweep) -> pd.DataFrame:
    """One line for each stretch of temperatures over which an item keeps its most likely position.

    Returns:
        `item` row key, `candidate`, `low` and `high` temperature, `middle` (geometric), `place` from 1, `label`: the place
        where the stretch is wide enough to write it. Nothing below the coldest temperature that has converged.
    """
    rows = []
    top = float(sweep.taus[-1])
    for item, (key, title) in enumerate(zip(row_keys(len(titles)), titles, strict=True)):
        high, place = top, int(sweep.places[-1, item])
        flips = [flip for flip in sweep.flips if flip.item == item and flip.tau >= sweep.coldest]
        for low, below in [*((flip.tau, flip.colder) for flip in flips), (sweep.coldest, -1)]:
            if np.isfinite(low) and place >= 0:
                label = str(place + 1) if np.log10(high / low) > WIDE_ENOUGH else ""
                rows.append((key, title, low, high, float(np.sqrt(low * high)), place + 1, label))
            high, place = low, below
    return pd.DataFrame(rows, columns=["item", "candidate", "low", "high", "middle", "place", "label"])


def flip_chart(
    titles: Sequence[str],
    sweep: TemperatureSweep,
    marked: Mapping[str, float],
    *,
    row_order: Sequence[int],
    dark: bool = False,
) -> alt.LayerChart:
    """A row a candidate over the temperature: bars of its most likely position, broken where that changes.

    Args:
        titles: (N,) row labels; only labels, so equal or numeric ones are fine.
        sweep: of these candidates.
        marked: name -> temperature, e.g. that of training; drawn as upright lines with their names.
        row_order: candidate indices from top to bottom.
        dark: whether the ground is dark.
    """
    colors, keys = palette(dark=dark), row_keys(len(titles))
    frame = segment_frame(titles, sweep)
    low = float(sweep.coldest) if np.isfinite(sweep.coldest) else float(sweep.taus[0])
    scale = alt.Scale(type="log", domain=[low, float(sweep.taus[-1])], nice=False, clamp=True)
    axis = alt.Axis(orient="top", labelColor=colors.ink, titleColor=colors.quiet, grid=False, format="~g", tickCount=4)
    base = alt.Chart(frame).encode(
        y=alt.Y("item:O", sort=[keys[index] for index in row_order], title=None, axis=axis_labels(titles, color=colors.ink)),
        tooltip=[
            alt.Tooltip("candidate:N", title="Candidate"),
            alt.Tooltip("place:Q", title="Most likely position"),
            alt.Tooltip("low:Q", title="From temperature", format=".3~g"),
            alt.Tooltip("high:Q", title="To temperature", format=".3~g"),
        ],
    )
    bars = base.mark_bar(height=14, stroke=colors.sequential[0], strokeWidth=2).encode(
        x=alt.X("low:Q", title="temperature (cold to warm)", scale=scale, axis=axis),
        x2="high:Q",
        color=alt.Color(
            "place:Q",
            scale=alt.Scale(domain=[1, max(2, len(keys))], range=[colors.sequential[3], colors.sequential[1]]),
            legend=alt.Legend(title="most likely position", orient="bottom", gradientLength=140, gradientThickness=8,
                              titleOrient="top", tickCount=3),
        ),
    )  # fmt: skip
    numbers = base.mark_text(fontSize=10, color=colors.ink, baseline="middle").encode(
        x=alt.X("middle:Q", scale=scale), text="label:N"
    )
    chart = alt.layer(bars, numbers, *_upright(marked, "low", colors, log=scale))
    return chart.properties(height=20 * len(keys) + AROUND + 60).configure_view(strokeWidth=0)


def _upright(
    marked: Mapping[str, float], field: str, colors: Palette, log: alt.Scale | None = None, last: float | None = None
) -> list[alt.Chart]:
    """Upright lines on the axis of `field` with their names below them; left of the line in the half before `last`."""
    charts = []
    for name, value in marked.items():
        frame = pd.DataFrame({field: [value], "name": [name]})
        x = alt.X(f"{field}:Q", scale=log) if log is not None else alt.X(f"{field}:Q")
        charts.append(alt.Chart(frame).mark_rule(color=colors.outline, strokeWidth=1.5, strokeDash=[5, 3]).encode(x=x))
        is_late = last is not None and value > last / 2
        text = alt.Chart(frame).mark_text(
            color=colors.outline, align="right" if is_late else "left", dx=-5 if is_late else 5, fontSize=11
        )
        height = "height - 8" if log is None else "height + 8"
        charts.append(text.encode(x=x, y=alt.value(alt.ExprRef(height)), text="name:N"))
    return charts
