"""Figures of an ablation as tables for people, and what the factors do in words."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import pandas as pd
import streamlit as st

from pages.shared import frame, state
from pages.shared.rankings import neutral
from pages.shared.text import escaped, message, plural
from spd_core.ablation import (
    DECODERS_KEPT,
    CellResult,
    Effect,
    Interaction,
    decoder_effects,
    decoder_sentence,
    effect_sentence,
    interaction_sentence,
    interactions,
    main_effects,
    measured_values,
)
from spd_core.ablation.frames import COLUMNS, NOT_REPORTED
from spd_core.ablation.words import contrast_label, contrast_title, interaction_title
from spd_core.figures.file_view import differences_chart
from spd_core.metrics import Difference

SHORT = {
    "linear_probe": "linear probe",
    "self_attention": "self-attention",
    "slot_query": "slot-query",
    "teacher": "teacher rankings",
    "lora": "LoRA",
}
Results = Mapping[str, CellResult]


@dataclass(frozen=True)
class Findings:
    """What the factors of the cube do, computed from differences of the same slates."""

    effects: Sequence[Effect]
    interactions: Sequence[Interaction]
    decoders: Mapping[str, Difference]
    metric: str
    source: str


def short(level: str) -> str:
    """A level of a factor as people say it."""
    return SHORT.get(level, level)


def point_titles(cells: Sequence[str]) -> dict[str, str]:
    """Cell of the cube -> its levels in words."""
    return {cell: ", ".join(short(level) for level in cell.split("-")) for cell in cells}


def figure_table(table: pd.DataFrame, results: Results, *, metric: str) -> pd.DataFrame:
    """Cells as a table: figure with interval, n, source, seeds, budget; a cell that was not run has its command instead."""
    rows = []
    for row in table.to_dict("records"):
        is_run, result = not pd.isna(row["mean"]), results.get(row["cell"])
        place = {"Axis": escaped(row["axis"])} if "axis" in row else {}
        figure = f"{row['mean']:.4f} ({row['low']:.3f} to {row['high']:.3f})" if is_run else row["state"]
        rows.append(
            place
            | {
                "Cell": escaped(f"{row['label']} ({row['cell']})" if "axis" in row else row["cell"]),
                metric: figure,
                "n": f"{row['n']:,}" if is_run else "",
                "Source": escaped(row["source"], 80) if is_run else f"`{row['command']}`",
                "Seeds": str(row["seeds"]) if is_run else "",
                "Seed spread": "" if pd.isna(row["spread"]) else f"{row['spread']:.4f}",
                "Trained on": budget_text(result) if result else "",
                "Minutes a seed": minutes_text(result) if result else "",
            }
        )
    return pd.DataFrame(rows)


def figure_source(table: pd.DataFrame) -> str:
    """Markdown line on what the figures of a table were measured on; all of them on the same slates."""
    run = table[table["mean"].notna()]
    if run.empty:
        return "Not run yet."
    return f"n = {run['n'].iloc[0]:,}, {escaped(run['source'].iloc[0], 60)}."


def budget_text(result: CellResult) -> str:
    """Slates seen in each stage of a cell's first run."""
    stages = result.runs[0].stages
    return ", then ".join(
        f"{short(stage.name)}: {stage.seen:,} of {stage.slates:,} slates in {stage.steps} steps" for stage in stages
    )


def minutes_text(result: CellResult) -> str:
    """Wall time of a cell's runs, mean over seeds, without the shared states."""
    minutes = [sum(stage.minutes for stage in run.stages) for run in result.runs]
    return f"{sum(minutes) / len(minutes):.1f}"


def paper_table(table: pd.DataFrame) -> pd.DataFrame:
    """The paper's figures with their source; what it does not report says so."""
    return pd.DataFrame(
        {
            "Cell": [", ".join(short(level) for level in name.split(", ")) for name in table["cell"]],
            "AUC": [NOT_REPORTED if pd.isna(mean) else f"{mean:.4f}" for mean in table["mean"]],
            "n": list(table["n"]),
            "Source": list(table["source"]),
        }
    )


def find_effects(results: Results, *, decoder: str, metric: str) -> Findings:
    """Findings of the cube's cells that were run; kept in the session, since drawing slates again takes a second.

    Raises:
        SpdError: cells measured on different slates.
    """
    key = "ablation findings"
    stamp = (
        decoder,
        metric,
        tuple((name, result.seeds, result.date, str(result.metrics)) for name, result in results.items()),
    )
    kept = state.get(key, None)
    if kept is None or kept[0] != stamp:
        by_decoder = {name: measured_values(results, decoder=name, metric=metric) for name in (decoder, *DECODERS_KEPT)}
        values = by_decoder[decoder]
        source = next((result.source.file for result in results.values()), "")
        found = Findings(main_effects(values), interactions(values), decoder_effects(by_decoder), metric, source)
        kept = (stamp, found)
        state.put(key, kept)
    findings: Findings = kept[1]
    return findings


def show_effects(found: Findings) -> None:
    """What each factor does and which depend on each other: pictures, then a sentence for each."""
    if not found.effects:
        st.caption("Two cells that differ in one factor are needed first; they were not run yet.")
        return
    alone, together = st.columns(2, gap="large")
    with alone:
        st.markdown("##### What each factor adds", anchors=False)
        rows = {contrast_label(effect.contrast): effect.difference for effect in found.effects}
        caption = (
            "LoRA against frozen, teacher rankings against clicks, heads against the linear probe; filled: 0 lies outside."
        )
        _show_differences(rows, found, caption)
        _sentences([effect_sentence(effect, found.metric) for effect in found.effects])
    with together:
        st.markdown("##### Which factors depend on each other", anchors=False)
        rows = {interaction_title(entry): entry.difference for entry in found.interactions}
        if rows:
            _show_differences(
                rows,
                found,
                "How much one effect grows where the other is present; at 0 they just add up. Filled: 0 lies outside.",
            )
            _sentences([interaction_sentence(entry, found.metric) for entry in found.interactions])
        else:
            st.caption("Four cells that differ in two factors are needed for this; they were not run yet.")
    if found.decoders:
        st.markdown("##### Does the decoder matter?", anchors=False)
        _sentences([decoder_sentence(signal, entry, found.metric) for signal, entry in found.decoders.items()])
    st.caption(
        f"Differences slate by slate on {escaped(found.source, 60)}, 95 % bootstrap intervals over slates, seeds averaged. "
        f"Of {plural(len(found.effects) + len(found.interactions), 'comparison')}, one in twenty looks clear by chance."
    )
    with st.expander("The same numbers as a table"):
        st.table(effect_table(found), border="horizontal", hide_index=True)


def effect_table(found: Findings) -> pd.DataFrame:
    """Every difference with interval, p-value, n and source."""
    named = {contrast_title(effect.contrast): effect.difference for effect in found.effects}
    named |= {f"{interaction_title(entry)} (interaction)": entry.difference for entry in found.interactions}
    named |= {f"first column against Hungarian, {signal}": entry for signal, entry in found.decoders.items()}
    return pd.DataFrame(
        {
            "Difference": list(named),
            found.metric: [f"{entry.mean:+.4f} ({entry.low:+.4f} to {entry.high:+.4f})" for entry in named.values()],
            "p": [f"{entry.p_value:.4f}" for entry in named.values()],
            "n": [f"{entry.n:,}" for entry in named.values()],
            "Source": [escaped(found.source, 80)] * len(named),
        }
    )


def as_csv(tables: Sequence[pd.DataFrame]) -> str:
    """Figures as CSV; a text cell that a spreadsheet would run as a formula gets an apostrophe before it."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\r\n")
    writer.writerow(COLUMNS)
    for table in tables:
        for row in table[COLUMNS].astype(object).where(table[COLUMNS].notna(), "").itertuples(index=False):
            writer.writerow([neutral(value) if isinstance(value, str) else value for value in row])
    return out.getvalue()


def _show_differences(rows: Mapping[str, Difference], found: Findings, caption: str) -> None:
    bounds = {title: (entry.mean, entry.low, entry.high) for title, entry in rows.items()}
    n = next(iter(rows.values())).n
    chart = differences_chart(bounds, title=f"{found.metric}, difference (n = {n:,})", dark=frame.is_dark())
    st.altair_chart(chart, width="stretch", alt=f"Differences in {found.metric} with intervals: {', '.join(rows)}.")
    st.caption(caption)


def _sentences(lines: Sequence[str]) -> None:
    st.markdown("\n".join(f"- {message(line)}" for line in lines))
