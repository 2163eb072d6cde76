"""Quality against latency: every kind of ranker on the same slates in one stored run, how right and how fast."""

import streamlit as st

from pages.shared import frame, frontier_view
from spd_core.figures.frontier import pareto_front
from spd_core.frontier import take_turns
from spd_core.metrics import mean_interval
from spd_core.teachers.first_token import FirstTokenRanker
from spd_core.teachers.pointwise import PointwiseRanker

SENTENCE = (
    "What a better ranking costs in time: students, their teacher and other uses of the same language model, side by side."
)
FORMULAS = [
    r"\text{times the fastest student}_r = \text{median}_s \; \frac{t_{rs}}{t_{fs}}, \qquad "
    r"t_{rs} = \text{time of ranker } r \text{ on slate } s, \; f = \text{the fastest student}",
    r"r \text{ is unbeaten} \iff \nexists\, q: \; t_q \le t_r, \; Q_q \ge Q_r, \; (t_q, Q_q) \ne (t_r, Q_r)",
]


def page() -> None:
    """Pick a stored result and a metric, read the picture."""
    place = frame.draw_head("Quality against latency", SENTENCE)
    report = frontier_view.pick_report()
    if report is not None:
        with place:
            st.badge(
                "stored result", icon=":material/inventory_2:", color="gray", help="Measured before, not while you wait."
            )
        frontier_view.show_report(report)
    frame.how_computed(FORMULAS, take_turns, mean_interval, pareto_front, FirstTokenRanker, PointwiseRanker)


page()
