"""A prompt written out for the eye: colored and labelled by candidate, cut text struck through, hidden characters named.

All of it is markdown of escaped text; nothing of a slate is ever markup.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence

import pandas as pd
import streamlit as st

from pages.shared import frame
from pages.shared.loaders import Loaded
from pages.shared.text import escaped, shown
from spd_core.figures.token_ruler import CUT_DRAWN, TokenRow, token_ruler
from spd_core.model import Student
from spd_core.prompt_view import PieceView, PromptView
from spd_core.slate import Slate
from spd_core.suspicious_text import MEANINGS
from spd_core.words import plural

COLORS = ("blue", "green", "violet", "orange")
"""Grounds of the candidates in turn; the label at the line's start says which one it is."""
KEPT_LIMIT = 1000
CUT_LIMIT = 160
"""Characters of cut text shown; the rest is counted."""
LINE_BREAK = "↵"
READOUT_WORDS = {
    "mean": "the mean over all tokens of a description",
    "last": "the last token of a description",
    "newline": "the token that ends a candidate's line",
}


def visible(text: str) -> str:
    """`text` with line breaks drawn and every other control, direction or invisible character as its code."""
    return "".join(
        LINE_BREAK if character == "\n" else f"⟨U+{ord(character):04X}⟩" if _is_hidden(character) else character
        for character in text
    )


def _is_hidden(character: str) -> bool:
    """Control and format characters; the joiner within emoji and scripts stays, it is part of what they look like."""
    return unicodedata.category(character) in ("Cc", "Cf") and character not in "\u200c\u200d"


def show_numbers(view: PromptView, student: Student) -> None:
    """Four numbers: size of the prompt, what the candidates take, what was left out, what looks suspicious."""
    most = student.backbone.max_tokens
    read = sum(len(piece.kept) for piece in view.descriptions)
    flags = sum(len(piece.flags) for piece in view.pieces)
    share = f"The model was made for at most {most:,} tokens; this prompt takes {view.token_count / most:.1%} of them."
    numbers = (
        ("Prompt", f"{view.token_count:,} of {most:,} tokens", share),
        ("Descriptions", plural(read, "token"), "Tokens that describe candidates."),
        ("Left out", plural(view.cut_count, "token"), "Beyond the caps: the model never reads them."),
        ("Suspicious texts", f"{flags:,}", "Findings in texts of shoppers and sellers; listed beside the prompt."),
    )
    with st.container(horizontal=True, gap="large"):
        for label, value, tip in numbers:
            st.metric(label, value, width="content", help=tip)


def fit_problem(view: PromptView, student: Student) -> str:
    """Markdown on why the slate cannot be ranked, or nothing: it is shown here all the same."""
    count, positions, most = len(view.descriptions), student.config.positions, student.backbone.max_tokens
    if count > positions:
        return f"This slate cannot be ranked: it has {count} candidates but the student ranks at most {positions}."
    if view.token_count > most:
        return f"This slate cannot be ranked: its prompt has {view.token_count:,} tokens but the model takes {most:,}."
    return ""


def template_line(loaded: Loaded) -> str:
    """Markdown: the template, and whether it is the one the checkpoint was trained with."""
    template = loaded.student.template
    opening = f"Template **{escaped(template.name, 60)}**, hash `{template.hash}`:"
    config = loaded.info.config if loaded.info else None
    if config is None:
        return f"{opening} there is no checkpoint to compare it with."
    if config.template_hash == template.hash:
        return f"{opening} :material/check: the same as the checkpoint's."
    return (
        f"{opening} :material/warning: the checkpoint's is `{escaped(config.template_hash, 40)}`, so its scores mean little."
    )


def readout_line(view: PromptView) -> str:
    """Markdown: what the head reads."""
    return (
        f"The head reads {READOUT_WORDS[view.readout]} (readout `{view.readout}`); in the prompt these tokens are **bold**."
    )


def line_frame(view: PromptView) -> pd.DataFrame:
    """The prompt as a table of markdown cells, a row a line: label, text, tokens."""
    rows = []
    for line, bought in _counted_lines(view):
        badge = " :orange-badge[:material/flag: suspicious]" if any(piece.flags for piece in line) else ""
        text = " ".join(part for part in map(_markdown, line) if part)
        rows.append((_label(line, bought) + badge, text, _tokens(line)))
    return pd.DataFrame(rows, columns=["Line", "What the model reads", "Tokens"])


def _label(line: Sequence[PieceView], bought: int) -> str:
    candidate = line[-1].piece.candidate
    if candidate is not None:
        return f"**Candidate {candidate + 1}**"
    kinds = {view.piece.kind for view in line}
    return f"Bought {bought}" if "history" in kinds else "Query" if "query" in kinds else ":gray[Heading]"


def _tokens(line: Sequence[PieceView]) -> str:
    kept, cut = (sum(len(tokens) for tokens in side) for side in ([v.kept for v in line], [v.cut for v in line]))
    return f"{kept} read, {cut:,} cut" if cut else f"{kept}"


def _markdown(view: PieceView) -> str:
    """One piece: a description on its candidate's ground, tokens read out bold, what was cut gray and struck through."""
    start = min(view.readout, default=len(view.kept))
    plain, bold = ("".join(tokens) for tokens in (view.kept[:start], view.kept[start:]))
    written = _written(plain, KEPT_LIMIT)
    if bold.strip(" "):
        gap = " " if written and bold.startswith(" ") else ""
        # In the middle of a word, stars alone would not make it bold; inside brackets of their own they do.
        strong = f"**{_written(bold, KEPT_LIMIT)}**"
        written += gap + (f":primary[{strong}]" if written else strong)
    if view.piece.kind == "description":
        written = f":{COLORS[(view.piece.candidate or 0) % len(COLORS)]}-background[{written}]"
    elif view.piece.kind in ("literal", "close"):
        written = f":gray[{written}]" if written else ""
    if view.cut:
        rest = len(view.cut_text) - CUT_LIMIT
        more = f" :gray[and {rest:,} more characters]" if rest > 0 else ""
        gap = " " if view.cut_text.startswith(" ") else ""
        written += f"{gap}:gray[~~{_written(view.cut_text, CUT_LIMIT)}~~]{more}"
    return written


def _written(text: str, limit: int) -> str:
    return escaped(visible(text), limit) if text.strip(" ") else ""


def show_ruler(view: PromptView, slate: Slate) -> None:
    """The picture: a square a token, a row a candidate."""
    rows = [
        TokenRow(
            kept=_drawn(description.kept),
            closing=_drawn(closing.kept),
            cut=tuple(visible(token) for token in description.cut[:CUT_DRAWN]) + description.cut[CUT_DRAWN:],
            readout=(*description.readout, *(len(description.kept) + index for index in closing.readout)),
        )
        for description, closing in zip(view.descriptions, view.closings, strict=True)
    ]
    chart = token_ruler(rows, [shown(item.title, 60) for item in slate.candidates], dark=frame.is_dark())
    st.markdown("##### Tokens of each candidate", anchors=False)
    st.altair_chart(chart, width="stretch", alt="A row a candidate, a square a token: read, read out, cut.")
    st.caption(
        "A square a token. Dot: read out by the head. Gray: closes the candidate's line. Empty: cut, at most eight are drawn."
    )


def _drawn(tokens: Sequence[str]) -> tuple[str, ...]:
    return tuple(visible(token) or "(part of a character)" for token in tokens)


def flag_frame(view: PromptView) -> pd.DataFrame:
    """Suspicious texts as a table of markdown cells."""
    rows = []
    for line, bought in _counted_lines(view):
        for piece in line:
            for flag in piece.flags:
                found = escaped(visible(flag.found), 80)
                rows.append((_label(line, bought), found, flag.kind))
    return pd.DataFrame(rows, columns=["Line", "Found", "Kind"])


def _counted_lines(view: PromptView) -> list[tuple[list[PieceView], int]]:
    """The lines of the prompt, each with the number of history items up to it."""
    lines, bought = [], 0
    for line in view.lines():
        bought += any(piece.piece.kind == "history" for piece in line)
        lines.append((line, bought))
    return lines


def show_flags(view: PromptView) -> None:
    """What looks suspicious in texts of shoppers and sellers, and whether any of it has power over the model."""
    st.markdown("##### Suspicious text", anchors=False)
    table = flag_frame(view)
    control = sum(piece.control_tokens for piece in view.pieces)
    if control:
        st.error(
            f"{plural(control, 'token')} of user text reach the model as control tokens; the tokenizer is set up wrongly."
        )
    if table.empty:
        st.caption("Nothing found: no control tokens, rankings, instructions or hidden characters in any text.")
        return
    st.table(table, border="horizontal", hide_index=True)
    kinds = [kind for kind in MEANINGS if kind in set(table["Kind"])]
    st.markdown("\n".join(f"- **{kind.capitalize()}** {MEANINGS[kind]}." for kind in kinds))
    if not control:
        st.caption("None of it reaches the model as a control token: texts of users are always split into ordinary tokens.")


def token_table(view: PromptView) -> pd.DataFrame:
    """All tokens by number: a row a piece, tokens divided by bars."""
    rows = []
    for piece in view.pieces:
        candidate = piece.piece.candidate
        readout = [piece.start + index for index in piece.readout]
        rows.append(
            {
                "First token": piece.start,
                "Part": piece.piece.kind,
                "Candidate": "" if candidate is None else str(candidate + 1),
                "Tokens read": len(piece.kept),
                "Tokens cut": len(piece.cut),
                "Read out": f"{readout[0]} to {readout[-1]}" if len(readout) > 1 else "".join(map(str, readout)),
                "Tokens": "|".join(_drawn(piece.kept)),
            }
        )
    return pd.DataFrame(rows)
