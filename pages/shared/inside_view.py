"""Inside a student as a visitor sees it: where the head looks, where the readouts lie, what each layer knows."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
import streamlit as st
from numpy.typing import NDArray

from pages.shared import controls, frame, loaders, state
from pages.shared.loaders import Loaded
from pages.shared.rankings import positions
from pages.shared.text import escaped, ordinal, shown
from spd_core.figures.layer_curves import layer_curve, layer_frame
from spd_core.figures.readout_points import point_frame, readout_points
from spd_core.figures.share_heatmap import share_heatmap
from spd_core.inside import Inside, mean_cosines, mean_norms, project
from spd_core.layer_probe import KNOWS, first_to_know
from spd_core.pipeline import RankingResult
from spd_core.slate import Slate
from spd_core.words import plural

HEAD, ROLLOUT, READOUTS, LAYERS = "head", "rollout", "readouts", "layers"
VIEWS = {HEAD: "Where the head looks", ROLLOUT: "Where readouts come from", READOUTS: "Readouts", LAYERS: "Layers"}
NOT_WHY = "Attention is not explanation: it shows where a state was mixed from, not why the ranking came out."
MEAN_OF_HEADS = "mean"


@dataclass(frozen=True)
class Opened:
    """One slate, ranked, with what was seen inside the student."""

    loaded: Loaded
    slate: Slate
    result: RankingResult
    inside: Inside

    @property
    def titles(self) -> list[str]:
        """Short titles in input order."""
        return [shown(item.title, 60) for item in self.slate.candidates]

    @property
    def order(self) -> list[int]:
        """Candidates as ranked."""
        return [int(index) for index in self.result.ranking]


@dataclass(frozen=True)
class HeadMap:
    """One attention map of the head, rows and columns in the order drawn."""

    shares: NDArray[np.float64]
    """(R, C)."""
    readers: list[str]
    sources: list[str]
    ticks: list[str]


def show_head(opened: Opened) -> None:
    """Layer and head to choose, the map, what it says in words, the table."""
    maps = opened.inside.head_maps
    if not maps:
        st.info("This head is a linear probe: it scores each candidate alone, so there is no attention to show.")
        return
    layers = [str(number) for number in range(1, len(maps) + 1)]
    with st.container(horizontal=True, gap="large"):
        layer = int(controls.pick_option("head layer", "Layer of the head", layers, layers))
        heads = [MEAN_OF_HEADS, *(str(number) for number in range(1, len(maps[layer - 1]) + 1))]
        part = controls.pick_option("head part", "Attention head", heads, ["Mean of all", *heads[1:]])
    weights = maps[layer - 1]
    map_ = head_map(opened, weights.mean(axis=0) if part == MEAN_OF_HEADS else weights[int(part) - 1])
    st.markdown(head_sentence(opened, map_))
    chart = share_heatmap(
        map_.shares, readers=map_.readers, sources=map_.sources, ticks=map_.ticks, source_title="looks at",
        dark=frame.is_dark(),
    )  # fmt: skip
    st.altair_chart(chart, width="stretch", alt=f"Heatmap of the attention of {len(map_.readers)} readers.")
    st.caption("Share of each row's look that goes to each column; a row sums to 100 %. Candidates as ranked.")
    st.caption(NOT_WHY)
    st.expander("The same numbers as a table").dataframe(map_frame(map_), hide_index=True, alt="Shares, a row a reader.")


def head_map(opened: Opened, weights: NDArray[np.floating]) -> HeadMap:
    """A map of the head with candidates in rank order; of a slot-query head the positions that the slate uses.

    What a user token looks at itself is left out.
    """
    order, count = opened.order, len(opened.order)
    reads_candidates = opened.loaded.student.config.head != "slot_query"
    sources = [opened.titles[index] for index in order]
    ticks, columns, rows = [str(rank) for rank in range(1, count + 1)], list(order), list(order)
    readers = sources.copy()
    if not reads_candidates:
        rows, readers = list(range(count)), [f"{ordinal(rank)} position" for rank in range(1, count + 1)]
    if opened.inside.reads_user:
        columns, sources, ticks = [*columns, count], [*sources, "the shopper (user token)"], [*ticks, "shopper"]
    return HeadMap(np.asarray(weights, dtype=np.float64)[np.ix_(rows, columns)], readers, sources, ticks)


def head_sentence(opened: Opened, map_: HeadMap) -> str:
    """Markdown: who is looked at most, and how evenly."""
    count = len(opened.order)
    if count == 1:
        return "One candidate has only itself to look at."
    received = map_.shares.mean(axis=0)
    most = int(received[:count].argmax())
    spread = float(np.exp(-(map_.shares * np.log(np.maximum(map_.shares, 1e-12))).sum(axis=1)).mean())
    user = f" The shopper's token gets **{received[-1]:.0%}**." if opened.inside.reads_user else ""
    return (
        f"Most looked at: **{escaped(map_.sources[most])}** (ranked {ordinal(most + 1)}) with **{received[most]:.0%}** of "
        f"all looks; an even share is {1 / len(map_.ticks):.0%}. A look spreads over {spread:.0f} of {len(map_.ticks)}.{user}"
    )


def map_frame(map_: HeadMap) -> pd.DataFrame:
    """The map as a table: a row a reader, a column a source by its rank."""
    table = pd.DataFrame(map_.shares.round(4), columns=map_.ticks)
    table.insert(0, "Reader", map_.readers)
    return table


def show_readouts(opened: Opened) -> None:
    """The readouts of one layer as points, shaded by rank."""
    options = list(range(opened.inside.layer_count + 1))
    chosen = state.choose("readout layer", options, options[-1])
    label = "Layer (0: embeddings; the head reads the last)"
    layer = state.remember("readout layer", st.select_slider(label, options, **state.bind("readout layer", chosen)))
    projection = project(opened.inside.readouts[layer])
    places = positions(opened.result)
    if not projection.shares.any():
        st.info("All readouts of this layer are alike, so they would fall on one point.")
        return
    st.markdown(
        f"The two directions hold **{projection.shares.sum():.0%}** of what tells the {len(places)} readouts apart. "
        f"The first goes with the rank: correlation **{abs(rank_correlation(projection.points[:, 0], places)):.2f}**."
    )
    relevant = opened.slate.relevant()
    chart = readout_points(
        projection.points, opened.titles, positions=places, shares=projection.shares, marked=relevant, dark=frame.is_dark()
    )
    st.altair_chart(chart, width="stretch", alt=f"Scatter of {plural(len(places), 'readout')}, numbered by rank.")
    right = " Diamond: what was right." if any(relevant) else ""
    st.caption(f"A point a candidate, its rank beside it; close points look alike to the head. Signs are arbitrary.{right}")
    with st.expander("The same numbers as a table"):
        table = point_frame(projection.points, opened.titles, places).sort_values("rank").round(4)
        table.columns = ["Candidate", "Rank", "First direction", "Second direction"]
        st.dataframe(table, hide_index=True, alt="Coordinates of each readout.")


def rank_correlation(values: NDArray[np.floating], places: NDArray[np.integer]) -> float:
    """Pearson correlation of a coordinate with the rank; 0 where either never moves."""
    if len(places) < 2 or not np.ptp(values):
        return 0.0
    return float(np.corrcoef(values, places)[0, 1])


def show_layers(opened: Opened) -> None:
    """From which layer the ranking can be read (measured on a file), and norm and cosine on this slate (measured now)."""
    st.markdown("##### Which layer already knows the ranking", anchors=False)
    stored = stored_probe(opened.loaded)
    if stored is not None:
        show_probe(stored)
    else:
        name = opened.loaded.info.checkpoint_id if opened.loaded.info else "CHECKPOINT"
        st.info(
            "Not measured for this checkpoint. Run  \n"
            f"`python -m spd_core layers sample_data/slates/shoppers.jsonl --checkpoint {name} "
            f"--out sample_data/results/layers-{name}.json`"
        )
    left, right = st.columns(2, gap="large")
    readouts = opened.inside.readouts
    for place, values, title, caption in (
        (left, mean_norms(readouts), "mean norm", "Mean length of this slate's readouts after each layer."),
        (right, mean_cosines(readouts), "mean cosine", "Mean cosine of two candidates' readouts: 1 all point one way."),
    ):
        with place:
            st.markdown(f"##### {title.capitalize()} of the readouts", anchors=False)
            if np.isnan(values).any():
                st.caption("One candidate has nobody to be compared with.")
                continue
            chart = layer_curve(layer_frame(values.tolist()), title=title, dark=frame.is_dark())
            st.altair_chart(chart, width="stretch", alt=f"Line of the {title} over the layers.")
            st.caption(caption)
    with st.expander("The same numbers as a table"):
        st.dataframe(layer_table(readouts, stored), hide_index=True, alt="Figures of each layer.")


def stored_probe(loaded: Loaded) -> dict[str, Any] | None:
    """The stored report of `layers` for this checkpoint, if there is one and it is of these layers and this wording."""
    if loaded.info is None:
        return None
    path = loaders.SHELVES.parent / "results" / f"layers-{loaded.info.checkpoint_id}.json"
    if not path.is_file():
        return None
    try:
        report: dict[str, Any] = json.loads(path.read_text("utf-8"))
        made_for = report["provenance"]
        is_ours = (made_for["depth"], made_for["template_hash"], made_for["backbone_fingerprint"]) == (
            loaded.student.backbone.depth, loaded.student.template.hash, loaded.student.backbone.fingerprint
        )  # fmt: skip
        is_whole = len(report["layers"]) == loaded.student.backbone.depth + 1
    except (ValueError, KeyError, TypeError):
        return None
    return report if is_ours and is_whole else None


def show_probe(report: Mapping[str, Any]) -> None:
    """The curve of a stored report, with its sentence."""
    taus = [row["kendall_tau"] for row in report["layers"]]
    means = [float(tau["mean"]) for tau in taus]
    known, last, step = first_to_know(means), len(means) - 1, int(np.diff(means).argmax()) + 1
    if known < 0:
        st.markdown("No layer gives the ranking to a linear read.")
    else:
        told = f"Layer {known} is the first to give away {KNOWS:.0%} of what the best layer does"
        told = "No layer before the last knows the ranking as well" if known == last else told
        st.markdown(
            f"{told}: a linear read of **layer {known}** reaches Kendall tau **{means[known]:.2f}**, of the "
            f"last {means[last]:.2f}. The largest step is into **layer {step}**: {means[step - 1]:.2f} to {means[step]:.2f}."
        )
    curve = layer_frame(means, [tau["low"] for tau in taus], [tau["high"] for tau in taus])
    note = f"{KNOWS:.0%} of the best"
    chart = layer_curve(curve, title="Kendall tau", marked=known if known >= 0 else None, note=note, dark=frame.is_dark())
    st.altair_chart(chart, width="stretch", alt="Line of Kendall tau over the layers with its 95 % band.")
    st.caption("Ridge regression of the student's own rank, on slates left out of the fit. Band: 95 % interval over slates.")
    st.caption(
        f"Measured once on {escaped(report['file'], 60)}: n = {int(report['n'])} slates, {int(report['folds'])} folds, "
        f"{report['mean_candidates']:.0f} candidates on average."
    )


def layer_table(readouts: NDArray[np.floating], stored: Mapping[str, Any] | None) -> pd.DataFrame:
    """A row a layer: norm and cosine on this slate, and, where measured, what a linear read finds."""
    columns: dict[str, Sequence[Any] | NDArray[Any]] = {
        "Layer": range(len(readouts)),
        "Mean norm (this slate)": mean_norms(readouts).round(3),
        "Mean cosine (this slate)": mean_cosines(readouts).round(4),
    }
    if stored is not None:
        for key, title in (("kendall_tau", "Kendall tau"), ("spearman", "Spearman")):
            columns[title] = [
                f"{row[key]['mean']:.3f} ({row[key]['low']:.3f} to {row[key]['high']:.3f})" for row in stored["layers"]
            ]
    return pd.DataFrame(columns)
