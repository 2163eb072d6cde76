"""About: the method in plain words, what is guaranteed and what is not, and what exactly is loaded."""

import streamlit as st

from pages.shared import errors, frame, loaders, model_card
from spd_core.errors import SpdError

SENTENCE = "What the app does, what it does not promise, and what exactly is loaded."
METHOD = """
A shop knows what somebody bought, and has a **slate** of candidates to show. A language model can rank them by *writing*
the order out, one number after another: one pass of the model for every token. **Single pass decoding** writes nothing.

1. **One prompt** holds the shopper's history and all candidates. The **backbone**, a language model, reads it once.
2. Where each candidate's description ends, or over its tokens, a **readout** takes the model's state: what it made of that item.
3. A small **head** turns these states into the **score matrix**: how well candidate *i* would suit position *j*.
4. A **decoder** picks one position for each candidate so that the total score is largest. That is the ranking.

In training, a **teacher** ranks each slate beforehand, and the student learns to put its probability on the teacher's order.
"""
GUARANTEE = """
**Every result is a valid ranking**: each candidate once, none invented, none lost. That sets the method apart from models
that *generate* a ranking as text and can repeat or forget items. It is no news against ordinary rankers: any model that
scores items and sorts them gives a valid ranking too.

**A valid ranking is not a good one.** How good it is depends on the training; the measured quality stands below, with
intervals. The order in which candidates are given can matter, because the model reads them one after another.
"""
GLOSSARY = {
    "Slate": "the candidates shown together, in the order given",
    "Candidate": "one item of a slate",
    "Ranking": "the slate's candidates, best first",
    "Position": "a place in the ranking, the first is the best",
    "Backbone": "the language model that reads the prompt",
    "Adapter (LoRA)": "a small trained change to the backbone's weights",
    "Prefill": "the one pass in which the backbone reads the whole prompt",
    "Readout": "the backbone's state that stands for a candidate",
    "Head": "the small network from readouts to the score matrix",
    "Score matrix": "a number for every candidate at every position",
    "Assignment": "one position for each candidate, none taken twice",
    "Decoder": "the rule that reads a ranking from the score matrix",
    "Sinkhorn": "normalising rows and columns in turn until both sum to 1: a soft assignment",
    "Doubly stochastic": "all rows and all columns sum to 1",
    "Temperature (tau)": "how sharp the soft assignment is; cold is close to a hard one",
    "Residual": "how far Sinkhorn's rows still are from summing to 1",
    "Teacher, student": "the ranker that is imitated, and the model that imitates it",
}
LICENCES = """
This project: Apache-2.0. The embedded backbone SmolLM2-135M-Instruct: Apache-2.0. The sample slates are invented for this
project: people, shops and purchases do not exist. Checkpoints trained on Amazon review data come from a research data set
(cite He and McAuley, 2016); none of its text is part of the project.
"""
CITATION = "Laftchiev et al., Single Pass Decoding for generative reranking (v1: hLLM), arXiv:2609.01807, September 2026."


def page() -> None:
    """Plain words first; then the model card of what is loaded."""
    place = frame.draw_head("About", SENTENCE)
    chosen = frame.pick_checkpoint()
    left, right = st.columns([3, 2], gap="large")
    with left:
        st.header("The method", anchor=False)
        st.markdown(METHOD)
        st.header("What is guaranteed, and what is not", anchor=False)
        st.markdown(GUARANTEE)
    with right:
        st.header("Words", anchor=False)
        st.table({f"**{word}**": meaning for word, meaning in GLOSSARY.items()}, border="horizontal")
    st.header("What is loaded", anchor=False)
    try:
        loaded = loaders.load(chosen)
    except SpdError as error:
        errors.show(error)
    else:
        with place:
            frame.badge(loaded)
        model_card.show(loaded)
    st.header("Licences and citation", anchor=False)
    st.markdown(LICENCES)
    st.markdown(CITATION)


page()
