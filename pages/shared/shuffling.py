"""Ranking one slate in many orders while a visitor watches, and saying in words what came of it."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
import streamlit as st
from numpy.typing import NDArray

from pages.shared import frame, state
from pages.shared.loaders import Loaded, inference_gate, slate_digest
from pages.shared.text import escaped, ordinal, shown
from spd_core.figures.rank_spread import rank_spread_chart, rank_spread_frame
from spd_core.latency import encode_slate
from spd_core.order_sensitivity import DuplicateGroup, OrderSensitivity, draw_orders, reordered
from spd_core.pipeline import score_slates
from spd_core.slate import Slate
from spd_core.words import plural

SHUFFLES = ("5", "10", "20")
USUAL_SHUFFLES = "10"
STEP_TOKENS = 1500
"""Most tokens of prompts between two looks at the Cancel button: about half a second on two CPU cores, on a GPU nothing."""
SHUFFLED = "shuffled runs"
KEPT = 8
"""Runs kept in a session."""
SMALL_SPREAD = 0.5
"""Standard deviation of a rank, in places, below which the order is said to matter little; chosen by eye."""


@dataclass(frozen=True, eq=False)
class Runs:
    """The score matrices of one slate in all orders, before any decoder."""

    orders: NDArray[np.int64]
    """(R + 1, N), the order given first."""
    matrices: tuple[NDArray[np.float32], ...]


def scored(loaded: Loaded, slate: Slate, *, shuffles: int) -> Iterator[Runs]:
    """Runs that grow by one step of passes until all orders are scored; the last one is complete.

    Raises:
        SpdError: the slate cannot be ranked.
    """
    orders = draw_orders(slate, shuffles)
    matrices: list[NDArray[np.float32]] = []
    for step in scored_slates(loaded, [reordered(slate, order) for order in orders]):
        matrices += step
        yield Runs(orders, tuple(matrices))


def scored_slates(loaded: Loaded, slates: Sequence[Slate]) -> Iterator[list[NDArray[np.float32]]]:
    """Score matrices of slates of about one length, in order, a step of passes at a time; between steps a visitor may cancel.

    Raises:
        SpdError: a slate cannot be ranked.
    """
    step = max(1, STEP_TOKENS // len(encode_slate(loaded.student, slates[0]).input_ids))
    for start in range(0, len(slates), step):
        with inference_gate():
            yield [matrix for _, matrix in score_slates(loaded.student, slates[start : start + step])]


def run_key(loaded: Loaded, slate: Slate, shuffles: int) -> str:
    """Key of a run among those kept."""
    return f"{loaded.key} {slate_digest(slate)} {shuffles}"


def kept_runs(key: str, shelf: str = SHUFFLED) -> Any:
    """What was kept under that key, if this session has made it lately; else None."""
    return state.get(shelf, {}).get(key)


def keep_runs(key: str, runs: object, shelf: str = SHUFFLED) -> None:
    """Keep a complete run, and the latest few beside it."""
    state.put(shelf, dict([*state.get(shelf, {}).items(), (key, runs)][-KEPT:]))


def show_headline(slate: Slate, result: OrderSensitivity) -> None:
    """What to take home, in one sentence anyone can read."""
    runs = len(result.positions)
    if len(slate.candidates) == 1:
        text = "One candidate has one order: there is nothing to shuffle"
    elif not result.std.any():
        text = f"The order given does not matter here: {runs} shuffles, one ranking"
    else:
        text = f"The first place changed hands in {result.first_changes} of {runs} shuffles"
    st.markdown(f"##### {text}", anchors=False)


def show_numbers(result: OrderSensitivity) -> None:
    """Four numbers, each with what it means behind the question mark."""
    runs, effect = len(result.positions), result.position_effect
    numbers = (
        ("First place changed", f"{result.first_changes} of {runs}", "Shuffles that put another candidate first."),
        ("Agreement", f"{result.mean_tau:.2f}", "Kendall tau of two shuffles: 1 the same order, 0 unrelated, -1 reversed."),
        ("Typical move", f"± {result.std.mean():.1f} places", "Standard deviation of a candidate's rank, mean over all."),
        ("Pull of the place", f"{effect.slope:+.2f}", "Places lower in the ranking for each place later in the input."),
    )
    with st.container(horizontal=True, gap="large"):
        for label, value, tip in numbers:
            st.metric(label, value, width="content", help=tip)


def sentences(slate: Slate, result: OrderSensitivity) -> list[str]:
    """Markdown lines that read the numbers aloud."""
    restless = int(result.std.argmax())
    lines = [_pull(result)]
    if result.std.any():
        title = escaped(slate.candidates[restless].title, 60)
        low, high = (ordinal(int(rank[restless]) + 1) for rank in (result.best, result.worst))
        lines.append(f"Least settled: **{title}**, anywhere from {low} to {high}.")
        quiet = int((result.std < SMALL_SPREAD).sum())
        lines.append(f"{quiet} of {plural(len(result.std), 'candidate')} moved by less than half a place, typically.")
        lines.append(f"{plural(result.winners, 'candidate')} came first at least once.")
    if not result.duplicates:
        return [*lines, "No two candidates read the same here, so there is no pair that should come out side by side."]
    return lines + [_duplicates(slate, group, len(result.positions)) for group in result.duplicates]


def _pull(result: OrderSensitivity) -> str:
    slope, error, _ = result.position_effect
    if not result.std.any():
        return "Where a candidate is shown has no effect on where it is ranked."
    if abs(slope) <= 2 * error:
        return f"No clear pull of the input place: {slope:+.2f} places a place, within twice its error of {error:.2f}."
    way = "later" if slope > 0 else "earlier"
    return f"Shown one place later, a candidate is ranked **{abs(slope):.2f}** places {way} (error {error:.2f})."


def _duplicates(slate: Slate, group: DuplicateGroup, runs: int) -> str:
    places = ", ".join(str(index + 1) for index in group.candidates)
    title = escaped(slate.candidates[group.candidates[0]].title, 60)
    opening = f"Candidates {places} read the same (**{title}**):"
    if group.largest_gap == 0:
        return f"{opening} always ranked next to each other."
    return (
        f"{opening} next to each other in {group.adjacent_runs} of {runs} shuffles; on average {group.mean_gap:.1f} others "
        f"came between them, at most {group.largest_gap}."
    )


def show_spread(slate: Slate, result: OrderSensitivity) -> None:
    """The picture: a row a candidate, in consensus order."""
    titles = [shown(item.title, 60) for item in slate.candidates]
    chart = rank_spread_chart(
        titles, result.positions, given=result.given, order=result.consensus.tolist(), dark=frame.is_dark()
    )
    st.markdown("##### Where each candidate came out", anchors=False)
    st.altair_chart(chart, width="stretch", alt="A row a candidate: its best, median and worst rank over the shuffles.")
    st.caption(
        "Dot: median rank over the shuffles. Line: best to worst. Diamond: rank in the order given. Rows by mean rank."
    )


def spread_frame(slate: Slate, result: OrderSensitivity) -> pd.DataFrame:
    """The picture as a table, best mean rank first."""
    table = rank_spread_frame([shown(item.title) for item in slate.candidates], result.positions, result.given)
    table = table.iloc[result.consensus]
    return pd.DataFrame(
        {
            "Consensus": range(1, len(table) + 1),
            "Title": table["candidate"],
            "Item id": [shown(slate.item_ids[index]) for index in result.consensus],
            "Shown at": result.consensus + 1,
            "Rank as given": table["given"],
            "Best": table["best"],
            "Median": table["median"],
            "Worst": table["worst"],
            "Mean": table["mean"].round(2),
            "Standard deviation": table["std"].round(2),
        }
    )


def show_download(result: OrderSensitivity) -> None:
    """All figures as a file."""
    text = json.dumps(result.to_json(), allow_nan=False) + "\n"
    name, kind = "order_sensitivity.json", "application/json"
    st.download_button("JSON", text, name, kind, icon=":material/download:", on_click="ignore", key=f"save {name}")
