"""Where the time of one ranking goes, as the page shows it: headline numbers, the waterfall, the same numbers as a table."""

from __future__ import annotations

import streamlit as st

from pages.shared import frame, measuring
from spd_core.figures.latency import latency_waterfall
from spd_core.latency import LatencyReport

ALT = "Waterfall of the stages of one ranking, from tokenise to assignment."


def show_stages(report: LatencyReport, *, source: str) -> None:
    """Draw a report.

    Args:
        report: measured now or before.
        source: markdown of what was ranked, and on what.
    """
    with st.container(horizontal=True, gap="large"):
        st.metric("Median", f"{measuring.milliseconds(report.total.median_ms)} ms", width="content")
        st.metric("p95", f"{measuring.milliseconds(report.total.p95_ms)} ms", width="content")
        st.metric(
            "Against bare prefill", f"{report.ratio:.2f} x", width="content", help="Whole ranking against the prefill alone."
        )
        st.metric("Assignment's share", f"{report.assignment_share:.2%}", width="content")
    stages = measuring.stage_times(report)
    figure = latency_waterfall(stages, bare_prefill_ms=report.bare_prefill.median_ms, dark=frame.is_dark())
    st.plotly_chart(figure, width="stretch", config=frame.TOOLBAR, alt=ALT)
    st.caption(
        f"Medians of {report.total.n} runs after {report.warmup} for warm-up, whiskers to p95. Medians of stages need not "
        "add up to the median total."
    )
    st.markdown(source)
    st.table(measuring.report_frame(report), border="horizontal", hide_index=True)
    st.caption("The paper's figures come from other data on other hardware; only the shape can be compared.")
