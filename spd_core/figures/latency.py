"""Where the time of one ranking goes, stage by stage, as a waterfall."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import pandas as pd
import plotly.graph_objects as go

from spd_core.errors import SpdError
from spd_core.figures.palette import palette


class StageTime(NamedTuple):
    """Time of one stage over many runs."""

    name: str
    median_ms: float
    p95_ms: float


def waterfall_frame(stages: Sequence[StageTime]) -> pd.DataFrame:
    """One line a stage in running order: `stage`, `median_ms`, `p95_ms`, `start_ms` (sum of the medians before it), `share`.

    Raises:
        SpdError: there is no stage.
    """
    if not stages:
        raise SpdError("got 0 stages; measure at least one ranking first")
    frame = pd.DataFrame(stages, columns=["stage", "median_ms", "p95_ms"])
    frame["start_ms"] = frame["median_ms"].cumsum() - frame["median_ms"]
    total = float(frame["median_ms"].sum())
    frame["share"] = frame["median_ms"] / total if total > 0 else 0.0
    return frame


def latency_waterfall(stages: Sequence[StageTime], *, bare_prefill_ms: float | None = None, dark: bool = False) -> go.Figure:
    """Horizontal waterfall of the stages' medians; whiskers reach to each stage's p95.

    Args:
        stages: in running order.
        bare_prefill_ms: median of the bare backbone's prefill of the same ids in the same run, drawn as a line.
        dark: whether the ground is dark.

    Returns:
        A figure with one bar a stage; bars start where the one before ends.

    Raises:
        SpdError: there is no stage.
    """
    colors = palette(dark=dark)
    frame = waterfall_frame(stages)
    longest = frame["median_ms"].idxmax()
    figure = go.Figure(
        go.Bar(
            orientation="h",
            x=frame["median_ms"],
            y=frame["stage"],
            base=frame["start_ms"],
            error_x={
                "type": "data",
                "array": (frame["p95_ms"] - frame["median_ms"]).clip(lower=0),
                "arrayminus": [0.0] * len(frame),
                "color": colors.quiet,
                "thickness": 1,
                "width": 3,
            },
            marker_color=[colors.accent if index == longest else colors.up for index in frame.index],
            customdata=frame[["p95_ms", "share"]],
            hovertemplate="%{y}: median %{x:.3f} ms, p95 %{customdata[0]:.3f} ms, share %{customdata[1]:.1%}<extra></extra>",
        )
    )
    if bare_prefill_ms is not None:
        figure.add_vline(x=bare_prefill_ms, line_dash="dot", line_color=colors.down)
        figure.add_annotation(
            x=bare_prefill_ms, y=1.0, yref="paper", yanchor="bottom", xanchor="right", showarrow=False,
            text=f"bare prefill {bare_prefill_ms:.1f} ms", font_color=colors.down,
        )  # fmt: skip
    labels = [f"{stage}  {_duration(value)}" for stage, value in zip(frame["stage"], frame["median_ms"], strict=True)]
    figure.update_yaxes(
        type="category", autorange="reversed", title=None, fixedrange=True,
        tickmode="array", tickvals=frame["stage"], ticktext=labels, tickfont_color=colors.ink,
    )  # fmt: skip
    figure.update_xaxes(title="milliseconds since the start of the ranking", rangemode="tozero", fixedrange=True)
    figure.update_layout(height=90 + 40 * len(frame), margin={"l": 8, "r": 8, "t": 28, "b": 8}, showlegend=False, bargap=0.35)
    return figure


def _duration(value: float) -> str:
    return f"{value:.1f} ms" if value >= 0.95 else f"{value:.2g} ms"
