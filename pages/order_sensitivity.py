"""Order sensitivity: the same slate shuffled and ranked again, and how far each candidate's rank moved."""

import streamlit as st

from pages.shared import controls, diagnosed, errors, frame, results, shuffling, state
from pages.shared.loaders import Loaded
from pages.shared.shuffling import Runs
from spd_core.metrics.repeats import input_pull, mean_pairwise_tau
from spd_core.order_sensitivity import compare_orders
from spd_core.slate import Slate

SENTENCE = (
    "Shuffle the candidates, rank them again: a ranking to trust does not depend on the order in which they were shown."
)
FORMULAS = [
    r"\bar\tau = \frac{2}{R(R-1)} \sum_{r<s} \frac{2}{N(N-1)} \sum_{i<j} "
    r"\operatorname{sign}(p_{ri} - p_{rj}) \operatorname{sign}(p_{si} - p_{sj})",
    r"\text{pull} = \frac{\sum_{r,i} (x_{ri} - \bar x_i)(p_{ri} - \bar p_i)}{\sum_{r,i} (x_{ri} - \bar x_i)^2}, \qquad "
    r"x_{ri}, p_{ri} = \text{place shown and rank of } i \text{ in shuffle } r",
]


def page() -> None:
    """Pick a slate, press Shuffle, read the spread."""
    loaded = frame.open_page("Order sensitivity", SENTENCE)
    slate = controls.pick_slate(loaded)
    results.show_story(slate)
    if state.get("shuffles", None) is None:
        state.put("shuffles", shuffling.USUAL_SHUFFLES)
    with st.container(horizontal=True, vertical_alignment="bottom", gap="large"):
        decoder = controls.pick_decoder()
        shuffles = int(controls.pick_option("shuffles", "Shuffles", shuffling.SHUFFLES, shuffling.SHUFFLES))
        wanted = st.button("Shuffle and rank", type="primary", icon=":material/shuffle:")
    key = shuffling.run_key(loaded, slate, shuffles)
    with errors.shown():
        if wanted:
            run(loaded, slate, shuffles=shuffles, key=key)
        runs: Runs | None = shuffling.kept_runs(key)
        if runs is None:
            st.info(f"Not shuffled yet. Press **Shuffle and rank**: {shuffles} random orders beside the order given.")
        else:
            show(loaded, slate, runs, decoder)
    diagnosed.offer_orders(loaded)
    frame.how_computed(FORMULAS, compare_orders, mean_pairwise_tau, input_pull)


def run(loaded: Loaded, slate: Slate, *, shuffles: int, key: str) -> None:
    """Score every order in small steps under a progress bar; pressing Cancel ends it at the next step and keeps nothing."""
    with st.container(horizontal=True, vertical_alignment="center"):
        bar = st.progress(0.0, f"{shuffles} shuffles …")
        st.button("Cancel", icon=":material/close:")
    runs: Runs | None = None
    for runs in shuffling.scored(loaded, slate, shuffles=shuffles):
        done = len(runs.matrices)
        bar.progress(done / (shuffles + 1), f"{done} of {shuffles + 1} orders ranked")
    if runs is not None:
        shuffling.keep_runs(key, runs)
    st.rerun()


def show(loaded: Loaded, slate: Slate, runs: Runs, decoder: str) -> None:
    """Headline, numbers, picture, table; another decoder reads the same matrices."""
    result = compare_orders(slate, runs.orders, runs.matrices, loaded.student.template, decoder=decoder)
    shuffling.show_headline(slate, result)
    if len(slate.candidates) > 1:
        shuffling.show_numbers(result)
        picture, words = st.columns([7, 4], gap="large")
        with words:
            st.markdown("##### In words", anchors=False)
            st.markdown("\n".join(f"- {line}" for line in shuffling.sentences(slate, result)))
            shuffling.show_download(result)
        with picture:
            shuffling.show_spread(slate, result)
    with st.expander("The same numbers as a table"):
        table = shuffling.spread_frame(slate, result)
        st.dataframe(table, hide_index=True, alt="Best, median and worst rank of each candidate over the shuffles.")


page()
