"""The report of a file: quantiles, shares and paired differences of what the collectors kept, as JSON-ready figures.

A figure that is not defined is null, never NaN.
"""

from __future__ import annotations

import json
import math
import os
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from spd_core.decoding.health import VERDICTS
from spd_core.diagnosis.matrices import TOPS, WORDS, Agreement, MatrixFigures, MatrixRow
from spd_core.errors import SpdError
from spd_core.metrics import MetricTable

KIND = "spd diagnosis"
VERSION = 1
QUANTILES = (0.05, 0.25, 0.5, 0.75, 0.95)
COMPARED = ("AUC", "Recall@1", "NDCG@10")
"""Metrics whose differences decide whether the assignment matters."""
USUAL_SORTS = ("expected_position", "first_column")
"""The plain sorts that anyone would use instead of the assignment; that by the first singular score only diagnoses."""


def build_report(figures: MatrixFigures, *, orders: Mapping[str, Any] | None, about: Mapping[str, Any]) -> dict[str, Any]:
    """JSON-ready report of a file.

    Args:
        figures: of all slates.
        orders: figures of the shuffles, None if there were none.
        about: file, checkpoint and the like; stands first.

    Raises:
        SpdError: not one slate was taken in.
    """
    rows = figures.rows
    if not rows:
        raise SpdError("no slates to diagnose; give a file with at least one")
    report = {"kind": KIND, "version": VERSION, **about, "slates": len(rows)}
    report["candidates"] = quantiles([row.size for row in rows])
    report["health"] = _health(rows)
    report["rankers"] = _rankers(figures)
    report["firmness"] = _firmness(rows)
    report["orders"] = orders
    return json.loads(json.dumps(report, allow_nan=False))  # type: ignore[no-any-return]


def read_report(path: str | os.PathLike[str]) -> dict[str, Any]:
    """A report that `diagnose` wrote.

    Raises:
        SpdError: the file is missing, is not JSON, or is no such report.
    """
    name = Path(path).name
    try:
        report = json.loads(Path(path).read_bytes())
    except (OSError, ValueError, RecursionError) as error:
        raise SpdError(f"{name}: cannot be read as JSON ({type(error).__name__}); run `diagnose` again") from None
    if not isinstance(report, dict) or (report.get("kind"), report.get("version")) != (KIND, VERSION):
        raise SpdError(f"{name}: is no report of `diagnose` of version {VERSION}; run `diagnose` again")
    return report


def quantiles(values: Iterable[float]) -> dict[str, float] | None:
    """Mean and quantiles of the finite values by name (``p5`` to ``p95``) with their number; None if there are none."""
    numbers = np.array([value for value in values if math.isfinite(value)], dtype=np.float64)
    if not len(numbers):
        return None
    points = np.quantile(numbers, QUANTILES)
    named = {f"p{q * 100:g}": float(point) for q, point in zip(QUANTILES, points, strict=True)}
    return {"mean": float(numbers.mean())} | named | {"n": len(numbers)}


def does_it_matter(report: Mapping[str, Any]) -> str:
    """Whether the assignment matters on the file, in one or two sentences of plain text."""
    sort = report["rankers"]["expected_position"]["against"]["hungarian"]
    if sort["slates"] == 0:
        return "No matrix of the file can be decoded."
    opening = (
        f"The assignment gives another order than a sort by expected position on {sort['other_order']:.0%} of "
        f"{sort['slates']} slates, and another first candidate on {sort['other_top']:.0%}."
    )
    found = [
        (name, metric, difference)
        for name in USUAL_SORTS
        for metric, difference in (report["rankers"][name]["hungarian_less_this"] or {}).items()
    ]
    if not found:
        return f"{opening} No slate has a label that could tell which is better."
    beyond = [entry for entry in found if entry[2]["low"] > 0 or entry[2]["high"] < 0]
    closing = f"{len(found)} paired differences in quality to a sort by expected position or first column"
    if not beyond:
        return f"{opening} None of {closing} is beyond chance."
    lines = "; ".join(
        f"{metric} {'better' if d['mean'] > 0 else 'worse'} by {abs(d['mean']):.3f} than {name.replace('_', ' ')}"
        for name, metric, d in beyond
    )
    return f"{opening} Of {closing}, {len(beyond)} {'is' if len(beyond) == 1 else 'are'} beyond chance: {lines}."


def _health(rows: Sequence[MatrixRow]) -> dict[str, Any]:
    names = next((row.health.keys() for row in rows if row.health), ())
    verdicts = Counter(row.verdict for row in rows)
    return {
        "verdicts": {verdict: verdicts[verdict] for verdict in VERDICTS},
        "slates_with_equal_scores": sum(row.health.get("duplicates", 0) > 0 for row in rows),
        "figures": {name: quantiles(row.health[name] for row in rows if row.health) for name in names},
    }


def _rankers(figures: MatrixFigures) -> dict[str, Any]:
    decoded = [row for row in figures.rows if row.regrets]
    tables = {name: collector.table(name) for name, collector in figures.metrics.items()}
    best = tables["hungarian"]
    return {
        name: {
            "regret": _regret([row.regrets[place] for row in decoded], [row.gain for row in decoded]),
            "same_as_a_sort": _share(figures.as_a_sort[name], len(decoded)),
            "against": {other: _agreement(one, figures.sizes) for other, one in figures.agreements[name].items()},
            "metrics": {metric: interval._asdict() for metric, interval in table.intervals().items()} if len(table) else None,
            "hungarian_less_this": _differences(best, table) if len(table) and name != "hungarian" else None,
        }
        for place, (name, table) in enumerate(tables.items())
    }


def _differences(best: MetricTable, table: MetricTable) -> dict[str, dict[str, float]]:
    return {metric: best.compare(table, metric)._asdict() for metric in COMPARED}


def _regret(regrets: Sequence[float], gains: Sequence[float]) -> dict[str, float] | None:
    """Mean, largest, and the mean share of what there is to lose; None without slates."""
    if not regrets:
        return None
    shares = [regret / gain for regret, gain in zip(regrets, gains, strict=True) if gain > 0]
    lost = float(np.mean(shares)) if shares else 0.0
    return {"mean": float(np.mean(regrets)), "max": max(regrets), "share_of_gain": lost}


def _agreement(agreement: Agreement, sizes: Counter[int]) -> dict[str, Any]:
    count, (total, pairs) = agreement.slates, agreement.taus
    deepest = max(sizes, default=0)
    reached: NDArray[np.int64] = np.array([sum(n for size, n in sizes.items() if size >= rank) for rank in _ranks(deepest)])
    first = [rank for rank, slates in agreement.first.items() for _ in range(slates)]
    return {
        "slates": count,
        "other_order": _share(agreement.other_order, count),
        "other_top": _share(agreement.first[1], count),
        "mean_kendall_tau": total / pairs if pairs else None,
        "first_difference": quantiles(first),
        "other_at_rank": [agreement.by_rank[rank] / int(n) for rank, n in zip(_ranks(deepest), reached, strict=True)],
    }


def _firmness(rows: Sequence[MatrixRow]) -> dict[str, Any]:
    counts = np.array([row.words for row in rows if row.words], dtype=np.int64).reshape(-1, len(WORDS)).sum(axis=0)
    tops = {}
    for place, top in enumerate(TOPS):
        deep = [row for row in rows if len(row.top_words) > place]
        words = Counter(row.top_words[place] for row in deep)
        shares = {word: _share(words[word], len(deep)) for word in WORDS}
        tops[str(top)] = shares | {"loss": quantiles(row.top_losses[place] for row in deep)}
    return {
        "ranks": {word: _share(int(count), int(counts.sum())) for word, count in zip(WORDS, counts, strict=True)},
        "top": tops,
    }


def _ranks(deepest: int) -> range:
    return range(1, deepest + 1)


def _share(part: int, whole: int) -> float:
    return part / whole if whole else 0.0
