"""What a visitor has chosen, kept from page to page and written into the address: the only place that spells these keys.

A widget's own value vanishes when its page is left. So each choice lives under a key of its own, from which the widget is
set before it is drawn and to which it is copied when it is changed. A link is read once, when a session starts; a value in
it that means nothing here leaves a note.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeVar

import streamlit as st

from pages.shared.text import escaped
from spd_core.slate import Slate

T = TypeVar("T")

LINKED = ("checkpoint", "shelf", "slate", "decoder", "layer", "tau", "iterations", "teacher")
"""Choices that stand in the address, in this order."""
OWN_SHELF = "yours"
"""Shelf of the slates that the visitor brought; they stay in the session and never go into a link."""
_LINK_LIMIT = 200


def _key(name: str) -> str:
    return f"chosen {name}"


def widget_key(name: str) -> str:
    """Key of the widget that shows the choice `name`."""
    return f"widget {name}"


def read_link() -> None:
    """Take the choices of the address into the session; only the first call of a session does anything."""
    if is_started():
        return
    st.session_state["link read"] = True
    st.session_state["notes"] = {}
    st.session_state["from link"] = {name: st.query_params[name][:_LINK_LIMIT] for name in LINKED if name in st.query_params}


def is_started() -> bool:
    """Whether app.py has run in this session."""
    return "link read" in st.session_state


def widget_value(name: str) -> Any:
    """What the widget of `name` holds, for use in its callback; None if it holds nothing."""
    return st.session_state.get(widget_key(name))


def selected_points(chart_key: str, selection: str) -> list[dict[str, Any]]:
    """Points that a click has selected in a chart; empty after a click beside them."""
    event = st.session_state.get(chart_key) or {}
    points: list[dict[str, Any]] = event.get("selection", {}).get(selection, [])
    return points


def get(name: str, default: T) -> T | Any:
    """The value kept under `name`, else `default`."""
    return st.session_state.get(_key(name), default)


def put(name: str, value: object) -> None:
    """Keep `value` under `name`; its widget shows it when it is drawn next."""
    st.session_state[_key(name)] = value
    _notes().pop(name, None)


def choose(name: str, options: Sequence[T], default: T) -> T:
    """The choice kept under `name`, or that of the link, if it is among `options`; else `default`, with a note if linked."""
    linked = _from_link(name)
    if linked is not None:
        by_text = {str(option): option for option in options}
        if linked in by_text:
            st.session_state[_key(name)] = by_text[linked]
        else:
            known = escaped(default, 60)
            _notes()[name] = f"The link asks for the {name} “{escaped(linked, 60)}”, which is not here; showing “{known}”."
    kept = get(name, default)
    return kept if kept in options else default


def choose_number(name: str, low: float, high: float, default: float) -> float:
    """The number kept under `name`, or that of the link, if it lies in [low, high]; else `default`, with a note if linked."""
    linked = _from_link(name)
    if linked is not None:
        number = _number(linked)
        if number is not None and low <= number <= high:  # NaN fails any comparison
            st.session_state[_key(name)] = number
        else:
            _notes()[name] = (
                f"The link sets {name} to “{escaped(linked, 60)}”; it must be a number from {low:g} to {high:g}. "
                f"Showing {default:g}."
            )
    kept = get(name, default)
    return kept if low <= kept <= high else default


def bind(name: str, value: object) -> dict[str, Any]:
    """Arguments that make a widget show `value` and keep what the visitor makes of it under `name`.

    The value is set on every run: a widget that a page draws anew would else forget it, although its key is still there.
    """
    st.session_state[widget_key(name)] = value
    return {"key": widget_key(name), "on_change": _take, "args": (name,)}


def _take(name: str) -> None:
    st.session_state[_key(name)] = st.session_state[widget_key(name)]
    _notes().pop(name, None)


def remember(name: str, value: T) -> T:
    """Keep what a widget gave, and write it into the address if it belongs there."""
    st.session_state[_key(name)] = value
    if name in LINKED and st.query_params.get(name) != _text(value):
        st.query_params[name] = _text(value)
    return value


def forget_link(*names: str) -> None:
    """Take choices out of the address that would mean nothing to another visitor."""
    for name in names:
        st.query_params.pop(name, None)


def notes(*names: str) -> list[str]:
    """Markdown of the notes about this session's link that still hold, for the choices named."""
    return [note for name, note in _notes().items() if name in names]


def own_slates() -> tuple[Slate, ...]:
    """Slates that the visitor brought in this session."""
    return get("own slates", ())


def put_own_slates(slates: Sequence[Slate]) -> None:
    """Keep slates that the visitor brought and turn to the first of them."""
    put("own slates", tuple(slates))
    put("shelf", OWN_SHELF)
    put("slate", slates[0].slate_id)


def is_asked(digest: str) -> bool:
    """Whether this session has asked for the ranking of that slate; the first slate of a session counts as asked."""
    asked = st.session_state.setdefault("asked", {})
    if not asked:
        asked[digest] = True
    return digest in asked


def ask(digest: str) -> None:
    """Note that the ranking of that slate was asked for."""
    st.session_state.setdefault("asked", {})[digest] = True


def _notes() -> dict[str, str]:
    found: dict[str, str] = st.session_state.setdefault("notes", {})
    return found


def _from_link(name: str) -> str | None:
    linked: dict[str, str] = st.session_state.get("from link", {})
    return linked.pop(name, None)


def _number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None


def _text(value: object) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)
