"""Errors of the core on a page: what is missing in plain words, and the button or command that mends it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import streamlit as st

from pages.shared import state
from pages.shared.text import message
from spd_core.backbone_files import prepare_backbone
from spd_core.checkpoints import UNTRAINED
from spd_core.errors import BackboneError, CheckpointError, SpdError


@contextmanager
def shown() -> Iterator[None]:
    """Turn an `SpdError` of the block into a message in its place and end the page there; others pass."""
    try:
        yield
    except SpdError as error:
        show(error)
        st.stop()


def show(error: SpdError) -> None:
    """Draw an error with the way out of it."""
    if isinstance(error, BackboneError):
        _missing_backbone(error)
    elif isinstance(error, CheckpointError):
        st.error(message(error), icon=":material/error:")
        st.caption("Choose another checkpoint in the sidebar, or look around with an untrained head.")
        st.button("Use the untrained head", on_click=state.put, args=("checkpoint", UNTRAINED))
    else:
        st.error(message(error), icon=":material/error:")


def _missing_backbone(error: BackboneError) -> None:
    with st.container(border=True):
        st.markdown("**The language model is not ready yet.**")
        st.markdown(message(error))
        st.caption("The button does the same as the command: it takes about 20 seconds, once, and needs no network.")
        if st.button("Prepare the backbone", type="primary", icon=":material/build:"):
            _prepare()


def _prepare() -> None:
    with st.status("Preparing the backbone …", expanded=True) as status:
        st.write("Converting the packaged weights into a model folder.")
        try:
            prepare_backbone()
        except SpdError as error:
            status.update(label="The backbone could not be prepared", state="error")
            st.error(message(error))
            return
        status.update(label="The backbone is ready", state="complete")
    st.rerun()
