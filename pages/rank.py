"""Rank: one shopper, one slate, one pass; what moved and where the bought item came out."""

import streamlit as st

from pages.shared import controls, errors, frame, loaders, rankings, results, state
from pages.shared.loaders import Loaded
from spd_core.decoding import find_decoder
from spd_core.pipeline import rank_slate
from spd_core.slate import Slate

SENTENCE = (
    "A language model reads what a shopper bought and a slate of candidates, once, and puts the slate in order: "
    "no text is generated."
)

FORMULAS = [
    r"h_1, \dots, h_N = \text{prefill}(\text{history}, \text{candidates}), \qquad M = \text{head}(h_1, \dots, h_N)",
    r"\pi^* = \arg\max_{\pi} \sum_i M_{i, \pi(i)}",
]


def page() -> None:
    """Pick, press Rank, read the list."""
    loaded = frame.open_page("Rank", SENTENCE)
    slate = controls.pick_slate(loaded)
    results.show_story(slate)
    digest = loaders.slate_digest(slate)
    if not state.is_asked(digest):
        st.button("Rank this slate", type="primary", icon=":material/sort:", on_click=state.ask, args=(digest,))
    body(loaded, slate, is_ranked=state.is_asked(digest))


@st.fragment
def body(loaded: Loaded, slate: Slate, *, is_ranked: bool) -> None:
    """List and history beside each other; another decoder redraws only this."""
    left, right = st.columns([5, 3], gap="large")
    with right:
        results.show_history(slate, loaded.student.template.history_limit)
        picture = st.container()
    with left, errors.shown():
        if is_ranked:
            ranked(loaded, slate, picture)
        else:
            results.show_input(slate)


def ranked(loaded: Loaded, slate: Slate, picture: st.delta_generator.DeltaGenerator) -> None:
    """The ranked list, its picture, its numbers."""
    base = loaders.ranking(loaded, slate)
    top = st.container()
    result = rankings.decoded(base, slate, controls.pick_decoder())
    lines = rankings.lines(slate, result)
    with top:
        results.show_summary(slate, lines)
        results.show_warnings(result)
        results.show_ranking(slate, lines)
    st.caption(results.timing_line(result))
    results.show_downloads(slate, result)
    with picture:
        results.show_movement(slate, result)
    with st.expander("The same numbers as a table"):
        st.dataframe(results.ranking_frame(lines), hide_index=True, alt="The ranked list with movement and tokens.")
    frame.how_computed(FORMULAS, rank_slate, find_decoder(result.decoder))


page()
