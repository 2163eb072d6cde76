"""What if: why one candidate stands above another, and what in the input that hangs on."""

import streamlit as st

from pages.shared import controls, errors, frame, loaders, results, shuffling, why
from pages.shared.loaders import Loaded
from pages.shared.why import Trial
from spd_core.explanations import SwapGain, effects_on, leave_one_out, stakes, swap_gain
from spd_core.pipeline import RankingResult
from spd_core.slate import Slate

SENTENCE = (
    "Why is one candidate above another? Leave out a purchase, a word or a rival, rank again, and see what it hangs on."
)
FORMULAS = [
    r"\text{cost of a swap} = M_{A,i} + M_{B,j} - M_{A,j} - M_{B,i}, \qquad A \text{ at rank } i < j \text{ of } B",
    r"\text{change} = \text{cost without one thing} - \text{cost as it is, at the same places}",
]


def page() -> None:
    """Pick a slate and two of its candidates; read why; leave things out."""
    loaded = frame.open_page("What if", SENTENCE)
    slate = controls.pick_slate(loaded)
    results.show_story(slate)
    with errors.shown():
        result = loaders.ranking(loaded, slate)
    results.show_warnings(result)
    if len(slate.candidates) == 1:
        st.info("One candidate has nothing to stand above.")
    else:
        pair = why.pick_pair(slate, result)
        why.show_words(slate, pair, result.tau)
        leave_out(loaded, slate, result, pair)
    frame.how_computed(FORMULAS, swap_gain, leave_one_out, effects_on)


def leave_out(loaded: Loaded, slate: Slate, result: RankingResult, pair: SwapGain) -> None:
    """The button, the run under its progress bar, and what came of it; another pair reads the same matrices."""
    with st.container(horizontal=True, vertical_alignment="bottom", gap="large"):
        part = controls.pick_option("left out", "Leave out one at a time", list(why.PARTS), why.PART_TITLES)
        wanted = st.button("Leave out and rank again", type="primary", icon=":material/backspace:")
    key = why.trial_key(loaded, slate, part)
    with errors.shown():
        if wanted:
            why.run(loaded, slate, part, key)
    trial: Trial | None = shuffling.kept_runs(key, why.RUNS)
    count = len(leave_one_out(slate, loaded.student.template, why.PARTS[part]))
    if not count:
        st.info("This slate has nothing of that kind: no purchase and no query.")
    elif trial is None:
        st.info(f"Not tried yet. Press **Leave out and rank again**: {count + 1} rankings.")
    else:
        show(slate, result, pair, trial)


def show(slate: Slate, result: RankingResult, pair: SwapGain, trial: Trial) -> None:
    """Headline, bars, one change in full, table."""
    effects = effects_on(pair, slate, result.ranking, trial.changes, trial.matrices[1:])
    why.show_headline(effects)
    if effects:
        picture, whole = st.columns([6, 5], gap="large")
        with picture:
            why.show_effects(effects)
        with whole:
            why.show_whole(slate, result, effects)
        again = stakes(trial.matrices[0], pair.above, pair.below, upper=pair.upper, lower=pair.lower)
        why.show_noise(pair, again)
        with st.expander("The same numbers as a table"):
            table = why.effect_frame(pair, effects)
            st.dataframe(table, hide_index=True, alt="What each thing left out does to the two candidates.")


page()
