"""Keys and labels of chart rows: the key is ours, the title is only its label, so no title can merge or lose a row."""

from __future__ import annotations

import json
from collections.abc import Sequence

import altair as alt

LABEL_WIDTH = alt.ExprRef("clamp(containerSize()[0] * 0.36, 90, 300)")
"""Most pixels of a row label: a third of the chart, on a phone too; the tooltip has the whole title."""


def row_keys(count: int) -> list[str]:
    """Keys of `count` rows that sort in input order: ``r000``, ``r001``, ..."""
    return [f"r{index:03d}" for index in range(count)]


def row_index(key: str) -> int:
    """The row that a key of `row_keys` stands for."""
    return int(key[1:])


def axis_labels(titles: Sequence[str], *, color: str, numbered: bool = True) -> alt.Axis:
    """An axis that shows ``place · title`` for each row key, or the title alone.

    Args:
        titles: (N,) any text.
        color: of the labels.
        numbered: whether the place counts for something, as in an order of candidates.
    """
    labels = {
        key: f"{index + 1} · {title}" if numbered else title
        for index, (key, title) in enumerate(zip(row_keys(len(titles)), titles, strict=True))
    }
    # An expression cannot hold "</script>" or a raw line break; ASCII JSON has neither once "<" is written as an escape.
    lookup = json.dumps(labels, ensure_ascii=True).replace("<", "\\u003c")
    return alt.Axis(
        labelExpr=f"({lookup})[datum.value]",
        labelLimit=LABEL_WIDTH,
        labelColor=color,
        ticks=False,
        domain=False,
        labelOverlap=False,
        labelFlush=False,
        labelBound=False,
    )
