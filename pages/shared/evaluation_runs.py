"""The evaluation of this visitor: choosing what to measure, watching it, and what came of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NoReturn

import streamlit as st

from pages.shared import controls, errors, evaluation_rankers, loaders, state, stored_results
from pages.shared.evaluating import EvaluationRun, Job
from pages.shared.evaluation_sources import Source, pick_source, read_first, slates_of
from pages.shared.loaders import Loaded
from pages.shared.text import escaped
from spd_core.errors import SpdError
from spd_core.recipes.evaluation_report import MAKE, EvaluationReport, read_if_report
from spd_core.recipes.ranking_store import content_hash, default_folder
from spd_core.slate import Slate
from spd_core.words import plural

POLL_S = 0.4
"""Between two looks at a run."""
COUNTS = ("20", "60", "200", "1000")
"""Slates of a run: at 60 an interval of AUC is about .07 wide to either side, at 1,000 about .017 (beauty, N = 20)."""


@dataclass(frozen=True)
class Evaluated:
    """A report with what is needed to look into it."""

    report: EvaluationReport
    data: bytes
    """The report as a file."""
    slates: Mapping[str, Slate]
    """By digest; empty where they are not here."""
    source: Source | None
    is_stored: bool


def pick_stored() -> Evaluated | None:
    """The stored report to show; says which command makes one where there is none."""
    picked = stored_results.pick("evaluation report", read_if_report, _menu_line, make=MAKE)
    if picked is None:
        return None
    name, report = picked
    slates, source = slates_of(report)
    return Evaluated(report, (loaders.RESULTS / name).read_bytes(), slates, source, is_stored=True)


def _menu_line(report: EvaluationReport, name: str) -> str:
    return f"{report.file}, n = {report.n:,}, {report.date or 'date not recorded'} ({name})"


def measure_now(loaded: Loaded) -> Evaluated | None:
    """The controls of a run, the run while it lasts, and this session's last result."""
    run: EvaluationRun | None = state.get("evaluation run", None)
    if run is not None:
        watch(run)
        return None
    with st.container(horizontal=True, vertical_alignment="bottom", gap="medium"):
        source = pick_source()
        count = int(controls.pick_option("evaluate count", "Slates, at most", COUNTS, COUNTS))
    names = evaluation_rankers.pick_rankers(loaded)
    wanted = st.button("Run", type="primary", icon=":material/play_arrow:", disabled=not names)
    show_outcome()
    if wanted:
        with errors.shown():
            begin(source, names, count)
    done: Evaluated | None = state.get("evaluation result", None)
    if done is None:
        st.info(
            "Nothing is measured yet. Press **Run**: every ranker ranks the same slates, then come figures and intervals. A "
            "run that is cancelled goes on where it stopped when it is started again."
        )
    return done


def begin(source: Source, names: list[str], count: int) -> NoReturn:
    """Start a run and draw the page anew.

    Raises:
        SpdError: a bad file, or a model that cannot be loaded.
    """
    slates = read_first(source, count)
    rankers = evaluation_rankers.build(names, source.read())
    job = Job(source.file, slates, rankers, names, default_folder())
    state.put("evaluation source", source)
    state.put("evaluation run", EvaluationRun(job, loaders.gate()).start())
    st.rerun()


@st.fragment(run_every=POLL_S)
def watch(run: EvaluationRun) -> None:
    """The run as it stands, again and again until it is over."""
    try:
        progress = run.look()
    except SpdError as error:
        leave(error=error)
    if progress.phase in ("done", "cancelled"):
        leave(run if progress.phase == "done" else None, note=progress.phase == "cancelled")
    left = f", {progress.left} left" if progress.left else ""
    step = "Computing figures and intervals" if progress.phase == "figures" else f"Ranking {escaped(run.job.file, 60)}"
    with st.container(horizontal=True, vertical_alignment="center", gap="small"):
        st.progress(progress.done / progress.total, f"{step}: {progress.done:,} of {plural(progress.total, 'slate')}{left}")
        st.button("Cancel", icon=":material/close:", on_click=run.cancel)
    for line in progress.log:
        st.caption(f":material/check: {escaped(line, 200)}")


def leave(done: EvaluationRun | None = None, *, error: SpdError | None = None, note: bool = False) -> NoReturn:
    """Draw the whole page again, without the run; keep its report if it is done."""
    state.put("evaluation run", None)
    state.put("evaluation error", error)
    state.put(
        "evaluation note", "Cancelled. What was ranked is kept: the next run of the same goes on from there." if note else ""
    )
    if done is not None and done.report is not None:
        slates = {content_hash(slate)[:16]: slate for slate in done.job.slates}
        result = Evaluated(done.report, done.data, slates, state.get("evaluation source", None), is_stored=False)
        state.put("evaluation result", result)
        state.put("evaluation log", tuple(done.log))
    st.rerun()


def show_outcome() -> None:
    """Say why the last run left nothing, once; or what it took."""
    note, error = state.get("evaluation note", ""), state.get("evaluation error", None)
    state.put("evaluation note", "")
    state.put("evaluation error", None)
    if note:
        st.info(note, icon=":material/close:")
    if error is not None:
        errors.show(error)
    for line in state.get("evaluation log", ()):
        st.caption(f":material/check: {escaped(line, 200)}")
