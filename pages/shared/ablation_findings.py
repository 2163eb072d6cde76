"""What the factors of an ablation do, in pictures and words, from differences of the same slates."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import pandas as pd
import streamlit as st

from pages.shared import frame, state
from pages.shared.ablation_tables import Results, difference_text
from pages.shared.text import escaped, message
from spd_core.ablation import (
    DECODERS_KEPT,
    Effect,
    Interaction,
    decoder_effects,
    decoder_sentence,
    effect_sentence,
    interaction_sentence,
    interactions,
    main_effects,
    measured_values,
    shared_seeds,
)
from spd_core.ablation.frames import same_slates
from spd_core.ablation.words import contrast_label, contrast_title, interaction_title
from spd_core.figures.file_view import differences_chart
from spd_core.metrics import Difference, paired_difference
from spd_core.words import plural


@dataclass(frozen=True)
class Findings:
    """What the factors of the cube do, computed from differences of the same slates."""

    effects: Sequence[Effect]
    interactions: Sequence[Interaction]
    decoders: Mapping[str, Difference]
    metric: str
    source: str
    axes: Mapping[str, Difference]
    """Cell of an axis -> what it has more than the cell of the cube that it was changed from."""


def find_effects(results: Results, *, decoder: str, metric: str, bases: Mapping[str, str]) -> Findings:
    """Findings of the cells that were run; kept in the session, since drawing slates again takes a second.

    Args:
        results: by cell.
        decoder, metric: which figure.
        bases: cell of an axis -> cell of the cube that it was changed from.

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
        axes = axis_differences(results, bases, decoder=decoder, metric=metric)
        found = Findings(main_effects(values), interactions(values), decoder_effects(by_decoder), metric, source, axes)
        kept = (stamp, found)
        state.put(key, kept)
    findings: Findings = kept[1]
    return findings


def axis_differences(results: Results, bases: Mapping[str, str], *, decoder: str, metric: str) -> dict[str, Difference]:
    """What each cell of an axis has more than the one it was changed from, slate by slate, where both were run.

    Raises:
        SpdError: two such cells were measured on different slates.
    """
    found = {}
    for cell, base in bases.items():
        if cell in results and base in results:
            pair = results[cell], results[base]
            same_slates(pair)
            seeds = shared_seeds(pair)
            found[cell] = paired_difference(*(result.values(decoder, metric, seeds) for result in pair))
    return found


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
        f"Differences slate by slate on {escaped(found.source, 60)}, 95 % bootstrap intervals over slates, mean of the seeds "
        f"that all cells compared have. Of {plural(len(found.effects) + len(found.interactions), 'comparison')}, one in "
        "twenty looks clear by chance."
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
            found.metric: [difference_text(entry) for entry in named.values()],
            "p": [f"{entry.p_value:.4f}" for entry in named.values()],
            "n": [f"{entry.n:,}" for entry in named.values()],
            "Source": [escaped(found.source, 80)] * len(named),
        }
    )


def _show_differences(rows: Mapping[str, Difference], found: Findings, caption: str) -> None:
    bounds = {title: (entry.mean, entry.low, entry.high) for title, entry in rows.items()}
    n = next(iter(rows.values())).n
    chart = differences_chart(bounds, title=f"{found.metric}, difference (n = {n:,})", dark=frame.is_dark())
    st.altair_chart(chart, width="stretch", alt=f"Differences in {found.metric} with intervals: {', '.join(rows)}.")
    st.caption(caption)


def _sentences(lines: Sequence[str]) -> None:
    st.markdown("\n".join(f"- {message(line)}" for line in lines))
