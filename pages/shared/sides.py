"""The two sides of a race while it runs and after it, and what the teacher wrote with every problem marked."""

from __future__ import annotations

from collections.abc import Sequence

import pandas as pd
import streamlit as st

from pages.shared.measuring import milliseconds
from pages.shared.race import View
from pages.shared.text import escaped, shown
from spd_core.race import Piece, marked_answer, written_count
from spd_core.slate import Slate
from spd_core.teachers.answers import TeacherAnswer
from spd_core.words import plural

FIRST_LINES = 20
"""Lines of a side shown at once; the rest waits in an expander."""
KIND_TITLES = {
    "ok": "valid as written",
    "format": "not a plain list",
    "out_of_range": "names what is not there",
    "repetition": "repeats itself",
    "missing": "leaves some out",
}
MARK_FORMATS = {
    "repeated": ":orange-badge[{} again]",
    "out_of_range": ":red-badge[{} is no candidate]",
    "format": ":orange-badge[{}: no number]",
}
TAPE_CHARACTERS = 36
"""Of a running answer: one line on a phone, so that the list below stays where it is."""
TEXT_LIMIT = 4000
"""Most characters of an answer shown; the download has them all."""
REPAIRED = ":orange-badge[:material/build: repaired for display]"


def show_sides(slate: Slate, view: View, *, student: str, teacher: str) -> None:
    """The race as it stands: both lists with their clocks; a side that has not ranked yet is blank.

    Args:
        slate: raced over.
        view: of this moment.
        student, teacher: names, as markdown.
    """
    left, right = st.columns(2, gap="large")
    with left:
        st.markdown(f"##### Student: {student}", anchors=False)
        with st.container(horizontal=True, gap="large"):
            st.metric("Time", f"{shown_ms(view.student.ms)} ms" if view.student else "…", width="content")
            st.metric("Passes", "1" if view.student else "…", width="content", help="It writes nothing: one pass.")
        if view.answer is None:
            st.caption("Writes nothing: all ranks come out of one score matrix.")
        _list(slate, view.student.ranking if view.student else (), len(slate.candidates))
    with right:
        repaired = f" {REPAIRED}" if view.answer and view.answer.is_repaired else ""
        st.markdown(f"##### Teacher: {teacher}{repaired}", anchors=False)
        with st.container(horizontal=True, gap="large"):
            for label, value in teacher_numbers(view):
                st.metric(label, value, width="content")
        if view.answer is None:
            st.caption(tape(view))
        if view.answer:
            _list(slate, view.answer.permutation, written_count(view.answer))
        else:
            named = view.events[-1].order if view.events else ()
            _list(slate, [slate.item_ids[index] for index in named], len(named))


def teacher_numbers(view: View) -> list[tuple[str, str]]:
    """Clock, tokens and passes of the teacher so far, with their labels."""
    answer, count = view.answer, len(view.events)
    written = view.events[-1].index + 1 if count else 0  # a constrained teacher writes a whole number and more at a time
    tokens = answer.tokens if answer and answer.tokens else written
    passes = answer.passes if answer else count
    has_begun = bool(count or answer)
    clock = "…" if view.clock_ms is None else f"{view.clock_ms:,.0f} ms"
    unit = "Tokens" if view.is_local or (answer and answer.tokens) else "Chunks"
    numbers = [("Time", clock), (unit, str(tokens) if has_begun else "…")]
    return [*numbers, ("Passes", str(passes) if has_begun else "…")] if view.is_local else numbers


def shown_ms(value: float) -> str:
    """Milliseconds with three figures, or with a comma where there are more."""
    return f"{value:,.0f}" if value >= 1000 else milliseconds(value)


def tape(view: View) -> str:
    """Markdown of what the teacher has written so far: its end while it writes, all of it once it was stopped."""
    if not view.events:
        return "Has written nothing yet."
    text = view.events[-1].text
    shown_end = text[-TAPE_CHARACTERS:] if not view.is_over else text
    return f"Writes: {'… ' if len(shown_end) < len(text) else ''}{escaped(shown_end, TEXT_LIMIT)}"


def _list(slate: Slate, item_ids: Sequence[str], written: int) -> None:
    """Ranks 1 to N with the candidates that are known; those after the first `written` were added by the repair."""
    items = {item.item_id: (item, flag) for item, flag in zip(slate.candidates, slate.relevant(), strict=True)}
    rows = []
    for rank in range(len(slate.candidates)):
        cell = ""
        if rank < len(item_ids):
            item, is_right = items[item_ids[rank]]
            cell = escaped(item.title, 60) + (f" {_right(slate)}" if is_right else "")
            cell += "" if rank < written else " :orange-badge[:material/build: not named]"
        rows.append(f"**{rank + 1}**\u2002{cell}")
    table = pd.DataFrame({"Best first": rows})  # one column: two would change their widths with every item that lands
    st.table(table.head(FIRST_LINES), border="horizontal", hide_index=True)
    if len(table) > FIRST_LINES:
        with st.expander(f"Ranks {FIRST_LINES + 1} to {len(table)}"):
            st.table(table.tail(-FIRST_LINES), border="horizontal", hide_index=True)


def _right(slate: Slate) -> str:
    return ":green-badge[relevant]" if slate.grades is not None else ":green-badge[:material/shopping_bag: bought next]"


def status(view: View) -> str:
    """What is happening now, in a few words."""
    if view.phase == "queued":
        return f"Waiting: {plural(view.ahead, 'race')} before yours. One runs at a time." if view.ahead else "Starting …"
    words = {
        "gate": "Waiting: another visitor's ranking is running.",
        "student": "The student reads the prompt …",
        "teacher": "The teacher writes …" if view.events else "The teacher reads the same prompt …",
    }
    return words.get(view.phase, "")


def show_answer(answer: TeacherAnswer) -> None:
    """What the teacher wrote, with every problem marked where it is and said in words."""
    color, icon = ("green", "check") if answer.kind == "ok" else ("orange", "warning")
    badge = f":{color}-badge[:material/{icon}: {KIND_TITLES[answer.kind]}]"
    st.markdown(f"##### What the teacher wrote {badge}{'' if answer.kind == 'ok' else ' ' + REPAIRED}", anchors=False)
    pieces = marked_answer(answer.text, len(answer.permutation))
    thinking = "".join(piece.text for piece in pieces if piece.mark == "thinking")
    if thinking:
        with st.expander(f"Its thinking, {plural(len(thinking), 'character')}"):
            st.text(shown(thinking, TEXT_LIMIT))
    st.markdown(marked_text(pieces) or ":gray[nothing]")
    for problem in answer.problems:
        st.caption(f":material/warning: It {escaped(problem, 300)}.")
    if answer.is_repaired:
        st.caption("Repaired: numbers that fit count where first named, unnamed candidates follow in the order given.")


def marked_text(pieces: Sequence[Piece]) -> str:
    """Markdown of an answer in which what is wrong stands in a badge that says why."""
    parts, length = [], 0
    for piece in pieces:
        length += len(piece.text)
        if length > TEXT_LIMIT:
            parts.append(" …")
            break
        if piece.mark == "thinking":
            continue
        text = escaped(piece.text, 60) if piece.text.strip() else " "
        parts.append(f" {MARK_FORMATS[piece.mark].format(text)} " if piece.mark in MARK_FORMATS else text)
    return "".join(parts)
