"""Teacher vs student: both rank one slate, one in a single pass, one number by number; then their rankings are compared."""

import streamlit as st

from pages.shared import contest, controls, errors, frame, outcome, results, teachers
from pages.shared.loaders import Loaded
from pages.shared.race import Replay
from pages.shared.teachers import Choice
from pages.shared.text import escaped
from spd_core.metrics import kendall_tau, rbo
from spd_core.race import SpeedUp, compare_rankings, timing_of
from spd_core.slate import Slate

SENTENCE = (
    "The teacher writes its ranking number by number, the student ranks the same slate in one pass: "
    "who is faster, and do they agree?"
)
FORMULAS = [
    r"\text{direct} = \frac{\text{teacher ms}}{\text{student ms}}, \qquad "
    r"\text{with thinking} = \frac{\text{teacher ms} + T \cdot \text{ms a token}}{\text{student ms}}",
    r"\tau = \frac{2}{N(N-1)} \sum_{i<j} \operatorname{sign}(t_i - t_j) \operatorname{sign}(s_i - s_j)",
]


def page() -> None:
    """Pick a slate and a teacher, press Race, watch."""
    loaded = frame.open_page("Teacher vs student", SENTENCE)
    slate = controls.pick_slate(loaded)
    results.show_story(slate)
    choice = teachers.pick_teacher(slate)
    st.caption(teachers.kinship(loaded, choice))
    key = contest.key_of(loaded, slate, choice)
    with errors.shown():
        running = contest.running(key)
        if running is not None:
            contest.watch(running)
        else:
            at_rest(loaded, slate, choice, key=key)
    frame.how_computed(FORMULAS, SpeedUp, timing_of, compare_rankings, kendall_tau, rbo)


def at_rest(loaded: Loaded, slate: Slate, choice: Choice, *, key: str) -> None:
    """The buttons, and what the last race or the ready ranking has shown."""
    contest.show_failure()
    is_wanted, recorded = contest.pick_start(slate, choice)
    if is_wanted:
        runner = teachers.start_race(loaded, slate, choice)
        contest.begin(key, runner, student=student_name(loaded), teacher=teachers.title_of(choice, slate))
    if recorded is not None:
        names = (escaped(recorded.student.name, 60), f"{escaped(recorded.answer.teacher, 60)}, {recorded.answer.mode}")
        contest.begin(key, Replay(recorded), student=names[0], teacher=names[1])
    stopped, ended = contest.stopped(key), contest.ended(key)
    if stopped is not None:
        outcome.show_stopped(stopped)
    if ended is not None:
        outcome.show_ended(ended)
    elif not choice.writes:
        outcome.compare_ready(loaded, slate, choice)
    elif stopped is None:
        st.info(teachers.promise(choice), icon=":material/sprint:")


def student_name(loaded: Loaded) -> str:
    """Markdown name of the student."""
    return escaped(loaded.info.checkpoint_id, 60) if loaded.info else "untrained head"


page()
