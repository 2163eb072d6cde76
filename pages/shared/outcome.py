"""What there is to see after a race, or of a ranking that is there already: both sides, agreement, speed, files."""

from __future__ import annotations

import streamlit as st

from pages.shared import comparison, contest, loaders, rankings, results, sides, teachers
from pages.shared.contest import Ended, Stopped
from pages.shared.loaders import Loaded
from pages.shared.race import view_of
from pages.shared.teachers import Choice
from pages.shared.text import escaped
from spd_core.race import SpeedUp, compare_rankings, timing_of
from spd_core.slate import Ranking, Slate


def show_stopped(stopped: Stopped) -> None:
    """That the race was cancelled, and what there was of it by then."""
    st.info(stopped.note, icon=":material/close:")
    race, view = stopped.race, stopped.view
    if view.student is not None:
        with st.expander("The cancelled race as far as it came", expanded=True):
            sides.show_sides(race.runner.slate, view, student=race.student, teacher=race.teacher)


def show_ended(ended: Ended) -> None:
    """Both lists, what the teacher wrote, where they disagree, how much faster."""
    record = ended.records[-1]
    slate, student, answer = record.slate, record.student, record.answer
    st.markdown(comparison.provenance(record, is_recorded=ended.is_recorded))
    results.show_warnings(student)
    name = f"{escaped(answer.teacher, 60)}, {answer.mode}"
    sides.show_sides(slate, view_of(record), student=escaped(student.name, 60), teacher=name)
    sides.show_answer(answer)
    speed = SpeedUp.of([timing_of(one.student.ms, one.answer) for one in ended.records])
    place = "recorded" if ended.is_recorded else "measured here and now with this page watching"
    comparison.show_speed(speed, where=place, is_remote=answer.mode == "remote")
    agreement = compare_rankings(slate, answer.ranking, student.order)
    comparison.show_agreement(slate, agreement, is_repaired=answer.is_repaired)
    with st.container(horizontal=True, gap="small"):
        contest.show_download(record)
        comparison.show_download(slate, agreement, is_repaired=answer.is_repaired)


def compare_ready(loaded: Loaded, slate: Slate, choice: Choice) -> None:
    """A ranking that is there already beside the student's; nothing to time."""
    result = rankings.decoded(loaders.ranking(loaded, slate), slate, teachers.chosen_decoder())
    results.show_warnings(result)
    st.caption("A ranking that is there already: nothing is written, so there is no clock, only the comparison.")
    agreement = compare_rankings(slate, teachers.ready_ranking(choice, slate), Ranking("student", result.item_ids))
    comparison.show_agreement(slate, agreement, is_repaired=False)
    comparison.show_download(slate, agreement, is_repaired=False)
