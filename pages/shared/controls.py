"""The choices that pages share: which slate, which decoder, which temperature. Each draws a widget and gives its value."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence

import streamlit as st

from pages.shared import errors, frame, loaders, state
from pages.shared.loaders import Loaded, slate_digest
from pages.shared.text import message, shown
from spd_core.datasets import parse_upload
from spd_core.decoding import DECODERS
from spd_core.errors import SlateError, SpdError
from spd_core.figures.layers import LAYERS
from spd_core.slate import Slate
from spd_core.words import plural

SHELF_TITLES = {
    "demo": "Hand-picked shoppers",
    "shoppers": "More shoppers",
    "search": "Searches",
    "tricky": "Tricky cases",
    state.OWN_SHELF: "Your own",
}
DECODER_TITLES = {
    "hungarian": "Hungarian",
    "greedy": "Greedy",
    "expected_position": "Expected position",
    "first_column": "First column",
}
TAUS = (0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0)
ITERATIONS = (1, 2, 5, 10, 20, 50, 100, 200, 500)
UPLOAD_BYTES = 5 * 2**20
UPLOAD_LINES = 20_000
UPLOAD_SLATES = 2_000
LABEL_LIMIT = 100


def pick_slate(loaded: Loaded) -> Slate:
    """The chosen slate, of the sample files or the visitor's own; ends the page with a message if it is not to be had."""
    names = [*loaders.shelf_names(), *([state.OWN_SHELF] if state.own_slates() else [])]
    if not names:
        errors.show(SlateError(f"no slates in {loaders.SHELVES.name}/; run `python -m spd_core samples` to write them"))
        st.stop()
    left, middle, right = st.columns([3, 6, 4], vertical_alignment="bottom", gap="small")
    with errors.shown():
        with left:
            name = _pick_shelf(names)
        slates = {slate.slate_id: slate for slate in _slates_of(name)}
    with middle:
        slate_id = _pick_from(slates)
    with right.container(horizontal=True, gap="small"):
        st.button("Surprise me", icon=":material/shuffle:", on_click=_surprise, args=(tuple(slates.values()), slate_id))
        _bring_your_own()
    if name == state.OWN_SHELF:
        state.forget_link("shelf", "slate")
    _settle_link(loaded)
    frame.show_notes("shelf", "slate", "decoder", "layer", "tau", "iterations")
    return slates[slate_id]


def _settle_link(loaded: Loaded) -> None:
    """Read what the link says of choices that this page may not draw, so that its notes show at once and not pages later."""
    config = loaded.student.config
    state.choose("decoder", list(DECODERS), "hungarian")
    state.choose("layer", list(LAYERS), next(iter(LAYERS)))
    state.choose_number("tau", TAUS[0], TAUS[-1], config.tau)
    state.choose_number("iterations", ITERATIONS[0], ITERATIONS[-1], config.sinkhorn_iterations)


def pick_decoder() -> str:
    """Key of the chosen decoder."""
    names = list(DECODERS)
    chosen = state.choose("decoder", names, "hungarian")
    tips = "; ".join(f"{_decoder_title(name)}: {(DECODERS[name].__doc__ or '').splitlines()[0]}" for name in names)
    value = st.selectbox(
        "Decoder",
        names,
        **state.bind("decoder", chosen),
        format_func=_decoder_title,
        help=f"How one ranking is read from the score matrix. {tips}",
        width=220,
    )
    return state.remember("decoder", value or chosen)


def pick_tau(default: float) -> float:
    """The Sinkhorn temperature; `default` is that of training."""
    chosen = state.choose_number("tau", TAUS[0], TAUS[-1], default)
    options = sorted({*TAUS, default, chosen})
    value = st.select_slider(
        "Temperature τ",
        options,
        **state.bind("tau", chosen),
        format_func=lambda tau: f"{tau:g}",
        help="Cold (left) approaches the hard assignment and needs more iterations; warm (right) blurs it.",
    )
    return state.remember("tau", float(value))


def pick_iterations(default: int) -> int:
    """The number of Sinkhorn iterations; `default` is that of training."""
    chosen = int(state.choose_number("iterations", ITERATIONS[0], ITERATIONS[-1], default))
    options = sorted({*ITERATIONS, default, chosen})
    value = st.select_slider(
        "Sinkhorn iterations",
        options,
        **state.bind("iterations", chosen),
        help="Rounds of normalising rows and columns in turn.",
    )
    return state.remember("iterations", int(value))


def pick_option(name: str, label: str, options: Sequence[str], titles: Sequence[str], *, tip: str | None = None) -> str:
    """One of a few named options, side by side; the first is the default."""
    names = dict(zip(options, titles, strict=True))
    chosen = state.choose(name, options, options[0])
    value = st.segmented_control(
        label,
        options,
        **state.bind(name, chosen),
        format_func=lambda option: names[option],
        help=tip,
        required=True,
        wrap=True,
    )
    return state.remember(name, value or chosen)


def pick_all_columns(shape: tuple[int, int], layer: str) -> bool:
    """Whether to draw all K columns; asked only where there are more than the slate uses, and where they hold scores."""
    count, columns = shape
    if columns <= count or layer != "raw":
        return False
    bound = state.bind("all columns", state.get("all columns", False))
    return state.remember("all columns", st.toggle(f"All {columns} columns, not only the {count} used", **bound))


def _pick_shelf(names: list[str]) -> str:
    chosen = state.choose("shelf", names, names[0])
    value = st.selectbox(
        "Slates", names, **state.bind("shelf", chosen), format_func=lambda name: SHELF_TITLES.get(name, shown(name, 40))
    )
    return state.remember("shelf", value or chosen)


def _pick_from(slates: Mapping[str, Slate]) -> str:
    ids, labels = list(slates), _labels(tuple(slates.values()))
    chosen = state.choose("slate", ids, ids[0])
    bound = state.bind("slate", chosen)
    value = st.selectbox("Shopper and slate (type to search)", ids, **bound, format_func=lambda name: labels.get(name, name))
    return state.remember("slate", value or chosen)


def _slates_of(name: str) -> tuple[Slate, ...]:
    return state.own_slates() if name == state.OWN_SHELF else loaders.shelf(name)


def _labels(slates: Sequence[Slate]) -> dict[str, str]:
    """A line for each slate id, readable and unique."""
    labels: dict[str, str] = {}
    for slate in slates:
        words = slate.user.query or slate.extra.get("story") or slate.slate_id
        label = f"{shown(words, LABEL_LIMIT)} ({plural(len(slate.candidates), 'candidate')})"
        labels[slate.slate_id] = f"{label} {shown(slate.slate_id, 40)}" if label in labels.values() else label
    return labels


def _decoder_title(name: str) -> str:
    return DECODER_TITLES.get(name, name.replace("_", " ").capitalize())


def _surprise(slates: Sequence[Slate], current: str) -> None:
    others = [slate for slate in slates if slate.slate_id != current] or list(slates)
    slate = random.choice(others)
    state.put("slate", slate.slate_id)
    state.ask(slate_digest(slate))


def _bring_your_own() -> None:
    """A menu to paste or upload slates; they stay in this session."""
    with st.popover("Your own", icon=":material/upload:"):
        st.markdown("Paste or upload slates: **JSON**, **JSON lines** or **CSV**, at most 5 MB. They stay in this session.")
        st.caption("CSV needs the columns slate_id, item_id and title; history, label, brand and category are optional.")
        with st.form("own slates", border=False):
            st.text_area("Paste", key=state.widget_key("own text"), height=120, placeholder='{"slate_id": "mine", "user": …')
            st.file_uploader("Upload", type=["json", "jsonl", "csv", "tsv"], key=state.widget_key("own file"))
            st.form_submit_button("Use these slates", type="primary", on_click=_take_own)
        if problem := state.get("own problem", ""):
            st.error(message(problem), icon=":material/error:")


def _take_own() -> None:
    upload, pasted = state.widget_value("own file"), state.widget_value("own text") or ""
    try:
        slates = read_own(upload.getvalue(), upload.name) if upload else read_own(*_named(pasted))
    except SpdError as error:
        state.put("own problem", str(error))
        return
    state.put("own problem", "")
    state.put_own_slates(slates)
    state.ask(slate_digest(slates[0]))


def _named(pasted: str) -> tuple[bytes, str]:
    is_json = pasted.lstrip()[:1] in ("{", "[", "")
    return pasted.encode("utf-8", "replace"), "pasted text" if is_json else "pasted text.csv"


def read_own(data: bytes, name: str) -> list[Slate]:
    """Slates of a pasted or uploaded text.

    Raises:
        SlateError: empty, too large, too many lines, or not slates; the message opens with `name`.
    """
    if not data.strip():
        raise SlateError("nothing was pasted or uploaded; give at least one slate")
    if len(data) > UPLOAD_BYTES:
        raise SlateError(f"{name}: {len(data):,} bytes; at most {UPLOAD_BYTES:,} (5 MB) are taken, split the file")
    count = max(data.count(b"\n"), data.count(b"\r"))
    if count > UPLOAD_LINES:
        raise SlateError(f"{name}: {count:,} lines; at most {UPLOAD_LINES:,} are taken, use the rank command for more")
    slates = parse_upload(data, name)
    if len(slates) > UPLOAD_SLATES:
        raise SlateError(
            f"{name}: {len(slates):,} slates; at most {UPLOAD_SLATES:,} are taken, use the rank command for more"
        )
    return slates
