"""An evaluation as tables and files: figures with their intervals and n, single slates, CSV and a page of HTML."""

from __future__ import annotations

import csv
import html
import io
from collections.abc import Iterable, Mapping, Sequence

import pandas as pd

from pages.shared.evaluation_rankers import ranker_title
from pages.shared.rankings import neutral
from pages.shared.text import escaped, shown
from spd_core.figures.metric_bars import Bar
from spd_core.metrics import EXCLUSIONS, METRICS
from spd_core.recipes.evaluation_report import EvaluationReport, Figure
from spd_core.words import plural

ATTRIBUTE_TITLES = {
    "candidates": "Number of candidates (N)",
    "history": "Length of the history",
    "target place": "Where the right item is shown",
    "brand in history": "Brand of the right item in the history",
    "same_day_as_history": "Bought on the day of the newest history item",
}
STYLE = (
    "body{font:15px/1.5 system-ui,sans-serif;margin:2rem auto;max-width:70rem;padding:0 1rem;color:#1d2a2c;background:#fff}"
    "table{border-collapse:collapse;margin:.5rem 0 2rem}"
    "td,th{padding:.3rem .7rem;border-bottom:1px solid #c8d2d3;text-align:left}"
    "@media(prefers-color-scheme:dark){body{color:#e6eeee;background:#14191b}td,th{border-color:#3a484b}}"
)


def attribute_title(name: str) -> str:
    """An attribute's name for people, plain."""
    return ATTRIBUTE_TITLES.get(name, shown(name.replace("_", " "), 60))


def bars_of(rows: Mapping[str, Mapping[str, Figure]], metric: str, titles: Sequence[str]) -> list[Bar]:
    """A bar a row, of one metric."""
    figures = [row[metric] for row in rows.values()]
    return [Bar(name, f.mean, f.low, f.high, f.n) for name, f in zip(titles, figures, strict=True)]


def interval(figure: Figure, style: str = ".3f") -> str:
    """``.756 (.738 to .772)``."""
    return f"{figure.mean:{style}} ({figure.low:{style}} to {figure.high:{style}})"


def ranker_frame(report: EvaluationReport) -> pd.DataFrame:
    """A row a ranker: all metrics with intervals, and n."""
    rows = report.rankers.items()
    columns = {metric: [interval(row[metric]) for _, row in rows] for metric in METRICS}
    return pd.DataFrame(
        {"Ranker": [ranker_title(name, report) for name, _ in rows], "n": [row["AUC"].n for _, row in rows]} | columns
    )


def difference_frame(report: EvaluationReport, against: str, metric: str) -> pd.DataFrame:
    """A row a ranker: what `against` is better by, its interval, p-value and n."""
    found = report.differences_to(against, metric)
    return pd.DataFrame(
        {
            "Ranker": [ranker_title(name, report) for name in found],
            f"{metric}: difference (95 %)": [interval(figure, "+.3f") for figure in found.values()],
            "p": [p_text(figure.p_value) for figure in found.values()],
            "n": [figure.n for figure in found.values()],
        }
    )


def slice_frame(report: EvaluationReport, attribute: str, ranker: str) -> pd.DataFrame:
    """A row a slice: n and all metrics of one ranker."""
    rows = {name: report.all_slices[attribute][name] for name in report.slice_names(attribute)}
    own = {name: row[ranker] for name, row in rows.items() if ranker in row}
    columns = {metric: [interval(row[metric]) for row in own.values()] for metric in METRICS}
    return pd.DataFrame({"Slice": [shown(name, 60) for name in own], "n": [row["AUC"].n for row in own.values()]} | columns)


def p_text(value: float) -> str:
    """A p-value with as many digits as 4,000 draws carry."""
    return "< 0.001" if value < 0.001 else f"{value:.3f}"


def source_line(report: EvaluationReport) -> str:
    """Markdown of n and where the figures are from."""
    place = " · ".join(escaped(report.machine[key], 60) for key in ("device", "cpu") if report.machine.get(key))
    made = f", {escaped(report.date, 20)}" if report.date else ", date not recorded"
    commit = f", commit {escaped(report.commit, 20)}" if report.commit else ""
    return f"n = {plural(report.n, 'slate')} of {escaped(report.file, 60)}{made}{f': {place}' if place else ''}{commit}."


def excluded_lines(report: EvaluationReport) -> list[str]:
    """Markdown: how many slates were left out for which reason, and which."""
    lines = []
    for reason, ids in report.excluded.items():
        if ids:
            names = ", ".join(escaped(name, 40) for name in ids[:5]) + (" …" if len(ids) > 5 else "")
            lines.append(
                f"**{plural(len(ids), 'slate')}** left out: {escaped(EXCLUSIONS.get(reason, reason), 200)} ({names})."
            )
    return lines or ["No slate was left out."]


def as_csv(report: EvaluationReport) -> str:
    """All figures, a row a metric: of the whole file (no attribute) and of each slice."""
    parts = [("", "", report.rankers)]
    parts += [(key, value, rows) for key, found in report.all_slices.items() for value, rows in found.items()]
    lines: list[Sequence[object]] = [
        (report.file, key, value, ranker, metric, figure.mean, figure.low, figure.high, figure.n)
        for key, value, rows in parts
        for ranker, row in rows.items()
        for metric, figure in row.items()
    ]
    return _csv(["file", "attribute", "slice", "ranker", "metric", "mean", "low", "high", "n"], lines)


def slates_csv(report: EvaluationReport) -> str:
    """Each slate, a row a ranker: what the slate is and all metrics."""
    rows = report.per_slate
    assert rows is not None
    attributes = list(rows.attributes)
    lines = [
        [slate_id, *(rows.attributes[key][index] for key in attributes), ranker, *(row[m][index] for m in METRICS)]
        for index, slate_id in enumerate(rows.slate_ids)
        for ranker, row in rows.values.items()
    ]
    return _csv(["slate_id", *attributes, "ranker", *METRICS], lines)


def as_html(report: EvaluationReport) -> str:
    """The report as one page that needs nothing else: every text escaped, no script, nothing fetched."""
    head = f"{report.file}: n = {report.n:,}"
    made = [f"made {report.date}" if report.date else "date not recorded"]
    made += [f"commit {report.commit}"] if report.commit else []
    made += [f"{key} {value}" for key, value in report.machine.items()]
    main = report.decoder
    parts = [f"<h1>{_safe(head)}</h1><p>{_safe(', '.join(made))}. 95 % bootstrap intervals over slates.</p>"]
    parts.append("<h2>Rankers</h2>" + _html_table(ranker_frame(report)))
    for metric in METRICS if report.per_slate is not None else ("AUC", "Recall@1", "NDCG@10"):
        frame = difference_frame(report, main, metric)
        if len(frame):
            parts.append(f"<h2>{_safe(ranker_title(main, report))} less each other, {metric}</h2>" + _html_table(frame))
    for attribute in report.all_slices:
        title = f"{ranker_title(main, report)} by {attribute_title(attribute)}"
        parts.append(f"<h2>{_safe(title)}</h2>" + _html_table(slice_frame(report, attribute, main)))
    left_out = [
        f"{len(ids)} slates left out: {EXCLUSIONS.get(reason, reason)}" for reason, ids in report.excluded.items() if ids
    ]
    notes = [*left_out, *report.warnings]
    parts.append("<h2>Notes</h2><ul>" + "".join(f"<li>{_safe(note)}</li>" for note in notes or ["none"]) + "</ul>")
    top = f'<!doctype html><html lang="en"><meta charset="utf-8"><title>Evaluation: {_safe(head)}</title>'
    return f"{top}<style>{STYLE}</style><body>{''.join(parts)}</body></html>\n"


def _html_table(frame: pd.DataFrame) -> str:
    head = "".join(f"<th>{_safe(name)}</th>" for name in frame.columns)
    rows = ("".join(f"<td>{_safe(cell)}</td>" for cell in row) for row in frame.itertuples(index=False))
    return f"<table><tr>{head}</tr>{''.join(f'<tr>{row}</tr>' for row in rows)}</table>"


def _safe(text: object) -> str:
    return html.escape(shown(text, 300))


def _csv(head: Sequence[str], lines: Iterable[Sequence[object]]) -> str:
    """CSV whose texts no spreadsheet takes for a formula."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\r\n")
    writer.writerow([neutral(name) for name in head])
    for line in lines:
        writer.writerow([neutral(cell) if isinstance(cell, str) else "" if cell is None else cell for cell in line])
    return out.getvalue().encode("utf-8", "replace").decode("utf-8")
