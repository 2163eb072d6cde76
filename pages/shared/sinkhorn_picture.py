"""The relaxed assignment as a picture: still, or in a player that runs over rounds or over temperatures."""

from __future__ import annotations

import numpy as np
import streamlit as st
from numpy.typing import NDArray

from pages.shared import frame
from pages.shared.rankings import positions
from pages.shared.sinkhorn_view import Relaxed
from spd_core.figures.heatmap import score_heatmap
from spd_core.figures.sinkhorn_frames import frame_rounds, sinkhorn_animation
from spd_core.words import plural

STILL, ROUNDS, TEMPERATURE = "still", "rounds", "temperature"
PICTURES = {STILL: "Still", ROUNDS: "Play rounds", TEMPERATURE: "Play temperatures"}
"""The still one comes first, for it is drawn at once: a browser needs most of a second to start the player."""


def show_picture(relaxed: Relaxed, picture: str) -> None:
    """The relaxed assignment after the last round, or a player over rounds or temperatures."""
    if picture == STILL:
        _show_still(relaxed)
    else:
        _show_animation(relaxed, picture)


def _show_still(relaxed: Relaxed) -> None:
    count = len(relaxed.titles)
    chart = score_heatmap(
        np.exp(relaxed.logs[-1]), positions(relaxed.result), relaxed.titles, layer="probability", row_order=relaxed.order,
        is_clickable=False, is_skewed=True, dark=frame.is_dark(),
    )  # fmt: skip
    st.altair_chart(chart, width="stretch", alt=f"Heatmap of {plural(count, 'candidate')} by position, after the last round.")
    rounds = plural(len(relaxed.logs), "round")
    st.caption(f"Probability of each position at temperature {relaxed.tau:g} after {rounds}. Squares: the Hungarian ranking.")


def _show_animation(relaxed: Relaxed, over: str) -> None:
    frames, names, drawn, label = _rounds(relaxed) if over == ROUNDS else _temperatures(relaxed)
    figure = sinkhorn_animation(
        frames, names, positions=positions(relaxed.result), titles=relaxed.titles, row_order=relaxed.order, shown=drawn,
        label=label, dark=frame.is_dark(),
    )  # fmt: skip
    count = plural(len(relaxed.titles), "candidate")
    st.plotly_chart(figure, width="stretch", config=frame.TOOLBAR, alt=f"Heatmap of {count} by position, a frame a {label}.")
    st.caption(f"Probability of each position; press Play to run through the {label}s. Squares: the Hungarian ranking.")


def _rounds(relaxed: Relaxed) -> tuple[NDArray[np.float64], list[str], int, str]:
    rounds = frame_rounds(len(relaxed.logs))
    frames = np.exp(relaxed.logs[[number - 1 for number in rounds]])
    return frames, [str(number) for number in rounds], len(rounds) - 1, "round"


def _temperatures(relaxed: Relaxed) -> tuple[NDArray[np.float64], list[str], int, str]:
    """Every second temperature of the sweep from warm to cold; the one nearest to the chosen one is drawn first."""
    taus = relaxed.sweep.taus[::-2]
    nearest = int(np.abs(np.log(taus / relaxed.tau)).argmin())
    return np.exp(relaxed.sweep.log_assignments[::-2]), [f"{tau:.3g}" for tau in taus], nearest, "temperature"
