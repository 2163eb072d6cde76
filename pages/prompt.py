"""Prompt: the exact text that the model reads, in tokens, with what was cut and what looks suspicious."""

import streamlit as st

from pages.shared import controls, errors, frame, prompt_text, results
from pages.shared.loaders import Loaded
from spd_core.prompt_view import view_prompt
from spd_core.prompts import build_prompt
from spd_core.readouts import gather_readout
from spd_core.slate import Slate
from spd_core.suspicious_text import find_suspicious

SENTENCE = (
    "The exact text that the model reads, once, before it ranks: what is in it, what was cut, and what looks suspicious."
)
FORMULAS = [
    r"T = \sum_{p \,\in\, \text{pieces}} \min(\text{tokens}_p, \text{cap}_p), \qquad "
    r"h_i = \operatorname{readout}\bigl(\text{states of candidate } i\bigr)",
]


def page() -> None:
    """Pick a slate, read its prompt."""
    loaded = frame.open_page("Prompt", SENTENCE)
    slate = controls.pick_slate(loaded)
    results.show_story(slate)
    with errors.shown():
        show(loaded, slate)
    frame.how_computed(FORMULAS, build_prompt, view_prompt, gather_readout, find_suspicious)


def show(loaded: Loaded, slate: Slate) -> None:
    """Numbers, the prompt beside its token ruler, what is suspicious, the table."""
    student = loaded.student
    view = view_prompt(build_prompt(slate, student.template), student.backbone.tokenizer, readout=student.config.readout)
    if problem := prompt_text.fit_problem(view, student):
        st.warning(problem, icon=":material/warning:")
    prompt_text.show_numbers(view, student)
    st.markdown(f"{prompt_text.template_line(loaded)}  \n{prompt_text.readout_line(view)}")
    text, ruler = st.columns([6, 5], gap="large")
    with text:
        st.markdown("##### What the model reads", anchors=False)
        st.table(prompt_text.line_frame(view), border="horizontal", hide_index=True)
        st.caption(
            "A line a row. Gray: wording of the template; ↵ ends a line. Struck through: cut, the model never reads it."
        )
    with ruler:
        prompt_text.show_ruler(view, slate)
        prompt_text.show_flags(view)
    with st.expander("The same tokens as a table"):
        table = prompt_text.token_table(view)
        st.dataframe(table, hide_index=True, alt="All pieces of the prompt with their tokens, those read out and those cut.")


page()
