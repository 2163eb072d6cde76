"""Score matrix: what the head thinks of every candidate at every position, and what the decoder makes of it."""

import streamlit as st

from pages.shared import controls, errors, frame, loaders, matrix, rankings, results
from pages.shared.loaders import Loaded
from spd_core.figures.layers import LAYERS, double_centred, matrix_views
from spd_core.pipeline import RankingResult
from spd_core.sinkhorn import log_sinkhorn
from spd_core.slate import Slate

SENTENCE = "How well every candidate would suit every place in the ranking. The decoder picks one cell a row and a column."
FORMULAS = [
    r"\pi^* = \arg\max_{\pi} \sum_i M_{i, \pi(i)}",
    r"S^0 = \exp(M / \tau), \qquad S^{l} = \text{columns}(\text{rows}(S^{l-1})), \qquad "
    r"\text{residual} = \max_i \Bigl| \sum_j S^L_{ij} - 1 \Bigr|",
    r"\text{double-centred}_{ij} = M_{ij} - \bar M_{i \cdot} - \bar M_{\cdot j} + \bar M",
]


def page() -> None:
    """Pick a slate, look at its matrix; sliders work on the matrix in memory."""
    loaded = frame.open_page("Score matrix", SENTENCE)
    slate = controls.pick_slate(loaded)
    results.show_story(slate)
    with errors.shown():
        result = loaders.ranking(loaded, slate)
    explore(loaded, slate, result)
    frame.how_computed(FORMULAS, log_sinkhorn, double_centred)


@st.fragment
def explore(loaded: Loaded, slate: Slate, result: RankingResult) -> None:
    """Controls, picture and numbers; runs alone when a control moves."""
    with st.container(horizontal=True, gap="medium"):
        layer = controls.pick_option("layer", "Show", list(LAYERS), [look.title for look in LAYERS.values()])
        decoder = controls.pick_decoder()
    picture, side = st.columns([7, 3], gap="large")
    with side:
        order = controls.pick_option("row order", "Rows", ["ranked", "given"], ["As ranked", "As given"])
        tau = controls.pick_tau(loaded.student.config.tau)
        iterations = controls.pick_iterations(loaded.student.config.sinkhorn_iterations)
        all_columns = controls.pick_all_columns(result.score_matrix.shape, layer)
    with errors.shown():
        views = matrix_views(result.score_matrix, tau=tau, iterations=iterations, all_columns=all_columns)
        decoded = rankings.decoded(result, slate, decoder)
    explored = matrix.Explored(slate, decoded, views, layer, order == "ranked")
    with side:
        matrix.show_residual(explored)
        st.divider()
        picked = matrix.pick_cell(explored)
        matrix.show_cell(explored, picked)
    with picture:
        results.show_warnings(decoded)
        matrix.show_heatmap(explored, picked)
        st.markdown(matrix.facts(explored))
    with st.expander("The same numbers as a table"):
        st.dataframe(matrix.value_frame(explored), hide_index=True, alt="The values of the heatmap, a row a candidate.")


page()
