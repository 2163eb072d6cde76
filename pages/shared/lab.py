"""One score matrix under every decoder, as a visitor compares them: orders, figures, health, how firm each rank is."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
import streamlit as st

from pages.shared import frame, state
from pages.shared.controls import DECODER_TITLES
from pages.shared.text import escaped, ordinal, shown
from spd_core.decoding import to_positions
from spd_core.decoding.comparison import DecodedOrder, compare_decoders
from spd_core.decoding.forced_ranks import (
    COIN_TOSS,
    COIN_TOSS_ODDS,
    FIRM,
    FIRM_ODDS,
    LEANING,
    ForcedRanks,
    firmness,
    forced_ranks,
)
from spd_core.decoding.health import (
    FEWEST_TO_JUDGE,
    HEALTHY,
    ONE_SCORE,
    SHARE_LIMIT,
    SORT_GAIN_LIMIT,
    MatrixHealth,
    matrix_health,
)
from spd_core.decoding.plain_sort import LEADING
from spd_core.figures.decoder_grid import decoder_grid
from spd_core.metrics import METRICS, exclusion, kendall_tau, slate_metrics
from spd_core.pipeline import RankingResult
from spd_core.slate import Slate
from spd_core.words import plural

SHOWN_METRICS = ("AUC", "Recall@1", "NDCG@10")
COLORS = {FIRM: "green", LEANING: "gray", COIN_TOSS: "orange"}


@dataclass(frozen=True)
class Lab:
    """One slate's matrix with everything the page shows of it."""

    slate: Slate
    orders: tuple[DecodedOrder, ...]
    health: MatrixHealth
    forced: ForcedRanks
    tau: float

    @property
    def best(self) -> DecodedOrder:
        """The Hungarian order, against which the others are held."""
        return self.orders[0]

    def title(self, index: int) -> str:
        """Short title of a candidate."""
        return shown(self.slate.candidates[index].title, 60)


def open_lab(slate: Slate, result: RankingResult) -> Lab:
    """Everything the page shows, computed from the matrix in memory.

    Raises:
        ScoreMatrixError: a score is not finite.
    """
    matrix = result.score_matrix
    return Lab(slate, compare_decoders(matrix), matrix_health(matrix, tau=result.tau), forced_ranks(matrix), result.tau)


def title_of(order: DecodedOrder) -> str:
    """The decoder's name for people."""
    return DECODER_TITLES.get(order.decoder, order.decoder.replace("_", " ").capitalize())


def headline(lab: Lab) -> str:
    """Markdown: does the choice of decoder matter on this slate?"""
    others = lab.orders[1:]
    same = sum(np.array_equal(order.ranking, lab.best.ranking) for order in others)
    firsts = {int(order.ranking[0]) for order in lab.orders}
    if same == len(others):
        return f"**All {len(lab.orders)} decoders give the same order.** On this slate the choice does not matter."
    first = "all agree on the first rank" if len(firsts) == 1 else f"{len(firsts)} candidates are put first by some decoder"
    count = plural(same, "other decoder") if same else "No other decoder"
    verb = "gives" if same < 2 else "give"
    return f"**{count} of {len(others)} {verb} the Hungarian order**; {first}."


def show_orders(lab: Lab) -> None:
    """The picture: ranks by decoder, with its caption."""
    order = lab.best.ranking
    relevant = lab.slate.relevant()
    positions = {title_of(one): to_positions(one.ranking)[order] for one in lab.orders}
    chart = decoder_grid(
        [lab.title(index) for index in order], positions, marked=[relevant[index] for index in order], dark=frame.is_dark()
    )
    alt = f"Grid of the ranks of {plural(len(order), 'candidate')} under {len(positions)} decoders."
    st.altair_chart(chart, width="stretch", alt=alt)
    star = " A star marks what was right." if any(relevant) else ""
    st.caption(f"Rows in Hungarian order; each cell is a rank. Filled with an arrow: differs from the Hungarian one.{star}")


def rank_frame(lab: Lab) -> pd.DataFrame:
    """The picture as a table: a row a candidate, a column a decoder."""
    order = lab.best.ranking
    columns = {title_of(one): to_positions(one.ranking)[order] + 1 for one in lab.orders}
    return pd.DataFrame({"Candidate": [lab.title(index) for index in order]} | columns)


def decoder_frame(lab: Lab) -> pd.DataFrame:
    """A row a decoder: total, regret, agreement, plain sort, time, and metrics where the slate has a label."""
    best = to_positions(lab.best.ranking)
    rows = []
    for order in lab.orders:
        places = to_positions(order.ranking)
        rows.append(
            {
                "Decoder": title_of(order),
                "Total": f"{order.total:.2f}",
                "Regret": f"{order.regret:.2f}",
                "Ranks that differ": str((places != best).sum()),
                "Kendall tau": "" if len(best) == 1 else f"{kendall_tau(places, best):.2f}",
                "Same order as a plain sort": _sort_badge(order.same_sort),
                "Time, ms": f"{order.time_ms:.2g}",
            }
            | _metrics(lab.slate, order)
        )
    return pd.DataFrame(rows)


def show_health(health: MatrixHealth) -> None:
    """The verdict in words, and the numbers and thresholds behind it."""
    look = {HEALTHY: ("green", "check_circle"), ONE_SCORE: ("blue", "sort")}.get(health.verdict, ("orange", "warning"))
    st.badge(health.verdict, color=look[0], icon=f":material/{look[1]}:")
    st.markdown(health.meaning)
    st.table(health_frame(health), border="horizontal", hide_index=True)
    st.caption(
        f"Thresholds of one score: gain {SORT_GAIN_LIMIT:.0%}, double-centred energy {SHARE_LIMIT:.0%}, at least "
        f"{FEWEST_TO_JUDGE} candidates. Healthy does not mean right: see the metrics."
    )


def health_frame(health: MatrixHealth) -> pd.DataFrame:
    """The numbers of the verdict, a row each."""
    numbers = {"Energy in one singular value, raw": f"{health.raw_share:.0%}"}
    numbers["The same, double-centred"] = f"{health.centred_share:.0%}"
    for name, gain in health.sort_gains.items():
        numbers[f"Gain of a sort by {name}"] = f"{gain:.0%}" + (" (decides)" if name == LEADING else "")
    numbers |= {
        "Favourite position taken": f"{health.collisions} of {health.candidates}",
        "Spread over positions": f"{health.row_spread:.2f}",
        "Spread over candidates": f"{health.column_spread:.2f}",
        "Best total over second best": "" if np.isinf(health.second_best_gap) else f"{health.second_best_gap:.3f}",
        "Near ties": f"{health.coin_tosses} of {health.candidates}",
        "Duplicates": f"{health.duplicates}",
    }
    return pd.DataFrame({"Number": numbers.keys(), "Value": numbers.values()})


def show_firmness(lab: Lab) -> None:
    """What each departure from the best ranking costs, with a rank of the visitor's choice."""
    words = firmness(lab.forced, tau=lab.tau)
    counts = ", ".join(f"{words.count(word)} {word}" for word in (FIRM, LEANING, COIN_TOSS))
    st.markdown(f"Of {plural(len(words), 'rank')}: **{counts}**.")
    ranks = list(range(1, len(words) + 1))
    bound = state.bind("forced rank", state.choose("forced rank", ranks, 1))
    wanted = state.remember(
        "forced rank", st.selectbox("Force each candidate to rank", ranks, **bound, format_func=ordinal, width=220)
    )
    table = firmness_frame(lab, wanted, words)
    table["Candidate"] = [f"**{escaped(title)}**" for title in table["Candidate"]]
    table["How sure"] = [f":{COLORS[word]}-badge[{word}]" for word in words]
    st.table(table, border="horizontal", hide_index=True)
    st.caption(
        f"Total score lost when one candidate must move and all others may. Firm: odds of {FIRM_ODDS:g} to 1 or more; "
        f"coin-toss: below {COIN_TOSS_ODDS:g} to 1."
    )


def firmness_frame(lab: Lab, wanted: int, words: Sequence[str]) -> pd.DataFrame:
    """A row a rank: who holds it, how sure that is, and the losses of moving; `wanted` is a rank from 1."""
    forced = lab.forced
    return pd.DataFrame(
        {
            "Rank": range(1, len(words) + 1),
            "Candidate": [lab.title(index) for index in forced.ranking],
            "How sure": list(words),
            "Anywhere else": [_loss(value) for value in forced.leaving],
            "One up": [_loss(value) for value in forced.one_up],
            "One down": [_loss(value) for value in forced.one_down],
            f"To rank {wanted}": [_loss(value) for value in forced.losses[:, wanted - 1]],
        }
    )


def _sort_badge(name: str | None) -> str:
    return f":blue-badge[yes: {name}]" if name else ":gray-badge[no]"


def _metrics(slate: Slate, order: DecodedOrder) -> dict[str, str]:
    if exclusion(slate):
        return {}
    values = dict(zip(METRICS, slate_metrics(slate, to_positions(order.ranking)), strict=True))
    return {name: f"{values[name]:.3f}" for name in SHOWN_METRICS}


def _loss(value: float) -> str:
    return f"{value:.3f}" if np.isfinite(value) else ""
