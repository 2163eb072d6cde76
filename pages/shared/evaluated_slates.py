"""From a bar to its slates: the worst first, and from each to its matrix and its ranking."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import pandas as pd
import streamlit as st

from pages.shared import controls, loaders, state
from pages.shared.evaluation_rankers import ranker_title, student_of
from pages.shared.evaluation_sources import Source
from pages.shared.text import escaped, ordinal, shown
from spd_core.recipes.evaluation_report import EvaluationReport, PerSlate
from spd_core.slate import Slate
from spd_core.words import plural

FIRST_LINES = 10
"""Slates shown at once; the table below has all."""
PLACES = {
    "pages/score_matrix.py": ("Open its score matrix", ":material/grid_on:"),
    "pages/rank.py": ("Open its ranking", None),
}
"""Page -> button that leads there, its icon."""


@dataclass(frozen=True)
class Found:
    """One measured slate as it is listed."""

    index: int
    """In the report."""
    slate_id: str
    value: float
    """Of the metric."""
    first_right: int
    """Rank of the first right candidate, from 1."""
    slate: Slate | None
    """None where the file is not here."""

    @property
    def story(self) -> str:
        """What tells it from others, plain."""
        if self.slate is None:
            return self.slate_id
        words = self.slate.user.query or self.slate.extra.get("story")
        last = self.slate.user.history[-1].title if self.slate.user.history else ""
        return str(words or (f"last bought: {last}" if last else "") or self.slate_id)


def worst_first(
    rows: PerSlate, slates: Mapping[str, Slate], *, ranker: str, metric: str, indices: Sequence[int], only_wrong: bool
) -> list[Found]:
    """Slates of those indices by a metric of a ranker, the worst first; of equal ones the one whose right item is lower."""
    values, ranks = rows.values[ranker][metric], [round(1 / value) for value in rows.values[ranker]["MRR"]]
    found = [
        Found(index, rows.slate_ids[index], values[index], ranks[index], slates.get(rows.digests[index]))
        for index in indices
        if not only_wrong or ranks[index] > 1
    ]
    return sorted(found, key=lambda one: (one.value, -one.first_right, one.index))


def show_slates(
    report: EvaluationReport,
    slates: Mapping[str, Slate],
    source: Source | None,
    *,
    ranker: str,
    metric: str,
    chosen: tuple[str, str] | None,
) -> None:
    """The slates of the chosen slice (all if None) with ways to their matrices."""
    rows = report.per_slate
    st.markdown("##### The slates, worst first", anchors=False)
    if rows is None:
        st.markdown("This result keeps no single slates. `evaluate --out` writes them now; make it again to look into it.")
        return
    which = controls.pick_option("evaluate which", "Show", ["all", "wrong"], ["All", "Where the first is wrong"])
    indices = range(len(rows.slate_ids)) if chosen is None else report.members(*chosen)
    found = worst_first(rows, slates, ranker=ranker, metric=metric, indices=indices, only_wrong=which == "wrong")
    wrong = sum(one.first_right > 1 for one in found)
    place = "" if chosen is None else " of this slice"
    name = escaped(ranker_title(ranker, report), 90)
    st.markdown(f"{name}: the first candidate is wrong on **{wrong}** of {plural(len(indices), 'slate')}{place}.")
    if not found:
        return
    st.table(slates_frame(found[:FIRST_LINES], metric), border="horizontal", hide_index=True)
    if len(found) > FIRST_LINES:
        with st.expander(f"All {plural(len(found), 'slate')}"):
            st.dataframe(plain_frame(found, metric), hide_index=True, alt="Every listed slate with its values.")
    if not slates:
        st.caption(f"The file {escaped(report.file, 60)} is not here, so its slates cannot be opened; only ids are known.")
    else:
        open_one([one for one in found if one.slate is not None], source, student_of(ranker, report))


def slates_frame(found: Sequence[Found], metric: str) -> pd.DataFrame:
    """A row a slate for reading; texts as markdown."""
    return pd.DataFrame(
        {
            "Slate": [f"{escaped(one.story, 90)}  \n:gray[{escaped(one.slate_id, 60)}]" for one in found],
            "Right item": [f"**{ordinal(one.first_right)}**{_of(one)}" for one in found],
            metric: [f"{one.value:.3f}" for one in found],
        }
    )


def plain_frame(found: Sequence[Found], metric: str) -> pd.DataFrame:
    """A row a slate, plain."""
    return pd.DataFrame(
        {
            "Slate": [shown(one.slate_id, 60) for one in found],
            "About": [shown(one.story, 90) for one in found],
            "Rank of the right item": [one.first_right for one in found],
            metric: [round(one.value, 4) for one in found],
        }
    )


def open_one(found: Sequence[Found], source: Source | None, owner: tuple[str, str] | None) -> None:
    """A slate of the list, and buttons that turn to other pages with it and the ranker's checkpoint."""
    if not found:
        return
    # Streamlit finds an option by its label, so that equal stories need their ids.
    names = {one.slate_id: f"{one.first_right} · {shown(one.story, 50)} ({shown(one.slate_id, 40)})" for one in found}
    chosen = state.choose("evaluate slate", list(names), found[0].slate_id)
    with st.container(horizontal=True, vertical_alignment="bottom", gap="small"):
        value = st.selectbox(
            "Slate (rank of its right item first)",
            list(names),
            **state.bind("evaluate slate", chosen),
            format_func=lambda name: names.get(name, shown(name, 60)),
            width=520,
        )
        value = state.remember("evaluate slate", value or chosen)
        slate = next(one.slate for one in found if one.slate_id == value)
        for page, (label, icon) in PLACES.items():
            if st.button(label, icon=icon) and slate is not None:
                turn_to(page, slate, source, owner)
    shown_with = (
        f"checkpoint {escaped(owner[0], 60)}" if owner else "the checkpoint chosen in the sidebar: this ranker has none"
    )
    st.caption(f"Both pages open with {shown_with}.")


def turn_to(page: str, slate: Slate, source: Source | None, owner: tuple[str, str] | None) -> None:
    """Go to a page with that slate, and with the checkpoint and decoder of a student."""
    if source is not None and source.shelf is not None:
        state.put("shelf", source.shelf)
        state.put("slate", slate.slate_id)
    else:
        others = [own for own in state.own_slates() if own.slate_id != slate.slate_id]
        state.put_own_slates([slate, *others])
    if owner is not None and owner[0] in {info.checkpoint_id for info in loaders.checkpoints()}:
        state.put("checkpoint", owner[0])
        state.put("decoder", owner[1])
    state.ask(loaders.slate_digest(slate))
    st.switch_page(page)


def _of(one: Found) -> str:
    return f" of {len(one.slate.candidates)}" if one.slate is not None else ""
