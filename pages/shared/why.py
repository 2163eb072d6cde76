"""Two candidates of a ranking: why one stands above the other in words, and what changes when things are left out."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
import streamlit as st
from numpy.typing import NDArray

from pages.shared import frame, shuffling, state
from pages.shared.loaders import Loaded, slate_digest
from pages.shared.text import escaped, ordinal, shown
from spd_core.decoding.forced_ranks import COIN_TOSS, FIRM, sureness
from spd_core.explanations import Change, Effect, SwapGain, as_read, leave_one_out, swap_gain
from spd_core.figures.changes import changes_chart
from spd_core.figures.orderings import slope_chart
from spd_core.pipeline import RankingResult
from spd_core.slate import Slate
from spd_core.words import plural

PARTS = {
    "user": ("history", "query", "query word"),
    "rivals": ("candidate",),
    "all": ("history", "query", "query word", "candidate"),
}
PART_TITLES = ("Purchases and query", "Rivals", "Everything")
KIND_TITLES = {"history": "purchase", "query": "the query", "query word": "word of the query", "candidate": "rival"}
RUNS = "left out runs"
"""Where the session keeps them."""
MOST_BARS = 15
SURE_WORDS = {FIRM: "That is a firm order.", COIN_TOSS: "That is close to a coin-toss."}


@dataclass(frozen=True, eq=False)
class Trial:
    """A slate with things left out one at a time, and the matrices of what was scored so far."""

    changes: tuple[Change, ...]
    matrices: tuple[NDArray[np.float32], ...]
    """That of the slate as it is first, then one a change."""


def trials(loaded: Loaded, slate: Slate, part: str) -> Iterator[Trial]:
    """Trials that grow by one step of passes until everything is scored; the last one is complete.

    Raises:
        SpdError: a slate cannot be ranked.
    """
    changes = leave_one_out(slate, loaded.student.template, PARTS[part])
    matrices: list[NDArray[np.float32]] = []
    whole = as_read(slate, loaded.student.template)
    for step in shuffling.scored_slates(loaded, [whole, *(change.slate for change in changes)]):
        matrices += step
        yield Trial(changes, tuple(matrices))


def trial_key(loaded: Loaded, slate: Slate, part: str) -> str:
    """Key of a trial among those kept."""
    return f"{loaded.key} {slate_digest(slate)} {part}"


def run(loaded: Loaded, slate: Slate, part: str, key: str) -> None:
    """Score in small steps under a progress bar; pressing Cancel ends it at the next step and keeps nothing."""
    with st.container(horizontal=True, vertical_alignment="center"):
        bar = st.progress(0.0, "Ranking …")
        st.button("Cancel", icon=":material/close:")
    trial: Trial | None = None
    for trial in trials(loaded, slate, part):
        done, whole = len(trial.matrices), len(trial.changes) + 1
        bar.progress(done / whole, f"{done} of {whole} ranked")
    shuffling.keep_runs(key, trial, RUNS)
    st.rerun()


def pick_pair(slate: Slate, result: RankingResult) -> SwapGain:
    """The two candidates that the page is about; at first the winner, and what was right if it did not win."""
    order = [int(index) for index in result.ranking]
    relevant = slate.relevant()
    left, right = st.columns(2, gap="medium")
    with left:
        above = _pick("why above", "Why is", slate, order[:-1], order[0], order)
    lower = order[order.index(above) + 1 :]
    bought = [index for index in lower if relevant[index]]
    with right:
        below = _pick("why below", "above", slate, lower, (bought or lower)[0], order)
    return swap_gain(result.score_matrix, result.ranking, above, below)


def show_words(slate: Slate, pair: SwapGain, tau: float) -> None:
    """Why the two stand as they do, from the matrix in memory."""
    above, below = _titles(slate, pair)
    upper, lower = ordinal(pair.upper + 1), ordinal(pair.lower + 1)
    st.markdown(f"##### Changing places would cost {max(pair.gain, 0.0):.2f} of the total score", anchors=False)
    odds = np.exp(min(pair.gain / tau, 700.0))
    word = SURE_WORDS.get(sureness(pair.gain, tau=tau), "That leans one way without being firm.")
    lines = [
        f"**{above}** is {upper}, **{below}** is {lower}.",
        f"Against the average candidate, the {upper} place rather than the {lower} is worth **{pair.stake_above:+.2f}** to "
        f"the first and **{pair.stake_below:+.2f}** to the second.",
        _reason(pair),
        f"The model holds this order of the two for {_times(float(odds))} as likely as the swap, all others staying. {word}",
    ]
    st.markdown("\n".join(f"- {line}" for line in lines))


def show_headline(effects: Sequence[Effect]) -> None:
    """What leaving things out does to the two, in one sentence."""
    turned = [effect for effect in effects if effect.is_turned]
    if not effects:
        text = "There is nothing of that kind to leave out here"
    elif len(turned) == 1:
        text = f"Without {_named(turned[0])} the two stand the other way round"
    elif turned:
        text = f"{len(turned)} of {len(effects)} things turn the two round when left out; most of all {_named(turned[0])}"
    else:
        text = f"Nothing left out alone turns the two round; {_named(effects[0])} matters most"
    st.markdown(f"##### {text}", anchors=False)


def show_effects(effects: Sequence[Effect]) -> None:
    """The picture: a bar a thing left out."""
    most = effects[:MOST_BARS]
    is_mixed = len({effect.change.kind for effect in most}) > 1
    labels = [_label(effect, is_mixed=is_mixed) for effect in most]
    chart = changes_chart(
        labels, [effect.shift for effect in most], title="change of the cost of a swap", dark=frame.is_dark()
    )
    st.altair_chart(chart, width="stretch", alt="A bar for each thing left out: how much the cost of a swap changes.")
    turned = " ⇅: the two change places." if any(effect.is_turned for effect in most) else ""
    rest = f" The {MOST_BARS} largest of {len(effects)}." if len(effects) > MOST_BARS else ""
    st.caption(f"Left: without it the order of the two is less sure. Right: it is surer without.{turned}{rest}")


def show_noise(pair: SwapGain, again: SwapGain) -> None:
    """How much the same slate differs from itself when it is ranked in other company."""
    st.caption(
        f"The unchanged slate, ranked again among the others, moves the cost by {again.gain - pair.gain:+.2f}: rounding. "
        "Changes of that size say nothing. Each thing is left out alone; what two do together is not seen."
    )


def effect_frame(pair: SwapGain, effects: Sequence[Effect]) -> pd.DataFrame:
    """The picture as a table, with the ranks of both candidates before and after."""
    return pd.DataFrame(
        {
            "Left out": [shown(effect.change.text) for effect in effects],
            "What it is": [KIND_TITLES[effect.change.kind] for effect in effects],
            "Cost of a swap": [f"{effect.gain:.2f}" for effect in effects],
            "Change": [f"{effect.shift:+.2f}" for effect in effects],
            "Upper": [f"{pair.upper + 1} → {effect.rank_above + 1}" for effect in effects],
            "Lower": [f"{pair.lower + 1} → {effect.rank_below + 1}" for effect in effects],
            "Turned round": ["yes" if effect.is_turned else "" for effect in effects],
        }
    )


def show_whole(slate: Slate, result: RankingResult, effects: Sequence[Effect]) -> None:
    """One change in full: the ranking as it is and the ranking without that one thing."""
    numbers = list(range(len(effects)))
    labels = [f"{KIND_TITLES[effect.change.kind]}: {shown(effect.change.text, 80)}" for effect in effects]
    bound = state.bind("why whole", state.choose("why whole", numbers, 0))
    number = st.selectbox("The whole ranking without", numbers, **bound, format_func=lambda index: labels[index])
    effect = effects[state.remember("why whole", number or 0)]
    before = [index for index in result.ranking if slate.item_ids[index] in effect.ranking]
    places = np.array([effect.ranking.index(slate.item_ids[index]) for index in before])
    moved = int((places != np.arange(len(places))).sum())
    titles = [shown(slate.candidates[index].title, 34) for index in before]
    marked = [slate.relevant()[index] for index in before]
    chart = slope_chart(titles, places, marked=marked, before="as it is", after="without it", dark=frame.is_dark())
    st.altair_chart(chart, width="stretch", alt="Slope chart from the ranking as it is to the ranking without one thing.")
    st.caption(f"{plural(moved, 'candidate')} of {len(places)} stand elsewhere without it.")


def _pick(name: str, label: str, slate: Slate, options: list[int], default: int, order: list[int]) -> int:
    ids = [slate.item_ids[index] for index in options]
    places = {slate.item_ids[index]: rank for rank, index in enumerate(order, start=1)}
    titles = dict(zip(slate.item_ids, slate.candidates, strict=True))
    chosen = state.choose(name, ids, slate.item_ids[default])
    value = st.selectbox(
        label,
        ids,
        **state.bind(name, chosen),
        format_func=lambda item_id: f"{ordinal(places[item_id])} · {shown(titles[item_id].title, 80)}",
    )
    return slate.item_ids.index(state.remember(name, value or chosen))


def _titles(slate: Slate, pair: SwapGain) -> tuple[str, str]:
    above, below = (escaped(slate.candidates[index].title, 60) for index in (pair.above, pair.below))
    return above, below


def _reason(pair: SwapGain) -> str:
    if pair.stake_above > 0 >= pair.stake_below:
        return "Each stands where it scores better."
    if pair.stake_above > 0:
        return "Both score better at the higher place; the first gains more by it."
    if pair.stake_below < pair.stake_above:
        return "Both score better at the lower place; the second gains more by it."
    return "To the total it makes no difference which of the two stands where."


def _times(odds: float) -> str:
    if odds > 1000:
        return "more than 1,000 times"
    return f"{odds:.0f} times" if odds >= 10 else f"{odds:.1f} times"


def _named(effect: Effect) -> str:
    text = escaped(effect.change.text, 60)
    return "the query" if effect.change.kind == "query" else f"the {KIND_TITLES[effect.change.kind]} **{text}**"


def _label(effect: Effect, *, is_mixed: bool) -> str:
    kind = f"{KIND_TITLES[effect.change.kind]}: " if is_mixed else ""
    return f"{'⇅ ' if effect.is_turned else ''}{kind}{shown(effect.change.text, 60)}"
