"""What a process does once, in the background, so that no visitor waits for it later."""

from __future__ import annotations

import functools
import importlib
import os
import threading

import numpy as np

from spd_core.model import Student
from spd_core.quick_pass import quicken_aside

COMPILE = "SPD_COMPILE"
"""Environment variable: ``0`` leaves students as they come, anything else lets the app compile their prefill on a CPU."""
COMPILE_AFTER_SECONDS = 8.0
"""From a student's first ranking on: the pages of whoever made the app load it come first."""


def compile_later(student: Student) -> threading.Thread | None:
    """The thread that compiles a student's prefill while it is used; None where that is not wanted or not on a CPU."""
    if os.environ.get(COMPILE, "1") == "0" or student.backbone.device.type != "cpu":
        return None
    return quicken_aside(student, after_seconds=COMPILE_AFTER_SECONDS)


@functools.cache
def warm_charts() -> threading.Thread:
    """Draw a moving chart for nobody, once a process: the first one takes half a second longer, for Plotly is imported."""
    thread = threading.Thread(target=_draw_unseen, name="warm-charts", daemon=True)
    thread.start()
    return thread


def _draw_unseen() -> None:
    charts = importlib.import_module("spd_core.figures.sinkhorn_frames")
    frames, places = np.ones((1, 1, 1)), np.zeros(1, dtype=int)
    figure = charts.sinkhorn_animation(frames, ["1"], positions=places, titles=[""], row_order=[0], shown=0, label="round")
    figure.to_json()
