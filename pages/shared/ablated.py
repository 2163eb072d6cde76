"""Results of `ablate` as the page shows them: what is on disk, the cube, the paper's figures apart, axes and curves."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import product
from pathlib import Path

import pandas as pd
import streamlit as st

from pages.shared import frame
from pages.shared.ablation_findings import Findings
from pages.shared.ablation_tables import figure_source, figure_table, paper_table, point_titles, short
from pages.shared.text import escaped, shown
from spd_core.ablation import FACTORS, CellResult, Point, cell_name, cube_frame, curve_frame, paper_frame, point_frame
from spd_core.ablation.frames import PAPER_SOURCE
from spd_core.figures.ablation import curve_chart, interval_chart, shared_domain
from spd_core.recipes.ablation_plan import AblationPlan
from spd_core.words import plural

FOLDER = Path(__file__).resolve().parents[2] / "sample_data" / "results" / "ablation"
PLAN = "beauty-cube"
COMMAND = "python -m spd_core ablate"
CHARTS_A_ROW = 3

Results = Mapping[str, CellResult]


def show_circumstances(results: Results) -> None:
    """How many cells there are, on which slates, when and where; the command if some are missing."""
    cube = [name for name in _cube_names() if name in results]
    if len(cube) < len(_cube_names()):
        missing = (
            "No cell of the cube has been run yet." if not cube else f"{len(cube)} of {len(_cube_names())} cells were run."
        )
        st.info(f"{missing} This command runs what is missing and goes on where it was stopped:", icon=":material/info:")
        st.code(COMMAND, language=None, wrap_lines=True)
    if not results:
        return
    some = next(iter(results.values()))
    dates = sorted({result.date for result in results.values()})
    commits = sorted({result.commit[:7] for result in results.values() if result.commit})
    facts = [
        f"n = {some.source.n:,} held-out slates of {escaped(some.source.file, 60)}",
        " to ".join(dict.fromkeys((dates[0], dates[-1]))),
        f"teacher {escaped(some.settings['preset']['teacher'], 60)}",
        escaped(some.machine.get("cpu", ""), 80),
        f"commit {', '.join(commits)}" if commits else "",
    ]
    st.caption(f"{plural(len(results), 'cell')}: " + ", ".join(fact for fact in facts if fact) + "; made by `ablate`.")


def show_cube(results: Results, *, decoder: str, metric: str) -> None:
    """The cube as a chart a head, the paper's figures in a panel of their own, and both as tables."""
    table = cube_frame(results, decoder=decoder, metric=metric)
    table["kind"] = [short(level) for level in table["backbone"]]
    table["label"] = [f"{signal}, {kind}" for signal, kind in zip(table["signal"], table["kind"], strict=True)]
    domain = shared_domain([table])
    ours, theirs = st.columns([7, 3], gap="large")
    with ours:
        st.markdown("##### Measured here", anchors=False)
        for head, column in zip(FACTORS["head"], st.columns(len(FACTORS["head"]), gap="small"), strict=True):
            with column:
                st.markdown(f"**{escaped(short(head))}**")
                chart = interval_chart(table[table["head"] == head], title=metric, domain=domain, dark=frame.is_dark())
                st.altair_chart(chart, width="stretch", alt=f"{metric} of the four cells with the head {short(head)}.")
        st.caption(f"A dot a cell with its 95 % interval: circles frozen, diamonds LoRA. {figure_source(table)}")
        st.caption(
            "A LoRA cell starts from its frozen cell's head and trains on, on fewer slates; its gain includes that training."
        )
    with theirs:
        show_paper(metric)
    with st.expander("The same numbers as a table"):
        st.table(figure_table(table, results, metric=metric), border="horizontal", hide_index=True)
        st.caption("Seed spread: largest less smallest mean of one seed. Frozen and LoRA cells have different budgets.")
        st.markdown("**Paper, A100** (other data and hardware)")
        st.table(paper_table(paper_frame()), border="horizontal", hide_index=True)


def show_paper(metric: str) -> None:
    """The paper's figures, apart from ours."""
    table = paper_frame()
    st.markdown("##### Paper, A100", anchors=False)
    if metric != "AUC":
        st.caption(f"The paper gives AUC for these cells, no {metric}.")
        return
    table["kind"] = ["frozen" if "frozen" in name else "LoRA" for name in table["cell"]]
    table["label"] = [short(name.replace("lora", "LoRA")) for name in table["cell"]]
    table["low"] = table["high"] = float("nan")
    for group, alt in (("signal x backbone", "signal and backbone; clicks with LoRA is not reported"), ("head", "head")):
        cells = table[table["group"] == group]
        st.markdown(f"**{escaped(group)}**")
        chart = interval_chart(cells, title="AUC, paper", domain=shared_domain([table]), dark=frame.is_dark())
        st.altair_chart(chart, width="stretch", alt=f"The paper's AUC by {alt}.")
    st.caption("Other data and hardware: side by side, not compared with ours. n is not given.")
    st.caption(f"Source: {escaped(PAPER_SOURCE, 120)}.")


def axis_bases(plan: AblationPlan) -> dict[str, str]:
    """Cell of an axis -> cell of the cube that it was changed from, where the axis has that one too."""
    bases = {}
    for name in plan.axes:
        cells = [cell for _, cell in plan.axis(name)]
        own = [cell.name for cell in cells if not cell.changes]
        bases |= {cell.name: own[0] for cell in cells if cell.changes and own}
    return bases


def show_axes(plan: AblationPlan, results: Results, found: Findings, *, decoder: str) -> None:
    """A chart an axis: one setting moved, everything else as in one cell of the cube."""
    metric = found.metric
    tables = {}
    for name, axis in plan.axes.items():
        points = [point for point, _ in plan.axis(name)]
        tables[name] = point_frame(points, results, decoder=decoder, metric=metric)
        tables[name]["kind"] = short(axis.backbone)
    domain = shared_domain(list(tables.values()))
    names = list(tables)
    for start in range(0, len(names), CHARTS_A_ROW):
        for name, column in zip(names[start : start + CHARTS_A_ROW], st.columns(CHARTS_A_ROW, gap="medium"), strict=False):
            with column:
                show_axis(plan, name, tables[name], metric=metric, domain=domain)
    with st.expander("The same numbers as a table"):
        whole = pd.concat([table.assign(axis=plan.axes[name].title) for name, table in tables.items()])
        numbers = figure_table(whole, results, metric=metric, differences=found.axes)
        st.table(numbers, border="horizontal", hide_index=True)
        st.caption("Against the cube's cell: the same slates in pairs, with the 95 % interval; clear where 0 lies outside.")


def show_axis(plan: AblationPlan, name: str, table: pd.DataFrame, *, metric: str, domain: tuple[float, float]) -> None:
    """One axis, with its question and, where points are missing, its command."""
    axis = plan.axes[name]
    st.markdown(f"**{escaped(axis.title)}**")
    st.caption(f"{axis.question} {short(axis.backbone).capitalize()} backbone, teacher rankings.".replace("Lora", "LoRA"))
    chart = interval_chart(table, title=metric, domain=domain, dark=frame.is_dark())
    st.altair_chart(chart, width="stretch", alt=f"{metric} along the axis {axis.title}.")
    st.caption(figure_source(table))
    if table["mean"].isna().any():
        st.code(f"{COMMAND} --axis {name}", language=None, wrap_lines=True)


def show_curves(results: Results) -> None:
    """How AUC grew while training, a chart a head."""
    points = [Point(title, cell) for cell, title in point_titles(_cube_names()).items()]
    table = curve_frame(points, results)
    if table.empty:
        st.caption("No cell of the cube was run yet, so that there is no curve.")
        return
    table["kind"] = [short(level) for level in table["backbone"]]
    table["signal"] = [short(level) for level in table["signal"]]
    domain = shared_domain([table])
    for head, column in zip(FACTORS["head"], st.columns(len(FACTORS["head"]), gap="small"), strict=True):
        own = table[[cell.startswith(f"{head}-") for cell in table["cell"]]]
        with column:
            st.markdown(f"**{escaped(short(head))}**")
            if own.empty:
                st.caption("not run yet")
                continue
            chart = curve_chart(own, domain=domain, dark=frame.is_dark())
            st.altair_chart(chart, width="stretch", alt=f"Learning curves of the cells with the head {short(head)}.")
    places = sorted({(int(n), source) for n, source in zip(table["n"], table["source"], strict=True)})
    sources = "; ".join(f"n = {n:,}, {escaped(source, 80)}" for n, source in places)
    st.caption(f"A line a seed: solid frozen, dashed LoRA, which goes on from the frozen head. {sources}.")
    with st.expander("The same numbers as a table"):
        st.dataframe(_curve_table(table), hide_index=True, alt="AUC and training loss at each validation of each run.")


def _curve_table(table: pd.DataFrame) -> pd.DataFrame:
    names = {"label": "Cell", "seed": "Seed", "at": "Slates seen", "mean": "AUC", "loss_nats": "Training loss, nats"}
    names |= {"n": "n", "source": "Source"}
    whole = table[list(names)].rename(columns=names)
    whole["Source"] = [shown(source, 80) for source in whole["Source"]]
    return whole


def _cube_names() -> Sequence[str]:
    return [cell_name(*levels) for levels in product(*FACTORS.values())]
