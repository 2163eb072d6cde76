"""What an evaluation found, as the page shows it: bars, differences, slices, what was left out, files to take away."""

from __future__ import annotations

import pandas as pd
import streamlit as st

from pages.shared import controls, frame, state
from pages.shared.evaluated_frames import (
    as_csv,
    as_html,
    attribute_title,
    bars_of,
    difference_frame,
    excluded_lines,
    interval,
    ranker_frame,
    slates_csv,
    slice_frame,
    source_line,
)
from pages.shared.evaluation_rankers import ranker_title
from pages.shared.text import escaped, message, shown
from spd_core.figures.file_view import differences_chart
from spd_core.figures.labels import row_index
from spd_core.figures.metric_bars import SELECTION, metric_bars
from spd_core.metrics import METRICS
from spd_core.recipes.evaluation_report import EvaluationReport
from spd_core.words import plural

FEW = 20
"""Slates below which a slice's interval says little."""
WHOLE = "all slates"
RANKER_CHART, SLICE_CHART = "evaluated rankers", "evaluated slices"


def pick_metric() -> str:
    """The metric of all pictures."""
    return controls.pick_option("evaluate metric", "Metric", METRICS, METRICS)


def show_rankers(report: EvaluationReport, metric: str) -> str:
    """The bars of all rankers and their table; gives the ranker that is looked at below."""
    names = list(report.rankers)
    best = max(names, key=lambda name: report.rankers[name][metric].mean)
    figure = report.rankers[best][metric]
    title = escaped(ranker_title(best, report), 90)
    if report.per_slate is not None and "yes" in report.per_slate.attributes.get("synthetic", ()):
        st.badge("synthetic", color="violet", icon=":material/science:", help="Invented shop, shoppers and purchases.")
    st.markdown(f"##### Best on {metric}: {title}, {interval(figure)}, n = {figure.n:,}", anchors=False)
    picked = state.choose("evaluate ranker", names, report.decoder)
    bars = bars_of(report.rankers, metric, [ranker_title(name, report) for name in names])
    chart = metric_bars(bars, title=metric, picked=names.index(picked), dark=frame.is_dark())
    alt = f"Bars of {metric} with 95 % intervals, one for each of {plural(len(names), 'ranker')}."
    st.altair_chart(
        chart,
        width="stretch",
        key=RANKER_CHART,
        on_select=lambda: _take(RANKER_CHART, "evaluate ranker", names),
        selection_mode=SELECTION,
        alt=alt,
    )
    st.caption("Bars with 95 % intervals. Overlapping ones prove no tie, as all ranked the same slates: see the differences.")
    st.caption(source_line(report))
    with st.expander("All metrics as a table", expanded=True):
        st.dataframe(ranker_frame(report), hide_index=True, alt="Every metric of every ranker with intervals and n.")
    return pick_ranker(report, names, picked)


def pick_ranker(report: EvaluationReport, names: list[str], picked: str) -> str:
    """The ranker that differences, slices and slates below are about: the twin of a click on its bar."""
    titles = dict(zip(names, _unique([ranker_title(name, report) for name in names]), strict=True))
    value = st.selectbox(
        "Look closer at",
        names,
        **state.bind("evaluate ranker", picked),
        format_func=lambda name: titles[name],
        help="Differences, slices and slates below are about this ranker. A click on a bar above chooses it too.",
        width=420,
    )
    return state.remember("evaluate ranker", value or picked)


def show_differences(report: EvaluationReport, ranker: str, metric: str) -> None:
    """The chosen ranker less each other one, slate by slate."""
    found = report.differences_to(ranker, metric)
    st.markdown(f"##### Is {escaped(ranker_title(ranker, report), 90)} better than the others?", anchors=False)
    if not found:
        if len(report.rankers) == 1:
            st.markdown("There is no other ranker to compare with.")
        else:
            own = escaped(ranker_title(report.decoder, report), 90)
            st.markdown(f"This result keeps paired differences only of {own}, in AUC, Recall@1 and NDCG@10.")
        return
    titles = _unique([ranker_title(name, report) for name in found])
    values = {title: (f.mean, f.low, f.high) for title, f in zip(titles, found.values(), strict=True)}
    chart = differences_chart(values, title=f"{metric}: this less the other", dark=frame.is_dark())
    st.altair_chart(chart, width="stretch", alt=f"Paired difference in {metric} to each other ranker, with intervals.")
    count = next(iter(found.values())).n
    st.caption(f"Paired over {plural(count, 'slate')}, 95 % intervals. Right of 0: better. Filled: 0 is outside.")
    st.table(difference_frame(report, ranker, metric), border="horizontal", hide_index=True)
    st.caption("p: how likely such a difference is by chance; none is corrected for the number of comparisons.")


def show_slices(report: EvaluationReport, ranker: str, metric: str) -> tuple[str, str] | None:
    """The chosen ranker on each kind of slates; gives (attribute, slice) that is looked at, None for all slates."""
    st.markdown("##### Where is it good, where not?", anchors=False)
    options = [key for key, rows in report.all_slices.items() if all(ranker in row for row in rows.values())]
    if not options:
        st.markdown("This result keeps no slices of this ranker; `evaluate --out` writes them now.")
        return None
    varied = [key for key in options if len(report.all_slices[key]) > 1]
    chosen = state.choose("evaluate attribute", options, (varied or options)[0])
    bound = state.bind("evaluate attribute", chosen)
    attribute = st.selectbox("Slates by", options, **bound, format_func=attribute_title, width=420)
    attribute = state.remember("evaluate attribute", attribute or chosen)
    return pick_slice(report, ranker, metric, attribute)


def pick_slice(report: EvaluationReport, ranker: str, metric: str, attribute: str) -> tuple[str, str] | None:
    """The bars of an attribute's slices, and the one whose slates are listed: a click on a bar or its twin."""
    slices = report.slice_names(attribute)
    picked = state.choose("evaluate slice", [WHOLE, *slices], WHOLE)
    rows = {name: report.all_slices[attribute][name][ranker] for name in slices}
    bars = bars_of(rows, metric, [shown(f"{name} (n = {rows[name][metric].n:,})", 70) for name in slices])
    index = slices.index(picked) if picked in slices else None
    st.altair_chart(
        metric_bars(bars, title=metric, picked=index, dark=frame.is_dark()),
        width="stretch",
        key=SLICE_CHART,
        on_select=lambda: _take(SLICE_CHART, "evaluate slice", slices),
        selection_mode=SELECTION,
        alt=f"Bars of {metric} with 95 % intervals, one for each of {plural(len(slices), 'slice')}.",
    )
    st.caption(f"{escaped(ranker_title(ranker, report), 60)}, 95 % intervals; n stands beside each slice.")
    if small := sum(row[metric].n < FEW for row in rows.values()):
        st.caption(
            f":material/info: {plural(small, 'slice')} of fewer than {FEW} slates: the interval itself is rough there."
        )
    with st.expander("The same numbers as a table"):
        st.dataframe(slice_frame(report, attribute, ranker), hide_index=True, alt="Every metric of every slice with n.")
    bound = state.bind("evaluate slice", picked)
    label = "List the slates of"
    value = st.selectbox(label, [WHOLE, *slices], **bound, format_func=lambda name: shown(name, 70), width=420)
    value = state.remember("evaluate slice", value or picked)
    return None if value == WHOLE else (attribute, value)


def show_left_out(report: EvaluationReport) -> None:
    """What is not in the figures, and what to know before trusting them."""
    st.markdown("##### What to know", anchors=False)
    for line in excluded_lines(report):
        st.markdown(f"- {line}")
    for warning in report.warnings:
        if "left out" not in warning:
            st.markdown(f"- {message(warning)}.")
    for name, row in report.answers.items():
        rate = f"{row['valid_rate']:.0%} of {row['n']:,} answers were rankings as written"
        st.markdown(f"- {escaped(ranker_title(name, report), 90)}: {rate}.")


def show_downloads(report: EvaluationReport, data: bytes) -> None:
    """The report as files; `data` is its JSON, whole."""
    with st.container(horizontal=True, gap="small"):
        _download("JSON", data, "evaluation.json", "application/json")
        _download("CSV", as_csv(report), "evaluation.csv", "text/csv")
        if report.per_slate is not None:
            _download("CSV, each slate", slates_csv(report), "evaluation-slates.csv", "text/csv")
        _download("HTML report", as_html(report), "evaluation.html", "text/html")


def _download(label: str, data: str | bytes, name: str, mime: str) -> None:
    st.download_button(label, data, name, mime, icon=":material/download:", on_click="ignore", key=f"save {name}")


def _take(chart: str, choice: str, names: list[str]) -> None:
    points = state.selected_points(chart, SELECTION)
    if points:
        state.put(choice, names[row_index(str(points[0]["row"]))])


def _unique(titles: list[str]) -> list[str]:
    """Titles as they are, numbered where two are equal."""
    counts = pd.Series(titles).groupby(titles).cumcount()
    return [title if not count else f"{title} ({count + 1})" for title, count in zip(titles, counts, strict=True)]
