"""What surrounds every page: title, one sentence, the badge that says what is running, and the choice of checkpoint."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from pathlib import Path

import streamlit as st

from pages.shared import errors, loaders, state, warming
from pages.shared.loaders import Loaded
from pages.shared.text import escaped, message, shown
from spd_core.checkpoints import UNTRAINED
from spd_core.process_memory import keep_freed_memory

PAGE_FOLDER = Path(__file__).resolve().parents[1]
FIRST_PAGE = "rank"
PREFERRED = "beauty-spd"
TOOLBAR = {"modeBarButtons": [["toImage"]], "displaylogo": False}
"""Of Plotly's charts: a picture to save, nothing else."""
PAPER = "Single pass decoding, arXiv 2609.01807"


def open_page(title: str, sentence: str) -> Loaded:
    """The student to show, after drawing the head of a page; ends the page with a way out where there is none.

    Args:
        title: heading.
        sentence: what the page shows, for anyone.
    """
    keep_freed_memory()
    warming.warm_charts()
    place = draw_head(title, sentence)
    with errors.shown():
        loaded = loaders.load(pick_checkpoint())
    with place:
        badge(loaded)
    return loaded


def draw_head(title: str, sentence: str) -> st.delta_generator.DeltaGenerator:
    """Container for the badge, beside the title it has drawn with the sentence below."""
    _enter_by_the_front_door()
    row = st.container(horizontal=True, horizontal_alignment="distribute", vertical_alignment="center")
    row.title(title, anchor=False, width="content")
    st.markdown(f":gray[{sentence}]")
    return row.container(horizontal=True, gap="small", width="content")


def _enter_by_the_front_door() -> None:
    """Run app.py first.

    Until a server has seen `st.navigation` once, Streamlit takes a folder named pages for its old kind of app and runs a
    page alone: the first visitor of a fresh server who comes by a link to a page would get no navigation and no choices.
    """
    if not state.is_started():
        files = sorted(PAGE_FOLDER.glob("*.py"))
        st.navigation([st.Page(file, default=file.stem == FIRST_PAGE) for file in files], position="hidden")
        st.rerun()


def pick_checkpoint() -> str:
    """Id of the chosen checkpoint, `UNTRAINED` included; drawn in the sidebar."""
    infos = {info.checkpoint_id: info for info in loaders.checkpoints()}
    sound = [name for name, info in infos.items() if info.config is not None]
    default = PREFERRED if PREFERRED in sound else (sound or [UNTRAINED])[0]
    options = [*infos, UNTRAINED]
    chosen = state.choose("checkpoint", options, default)
    with st.sidebar:
        value = st.selectbox(
            "Checkpoint",
            options,
            **state.bind("checkpoint", chosen),
            format_func=lambda name: _checkpoint_label(name, is_broken=name in infos and name not in sound),
            help="The trained student that ranks. Without one, a random head on the same language model.",
        )
        st.caption(PAPER)
    value = state.remember("checkpoint", value or default)
    show_notes("checkpoint")
    return value


def show_notes(*names: str) -> None:
    """Draw what was wrong with the link, for the choices named."""
    for note in state.notes(*names):
        st.info(note, icon=":material/link_off:")


def is_dark() -> bool:
    """Whether the visitor's browser shows the dark theme."""
    return st.context.theme.type == "dark"


def _checkpoint_label(name: str, *, is_broken: bool) -> str:
    if name == UNTRAINED:
        return "untrained head (random)"
    return f"{shown(name, 60)} (broken)" if is_broken else shown(name, 60)


def badge(loaded: Loaded) -> None:
    """What is running: checkpoint (amber if untrained), backbone, device and number format."""
    backbone = loaded.student.backbone
    name = escaped(loaded.info.checkpoint_id, 60) if loaded.info else "no checkpoint"
    if loaded.is_trained:
        st.badge(name, icon=":material/check_circle:", color="green", help="A trained checkpoint ranks here.")
    else:
        st.badge(f"{name}: untrained head", icon=":material/warning:", color="orange", help="Its rankings mean nothing.")
    depth = f"{backbone.depth} of {backbone.layer_count} layers"
    st.badge(f"{escaped(backbone.backbone_id, 60)}, {depth}", color="gray", help="The language model that reads the prompt.")
    dtype = str(backbone.dtype).removeprefix("torch.")
    st.badge(f"{backbone.device}, {dtype}", color="gray", help="Where and in what number format it runs.")


def how_computed(formulas: Sequence[str], *stages: Callable[..., object]) -> None:
    """An expander with the formulas and, for each stage, what its docstring says comes out and where it is from."""
    with st.expander("How this is computed", icon=":material/function:"):
        for formula in formulas:
            st.latex(formula)
        for stage in stages:
            words = inspect.getdoc(stage) or ""
            sources = [line for line in words.splitlines() if line.startswith("Source:")]
            place = f"{stage.__module__}.{stage.__qualname__}"
            st.markdown(f"`{place}`  \n{message(words.split(chr(10) * 2)[0])} :gray[{escaped(' '.join(sources), 300)}]")
