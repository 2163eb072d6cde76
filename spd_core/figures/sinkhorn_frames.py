"""A relaxed assignment that moves: one heatmap with a frame a round, or a frame a temperature, played in the browser."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import plotly.graph_objects as go
from numpy.typing import NDArray

from spd_core.errors import SpdError
from spd_core.figures.labels import row_keys
from spd_core.figures.palette import Palette, palette

MOST_FRAMES = 24
"""Of 50 x 50 cells: about half a megabyte to send."""
FRAME_MS = 350
AROUND = 170
"""Pixels of height for axis, legend, slider and button."""
LABEL_LIMIT = 22
"""Characters of a row label: a third of a phone's width."""
SMALL_SLATE = 20
"""Candidates up to which cells are wide enough for a large mark."""


def frame_rounds(iterations: int, most: int = MOST_FRAMES) -> list[int]:
    """Rounds from 1 to `iterations` worth a frame: all of them if few, else ever wider steps, as ever less changes.

    Args:
        iterations: last round, >= 1; always among them.
        most: frames at most, >= 2.
    """
    if iterations <= most:
        return list(range(1, iterations + 1))
    return sorted({int(step) for step in np.geomspace(1, iterations, most).round()})


def sinkhorn_animation(
    frames: NDArray[np.floating],
    names: Sequence[str],
    *,
    positions: NDArray[np.integer],
    titles: Sequence[str],
    row_order: Sequence[int],
    shown: int,
    label: str,
    dark: bool = False,
) -> go.Figure:
    """Heatmap of relaxed assignments with a Play button and a slider over the frames; no request leaves the browser.

    Args:
        frames: (F, N, C) probabilities, F >= 1.
        names: (F,) distinct names of the frames, e.g. the rounds.
        positions: (N,) position of each candidate in the ranking, 0 first; marked with a square.
        titles: (N,) row labels; only labels, so equal or numeric ones are fine.
        row_order: candidate indices from top to bottom.
        shown: index of the frame that is drawn first.
        label: what the slider runs over; stands before the frame's name.
        dark: whether the ground is dark.

    Raises:
        SpdError: there is no frame, or their number is not that of the names.
    """
    if len(frames) == 0 or len(frames) != len(names):
        raise SpdError(f"got {len(frames)} frames and {len(names)} names; give at least one frame and a name for each")
    colors, count = palette(dark=dark), len(titles)
    keys = [row_keys(count)[index] for index in row_order]
    tables = np.asarray(frames, dtype=np.float32)[:, list(row_order)]
    places = np.asarray(positions)[list(row_order)]
    top = max(float(tables.max()), 1e-6)  # one scale for all frames, or the movement could not be seen
    steps = [
        go.Frame(data=[_heatmap(table, keys, top, colors)], name=name) for table, name in zip(tables, names, strict=True)
    ]
    figure = go.Figure(data=[_heatmap(tables[shown], keys, top, colors), _marks(places, keys, colors)], frames=steps)
    figure.update_traces(customdata=[[titles[index]] * tables.shape[2] for index in row_order], selector={"type": "heatmap"})
    ticks = [f"{index + 1} · {_short(titles[index])}" for index in row_order]
    figure.update_yaxes(
        type="category", range=[count - 0.5, -0.5], fixedrange=True, tickmode="array", tickvals=keys, ticktext=ticks,
        tickfont={"color": colors.ink, "size": 11}, showgrid=False, title=None,
    )  # fmt: skip
    figure.update_xaxes(
        title="rank position",
        side="top",
        range=[0.5, tables.shape[2] + 0.5],
        fixedrange=True,
        showgrid=False,
        zeroline=False,
        tickfont_color=colors.ink,
    )
    figure.update_layout(
        height=max(20 * count, 120) + AROUND, margin={"l": 8, "r": 8, "t": 48, "b": 8}, showlegend=False,
        sliders=[_slider(names, shown, label, colors)], updatemenus=[_buttons(colors)],
    )  # fmt: skip
    return figure


def _heatmap(table: NDArray[np.float32], keys: Sequence[str], top: float, colors: Palette) -> go.Heatmap:
    # Squares of the steps: small probabilities, of which there are most, get most of the shades.
    scale = [[(index / (len(colors.sequential) - 1)) ** 2, color] for index, color in enumerate(colors.sequential)]
    return go.Heatmap(
        z=table, x=np.arange(1, table.shape[1] + 1), y=list(keys), zmin=0, zmax=top, colorscale=scale, xgap=1, ygap=1,
        colorbar={"orientation": "h", "y": -0.02, "yanchor": "top", "x": 1, "xanchor": "right", "len": 0.35, "thickness": 8,
                  "title": {"text": "probability", "side": "top", "font": {"color": colors.ink, "size": 11}},
                  "tickfont": {"color": colors.ink}, "nticks": 3},
        hovertemplate="%{customdata}<br>position %{x}: %{z:.3f}<extra></extra>",
    )  # fmt: skip


def _marks(places: NDArray[np.integer], keys: Sequence[str], colors: Palette) -> go.Scatter:
    size = 15 if len(keys) <= SMALL_SLATE else 9
    marker = {"symbol": "square-open", "size": size, "color": colors.outline, "line": {"width": 2}}
    return go.Scatter(x=places + 1, y=list(keys), mode="markers", marker=marker, hoverinfo="skip", cliponaxis=False)


def _slider(names: Sequence[str], shown: int, label: str, colors: Palette) -> dict[str, Any]:
    jump = {"mode": "immediate", "frame": {"duration": 0, "redraw": True}, "transition": {"duration": 0}}
    return {
        "active": shown, "x": 0.0, "y": -0.02, "len": 0.6, "pad": {"t": 44, "l": 8, "b": 4},
        "currentvalue": {"prefix": f"{label} ", "font": {"color": colors.ink, "size": 13}, "xanchor": "left"},
        "font": {"color": colors.quiet, "size": 10}, "bgcolor": colors.quiet, "activebgcolor": colors.accent,
        "bordercolor": colors.quiet, "tickcolor": colors.quiet, "minorticklen": 0, "ticklen": 3,
        "steps": [{"label": name, "method": "animate", "args": [[name], jump]} for name in names],
    }  # fmt: skip


def _buttons(colors: Palette) -> dict[str, Any]:
    play = {"frame": {"duration": FRAME_MS, "redraw": True}, "transition": {"duration": 0}, "mode": "immediate"}
    stop = {"frame": {"duration": 0, "redraw": False}, "mode": "immediate"}
    return {
        "type": "buttons", "direction": "right", "x": 0.0, "xanchor": "left", "y": -0.02, "yanchor": "top",
        "pad": {"t": 4, "l": 8}, "showactive": False, "bgcolor": colors.sequential[0], "bordercolor": colors.quiet,
        "font": {"color": colors.ink, "size": 12},
        "buttons": [
            {"label": "▶ Play", "method": "animate", "args": [None, play | {"fromcurrent": False}]},
            {"label": "■ Stop", "method": "animate", "args": [[None], stop]},
        ],
    }  # fmt: skip


def _short(title: str) -> str:
    """A row label; HTML marks of Plotly's own are written as characters, so that no title can draw a link."""
    text = title if len(title) <= LABEL_LIMIT else title[: LABEL_LIMIT - 1].rstrip() + "…"
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
