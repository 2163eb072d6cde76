"""Slates split by what they are, so that an easy part and a hard one do not hide in one mean.

An attribute is a word or a number that a slate has before anyone ranks it. Its values are put into few slices: words as they
are, many different numbers into ranges of about as many slates each.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

import numpy as np

from spd_core.metrics.bootstrap import Interval, mean_intervals
from spd_core.metrics.table import MetricTable
from spd_core.slate import Slate

Value = str | float | None
"""Of an attribute; None where a slate has none."""

YES_NO_KEYS = ("same_day_as_history",)
"""Keys of a slate whose value is a flag, or a count that stands for one: above 0 is yes."""
FIFTHS = ("first fifth", "second fifth", "third fifth", "fourth fifth", "last fifth")
MOST_WORDS = 12
"""Different words of an attribute; one with more names single slates rather than kinds of them."""
MOST_LETTERS = 40
"""Of a word; longer ones are sentences."""
MOST_NUMBERS = 6
"""Different numbers that stand alone; more are put into `RANGES` ranges."""
RANGES = 5


def attributes_of(slate: Slate) -> dict[str, Value]:
    """What is known of a slate beside its texts: size, history, where the right item is shown, and its own further keys.

    Returns:
        ``candidates``, ``history``, ``target place`` (fifth of the input in which the first relevant candidate stands),
        ``brand in history`` (of a relevant candidate: yes, no, or no brand), then each key of the slate beyond the contract
        that holds a flag, a number or a short word.
    """
    places = [place for place, is_right in enumerate(slate.relevant()) if is_right]
    built_in: dict[str, Value] = {
        "candidates": len(slate.candidates),
        "history": len(slate.user.history),
        "target place": FIFTHS[places[0] * len(FIFTHS) // len(slate.candidates)] if places else None,
        "brand in history": _brand_in_history(slate, places),
    }
    return {key: _plain(key, value) for key, value in slate.extra.items() if _is_plain(value)} | built_in


def slices_of(values: Sequence[Value]) -> list[str | None]:
    """The slice of each slate by its value of one attribute; all None if the values name no kinds of slates.

    Args:
        values: (n,) one a slate.
    """
    known = [value for value in values if value is not None]
    if known and all(not isinstance(value, str) for value in known):
        return _ranges([value if not isinstance(value, str) else None for value in values])
    words = [None if value is None else value if isinstance(value, str) else f"{value:.10g}" for value in values]
    return words if len(set(words) - {None}) <= MOST_WORDS else [None] * len(words)


def slice_order(values: Sequence[Value]) -> list[str]:
    """The slices of `slices_of`, each once: numbers upwards, fifths from first to last, other words from A to Z."""
    pairs = zip(slices_of(values), values, strict=True)
    lowest: dict[str, tuple[float, int, str]] = {}
    for name, value in pairs:
        if name is not None:
            fifth = FIFTHS.index(name) if name in FIFTHS else len(FIFTHS)
            key = (0.0 if value is None or isinstance(value, str) else float(value), fifth, name)
            lowest[name] = min(lowest.get(name, key), key)
    return sorted(lowest, key=lambda name: lowest[name])


def slice_metrics(
    tables: Mapping[str, MetricTable], values: Sequence[Value], *, seed: int = 0
) -> dict[str, dict[str, dict[str, Interval]]]:
    """Slice -> ranker -> metric -> mean with its 95 % interval over the slates of that slice.

    Args:
        tables: ranker -> its metrics, all of the same n slates in the same order.
        values: (n,) of one attribute, aligned with the tables.
        seed: of the draws.
    """
    names = slices_of(values)
    keys = [(ranker, metric) for ranker, table in tables.items() for metric in table.values]
    columns = np.array([tables[ranker].values[metric] for ranker, metric in keys]).T  # (n, C)
    found: dict[str, dict[str, dict[str, Interval]]] = {}
    for name in slice_order(values):
        chosen = np.array([other == name for other in names])
        rows: dict[str, dict[str, Interval]] = {ranker: {} for ranker in tables}
        for (ranker, metric), interval in zip(keys, mean_intervals(columns[chosen], seed=seed), strict=True):
            rows[ranker][metric] = interval
        found[name] = rows
    return found


def _ranges(numbers: Sequence[float | None]) -> list[str | None]:
    known = np.array([number for number in numbers if number is not None])
    distinct = np.unique(known)
    if len(distinct) <= MOST_NUMBERS:
        return [None if number is None else f"{number:.10g}" for number in numbers]
    inner = np.unique(np.quantile(known, np.arange(1, RANGES) / RANGES, method="higher"))
    index = np.searchsorted(inner, distinct, side="right")
    names: dict[float, str] = {}
    for place in np.unique(index):
        inside = distinct[index == place]
        low, high = f"{inside[0]:.10g}", f"{inside[-1]:.10g}"
        names |= dict.fromkeys(inside.tolist(), low if low == high else f"{low} to {high}")
    return [None if number is None else names[number] for number in numbers]


def _brand_in_history(slate: Slate, places: Sequence[int]) -> Value:
    """By the brands of what was bought and, as many histories hold none, by the words of the titles."""
    brands = {_words(brand) for place in places if (brand := slate.candidates[place].brand)}
    texts = [_words(text) for item in slate.user.history for text in (item.brand or "", item.title)]
    if not places:
        return None
    named = [brand for brand in brands if brand.strip()]
    return ("yes" if any(brand in text for brand in named for text in texts) else "no") if named else "no brand"


def _words(text: str) -> str:
    """Lower-case words with a blank around each, so that one text can be looked for in another word by word."""
    words = " ".join(re.findall(r"\w+", text.casefold()))
    return f" {words} "


def _is_plain(value: object) -> bool:
    return isinstance(value, bool | int | float) or (isinstance(value, str) and 0 < len(value) <= MOST_LETTERS)


def _plain(key: str, value: str | bool | float) -> Value:
    if isinstance(value, bool) or key in YES_NO_KEYS:
        return "yes" if value else "no"
    return value if isinstance(value, str) else float(value)
