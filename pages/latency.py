"""Latency: where the time of one ranking goes, measured on this machine now, or as a stored run of `bench` found it."""

import streamlit as st

from pages.shared import controls, errors, frame, loaders, measuring, results, state, stored_bench
from pages.shared.bench_stages import show_stages
from pages.shared.loaders import Loaded
from spd_core.capacity import gemm_peak_tflops, prefill_gflop
from spd_core.latency import LatencyReport, measure_latency
from spd_core.race import SpeedUp
from spd_core.slate import Slate

SENTENCE = (
    "Where the time of one ranking goes: the prompt is read once, then come head and assignment. All of it is measured."
)
FORMULAS = [
    r"\text{ratio} = \text{median}_{r} \; \frac{\text{tokenise to ranking}_r}{\text{bare prefill}_r}",
    r"\text{share of the peak} = \frac{\text{work of the prefill} / \text{median bare prefill}}{\text{matrix product peak}}",
]


def page() -> None:
    """A measurement of one's own, or a stored one."""
    loaded = frame.open_page("Latency", SENTENCE)
    view = controls.pick_option("latency view", "Show", ["now", "stored"], ["Measure now", "A stored result"])
    with errors.shown():
        if view == "now":
            measure_now(loaded)
        else:
            stored_bench.show_stored()
    frame.how_computed(FORMULAS, measure_latency, SpeedUp, gemm_peak_tflops, prefill_gflop)


def measure_now(loaded: Loaded) -> None:
    """Pick a slate, press Measure, read the waterfall."""
    slate = controls.pick_slate(loaded)
    results.show_story(slate)
    with st.container(horizontal=True, vertical_alignment="bottom", gap="large"):
        decoder = controls.pick_decoder()
        repeats = int(controls.pick_option("repeats", "Runs", ["20", "50", "100"], ["20", "50", "100"]))
        wanted = st.button("Measure", type="primary", icon=":material/timer:")
    key = f"latency {loaded.key} {loaders.slate_digest(slate)} {decoder}"
    if wanted:
        run(loaded, slate, decoder=decoder, repeats=repeats, key=key)
    report: LatencyReport | None = state.get(key, None)
    if report is None:
        st.info(
            f"Nothing measured yet for this slate. Press **Measure**: {repeats} runs after {measuring.WARMUP} for warm-up."
        )
    else:
        show_stages(report, source=measuring.circumstances(report))


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


page()
