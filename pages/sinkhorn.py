"""Sinkhorn: the score matrix relaxed into probabilities, round by round and from warm to cold."""

import streamlit as st

from pages.shared import controls, errors, frame, loaders, results, sinkhorn_picture, sinkhorn_view
from pages.shared.loaders import Loaded
from pages.shared.sinkhorn_view import Relaxed
from spd_core.pipeline import RankingResult
from spd_core.sinkhorn import log_sinkhorn, sinkhorn_path
from spd_core.sinkhorn_flips import TemperatureSweep, row_entropy, sweep_temperatures
from spd_core.slate import Slate

SENTENCE = "How hard scores become soft probabilities: watch them settle round by round, and melt as the temperature rises."
FORMULAS = [
    r"S^0 = \exp(M / \tau), \qquad S^{t} = \text{columns}(\text{rows}(S^{t-1})), \qquad "
    r"\text{residual}_t = \max_i \Bigl| \sum_j S^t_{ij} - 1 \Bigr|",
    r"H_i = -\sum_j S_{ij} \log S_{ij}, \qquad \text{effective positions}_i = e^{H_i}",
    r"\tau^* : \quad \arg\max_j S_{ij}(\tau^* - 0) \neq \arg\max_j S_{ij}(\tau^* + 0)",
]


def page() -> None:
    """Pick a slate; everything below is computed from its matrix in memory."""
    loaded = frame.open_page("Sinkhorn", SENTENCE)
    slate = controls.pick_slate(loaded)
    results.show_story(slate)
    with errors.shown():
        result = loaders.ranking(loaded, slate)
        sweep = loaders.temperature_sweep(loaded, slate, result)
    explore(loaded, slate, result, sweep)
    frame.how_computed(FORMULAS, log_sinkhorn, sinkhorn_path, row_entropy, sweep_temperatures)


@st.fragment
def explore(loaded: Loaded, slate: Slate, result: RankingResult, sweep: TemperatureSweep) -> None:
    """Controls, picture and numbers; runs alone when a control moves."""
    config = loaded.student.config
    picture, side = st.columns([7, 4], gap="large")
    with side:
        tau = controls.pick_tau(config.tau)
        iterations = controls.pick_iterations(config.sinkhorn_iterations)
    with errors.shown():
        trained_at = (config.tau, config.sinkhorn_iterations)
        relaxed = sinkhorn_view.relax(slate, result, sweep, tau=tau, iterations=iterations, trained_at=trained_at)
    with picture:
        st.markdown(sinkhorn_view.headline(relaxed))
        sinkhorn_view.show_convergence(relaxed)
        kinds = sinkhorn_picture.PICTURES
        kind = controls.pick_option("picture", "Picture", list(kinds), list(kinds.values()))
        sinkhorn_picture.show_picture(relaxed, kind)
    with side:
        sinkhorn_view.show_residuals(relaxed)
        st.markdown(sinkhorn_view.surest(relaxed))
    certainty, flips = st.columns([5, 7], gap="large")
    with certainty:
        sinkhorn_view.show_certainty(relaxed)
    with flips:
        sinkhorn_view.show_flips(relaxed)
    show_tables(relaxed)


def show_tables(relaxed: Relaxed) -> None:
    """The numbers of all pictures."""
    with st.expander("The same numbers as tables"):
        table = sinkhorn_view.certainty_table(relaxed)
        st.dataframe(table, hide_index=True, alt="Entropy and probabilities of each candidate after the last round.")
        left, right = st.columns([3, 1])
        left.dataframe(sinkhorn_view.flip_table(relaxed), hide_index=True, alt="Temperatures at which a place flips.")
        right.dataframe(sinkhorn_view.residual_table(relaxed), hide_index=True, alt="Residual after each round.")


page()
