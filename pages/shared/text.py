"""User text made safe to show: titles, ids and messages are data, never markup.

Streamlit reads markdown in most places and then, after the markdown, turns ``:name:``, ``->`` and bare addresses into
icons, arrows and links. So escaping is two steps: a backslash before every punctuation mark, and an invisible word joiner
inside the patterns that are matched later.
"""

from __future__ import annotations

import re

from spd_core.prompts import clean_text

TITLE_LIMIT = 120
"""Most characters of one text shown; the whole text stays in the downloads."""
WORD_JOINER = "\u2060"
ISOLATE, POP_ISOLATE = "\u2068", "\u2069"
_CONTROLS = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2060\u2066-\u2069\ufeff\ufffe\uffff]")
_RIGHT_TO_LEFT = re.compile("[\u0590-\u08ff\ufb1d-\ufdff\ufe70-\ufeff]")
_PUNCTUATION = re.compile(r"([!-/:-@\[-`{-~])")
_LATE_PATTERNS = re.compile(r"(?<=:)(?=[\w/+-])|(?<=www)(?=\.)|(?<=@)(?=\S)|(?<=[-<>=~])(?=[-<>=])", re.IGNORECASE)


def shown(text: object, limit: int = TITLE_LIMIT) -> str:
    """`text` as one plain line of at most `limit` characters, for places that read no markdown (charts, menus, tables).

    Control and direction characters are dropped and lone surrogates replaced: neither can be sent to a browser safely.
    """
    line = clean_text(_CONTROLS.sub("", clean_text(str(text))))
    return line if len(line) <= limit else line[: limit - 1].rstrip() + "…"


def escaped(text: object, limit: int = TITLE_LIMIT) -> str:
    """`text` as `shown`, written so that Streamlit's markdown gives back exactly these characters."""
    safe = _escape(shown(text, limit))
    return f"{ISOLATE}{safe}{POP_ISOLATE}" if _RIGHT_TO_LEFT.search(safe) else safe


def message(text: object) -> str:
    """An error or warning of the core as markdown: every word as it is, commands between backticks as code."""
    parts = re.split(r"`([^`\n]{1,120})`", shown(text, 1000))
    return "".join(f"`{part}`" if index % 2 else _escape(part) for index, part in enumerate(parts))


def _escape(line: str) -> str:
    return _PUNCTUATION.sub(r"\\\1", _LATE_PATTERNS.sub(WORD_JOINER, line))


def ordinal(place: int) -> str:
    """``1st``, ``2nd``, ``3rd``, ``11th`` for a place counted from 1."""
    ending = "th" if place % 100 in (11, 12, 13) else {1: "st", 2: "nd", 3: "rd"}.get(place % 10, "th")
    return f"{place}{ending}"
