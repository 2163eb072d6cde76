"""Quality against latency: a point a ranker with its interval, and the line that no ranker is both faster and better than."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, Literal, NamedTuple

import altair as alt
import numpy as np
import pandas as pd

from spd_core.errors import SpdError
from spd_core.figures.palette import Palette, palette

HEIGHT = 520
SHAPES = ("circle", "square", "triangle-up", "diamond", "cross")
NEAR_DECADES, NEAR_SHARE = 0.07, 0.12
"""Points of one kind nearer than this in time (a factor of 1.17) and in quality (of the height) share a label."""
CROWD_DECADES = 0.2
"""Labels nearer than this in time (a factor of 1.6) may touch each other on a phone."""


class FrontierPoint(NamedTuple):
    """What is known of one ranker."""

    name: str
    family: str
    """Words for its kind; decides shape and color."""
    quality: float
    low: float
    high: float
    """Bounds of the 95 % interval."""
    n: int
    """Slates."""
    median_ms: float
    p95_ms: float
    ratio: float
    """Times as long as the fastest student."""


def pareto_front(times: Sequence[float], qualities: Sequence[float]) -> list[bool]:
    """Whether each ranker is on the front: no other one is at least as fast and at least as good, and better in one of both.

    Args:
        times: (R,) milliseconds.
        qualities: (R,) higher is better.
    """
    pairs = list(zip(times, qualities, strict=True))
    return [not any(t <= time and q >= quality and (t, q) != (time, quality) for t, q in pairs) for time, quality in pairs]


def frontier_frame(points: Sequence[FrontierPoint]) -> pd.DataFrame:
    """One line a ranker, the fastest first: the fields of `FrontierPoint`, `number` from 1, `on_front`.

    Raises:
        SpdError: there is no point.
    """
    if not points:
        raise SpdError("got 0 rankers; measure at least one with `python -m spd_core frontier`")
    frame = pd.DataFrame(points, columns=FrontierPoint._fields)
    frame = frame.sort_values("median_ms", kind="stable", ignore_index=True)
    frame.insert(0, "number", range(1, len(frame) + 1))
    frame["on_front"] = pareto_front(frame["median_ms"].tolist(), frame["quality"].tolist())
    return frame


def frontier_chart(
    points: Sequence[FrontierPoint], *, metric: str, families: Sequence[str], levels: Collection[str] = (), dark: bool = False
) -> alt.LayerChart:
    """Points numbered as in `frontier_frame`, time on a log axis, intervals as bars, a line along the front.

    Args:
        points: of one run.
        metric: its name, for the axis.
        families: all words that `family` may have, in the order of the legend; at most five.
        levels: families drawn as level lines at their quality, whatever their time; they count for the front all the same.
        dark: whether the ground is dark.

    Raises:
        SpdError: there is no point.
    """
    colors, whole = palette(dark=dark), frontier_frame(points)
    is_level = whole["family"].isin(list(levels))
    if is_level.all():
        is_level[:] = False
    frame, flat = whole[~is_level], whole[is_level]
    present = [family for family in families if family in set(frame["family"])]
    fills = dict(zip(families, (colors.accent, colors.down, colors.up, colors.outline, colors.quiet), strict=False))
    color = alt.Color("family:N", scale=_scale(present, fills), title=None)
    time = alt.X(
        "median_ms:Q",
        title="median milliseconds a slate (log scale, left is faster)",
        **_time_axis(frame, colors, left=1.8 if flat.empty else 3.5),
    )
    quality = alt.Y("quality:Q", title=f"{metric} (up is better)", **_quality_axis(whole, colors))
    base = alt.Chart(frame).encode(x=time, tooltip=_tooltips(metric))
    ranges = base.mark_rule(strokeWidth=2, strokeOpacity=0.5).encode(y=alt.Y("low:Q"), y2="high:Q", color=color)
    shape = alt.Shape("family:N", scale=_scale(present, dict(zip(families, SHAPES, strict=False))), title=None)
    dots = base.mark_point(size=110, filled=True, opacity=1, stroke=colors.ink, strokeWidth=0.5)
    layers = [dots.encode(y=quality, color=color, shape=shape), ranges, *_front(frame, colors), *_numbers(frame, colors)]
    legend = {"orient": "bottom", "columns": 2, "labelColor": colors.ink, "symbolSize": 100, "symbolOpacity": 1}
    chart = alt.layer(*layers, *_level_lines(flat, colors, metric)).properties(height=HEIGHT)
    return chart.configure_view(strokeWidth=0).configure_legend(**legend)


def label_groups(frame: pd.DataFrame) -> pd.DataFrame:
    """One line a label, fastest first: `label`, `median_ms`, `height`, `is_above`; points that touch share one, as ``9-11``.

    A label stands above its points' intervals; of labels close in time those of the lower points stand below theirs.

    Args:
        frame: lines of `frontier_frame`.
    """
    lines = []
    for group in _touching(frame):
        part = frame.iloc[group]
        time = float(np.exp(np.log(part["median_ms"]).mean()))
        lines.append((spans(part["number"]), time, part["low"].min(), part["high"].max()))
    labels = pd.DataFrame(lines, columns=["label", "median_ms", "low", "high"])
    labels = labels.sort_values("median_ms", kind="stable", ignore_index=True)
    crowds = np.concatenate([[0], np.cumsum(np.diff(np.log10(labels["median_ms"])) > CROWD_DECADES)])
    heights = labels["high"].groupby(crowds)
    labels["is_above"] = heights.rank(method="first") > heights.transform("size") / 2
    labels["height"] = np.where(labels["is_above"], labels["high"], labels["low"])
    return labels.drop(columns=["low", "high"])


def spans(numbers: Iterable[int]) -> str:
    """Rising numbers in few characters: ``1-3, 5``."""
    runs: list[list[int]] = []
    for number in numbers:
        if runs and number == runs[-1][-1] + 1:
            runs[-1].append(number)
        else:
            runs.append([number])
    return ", ".join(str(run[0]) if len(run) == 1 else f"{run[0]}-{run[-1]}" for run in runs)


def _touching(frame: pd.DataFrame) -> list[list[int]]:
    """Indices of points in groups, in each of which any two are of one kind and near each other."""
    decades, qualities = np.log10(frame["median_ms"].to_numpy()), frame["quality"].to_numpy()
    reach = NEAR_SHARE * (float(frame["high"].max() - frame["low"].min()) or 1.0)
    families = frame["family"].to_numpy()
    groups: list[list[int]] = []
    for index in range(len(frame)):
        for group in groups:
            near = (families[group] == families[index]) & (np.abs(decades[group] - decades[index]) < NEAR_DECADES)
            if (near & (np.abs(qualities[group] - qualities[index]) < reach)).all():
                group.append(index)
                break
        else:
            groups.append([index])
    return groups


def _numbers(frame: pd.DataFrame, colors: Palette) -> list[alt.Chart]:
    labels = label_groups(frame)
    sides: tuple[tuple[bool, Literal["bottom", "top"], int], ...] = ((True, "bottom", -3), (False, "top", 4))
    return [
        alt.Chart(labels[labels["is_above"] == is_above])
        .mark_text(baseline=baseline, dy=dy, fontSize=12, fontWeight="bold", color=colors.ink)
        .encode(x="median_ms:Q", y="height:Q", text="label:N")
        for is_above, baseline, dy in sides
        if (labels["is_above"] == is_above).any()
    ]


def _front(frame: pd.DataFrame, colors: Palette) -> list[alt.Chart]:
    line = alt.Chart(frame[frame["on_front"]]).mark_line(
        color=colors.quiet, strokeDash=[5, 4], strokeWidth=1.5, interpolate="step-after"
    )
    return [line.encode(x="median_ms:Q", y="quality:Q", order="median_ms:Q")] if frame["on_front"].any() else []


def _level_lines(flat: pd.DataFrame, colors: Palette, metric: str) -> list[alt.Chart]:
    """A dotted line across the chart for each ranker, its number and name above it at the left."""
    if flat.empty:
        return []
    base = alt.Chart(flat).encode(y="quality:Q", tooltip=_tooltips(metric))
    lines = base.mark_rule(color=colors.quiet, strokeDash=[1, 3], strokeWidth=1.5)
    names = base.transform_calculate(text="datum.number + ' ' + datum.name").mark_text(
        align="left", baseline="bottom", dx=4, dy=-1, fontSize=11, color=colors.ink
    )
    return [lines, names.encode(x=alt.value(0), text="text:N")]


def _scale(present: Sequence[str], look: Mapping[str, str]) -> alt.Scale:
    return alt.Scale(domain=list(present), range=[look[family] for family in present])


def _time_axis(frame: pd.DataFrame, colors: Palette, *, left: float) -> dict[str, Any]:
    low, high = float(frame["median_ms"].min()), float(frame["median_ms"].max())
    scale = alt.Scale(type="log", domain=[low / left, high * 1.8], nice=False)
    return {"scale": scale, "axis": _axis(colors, tickCount=5, format="~g")}


def _quality_axis(frame: pd.DataFrame, colors: Palette) -> dict[str, Any]:
    low, high = float(frame["low"].min()), float(frame["high"].max())
    around = 0.08 * (high - low) or 0.05
    domain = [max(0.0, low - around), min(1.0, high + around)]
    return {"scale": alt.Scale(domain=domain, nice=False, zero=False), "axis": _axis(colors, tickCount=6, format=".2f")}


def _axis(colors: Palette, **more: Any) -> alt.Axis:
    return alt.Axis(labelColor=colors.ink, titleColor=colors.quiet, gridOpacity=0.3, labelOverlap=True, **more)


def _tooltips(metric: str) -> list[alt.Tooltip]:
    return [
        alt.Tooltip("number:Q", title="Number"),
        alt.Tooltip("name:N", title="Ranker"),
        alt.Tooltip("quality:Q", title=metric, format=".4f"),
        alt.Tooltip("low:Q", title="from", format=".4f"),
        alt.Tooltip("high:Q", title="to", format=".4f"),
        alt.Tooltip("median_ms:Q", title="Median, ms", format=".3~g"),
        alt.Tooltip("p95_ms:Q", title="p95, ms", format=".3~g"),
        alt.Tooltip("n:Q", title="Slates"),
    ]
