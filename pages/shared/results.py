"""Slates and rankings as lists that anyone can read: story, history, ranked candidates with their movement."""

from __future__ import annotations

from collections.abc import Sequence

import pandas as pd
import streamlit as st

from pages.shared import frame
from pages.shared.rankings import Line, as_csv, as_json, positions
from pages.shared.text import escaped, message, ordinal, shown
from spd_core.decoding.health import ONE_SCORE
from spd_core.figures.orderings import slope_chart
from spd_core.pipeline import RankingResult
from spd_core.slate import Item, Slate
from spd_core.words import plural

CUT_WARNING = "descriptions were cut"
"""What the pipeline says of texts beyond the cap."""
FIRST_LINES = 10
"""Lines shown at once; the rest waits in an expander."""
MOST_LINES = 200
"""Lines shown at all; no student ranks more, but anyone may upload more."""
UP, DOWN, SAME = "▲", "▼", "="


def show_story(slate: Slate) -> None:
    """The slate's story in one line, with the mark of invented data."""
    with st.container(horizontal=True, vertical_alignment="center", gap="small"):
        if slate.extra.get("synthetic"):
            st.badge("synthetic", color="violet", icon=":material/science:", help="Invented shop, shoppers and purchases.")
        if slate.user.query is not None:
            st.markdown(f"Searched for: **{escaped(slate.user.query, 300)}**")
        elif slate.extra.get("story"):
            st.markdown(escaped(slate.extra["story"], 300))


def show_history(slate: Slate, history_limit: int) -> None:
    """What the user bought before, newest first, as much of it as the prompt reads."""
    history = slate.user.history[::-1]
    name = slate.user.extra.get("name")
    st.markdown(f"##### Bought before{f' by {escaped(name, 60)}' if name else ''}", anchors=False)
    if not history:
        st.caption("Nothing is known about this shopper: no purchase, so the candidates alone decide.")
        return
    read = history[:history_limit]
    st.table(pd.DataFrame({"Newest first": [_described(item) for item in read]}), border="horizontal", hide_header=True)
    older = len(history) - len(read)
    st.caption("Newest first." + (f" The prompt does not reach back to {plural(older, 'older purchase')}." if older else ""))


def show_input(slate: Slate) -> None:
    """The candidates as they were given, before any ranking."""
    rows = [(f"**{place}**", _described(item)) for place, item in enumerate(slate.candidates, start=1)]
    st.markdown(f"##### {plural(len(rows), 'candidate')} in the order given", anchors=False)
    _long_table(rows, ["Place", "Candidate"], "Places")


def show_summary(slate: Slate, ranked: Sequence[Line]) -> None:
    """The one thing to know: where the bought item, or the relevant ones, came out."""
    relevant = [line for line in ranked if line.is_relevant]
    count = len(ranked)
    if len(relevant) == 1 and count > 1:
        line = relevant[0]
        moved = "where it was shown" if not line.rise else f"shown {ordinal(line.shown_at)}"
        st.markdown(f"##### {_noun(slate)} is ranked {ordinal(line.rank)} of {count} ({moved})", anchors=False)
    elif 1 < len(relevant) < count:
        top = min(len(relevant), 5)
        hits = sum(line.is_relevant for line in ranked[:top])
        st.markdown(f"##### {hits} of the first {top} are right; {len(relevant)} of {count} would be", anchors=False)
    else:
        st.markdown(f"##### {plural(count, 'candidate')}, best first", anchors=False)
    if why := slate.extra.get("why"):
        st.caption(f"Why it was bought: {escaped(why, 300)}")


def show_ranking(slate: Slate, ranked: Sequence[Line]) -> None:
    """The ranked list with each candidate's movement against the order it was given in."""
    rows = [(f"**{line.rank}**", _described(line.item) + _marks(slate, line), _movement(line)) for line in ranked]
    _long_table(rows, ["Rank", "Candidate", "Moved"], "Ranks")


def show_warnings(result: RankingResult) -> None:
    """What to know before trusting the ranking, loud where it means little, quiet where it only explains.

    That texts were cut is told with the tokens, where it belongs.
    """
    for warning in result.warnings:
        text = message(warning)
        sentence = text[:1].upper() + text[1:] + "."
        if warning.startswith(ONE_SCORE):
            st.caption(f":material/info: {sentence}")
        elif CUT_WARNING not in warning:
            st.warning(sentence, icon=":material/warning:")


def show_movement(slate: Slate, result: RankingResult) -> None:
    """The picture of the ranking: a line a candidate, from the order given to the new one."""
    if len(slate.candidates) == 1:
        return
    titles = [shown(item.title, 34) for item in slate.candidates]
    chart = slope_chart(titles, positions(result), marked=list(slate.relevant()), dark=frame.is_dark())
    st.markdown("##### How the order changed", anchors=False)
    st.altair_chart(chart, width="stretch", alt="Slope chart from the order given to the ranking, a line a candidate.")
    star = " A star marks what was right." if any(slate.relevant()) else ""
    st.caption(f"Left the order given, right the ranking. Rising lines were moved up.{star}")


def ranking_frame(ranked: Sequence[Line]) -> pd.DataFrame:
    """The ranked list as a table of plain values."""
    return pd.DataFrame(
        {
            "Rank": [line.rank for line in ranked],
            "Shown at": [line.shown_at for line in ranked],
            "Moved": [f"{line.rise:+d}" if line.rise else "0" for line in ranked],
            "Title": [shown(line.item.title) for line in ranked],
            "Item id": [shown(line.item.item_id) for line in ranked],
            "Right": ["yes" if line.is_relevant else "" for line in ranked],
            "Tokens used": [line.used_tokens for line in ranked],
            "Tokens cut": [line.cut_tokens for line in ranked],
        }
    )


def show_downloads(slate: Slate, result: RankingResult) -> None:
    """The result as files: JSON that can be uploaded again, CSV for a spreadsheet."""
    with st.container(horizontal=True, gap="small"):
        _download("JSON", as_json(slate, result), "ranking.json", "application/json")
        _download("CSV", as_csv(slate, result), "ranking.csv", "text/csv")


def timing_line(result: RankingResult) -> str:
    """Markdown on what this one ranking took, and how much of the candidates' texts was read."""
    spent = result.timings_ms
    parts = ", ".join(f"{label} {_ms(spent[key])}" for key, label in _STAGE_WORDS.items() if key in spent)
    place = f"{result.provenance['device']}, {result.provenance['dtype']}"
    cut = int((result.cut_tokens > 0).sum())
    read = f"{plural(int(result.used_tokens.sum()), 'token')} of descriptions read"
    rest = f", {plural(int(result.cut_tokens.sum()), 'token')} of {plural(cut, 'long description')} left out" if cut else ""
    return f"This pass took **{_ms(spent['total'])}** here ({place}): {parts}. {read[:1].upper()}{read[1:]}{rest}."


_STAGE_WORDS = {"prefill": "reading the prompt", "head": "head", "assignment": "assignment"}


def _download(label: str, data: str, file_name: str, mime: str) -> None:
    st.download_button(label, data, file_name, mime, icon=":material/download:", on_click="ignore", key=f"save {file_name}")


def _ms(value: float) -> str:
    return f"{value:.0f} ms" if value >= 10 else f"{value:.2g} ms"


def _noun(slate: Slate) -> str:
    name = slate.user.extra.get("name")
    if slate.grades is not None:
        return "The relevant candidate"
    return f"What {escaped(name, 60)} bought next" if name else "The item bought next"


def _long_table(rows: Sequence[tuple[str, ...]], columns: list[str], noun: str) -> None:
    table = pd.DataFrame(rows[:MOST_LINES], columns=columns)
    st.table(table.head(FIRST_LINES), border="horizontal", hide_index=True)
    if len(table) > FIRST_LINES:
        with st.expander(f"{noun} {FIRST_LINES + 1} to {len(table)}"):
            st.table(table.tail(-FIRST_LINES), border="horizontal", hide_index=True)
    if len(rows) > MOST_LINES:
        st.caption(f"{len(rows) - MOST_LINES:,} more are not shown.")


def _described(item: Item) -> str:
    """Title in bold and, in gray below it, what the title does not say."""
    title = shown(item.title)
    price = item.extra.get("price")
    facts = [item.brand if item.brand and item.brand.casefold() not in title.casefold() else None]
    facts += [item.category.rsplit(" > ", 1)[-1] if item.category else None]
    facts += [f"rated {item.rating:g}" if item.rating is not None else None, f"price {price}" if price is not None else None]
    details = " · ".join(escaped(fact, 60) for fact in facts if fact)
    return f"**{escaped(title)}**" + (f"  \n:gray[{details}]" if details else "")


def _marks(slate: Slate, line: Line) -> str:
    if slate.grades is not None and line.grade is not None:
        color = "green" if line.is_relevant else "gray"
        return f" :{color}-badge[grade {line.grade:g}]"
    return " :green-badge[:material/shopping_bag: bought next]" if line.is_relevant else ""


def _movement(line: Line) -> str:
    if not line.rise:
        return f":gray[{SAME} stayed]"
    color, arrow = ("blue", UP) if line.rise > 0 else ("orange", DOWN)
    return f":{color}[**{arrow} {abs(line.rise)}**] :gray[was {ordinal(line.shown_at)}]"
