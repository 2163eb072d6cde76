"""Stored measurements of `bench`: which one to show, and each part that it holds with its source, picture and table."""

from __future__ import annotations

import streamlit as st

from pages.shared import frame, loaders, stored_results
from pages.shared.bench_stages import show_stages
from pages.shared.comparison import pick_thinking
from pages.shared.measuring import PAPER_MS
from pages.shared.stored_bench_frames import (
    MATRICES,
    STUDENT,
    WRITERS,
    contest_frame,
    contest_headline,
    contest_points,
    is_thinking_priced,
    menu_line,
    pass_frame,
    pass_headline,
    rate_frame,
    rate_headline,
    rates,
    solver_frame,
    solver_headline,
    solver_points,
    source_line,
)
from spd_core.figures.bench_curves import duration_curves, rate_curve
from spd_core.recipes.bench_passes import PASS_TITLES
from spd_core.recipes.bench_report import MAKE, BenchReport, StoredCapacity, read_if_bench
from spd_core.words import plural

CONTEST_ALT = "Line chart of milliseconds over the number of candidates on a log axis: student, teacher constrained and free."
RATE_ALT = "Line chart of slates a second over the number of slates in a batch."
SOLVER_ALT = "Line chart of assignment time over the number of candidates, both axes logarithmic, a line a kind of matrix."


def show_stored() -> None:
    """The chosen result: stages, contest, what the machine can do, the file."""
    picked = stored_results.pick("bench report", read_if_bench, menu_line, make=MAKE)
    if picked is None:
        return
    name, report = picked
    show_stages(report.latency(), source=source_line(report))
    missing = []
    if report.contests:
        show_contest(report)
    else:
        missing.append("a contest with a teacher (`--teacher`)")
    if report.capacity is not None:
        show_use(report, report.capacity)
        show_passes(report)
        show_rates(report)
        show_solver(report)
    else:
        missing.append("what the machine can do beside it (`--capacity`)")
    if missing:
        st.caption(f"This result does not hold {' nor '.join(missing)}; the command `bench` adds it with that option.")
    data = (loaders.RESULTS / name).read_bytes()
    st.download_button("JSON", data, name, "application/json", icon=":material/download:", on_click="ignore")


@st.fragment
def show_contest(report: BenchReport) -> None:
    """Student against teacher over N; another number of thinking tokens redraws only this."""
    st.markdown(f"##### {contest_headline(report)}", anchors=False)
    series = [STUDENT, *WRITERS.values()]
    st.altair_chart(
        duration_curves(contest_points(report), series=series, dark=frame.is_dark()), width="stretch", alt=CONTEST_ALT
    )
    turns = " or ".join(str(n) for n in sorted({contest.student.n for contest in report.contests}))
    st.caption(f"Medians of {turns} turns each, whiskers to p95. Numbers: times as long as the student, both measured.")
    thinking = pick_thinking() if is_thinking_priced(report) else None
    st.table(contest_frame(report, thinking), border="horizontal", hide_index=True)
    if thinking is not None:
        st.caption(
            f"Computed, not measured, as the teacher did not think: {plural(thinking, 'token')} at the measured time of a "
            "pass that writes one."
        )
    st.caption(
        "Student and teacher took turns on the first candidates of the same slate, in the run above. Paper, A100 (other data "
        "and hardware): 3.1x without thinking, 64x with."
    )


def show_use(report: BenchReport, room: StoredCapacity) -> None:
    """How much of the machine's peak the prefill reaches, and the memory."""
    st.markdown(f"##### The prefill reaches {room.peak_share:.0%} of this machine's matrix product peak", anchors=False)
    with st.container(horizontal=True, gap="large"):
        st.metric("Share of the peak", f"{room.peak_share:.0%}", width="content")
        st.metric("Prefill", f"{room.prefill_tflops * 1e3:,.0f} GFLOP/s", width="content")
        st.metric("Matrix product peak", f"{room.gemm_tflops * 1e3:,.0f} GFLOP/s", width="content")
        st.metric("Memory, at most", f"{room.peak_memory_mib:,.0f} MiB", width="content")
    runs = plural(report.bare_prefill.n, "bare prefill")
    place = "held by the process" if report.machine.device == "cpu" else "allocated on the GPU"
    st.caption(
        f"Same run: {room.prefill_gflop:,.0f} GFLOP of linear layers and attention in the median of {runs}, against the best "
        f"of square matrix products in the same number format. Memory: most {place}, model included."
    )


def show_passes(report: BenchReport) -> None:
    """The prefill run in several ways."""
    if not report.passes:
        return
    st.markdown(f"##### {pass_headline(report)}", anchors=False)
    st.table(pass_frame(report), border="horizontal", hide_index=True)
    ways = "; ".join(f"{name}: {PASS_TITLES[name]}" for name in dict.fromkeys(row.name for row in report.passes))
    st.caption(
        f"Same run, the ways in turn on the first candidates of the slate. {ways}. Times as fast: median over the turns. "
        "Difference: of all states of the prompt, relative; different roundings of the same numbers."
    )


def show_rates(report: BenchReport) -> None:
    """Throughput over the batch size."""
    found = rates(report)
    if not found:
        return
    st.markdown(f"##### {rate_headline(report)}", anchors=False)
    st.altair_chart(rate_curve(found, dark=frame.is_dark()), width="stretch", alt=RATE_ALT)
    st.caption(f"Copies of the one slate of {plural(report.tokens, 'token')}, so no padding; from the median pass, same run.")
    st.table(rate_frame(report), border="horizontal", hide_index=True)


def show_solver(report: BenchReport) -> None:
    """Time of the exact assignment over N."""
    found = solver_points(report)
    if not found:
        return
    st.markdown(f"##### {solver_headline(report)}", anchors=False)
    chart = duration_curves(found, series=MATRICES, is_log=True, dark=frame.is_dark())
    st.altair_chart(chart, width="stretch", alt=SOLVER_ALT)
    st.caption("Medians, whiskers to p95; a new matrix each time. Trained heads come close to rank 1, the slow case.")
    st.table(solver_frame(report), border="horizontal", hide_index=True)
    st.caption(
        f"Hungarian decoder on the CPU, same run. Paper (other hardware): {PAPER_MS['assignment']} ms at N = 50, with LAPJV."
    )
