"""The race of this visitor: the one that runs, those that have ended, and the recorded ones that can be watched again."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NoReturn

import streamlit as st

from pages.shared import comparison, errors, loaders, sides, state, teachers
from pages.shared.loaders import Loaded
from pages.shared.race import Race, Replay, View
from pages.shared.teachers import Choice
from pages.shared.text import message, shown
from spd_core.errors import SpdError
from spd_core.race_record import RaceRecord, record_bytes
from spd_core.slate import Slate
from spd_core.words import plural

POLL_S = 0.25
"""Between two looks at a race: often enough for a clock, seldom enough for ten visitors."""
KEPT = 6
"""Slates and teachers whose races are kept in a session."""


@dataclass(frozen=True)
class Running:
    """A race or a replay that is being watched."""

    key: str
    runner: Race | Replay
    student: str
    """Names for the headings, as markdown."""
    teacher: str

    @property
    def is_replay(self) -> bool:
        """Whether no model runs."""
        return isinstance(self.runner, Replay)


@dataclass(frozen=True)
class Ended:
    """Races of one slate between the same two."""

    records: tuple[RaceRecord, ...]
    """The latest last."""
    is_recorded: bool
    """Whether they come from a file and not from this machine, now."""


@dataclass(frozen=True)
class Stopped:
    """A race that was cancelled, and what there was of it by then."""

    race: Running
    view: View

    @property
    def note(self) -> str:
        """What became of it, in a sentence."""
        named = len(self.view.events[-1].order) if self.view.events else 0
        if self.view.student is None:
            return "Cancelled before anything was ranked."
        written = f"when {named} of {plural(len(self.race.runner.slate.candidates), 'candidate')} were named"
        return f"Cancelled {written if self.view.events else 'before the teacher wrote anything'}: no time of it is kept."


def key_of(loaded: Loaded, slate: Slate, choice: Choice) -> str:
    """What a race depends on."""
    return "\0".join((loaded.key, loaders.slate_digest(slate), choice.key, teachers.chosen_decoder()))


def running(key: str) -> Running | None:
    """The visitor's race if it is the one asked for; another one, whose page is no longer shown, is given up."""
    found: Running | None = state.get("race", None)
    if found is not None and found.key != key:
        found.runner.cancel()
        state.put("race", None)
        return None
    return found


def begin(key: str, runner: Race | Replay, *, student: str, teacher: str) -> None:
    """Watch a race from the next run on."""
    state.put("stopped race", None)
    state.put("race", Running(key, runner, student, teacher))
    st.rerun()


@st.fragment(run_every=POLL_S)
def watch(race: Running) -> None:
    """The race as it stands, again and again until it is over."""
    try:
        view = race.runner.look()
    except SpdError as error:
        leave(error=error)
    if view.is_over:
        leave(Stopped(race, view) if view.phase == "cancelled" else race)
    with st.container(horizontal=True, vertical_alignment="center", gap="small"):
        if isinstance(race.runner, Replay):
            st.button("Skip to the end", icon=":material/skip_next:", on_click=race.runner.skip)
        st.button("Cancel", icon=":material/close:", on_click=race.runner.cancel)
        st.markdown(f":gray[{sides.status(view)}]")
    if isinstance(race.runner, Replay):
        st.markdown(comparison.provenance(race.runner.recorded, is_recorded=True))
    sides.show_sides(race.runner.slate, view, student=race.student, teacher=race.teacher)


def leave(found: Running | Stopped | None = None, *, error: SpdError | None = None) -> NoReturn:
    """Draw the whole page again, without the race; keep what came of it, be it done, cancelled or failed."""
    state.put("race", None)
    state.put("race error", error)
    if isinstance(found, Stopped):
        state.put("stopped race", None if found.race.is_replay else found)
    elif found is not None:
        _keep(found)
    st.rerun()


def _keep(done: Running) -> None:
    before = ended(done.key)
    earlier = before.records if before and not before.is_recorded and not done.is_replay else ()
    kept: dict[str, Ended] = state.get("ended races", {})
    others = [(key, value) for key, value in kept.items() if key != done.key]
    latest = Ended((*earlier, done.runner.record()), done.is_replay)
    state.put("ended races", dict([*others, (done.key, latest)][-KEPT:]))


def stopped(key: str) -> Stopped | None:
    """The race of that key which this visitor cancelled last, until another one begins."""
    found: Stopped | None = state.get("stopped race", None)
    return found if found is not None and found.race.key == key else None


def ended(key: str) -> Ended | None:
    """The races of that key which this session has seen to their end."""
    kept: dict[str, Ended] = state.get("ended races", {})
    return kept.get(key)


def show_failure() -> None:
    """Say why the last race failed, once."""
    error = state.get("race error", None)
    state.put("race error", None)
    if error is not None:
        errors.show(error)


def pick_start(slate: Slate, choice: Choice) -> tuple[bool, RaceRecord | None]:
    """(whether Race was pressed, the recorded race whose Replay was pressed); a replay of this slate is offered first."""
    found = loaders.recorded_races()
    sound = {name: race for name, race in found.items() if isinstance(race, RaceRecord)}
    for name in sorted(found.keys() - sound.keys()):
        st.warning(message(found[name]), icon=":material/warning:")
    names = sorted(sound, key=lambda name: (sound[name].slate != slate, name))
    is_of_slate = bool(names) and sound[names[0]].slate == slate
    replayed = None
    with st.container(horizontal=True, vertical_alignment="bottom", gap="small"):
        places = [st.container(horizontal=True, vertical_alignment="bottom", gap="small", width="content") for _ in range(2)]
        with places[is_of_slate]:
            kind = "secondary" if is_of_slate else "primary"
            wanted = choice.writes and st.button(
                "Race", type=kind, icon=":material/play_arrow:", disabled=not choice.is_ready
            )
        with places[not is_of_slate]:
            if names:
                replayed = _pick_replay(names, sound, is_first=is_of_slate)
    return wanted, replayed


def _pick_replay(names: list[str], records: dict[str, RaceRecord], *, is_first: bool) -> RaceRecord | None:
    chosen = state.get("recorded race", names[0])
    bound = state.bind("recorded race", chosen if chosen in names else names[0])
    name = st.selectbox("Recorded race", names, **bound, format_func=lambda name: recorded_title(records[name]), width=360)
    tip = "Shows a recorded race at its own speed; no model runs."
    kind = "primary" if is_first else "secondary"
    return records[name] if st.button("Replay", type=kind, icon=":material/history:", help=tip) else None


def recorded_title(record: RaceRecord) -> str:
    """One line for a menu."""
    answer, story = record.answer, shown(comparison.story_of(record.slate), 60)
    return f"{story}: {shown(answer.teacher, 40)}, {answer.mode} ({answer.ms / 1e3:.1f} s)"


def show_download(record: RaceRecord) -> None:
    """The race as a file that can be replayed."""
    name = f"race-{''.join(c if c.isalnum() and c.isascii() else '-' for c in record.slate.slate_id)[:60]}.json"
    st.download_button(
        "Record",
        record_bytes(record),
        name,
        "application/json",
        icon=":material/download:",
        on_click="ignore",
        key="save race",
    )
