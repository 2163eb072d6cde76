"""Decoder lab: one score matrix, every decoder side by side; what the matrix holds and how sure each rank is."""

import streamlit as st

from pages.shared import controls, diagnosed, errors, frame, lab, loaders, nearly, results
from pages.shared.lab import Lab
from pages.shared.loaders import Loaded
from spd_core.decoding.comparison import compare_decoders
from spd_core.decoding.forced_ranks import firmness, forced_ranks
from spd_core.decoding.health import matrix_health
from spd_core.decoding.near_optimal import near_optimal
from spd_core.pipeline import RankingResult

SENTENCE = "One score matrix can be read in several ways. Does it matter which, and how sure is each rank?"
FORMULAS = [
    r"\text{regret}(\pi) = \max_{\pi'} \sum_i M_{i, \pi'(i)} - \sum_i M_{i, \pi(i)}",
    r"\text{loss}(i \to j) = \max_{\pi} \sum_k M_{k, \pi(k)} - \max_{\pi : \pi(i) = j} \sum_k M_{k, \pi(k)}, \qquad "
    r"\text{odds} = \exp(\min_{j \neq \pi^*(i)} \text{loss}(i \to j) / \tau)",
    r"\text{gain of a sort} = \frac{\text{total}(\text{sort}) - \text{mean total}}{\max \text{total} - \text{mean total}}",
]


def page() -> None:
    """One slate's matrix, computed from memory, or what `diagnose` found over a whole file."""
    loaded = frame.open_page("Decoder lab", SENTENCE)
    view = controls.pick_option("lab view", "Look at", ["slate", "file"], ["One slate", "A whole file"])
    if view == "file":
        report = diagnosed.pick_report(loaded)
        if report is not None:
            diagnosed.show_report(report)
    else:
        one_slate(loaded)
    frame.how_computed(FORMULAS, compare_decoders, matrix_health, forced_ranks, firmness, near_optimal)


def one_slate(loaded: Loaded) -> None:
    """Pick a slate; everything below is computed from its matrix in memory."""
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
    near_ranks(opened, result)
    with st.expander("The same numbers as a table"):
        st.dataframe(lab.rank_frame(opened), hide_index=True, alt="The rank of each candidate under each decoder.")


@st.fragment
def firm_ranks(opened: Lab) -> None:
    """The margins; another rank to force redraws only this."""
    st.markdown("##### How firm each rank is", anchors=False)
    lab.show_firmness(opened)


@st.fragment
def near_ranks(opened: Lab, result: RankingResult) -> None:
    """The rankings that are nearly as good; other odds redraw only this."""
    with errors.shown():
        nearly.show_nearly(opened, result.score_matrix)


page()
