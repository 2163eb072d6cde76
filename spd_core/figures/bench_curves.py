"""What `bench` measures more than once: durations over the number of candidates, a line a series; throughput over batches."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, NamedTuple

import altair as alt
import pandas as pd

from spd_core.errors import SpdError
from spd_core.figures.palette import Palette, palette

HEIGHT = 300
"""Pixels."""
TALL = 430
"""The same where a legend takes some of it."""
SHAPES = ("circle", "square", "triangle-up")
MOST_SERIES = len(SHAPES)


class CurvePoint(NamedTuple):
    """A duration of one series."""

    series: str
    """Words of our own; decides shape and color."""
    candidates: int
    """N."""
    median_ms: float
    """Above 0."""
    p95_ms: float
    n: int
    label: str = ""
    """Written above the point if it is the uppermost of its N, else below it."""


class Rate(NamedTuple):
    """Throughput at one batch size."""

    batch: int
    slates_per_s: float
    median_ms: float
    """Of a whole pass."""
    n: int


def curve_frame(points: Sequence[CurvePoint]) -> pd.DataFrame:
    """One line a point, by N: the fields of `CurvePoint` and `is_top`, whether no other one of its N is above it.

    Raises:
        SpdError: there is no point.
    """
    if not points:
        raise SpdError("got 0 durations; measure at least one with `python -m spd_core bench`")
    frame = pd.DataFrame(points, columns=CurvePoint._fields).sort_values("candidates", kind="stable", ignore_index=True)
    frame["is_top"] = frame["median_ms"] == frame.groupby("candidates")["median_ms"].transform("max")
    return frame


def duration_curves(
    points: Sequence[CurvePoint], *, series: Sequence[str], is_log: bool = False, dark: bool = False
) -> alt.LayerChart:
    """A line a series over N, milliseconds on a log axis, whiskers from each median to its p95.

    Args:
        points: all series.
        series: all words that `series` may have, in the order of the legend; at most `MOST_SERIES`.
        is_log: whether N is on a log axis too.
        dark: whether the ground is dark.

    Raises:
        SpdError: there is no point, or one of an unknown series.
    """
    colors, frame = palette(dark=dark), curve_frame(points)
    unknown = sorted(set(frame["series"]) - set(series[:MOST_SERIES]))
    if unknown:
        raise SpdError(f"unknown series {unknown[0]!r}; at most {MOST_SERIES} can be drawn, here {', '.join(series)}")
    fills = dict(zip(series, (colors.accent, colors.down, colors.up), strict=False))
    color = alt.Color("series:N", title=None, scale=_scale(frame, series, list(fills.values())))
    shape = alt.Shape("series:N", title=None, scale=_scale(frame, series, SHAPES))
    x = _candidates_axis(frame, colors, is_log=is_log)
    y = _time_axis(frame, colors)
    base = alt.Chart(frame).encode(x=x, color=color, tooltip=_tooltips())
    layers = [
        base.mark_line(strokeWidth=2).encode(y=y, order="candidates:Q"),
        base.mark_rule(strokeWidth=2, strokeOpacity=0.5).encode(y=y, y2="p95_ms:Q"),
        base.mark_point(size=90, filled=True, opacity=1, stroke=colors.ink, strokeWidth=0.5).encode(y=y, shape=shape),
        *_labels(frame, colors),
    ]
    legend: dict[str, Any] = {"orient": "bottom", "columns": 2, "labelColor": colors.ink, "symbolSize": 90, "labelLimit": 260}
    return alt.layer(*layers).properties(height=TALL).configure_view(strokeWidth=0).configure_legend(**legend)


def rate_curve(rates: Sequence[Rate], *, dark: bool = False) -> alt.LayerChart:
    """Slates a second over the batch size, from 0 up, the number at each point.

    Args:
        rates: of one slate.
        dark: whether the ground is dark.

    Raises:
        SpdError: there is no rate.
    """
    if not rates:
        raise SpdError("got 0 batch sizes; measure at least one with `python -m spd_core bench --capacity`")
    colors, frame = palette(dark=dark), pd.DataFrame(rates, columns=Rate._fields).sort_values("batch")
    axis = _axis(colors, values=sorted(set(frame["batch"])), format="d", grid=False)
    upright = _axis(colors, tickCount=5, gridOpacity=0.3)
    top = float(frame["slates_per_s"].max()) * 1.15
    base = alt.Chart(frame).encode(
        x=alt.X(
            "batch:Q",
            title="slates in a batch",
            axis=axis,
            scale=alt.Scale(type="log", base=2, domain=_around(frame["batch"]), nice=False),
        ),
        y=alt.Y("slates_per_s:Q", title="slates a second", axis=upright, scale=alt.Scale(domain=[0, top], nice=False)),
        tooltip=[
            alt.Tooltip("batch:Q", title="Slates in a batch"),
            alt.Tooltip("slates_per_s:Q", title="Slates a second", format=".3~g"),
            alt.Tooltip("median_ms:Q", title="Median of a pass, ms", format=".3~g"),
            alt.Tooltip("n:Q", title="Passes"),
        ],
    )
    line = base.mark_line(color=colors.accent, strokeWidth=2, point={"size": 90, "color": colors.accent})
    numbers = base.mark_text(dy=-12, fontSize=12, color=colors.ink).encode(text=alt.Text("slates_per_s:Q", format=".3~g"))
    return alt.layer(line, numbers).properties(height=HEIGHT).configure_view(strokeWidth=0)


def _labels(frame: pd.DataFrame, colors: Palette) -> list[alt.Chart]:
    charts = []
    sides: tuple[tuple[bool, Literal["bottom", "top"], int], ...] = ((True, "bottom", -9), (False, "top", 9))
    for is_top, baseline, dy in sides:
        part = frame[(frame["is_top"] == is_top) & (frame["label"] != "")]
        if len(part):
            text = alt.Chart(part).mark_text(baseline=baseline, dy=dy, fontSize=12, fontWeight="bold", color=colors.ink)
            charts.append(text.encode(x="candidates:Q", y="p95_ms:Q" if is_top else "median_ms:Q", text="label:N"))
    return charts


def _scale(frame: pd.DataFrame, series: Sequence[str], looks: Sequence[str]) -> alt.Scale:
    present = set(frame["series"])
    pairs = [(name, look) for name, look in zip(series, looks, strict=False) if name in present]
    return alt.Scale(domain=[name for name, _ in pairs], range=[look for _, look in pairs])


def _candidates_axis(frame: pd.DataFrame, colors: Palette, *, is_log: bool) -> alt.X:
    counts = sorted(set(frame["candidates"]))
    axis = _axis(colors, values=counts, format="d", grid=False)
    domain = _around(frame["candidates"]) if is_log else [0, counts[-1] * 1.1]
    scale = alt.Scale(type="log" if is_log else "linear", domain=domain, nice=False)
    return alt.X("candidates:Q", title="candidates (N)", axis=axis, scale=scale)


def _time_axis(frame: pd.DataFrame, colors: Palette) -> alt.Y:
    domain = [float(frame["median_ms"].min()) / 1.8, float(frame["p95_ms"].max()) * 1.8]
    axis = _axis(colors, tickCount=5, format="~g", gridOpacity=0.3)
    scale = alt.Scale(type="log", domain=domain, nice=False)
    return alt.Y("median_ms:Q", title="median ms (log scale)", axis=axis, scale=scale)


def _axis(colors: Palette, **more: Any) -> alt.Axis:
    return alt.Axis(labelColor=colors.ink, titleColor=colors.quiet, labelOverlap="greedy", **more)


def _around(counts: pd.Series) -> list[float]:
    """Ends of a log axis that leave room at both sides, also around a single count."""
    return [float(counts.min()) / 1.3, float(counts.max()) * 1.3]


def _tooltips() -> list[alt.Tooltip]:
    return [
        alt.Tooltip("series:N", title="Who"),
        alt.Tooltip("candidates:Q", title="Candidates"),
        alt.Tooltip("median_ms:Q", title="Median, ms", format=".3~g"),
        alt.Tooltip("p95_ms:Q", title="p95, ms", format=".3~g"),
        alt.Tooltip("n:Q", title="Runs"),
    ]
