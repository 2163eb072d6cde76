"""Ablations: which part of the method does the work, measured in cells that differ in one thing at a time."""

import streamlit as st

from pages.shared import ablated, ablation_findings, ablation_tables, controls, errors, frame
from pages.shared.controls import DECODER_TITLES
from spd_core.ablation import DECODERS_KEPT, cube_frame, interactions, main_effects, point_frame, read_cells
from spd_core.metrics import METRICS, mean_interval
from spd_core.recipes.ablation_plan import AblationPlan

SENTENCE = (
    "Which part does the work: the head, the signal it learns from, or the adapted backbone? Every combination, measured."
)
FORMULAS = [
    r"\text{effect}(A) = \frac{1}{n} \sum_s \overline{(v_{s, A_1} - v_{s, A_0})}, \qquad v_{s,c} = \text{metric of cell } c "
    r"\text{ on slate } s, \text{ mean over seeds}",
    r"\text{interaction}(A, B) = \frac{1}{n} \sum_s "
    r"\overline{(v_{s, A_1 B_1} - v_{s, A_0 B_1}) - (v_{s, A_1 B_0} - v_{s, A_0 B_0})}",
]


def page() -> None:
    """The cube, what its factors do, single settings, learning curves."""
    frame.draw_head("Ablations", SENTENCE)
    with errors.shown():
        plan = AblationPlan.read(ablated.PLAN)
        results = read_cells(ablated.FOLDER)
    with st.container(horizontal=True, vertical_alignment="bottom", gap="large"):
        metric = controls.pick_option("ablation metric", "Metric", METRICS, METRICS)
        titles = [DECODER_TITLES[name] for name in DECODERS_KEPT]
        tip = "How one ranking is read from a cell's score matrices; every cell is read by each."
        decoder = controls.pick_option("ablation decoder", "Decoder", DECODERS_KEPT, titles, tip=tip)
    ablated.show_circumstances(results)
    with errors.shown():
        show(plan, results, decoder=decoder, metric=metric)
    frame.how_computed(FORMULAS, mean_interval, main_effects, interactions)


def show(plan: AblationPlan, results: ablated.Results, *, decoder: str, metric: str) -> None:
    """All pictures, and the figures to take away."""
    st.header("The cube: head, signal, backbone", anchor=False)
    ablated.show_cube(results, decoder=decoder, metric=metric)
    st.header("What works with what", anchor=False)
    found = ablation_findings.find_effects(results, decoder=decoder, metric=metric, bases=ablated.axis_bases(plan))
    ablation_findings.show_effects(found)
    st.header("One setting at a time", anchor=False)
    ablated.show_axes(plan, results, found, decoder=decoder)
    st.header("Learning curves", anchor=False)
    ablated.show_curves(results)
    tables = [cube_frame(results, decoder=decoder, metric=metric)]
    tables += [
        point_frame([point for point, _ in plan.axis(name)], results, decoder=decoder, metric=metric) for name in plan.axes
    ]
    data = ablation_tables.as_csv(tables)
    st.download_button("CSV", data, f"ablations-{metric}.csv", "text/csv", icon=":material/download:", on_click="ignore")


page()
