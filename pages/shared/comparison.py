"""What a race has shown: where teacher and student disagree, who is right, and how much faster one of them is."""

from __future__ import annotations

import csv
import io
import math

import pandas as pd
import streamlit as st

from pages.shared import frame, state
from pages.shared.rankings import neutral
from pages.shared.sides import shown_ms
from pages.shared.text import escaped, ordinal, shown
from spd_core.figures.orderings import slope_chart
from spd_core.race import Comparison, SpeedUp
from spd_core.race_record import RaceRecord
from spd_core.slate import Slate

MOST_TOKENS = 657
FIRST_THOUGHT = 200
"""Where the slider of thinking tokens starts; any number would do."""
LOUD = 5
"""Disagreements that stand out in the chart."""
SHOWN_METRICS = ("NDCG@1", "NDCG@10", "AUC")
MOVES = ("student higher", "lower", "same")


def headline(slate: Slate, comparison: Comparison) -> str:
    """Markdown: do the two agree, in one sentence?"""
    count = len(slate.candidates)
    if count == 1:
        return "**One candidate has one order:** there is nothing to disagree about."
    if not comparison.gaps.any():
        return f"**The same ranking twice:** student and teacher agree on all {count} candidates."
    teacher_first, student_first = int(comparison.teacher.argmin()), int(comparison.student.argmin())
    title = escaped(slate.candidates[student_first].title, 60)
    other = escaped(slate.candidates[teacher_first].title, 60)
    first = f"Both put {title} first" if teacher_first == student_first else f"The student puts {title} first, not {other}"
    near = int((abs(comparison.gaps) <= 2).sum())
    return f"**{first};** {near} of {count} candidates are at most two places apart."


def show_agreement(slate: Slate, comparison: Comparison, *, is_repaired: bool) -> None:
    """Numbers, slope chart, the largest disagreements, and both against the label."""
    st.markdown("##### Where they disagree", anchors=False)
    st.markdown(headline(slate, comparison))
    if len(slate.candidates) == 1:
        return
    with st.container(horizontal=True, gap="medium"):
        for label, value, tip in agreement_numbers(comparison):
            st.metric(label, value, width="content", help=tip)
    picture, side = st.columns([7, 5], gap="large")
    with picture:
        _show_slope(slate, comparison, is_repaired=is_repaired)
    with side:
        st.markdown("**Largest disagreements first**")
        st.table(gap_frame(slate, comparison, is_repaired=is_repaired).head(LOUD), border="horizontal", hide_index=True)
        if comparison.metrics:
            st.markdown("**Who is right**")
            quality = quality_frame(slate, comparison, is_repaired=is_repaired)
            st.table(quality, border="horizontal", hide_index=True)
            st.caption("One slate proves little; `python -m spd_core evaluate` measures both on many.")
        else:
            st.caption("No label here tells a right order from a wrong one, so nobody can say who is right.")
    with st.expander("The same numbers as a table"):
        table = full_frame(slate, comparison, is_repaired=is_repaired)
        st.dataframe(table, hide_index=True, alt="Each candidate with its rank by teacher and student, largest gap first.")


def agreement_numbers(comparison: Comparison) -> list[tuple[str, str, str]]:
    """Label, value and explanation of each figure of agreement."""
    overlaps = [
        (f"Same top {depth}", f"{share * depth:.0f} of {depth}", f"Candidates in the first {depth} of both, in any order.")
        for depth, share in comparison.overlaps.items()
    ]
    tau = "" if math.isnan(comparison.kendall_tau) else f"{comparison.kendall_tau:.2f}"
    return [
        ("Kendall tau", tau, "Pairs in the same order less pairs in opposite order: 1 same, 0 unrelated, -1 reversed."),
        ("RBO", f"{comparison.rbo:.2f}", "Rank-biased overlap at p = .9: 1 for the same ranking; the top weighs more."),
        *overlaps,
    ]


def _show_slope(slate: Slate, comparison: Comparison, *, is_repaired: bool) -> None:
    order = comparison.teacher.argsort()
    relevant = slate.relevant()
    chart = slope_chart(
        [shown(slate.candidates[index].title, 44) for index in order],
        comparison.student[order],
        marked=[relevant[index] for index in order],
        before=_teacher_word(is_repaired),
        after="student",
        moves=MOVES,
        loud=LOUD,
        dark=frame.is_dark(),
    )
    st.altair_chart(
        chart, width="stretch", alt="Slope chart from the teacher's ranking to the student's, a line a candidate."
    )
    star = " A star marks what was right." if any(relevant) else ""
    st.caption(
        "Left the teacher, right the student; a line rises where the student ranks higher. "
        f"The {LOUD} longest stand out.{star}"
    )


def _teacher_word(is_repaired: bool) -> str:
    return "teacher (repaired)" if is_repaired else "teacher"


def gap_frame(slate: Slate, comparison: Comparison, *, is_repaired: bool) -> pd.DataFrame:
    """A line a candidate for reading, the largest gap first, as markdown."""
    column = _teacher_word(is_repaired).capitalize()
    rows = []
    for index in comparison.disagreements:
        gap = int(comparison.gaps[index])
        move = f":blue[▲ {-gap} higher]" if gap < 0 else f":orange[▼ {gap} lower]"
        words = move.replace(" ", "\u00a0") if gap else ":gray[= same]"
        ranks = (str(comparison.teacher[index] + 1), str(comparison.student[index] + 1))
        rows.append((escaped(slate.candidates[index].title, 60), *ranks, words))
    return pd.DataFrame(rows, columns=["Candidate", column, "Student", "By the student"])


def full_frame(slate: Slate, comparison: Comparison, *, is_repaired: bool) -> pd.DataFrame:
    """The same as plain values, with ids, for all candidates."""
    order, relevant = comparison.disagreements, slate.relevant()
    return pd.DataFrame(
        {
            "Title": [shown(slate.candidates[index].title) for index in order],
            "Item id": [shown(slate.item_ids[index]) for index in order],
            f"{_teacher_word(is_repaired).capitalize()} rank": comparison.teacher[order] + 1,
            "Student rank": comparison.student[order] + 1,
            "Student lower by": comparison.gaps[order],
            "Right": ["yes" if relevant[index] else "" for index in order],
        }
    )


def quality_frame(slate: Slate, comparison: Comparison, *, is_repaired: bool) -> pd.DataFrame:
    """Ranks of what was right, and metrics, for both sides."""
    best_teacher = min(int(comparison.teacher[index]) for index in comparison.relevant) + 1
    best_student = min(int(comparison.student[index]) for index in comparison.relevant) + 1
    noun = "Bought item's rank" if slate.grades is None and len(comparison.relevant) == 1 else "First right one's rank"
    rows = [(noun, ordinal(best_teacher), ordinal(best_student))]
    rows += [(name, *(f"{value:.3f}" for value in comparison.metrics[name])) for name in SHOWN_METRICS]
    return pd.DataFrame(rows, columns=["", _teacher_word(is_repaired).capitalize(), "Student"])


@st.fragment
def show_speed(speed: SpeedUp, *, where: str, is_remote: bool) -> None:
    """Both speed-ups, the measured and the computed one; another number of thinking tokens redraws only this."""
    st.markdown("##### How much faster", anchors=False)
    left, right = st.columns(2, gap="large")
    races = f"n = {speed.races}" + (", medians" if speed.races > 1 else "")
    with left:
        st.metric("Direct output: measured", times(speed.direct), width="content")
        network = ", network included" if is_remote else ""
        st.caption(
            f"Teacher {shown_ms(speed.teacher_ms)} ms{network} / student {shown_ms(speed.student_ms)} ms, {where}, {races}."
        )
    with right:
        _show_thinking(speed)


def _show_thinking(speed: SpeedUp) -> None:
    if speed.token_ms is None:
        st.caption("This teacher's time for a token could not be seen, so thinking cannot be priced.")
        return
    tokens = pick_thinking()
    st.metric("With thinking: computed", times(speed.after_thinking(tokens)), width="content")
    st.caption(
        f"Computed, not measured: ({shown_ms(speed.teacher_ms)} ms + {tokens} tokens x {shown_ms(speed.token_ms)} ms) / "
        f"{shown_ms(speed.student_ms)} ms. What a pass of one token takes is measured."
    )


def pick_thinking() -> int:
    """Thinking tokens T; one choice for all pages."""
    chosen = int(state.choose_number("thinking", 0, MOST_TOKENS, FIRST_THOUGHT))
    tokens = st.slider(
        "If it thought for T tokens first",
        0,
        MOST_TOKENS,
        **state.bind("thinking", chosen),
        help="The paper's teacher took 768 passes with reasoning and 39 without, on other data and hardware.",
    )
    return state.remember("thinking", tokens)


def times(ratio: float) -> str:
    """A speed-up with two or three figures: ``41x faster``, ``4.1x faster``; below 1 the other way round, ``2.9x slower``."""
    size, word = (ratio, "faster") if ratio >= 1 else (1 / ratio, "slower")
    return f"{ratio_text(size)} {word}"


def ratio_text(ratio: float) -> str:
    """A ratio with two or three figures: ``41x``, ``4.1x``, ``0.35x``."""
    return f"{ratio:,.0f}x" if ratio >= 10 else f"{ratio:.2g}x"


def provenance(record: RaceRecord, *, is_recorded: bool) -> str:
    """Markdown: on which machine, and when."""
    machine = record.machine
    number = machine.get("threads")
    threads = "" if number is None else f", {escaped(number, 20)} thread{'' if number == 1 else 's'}"
    place = ", ".join(escaped(machine[key], 60) for key in ("cpu", "device", "dtype") if key in machine)
    when = escaped(record.recorded_at.replace("T", " ")[:16], 20)
    if is_recorded:
        badge = ":violet-badge[:material/history: recorded]"
        story = escaped(story_of(record.slate), 160)
        return f"{badge} {story}  \n:gray[Recorded on {when} UTC on {place}{threads}; nothing runs now.]"
    return f":gray[Measured here on {when} UTC: {place}{threads}.]"


def story_of(slate: Slate) -> str:
    """What a slate is about, for a line of text."""
    return str(slate.user.query or slate.extra.get("story") or slate.slate_id)


def as_csv(slate: Slate, comparison: Comparison, *, is_repaired: bool) -> str:
    """The comparison for a spreadsheet, largest gap first; no cell is taken for a formula."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\r\n")
    writer.writerow(["slate_id", "item_id", "title", "teacher_rank", "student_rank", "teacher_is_repaired", "relevant"])
    relevant = slate.relevant()
    for index in comparison.disagreements:
        item = slate.candidates[index]
        ranks = (int(comparison.teacher[index]) + 1, int(comparison.student[index]) + 1)
        texts = [neutral(text) for text in (slate.slate_id, item.item_id, item.title)]
        writer.writerow([*texts, *ranks, int(is_repaired), int(relevant[index])])
    return out.getvalue().encode("utf-8", "replace").decode("utf-8")


def show_download(slate: Slate, comparison: Comparison, *, is_repaired: bool) -> None:
    """The comparison as a file."""
    data = as_csv(slate, comparison, is_repaired=is_repaired)
    st.download_button(
        "CSV", data, "comparison.csv", "text/csv", icon=":material/download:", on_click="ignore", key="save comparison"
    )
