"""Quality against latency as stored runs of `frontier` found it: reports on disk, the picture, its sentence, its tables."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pandas as pd
import streamlit as st

from pages.shared import controls, errors, frame, state
from pages.shared.measuring import milliseconds
from pages.shared.text import escaped, message, shown
from spd_core.errors import SpdError
from spd_core.figures.frontier import FrontierPoint, frontier_chart, frontier_frame
from spd_core.frontier_report import QUALITIES, Family, FrontierReport, RankerResult, read_report
from spd_core.metrics import EXCLUSIONS
from spd_core.words import plural

RESULTS = Path(__file__).resolve().parents[2] / "sample_data" / "results"
COMMAND = (
    "python -m spd_core frontier SLATES.jsonl --checkpoint beauty-spd --teacher beauty-teacher "
    "--out sample_data/results/frontier-NAME.json"
)
FAMILIES: Mapping[Family, str] = {
    "student": "student",
    "teacher": "teacher, writes",
    "first_token": "first letter (FIRST)",
    "pointwise": "yes/no (pointwise)",
    "floor": "no language model",
}
SHOWN = {"models": "Language models", "all": "All rankers"}
"""What the picture gives a point each; rankers without a language model are else level lines, far left of all others."""
ALT = "Scatter chart of quality against median time a slate on a log axis, a numbered point a ranker, with interval bars."


def pick_report() -> FrontierReport | None:
    """The report to show; says which command makes one where there is none."""
    reports: dict[str, FrontierReport] = {}
    for path in sorted(RESULTS.glob("frontier-*.json")):
        try:
            reports[path.name] = read_report(path)
        except SpdError as error:
            errors.show(error)
    if not reports:
        st.info("Nothing is measured yet. This command does it, in one run on one machine, and the result appears here:")
        st.code(COMMAND, language=None, wrap_lines=True)
        return None
    names = list(reports)
    chosen = state.choose("frontier report", names, names[0])
    if len(names) > 1:
        bound = state.bind("frontier report", chosen)
        labels = {name: f"{report.file}, {report.date}" for name, report in reports.items()}
        picked = st.selectbox("Result", names, **bound, format_func=lambda name: shown(f"{labels[name]} ({name})", 90))
        chosen = state.remember("frontier report", picked or chosen)
    return reports[chosen]


def show_report(report: FrontierReport) -> None:
    """Sentences, picture, the same numbers as a table, and what to know before trusting them."""
    with st.container(horizontal=True, gap="large"):
        metric = controls.pick_option("quality", "Quality", QUALITIES, QUALITIES)
        scope = controls.pick_option("scope", "Points", list(SHOWN), list(SHOWN.values()))
    first, *others = headline(report, metric)
    st.markdown(f"##### {first}", anchors=False)
    st.markdown("  \n".join(others))
    rows = points(report, metric)
    levels = [FAMILIES["floor"]] if scope == "models" else []
    families = list(FAMILIES.values())
    chart = frontier_chart(rows, metric=metric, families=families, levels=levels, dark=frame.is_dark())
    st.altair_chart(chart, width="stretch", alt=ALT)
    st.caption(
        "Numbers are those of the tables; bars are 95 % intervals. Dashed: joins what nothing measured beats, where that is "
        "more than one point."
    )
    st.caption(source(report))
    st.table(key_table(rows, metric), border="horizontal", hide_index=True)
    for note in notes(report):
        st.caption(note)
    with st.expander("All rankers, all figures", expanded=False):
        st.dataframe(whole_table(report), hide_index=True, alt="Every figure of every ranker, the fastest first.")
    data = report.model_dump_json(indent=1)
    st.download_button("JSON", data, "frontier.json", "application/json", icon=":material/download:", on_click="ignore")


def points(report: FrontierReport, metric: str) -> list[FrontierPoint]:
    """The rankers as the chart draws them."""
    return [
        FrontierPoint(
            name=shown(ranker.name, 80),
            family=FAMILIES[ranker.family],
            quality=ranker.metrics[metric].mean,
            low=ranker.metrics[metric].low,
            high=ranker.metrics[metric].high,
            n=ranker.n,
            median_ms=ranker.median_ms,
            p95_ms=ranker.p95_ms,
            ratio=ranker.ratio,
        )
        for ranker in report.rankers
    ]


def headline(report: FrontierReport, metric: str) -> list[str]:
    """Markdown sentences: the best student, the best other use of the language model, the best ranker without one."""
    kinds = {
        "The best student is": [ranker for ranker in report.rankers if ranker.family == "student"],
        "The best other use of the language model:": [
            ranker for ranker in report.rankers if ranker.family not in ("student", "floor")
        ],
        "The best without a language model:": [ranker for ranker in report.rankers if ranker.family == "floor"],
    }
    best = {words: _best(found, metric) for words, found in kinds.items() if found}
    student = next(iter(best.values()))
    return [f"{words} {_judged(ranker, metric, student)}." for words, ranker in best.items()]


def source(report: FrontierReport) -> str:
    """Markdown of n and where the figures are from."""
    first, last = report.candidates
    size = plural(first, "candidate") if first == last else f"{first} to {last} candidates"
    machine = report.machine
    place = " · ".join(escaped(machine[key], 60) for key in ("device", "cpu") if machine.get(key))
    threads = f", {plural(int(machine['threads']), 'thread')}" if str(machine.get("threads", "")).isdigit() else ""
    commit = f", commit {escaped(report.commit, 20)}" if report.commit else ""
    return (
        f"n = {plural(report.slates, 'slate')} of {escaped(report.file, 60)}, {size}; measured one slate at a time, all in "
        f"turns, on {escaped(report.date, 20)}: {place}{threads}{commit}."
    )


def notes(report: FrontierReport) -> list[str]:
    """Markdown lines on what the figures do not say by themselves."""
    lines = ["Overlapping intervals prove no difference; the same slates for all, so a paired test can find smaller ones."]
    if any(ranker.is_zero_shot for ranker in report.rankers):
        lines.append("Zero-shot: the language model as it came, never trained to rank; a small one is near chance.")
    lines += [
        f"{escaped(ranker.name)}: {ranker.valid_rate:.0%} of answers were rankings as written; the rest count as repaired."
        for ranker in report.rankers
        if ranker.valid_rate is not None and ranker.valid_rate < 1
    ]
    lines += [f"Left out: {escaped(name)}: {message(reason)}" for name, reason in report.left_out.items()]
    return lines + [
        f"{plural(count, 'slate')} left out: {escaped(EXCLUSIONS.get(reason, reason), 200)}."
        for reason, count in report.excluded.items()
    ]


def key_table(rows: list[FrontierPoint], metric: str) -> pd.DataFrame:
    """The numbers of the picture for what nothing beats and the best of each kind, the fastest first; names as markdown."""
    table = frontier_frame(rows)
    best = table.groupby("family")["quality"].idxmax()
    table = table[table["on_front"] | table.index.isin(best)]
    kinds = [f"{row.family}, unbeaten" if row.on_front else row.family for row in table.itertuples()]
    intervals = zip(table["quality"], table["low"], table["high"], strict=True)
    times = zip(table["median_ms"], table["p95_ms"], strict=True)
    return pd.DataFrame(
        {
            "No.": [f"**{number}**" for number in table["number"]],
            "Ranker": [f"{escaped(name)}  \n:gray[{kind}]" for name, kind in zip(table["name"], kinds, strict=True)],
            f"{metric} (95 %, n = {rows[0].n})": [
                f"**{mean:.3f}** ({low:.3f} to {high:.3f})" for mean, low, high in intervals
            ],
            "ms, median (p95)": [f"**{milliseconds(median)}** ({milliseconds(p95)})" for median, p95 in times],
            "Fastest student = 1": [_times(ratio) for ratio in table["ratio"]],
        }
    )


def whole_table(report: FrontierReport) -> pd.DataFrame:
    """Every figure of every ranker, plain."""
    lines = [
        {
            "No.": number,
            "Ranker": shown(ranker.name),
            "Kind": FAMILIES[ranker.family],
            "Layers read": "" if ranker.depth is None else f"{ranker.depth} of {ranker.layers}",
            "Number format": ranker.dtype or "",
            **{name: f"{q.mean:.4f} ({q.low:.4f} to {q.high:.4f})" for name, q in ranker.metrics.items()},
            "Median, ms": round(ranker.median_ms, 3),
            "p95, ms": round(ranker.p95_ms, 3),
            "Fastest student = 1": round(ranker.ratio, 4),
            "n": ranker.n,
            "Valid as written": "" if ranker.valid_rate is None else f"{ranker.valid_rate:.1%}",
        }
        for number, ranker in enumerate(report.rankers, start=1)
    ]
    return pd.DataFrame(lines)


def _best(rankers: list[RankerResult], metric: str) -> RankerResult:
    """Of the highest mean; the faster one of equals."""
    return min(rankers, key=lambda ranker: (-ranker.metrics[metric].mean, ranker.median_ms))


def _judged(ranker: RankerResult, metric: str, student: RankerResult) -> str:
    quality, words = ranker.metrics[metric], ""
    if ranker is not student:
        ratio = ranker.median_ms / student.median_ms
        words = f" ({_times(ratio)} times as long)" if ratio >= 1 else f" ({_times(1 / ratio)} times faster)"
    interval = f"{quality.mean:.3f} ({quality.low:.3f} to {quality.high:.3f})"
    return f"{escaped(ranker.name)}: {metric} {interval} in {milliseconds(ranker.median_ms)} ms{words}"


def _times(ratio: float) -> str:
    return f"{ratio:,.0f}" if ratio >= 10 else "< 0.01" if ratio < 0.01 else f"{ratio:.2g}"
