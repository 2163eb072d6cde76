"""The rankings that are nearly as good as the best one, as a visitor sees them: how many, and who may stand where."""

from __future__ import annotations

import numpy as np
import pandas as pd
import streamlit as st

from pages.shared import controls, frame
from pages.shared.lab import Lab
from pages.shared.text import ordinal
from spd_core.decoding.near_optimal import NearOptimal, near_optimal
from spd_core.figures.near_optimal import reachable_chart
from spd_core.words import plural

ODDS = ("2", "5", "20")
LIMIT = 200
"""Rankings counted one by one; with 50 candidates a quarter of a second."""
MOST_ODDS = 1e6
"""Odds are shown up to here."""


def show_nearly(opened: Lab, scores: np.ndarray) -> None:
    """Choice of the odds, headline, picture, table."""
    st.markdown("##### Who else could stand where", anchors=False)
    titles = [f"{odds} to 1" for odds in ODDS]
    odds = float(controls.pick_option("near odds", "Rankings less likely by at most", ODDS, titles))
    found = near_optimal(scores, epsilon=opened.tau * np.log(odds), limit=LIMIT)
    st.markdown(sentence(found, odds))
    if len(found.ranking) > 1:
        names = [opened.title(index) for index in found.ranking]
        with np.errstate(over="ignore"):
            against = np.minimum(np.exp(found.losses / opened.tau), MOST_ODDS)
        chart = reachable_chart(names, against, found.reachable, dark=frame.is_dark())
        st.altair_chart(
            chart, width="stretch", alt="A row a candidate: the ranks it takes in rankings that are nearly as good."
        )
        st.caption(
            "Dot: its rank in the best ranking. Filled: ranks it takes in another near one; the fainter, the less likely."
        )
    with st.expander("The same ranks as a table"):
        st.dataframe(nearly_frame(opened, found), hide_index=True, alt="The ranks each candidate takes in near rankings.")


def sentence(found: NearOptimal, odds: float) -> str:
    """Markdown: how many rankings there are, and for how many candidates the rank is open."""
    count = len(found.runners)
    within = f"whose total is within {found.epsilon:.2f} of the best (at most {odds:g} times less likely)"
    open_ones = int((found.reachable.sum(axis=1) > 1).sum())
    if count == 1 and found.is_complete:
        return f"**No other ranking** is among those {within}."
    many = f"**{count - 1} other rankings**" if found.is_complete else f"**More than {count - 1} other rankings**"
    if found.is_complete and count == 2:
        many = "**One other ranking**"
    verb = "has" if open_ones == 1 else "have"
    is_first_safe = found.reachable[0].sum() == 1
    first = "the first place is the same in all of them" if is_first_safe else "the first place is open, too"
    return f"{many} {within}: {plural(open_ones, 'candidate')} {verb} more than one rank there; {first}."


def nearly_frame(opened: Lab, found: NearOptimal) -> pd.DataFrame:
    """The picture as a table: a row a rank."""
    return pd.DataFrame(
        {
            "Rank": range(1, len(found.ranking) + 1),
            "Candidate": [opened.title(index) for index in found.ranking],
            "Highest": [ordinal(int(rank) + 1) for rank in found.highest],
            "Lowest": [ordinal(int(rank) + 1) for rank in found.lowest],
            "Ranks it takes": [", ".join(str(rank + 1) for rank in np.flatnonzero(row)) for row in found.reachable],
        }
    )
