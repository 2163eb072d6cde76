"""Attention rollout while a visitor watches: followed layer by layer, kept for the session, told in shares and words."""

from __future__ import annotations

import time
from collections.abc import Iterator

import numpy as np
import pandas as pd
import streamlit as st

from pages.shared import frame, state
from pages.shared.inside_view import NOT_WHY, Opened
from pages.shared.loaders import inference_gate, slate_digest
from pages.shared.text import escaped, ordinal, shown
from spd_core.attention_rollout import CANDIDATE, FIRST, HISTORY, QUERY, WORDING, Group, Rollout, roll_out, sampled_layers
from spd_core.figures.share_heatmap import share_heatmap
from spd_core.words import plural

STEPS = {"1": "All", "2": "Every 2nd", "4": "Every 4th"}
KEPT = 8
"""Rollouts kept in a session."""


def followed(opened: Opened, step: int) -> Iterator[Rollout]:
    """Rollouts that grow by one layer, each computed with nothing else running a model.

    Raises:
        SpdError: the slate cannot be ranked, or the backbone's attention cannot be read.
    """
    steps = roll_out(opened.loaded.student, opened.slate, step=step)
    while True:
        with inference_gate():
            rollout = next(steps, None)
        if rollout is None:
            return
        yield rollout


def run(opened: Opened, step: int, key: str) -> None:
    """Follow the layers under a log of stages; pressing Cancel ends it at the next layer and keeps nothing."""
    planned = sampled_layers(opened.loaded.student.backbone.depth, step)
    with st.container(horizontal=True, vertical_alignment="center"):
        bar = st.progress(0.0, f"Reading the prompt, then {plural(len(planned), 'layer')} …")
        st.button("Cancel", icon=":material/close:")
    log = st.empty()
    lines: list[str] = []
    rollout, begin = None, time.perf_counter()
    for rollout in followed(opened, step):
        now = time.perf_counter()
        first = " with the pass before it" if len(rollout.followed) == 1 else ""
        lines.append(f"layer {rollout.followed[-1]}{first}: {(now - begin) * 1e3:,.0f} ms")
        begin = now
        bar.progress(len(rollout.followed) / len(planned), f"{len(rollout.followed)} of {len(planned)} layers followed")
        log.caption(" · ".join(lines))
    if rollout is not None:
        others: dict[str, Rollout] = state.get("rollouts", {})
        state.put("rollouts", dict([*others.items(), (key, rollout)][-KEPT:]))
    st.rerun()


def run_key(opened: Opened, step: int) -> str:
    """Key of a rollout among those kept."""
    return f"{opened.loaded.key} {slate_digest(opened.slate)} {step}"


def kept(key: str) -> Rollout | None:
    """The rollout of that key, if this session has made it lately."""
    rollouts: dict[str, Rollout] = state.get("rollouts", {})
    return rollouts.get(key)


def show(opened: Opened, rollout: Rollout) -> None:
    """Shares by kind, the sentence, the picture, the table."""
    with st.container(horizontal=True, gap="large"):
        for label, share, tip in _kinds(rollout):
            st.metric(label, f"{share:.1%}", width="content", help=tip)
    st.markdown(sentence(opened, rollout))
    columns = [index for index, group in enumerate(rollout.groups) if group.kind not in (FIRST, WORDING)]
    groups = [rollout.groups[index] for index in columns]
    chart = share_heatmap(
        rollout.shares[:, columns],
        readers=opened.titles,
        sources=[_name(opened, group) for group in groups],
        ticks=[_tick(opened, group) for group in groups],
        source_title="mixed from",
        is_skewed=True,
        dark=frame.is_dark(),
    )
    st.altair_chart(chart, width="stretch", alt=f"Heatmap of {plural(len(opened.titles), 'readout')} by part of the prompt.")
    st.caption(
        "Share of a readout by part: h history, q query, numbers candidates. Input order; first token and wording left out."
    )
    st.caption(NOT_WHY)
    with st.expander("The same numbers as a table"):
        st.dataframe(share_table(opened, rollout), hide_index=True, alt="Shares of each readout by part of the prompt.")


def _kinds(rollout: Rollout) -> list[tuple[str, float, str]]:
    own = rollout.own_share
    rows = [
        ("Own text", own, "From the candidate's own description and what closes its line."),
        (
            "Other candidates",
            rollout.share_of(CANDIDATE) - own,
            "From candidates shown before it; later ones cannot be seen.",
        ),
        ("History", rollout.share_of(HISTORY), "From what the user bought before."),
        ("Query", rollout.share_of(QUERY), "From the query."),
        ("First token", rollout.share_of(FIRST), "The first token of the prompt, whatever it says: an attention sink."),
        ("Wording", rollout.share_of(WORDING), "From the template's own words."),
    ]
    return [row for row in rows if row[0] != "Query" or row[1] > 0]


def sentence(opened: Opened, rollout: Rollout) -> str:
    """Markdown: what the readouts draw on, the sink, and the history item that counts most."""
    layers = f"{len(rollout.followed)} of {opened.loaded.student.backbone.depth} layers followed"
    lines = [
        f"The first token alone gets **{rollout.share_of(FIRST):.0%}**: models of this kind park attention there that they "
        f"have no use for (an *attention sink*), so it says nothing about the shopper. {layers[:1].upper()}{layers[1:]}."
    ]
    history = [(column, group) for column, group in enumerate(rollout.groups) if group.kind == HISTORY]
    if history:
        column, group = max(history, key=lambda pair: float(rollout.shares[:, pair[0]].mean()))
        title = escaped(opened.slate.user.history[group.index].title, 60)
        share = float(rollout.shares[:, column].mean())
        lines.append(f"Of the history, **{title}** gets most: {share:.1%} of a readout, on average.")
    return " ".join(lines)


def _name(opened: Opened, group: Group) -> str:
    if group.kind == HISTORY:
        return f"bought before: {shown(opened.slate.user.history[group.index].title, 60)}"
    return opened.titles[group.index] if group.kind == CANDIDATE else group.kind


def _tick(opened: Opened, group: Group) -> str:
    if group.kind == HISTORY:
        return f"h{group.index + 1}"
    return str(group.index + 1) if group.kind == CANDIDATE else "q"


def share_table(opened: Opened, rollout: Rollout) -> pd.DataFrame:
    """A row a candidate in input order, a column a part of the prompt."""
    names = {FIRST: "First token", WORDING: "Wording", QUERY: "Query"}
    columns = [names.get(group.kind) or _tick(opened, group) for group in rollout.groups]
    table = pd.DataFrame(np.round(rollout.shares, 5), columns=columns)
    ranks = np.argsort(opened.result.ranking)
    table.insert(0, "Candidate", opened.titles)
    table.insert(1, "Ranked", [ordinal(int(rank) + 1) for rank in ranks])
    return table
