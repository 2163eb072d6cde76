"""What `diagnose` found over a whole file, as the pages show it: reports on disk, pictures, tables."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pandas as pd
import streamlit as st

from pages.shared import errors, frame, state
from pages.shared.loaders import Loaded
from pages.shared.report_frames import (
    firmness_frame,
    health_frame,
    order_frame,
    order_lines,
    quality_frame,
    ranker_frame,
    title,
    verdict_line,
)
from pages.shared.text import escaped, message, shown
from spd_core.diagnosis import COMPARED, does_it_matter, read_report
from spd_core.errors import SpdError
from spd_core.figures.file_view import differences_chart, rank_shares_chart
from spd_core.words import plural

RESULTS = Path(__file__).resolve().parents[2] / "sample_data" / "results"
COMMAND = "python -m spd_core diagnose SLATES.jsonl --checkpoint {name} --out sample_data/results/diagnose-{name}.json"


def pick_report(loaded: Loaded) -> Mapping[str, Any] | None:
    """The report to show: that of the chosen checkpoint if there is one; says which command makes one that is missing."""
    reports, name = _reports(), loaded.info.checkpoint_id if loaded.info else ""
    own = [file for file, report in reports.items() if report["checkpoint"] == name]
    if not own:
        who = escaped(name, 60) if name else "the untrained head"
        st.markdown(
            f":material/info: No file has been diagnosed with {who} yet. This command does it; the report appears here:"
        )
        st.code(COMMAND.format(name=shown(name, 60) or "CHECKPOINT"), language=None, wrap_lines=True)
    if not reports:
        return None
    chosen = state.choose("report", list(reports), (own or list(reports))[0])
    labels = {file: f"{report['checkpoint']} on {report['file']}" for file, report in reports.items()}
    if len(reports) > 1 or not own:
        bound = state.bind("report", chosen)
        chosen = state.remember(
            "report",
            st.selectbox("Report", list(reports), **bound, format_func=lambda file: shown(labels[file], 80)) or chosen,
        )
    return reports[chosen]


def made(report: Mapping[str, Any]) -> str:
    """When, on what and with which commit a report was made; empty for one that does not say."""
    if "date" not in report:
        return ""
    commit = f", commit {escaped(str(report['commit']), 20)}" if report.get("commit") else ""
    return f" on {escaped(str(report['date']), 20)}, {escaped(str(report['machine']['cpu']), 60)}{commit}"


def show_report(report: Mapping[str, Any]) -> None:
    """Whether the assignment matters on a file: the answer, where decoders differ, what that is worth, and why."""
    place = report["provenance"]
    st.markdown(f"##### {message(does_it_matter(report))}", anchors=False)
    st.caption(
        f"{escaped(report['checkpoint'], 60)} on {plural(report['slates'], 'slate')} of {escaped(report['file'], 60)}, "
        f"{escaped(place['device'], 20)}, {escaped(place['dtype'], 20)}; made by `diagnose`{made(report)}."
    )
    where, worth = st.columns([3, 2], gap="large")
    with where:
        show_where(report)
    with worth:
        show_worth(report)
    st.markdown("##### The decoders in numbers", anchors=False)
    st.table(ranker_frame(report), border="horizontal", hide_index=True)
    st.caption("Against the Hungarian order; a plain sort: by expected position, first column or first singular score.")
    left, right = st.columns(2, gap="large")
    with left:
        st.markdown("##### What the matrices hold", anchors=False)
        st.markdown(verdict_line(report))
        st.table(health_frame(report), border="horizontal", hide_index=True)
    with right:
        st.markdown("##### How firm the ranks are", anchors=False)
        st.table(firmness_frame(report), border="horizontal", hide_index=True)
        st.caption("First k: how sure it is that these k candidates, in any order, and no others belong on top.")


def show_where(report: Mapping[str, Any]) -> None:
    """The picture of the ranks at which each ranker differs from the Hungarian order."""
    shares = {
        title(name): row["against"]["hungarian"]["other_at_rank"]
        for name, row in report["rankers"].items()
        if "hungarian" in row["against"]
    }
    st.markdown("##### Where they differ", anchors=False)
    chart = rank_shares_chart(shares, title="Another candidate", dark=frame.is_dark())
    st.altair_chart(chart, width="stretch", alt="Share of slates with another candidate than the Hungarian order, by rank.")
    st.caption("Percent of slates on which another candidate than in the Hungarian order stands at that rank.")
    with st.expander("The same numbers as a table"):
        table = pd.DataFrame({name: [f"{share:.1%}" for share in row] for name, row in shares.items()})
        table.insert(0, "Rank", range(1, len(table) + 1))
        st.dataframe(table, hide_index=True, alt="Share of slates with another candidate at each rank.")


def show_worth(report: Mapping[str, Any]) -> None:
    """The picture of the paired differences in quality, a metric at a time."""
    st.markdown("##### What that is worth", anchors=False)
    rows = {name: row["hungarian_less_this"] for name, row in report["rankers"].items() if row["hungarian_less_this"]}
    if not rows:
        st.markdown("No slate has a label by which quality could be measured.")
        return
    bound = state.bind("worth", state.choose("worth", COMPARED, COMPARED[0]))
    metric = state.remember("worth", st.segmented_control("Metric", COMPARED, **bound, required=True) or COMPARED[0])
    values = {title(name): tuple(row[metric][key] for key in ("mean", "low", "high")) for name, row in rows.items()}
    chart = differences_chart(values, title=f"{metric}: Hungarian less the other", dark=frame.is_dark())
    st.altair_chart(
        chart, width="stretch", alt=f"Difference in {metric} between Hungarian and each other ranker, with intervals."
    )
    count = next(iter(rows.values()))[metric]["n"]
    st.caption(
        f"Paired over {plural(count, 'slate')}, 95 % intervals. Right of 0: Hungarian is better. Filled: 0 is outside."
    )
    with st.expander("The same numbers as a table"):
        st.dataframe(quality_frame(report), hide_index=True, alt="Quality of each ranker and differences with intervals.")


def offer_orders(loaded: Loaded) -> None:
    """An expander with the order figures of a whole file."""
    with st.expander("The same over a whole file"):
        report = pick_report(loaded)
        if report is not None:
            show_orders(report)


def show_orders(report: Mapping[str, Any]) -> None:
    """How much the input order matters over the file, as a table with a sentence."""
    orders = report["orders"]
    if orders is None:
        st.markdown("This report was made without shuffles (`--shuffle-slates 0`).")
        return
    stays, tau = orders["top_stays"]["mean"], orders["mean_kendall_tau"]
    agreement = "" if tau is None else f"; two shuffles agree with a Kendall tau of {tau['mean']:.2f}"
    st.markdown(
        f"Over {plural(orders['slates'], 'slate')} of {escaped(report['file'], 60)}, each in {orders['shuffles']} random "
        f"orders, **{stays:.0%}** of the shuffles keep the first place{agreement}."
    )
    st.table(order_frame(orders), border="horizontal", hide_index=True)
    for line in order_lines(orders):
        st.markdown(f"- {line}")


def _reports() -> dict[str, Mapping[str, Any]]:
    """Reports on disk by file name; one that cannot be read is told and passed over."""
    found: dict[str, Mapping[str, Any]] = {}
    for path in sorted(RESULTS.glob("diagnose*.json")):
        try:
            found[path.name] = read_report(path)
        except SpdError as error:
            errors.show(error)
    return found
