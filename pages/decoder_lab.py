"""Decoder lab: one score matrix, every decoder side by side; what the matrix holds and how sure each rank is."""

import streamlit as st

from pages.shared import controls, errors, frame, lab, loaders, results
from pages.shared.lab import Lab
from spd_core.decoding.comparison import compare_decoders
from spd_core.decoding.forced_ranks import firmness, forced_ranks
from spd_core.decoding.health import matrix_health

SENTENCE = "One score matrix can be read in several ways. Does it matter which, and how sure is each rank?"
FORMULAS = [
    r"\text{regret}(\pi) = \max_{\pi'} \sum_i M_{i, \pi'(i)} - \sum_i M_{i, \pi(i)}",
    r"\text{loss}(i \to j) = \max_{\pi} \sum_k M_{k, \pi(k)} - \max_{\pi : \pi(i) = j} \sum_k M_{k, \pi(k)}, \qquad "
    r"\text{odds} = \exp(\min_{j \neq \pi^*(i)} \text{loss}(i \to j) / \tau)",
    r"\text{gain of a sort} = \frac{\text{total}(\text{sort}) - \text{mean total}}{\max \text{total} - \text{mean total}}",
]


def page() -> None:
    """Pick a slate; everything below is computed from its matrix in memory."""
    loaded = frame.open_page("Decoder lab", SENTENCE)
    slate = controls.pick_slate(loaded)
    results.show_story(slate)
    with errors.shown():
        result = loaders.ranking(loaded, slate)
        opened = lab.open_lab(slate, result)
    picture, side = st.columns([7, 4], gap="large")
    with picture:
        st.markdown(lab.headline(opened))
        lab.show_orders(opened)
    with side:
        st.markdown("##### What the matrix holds", anchors=False)
        lab.show_health(opened.health)
    st.markdown("##### The decoders in numbers", anchors=False)
    st.table(lab.decoder_frame(opened), border="horizontal", hide_index=True)
    st.caption("Regret: what the order's total lacks against the best one. Time: decoding alone, measured here and now.")
    firm_ranks(opened)
    with st.expander("The same numbers as a table"):
        st.dataframe(lab.rank_frame(opened), hide_index=True, alt="The rank of each candidate under each decoder.")
    frame.how_computed(FORMULAS, compare_decoders, matrix_health, forced_ranks, firmness)


@st.fragment
def firm_ranks(opened: Lab) -> None:
    """The margins; another rank to force redraws only this."""
    st.markdown("##### How firm each rank is", anchors=False)
    lab.show_firmness(opened)


page()
