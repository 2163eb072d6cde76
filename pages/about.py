"""About: the method in plain words, what is guaranteed and what is not, and what is loaded."""

import streamlit as st

from pages.shared import errors, frame, loaders, model_card, words
from spd_core.errors import SpdError

SENTENCE = "What the app does, what it does not promise, and what exactly is loaded."


def page() -> None:
    """Plain words first; then the model card of what is loaded."""
    place = frame.draw_head("About", SENTENCE)
    chosen = frame.pick_checkpoint()
    left, right = st.columns([3, 2], gap="large")
    with left:
        st.header("The method", anchor=False)
        st.markdown(words.METHOD)
        st.header("What is guaranteed, and what is not", anchor=False)
        st.markdown(words.GUARANTEE)
    with right:
        st.header("Words", anchor=False)
        st.table({f"**{word}**": meaning for word, meaning in words.GLOSSARY.items()}, border="horizontal")
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
    st.markdown(words.LICENCES)
    st.markdown(words.CITATION)


page()
