"""Latency: where the time of one ranking goes, measured on this machine."""

import streamlit as st

from pages.shared import controls, errors, frame, loaders, measuring, results, state
from pages.shared.loaders import Loaded
from spd_core.figures.latency import latency_waterfall
from spd_core.latency import LatencyReport, measure_latency
from spd_core.slate import Slate

SENTENCE = "Where the time of one ranking goes: the prompt is read once, then come head and assignment. Measured here, now."
TOOLBAR = {"modeBarButtons": [["toImage"]], "displaylogo": False}
FORMULAS = [r"\text{ratio} = \text{median}_{r} \; \frac{\text{tokenise to ranking}_r}{\text{bare prefill}_r}"]


def page() -> None:
    """Pick a slate, press Measure, read the waterfall."""
    loaded = frame.open_page("Latency", SENTENCE)
    slate = controls.pick_slate(loaded)
    results.show_story(slate)
    with st.container(horizontal=True, vertical_alignment="bottom", gap="large"):
        decoder = controls.pick_decoder()
        repeats = int(controls.pick_option("repeats", "Runs", ["20", "50", "100"], ["20", "50", "100"]))
        wanted = st.button("Measure", type="primary", icon=":material/timer:")
    key = f"latency {loaded.key} {loaders.slate_digest(slate)} {decoder}"
    if wanted:
        with errors.shown():
            run(loaded, slate, decoder=decoder, repeats=repeats, key=key)
    report: LatencyReport | None = state.get(key, None)
    if report is None:
        st.info(
            f"Nothing measured yet for this slate. Press **Measure**: {repeats} runs after {measuring.WARMUP} for warm-up."
        )
    else:
        show(report)
    frame.how_computed(FORMULAS, measure_latency)


def run(loaded: Loaded, slate: Slate, *, decoder: str, repeats: int, key: str) -> None:
    """Measure in small steps under a progress bar; pressing Cancel ends it at the next step and keeps nothing."""
    place = st.container(horizontal=True, vertical_alignment="center")
    with place:
        bar = st.progress(0.0, f"Warming up, {measuring.WARMUP} runs …")
        st.button("Cancel", icon=":material/close:")
    report: LatencyReport | None = None
    for report in measuring.measured(loaded, slate, decoder=decoder, repeats=repeats):
        done = report.total.n
        bar.progress(done / repeats, f"{done} of {repeats} runs, median {measuring.milliseconds(report.total.median_ms)} ms")
    state.put(key, report)
    st.rerun()


def show(report: LatencyReport) -> None:
    """Headline numbers, waterfall, table."""
    with st.container(horizontal=True, gap="large"):
        st.metric("Median", f"{measuring.milliseconds(report.total.median_ms)} ms", width="content")
        st.metric("p95", f"{measuring.milliseconds(report.total.p95_ms)} ms", width="content")
        st.metric(
            "Against bare prefill", f"{report.ratio:.2f} x", width="content", help="Whole ranking against the prefill alone."
        )
        st.metric("Assignment's share", f"{report.assignment_share:.2%}", width="content")
    stages = measuring.stage_times(report)
    figure = latency_waterfall(stages, bare_prefill_ms=report.bare_prefill.median_ms, dark=frame.is_dark())
    alt = "Waterfall of the stages of one ranking, from tokenise to assignment."
    st.plotly_chart(figure, width="stretch", config=TOOLBAR, alt=alt)
    st.caption(
        f"Medians of {report.total.n} runs after {report.warmup} for warm-up, whiskers to p95. Medians of stages need not "
        "add up to the median total."
    )
    st.markdown(measuring.circumstances(report))
    st.table(measuring.report_frame(report), border="horizontal", hide_index=True)
    st.caption("The paper's figures come from other data on other hardware; only the shape can be compared.")


page()
