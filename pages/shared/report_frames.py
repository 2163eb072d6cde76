"""A report of `diagnose` as tables and lines of text."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pandas as pd

from pages.shared.controls import DECODER_TITLES
from spd_core.diagnosis import COMPARED, WORDS
from spd_core.words import plural

HEALTH_TITLES = {
    "raw_share": "Energy in one singular value, raw",
    "centred_share": "The same, double-centred",
    "sort_gain": "Gain of a sort by the first singular score",
    "collisions": "Favourite position taken, share of candidates",
    "near_ties": "Near ties, share of candidates",
    "duplicates": "Equal scores, share of candidates",
    "row_spread": "Spread over positions",
    "column_spread": "Spread over candidates",
    "second_best_gap": "Best total over second best",
}
ORDER_TITLES = {
    "mean_kendall_tau": "Agreement of two shuffles (Kendall tau)",
    "rank_std": "Typical move, places",
    "rank_range": "Best to worst rank, places",
    "top_stays": "Same first place as in the order given",
    "top_most_frequent": "Shuffles won by the most frequent winner",
    "position_slope": "Pull of the place, places a place",
    "position_correlation": "Correlation of place and rank",
}


def ranker_frame(report: Mapping[str, Any]) -> pd.DataFrame:
    """A row a ranker: how often and where it differs from the Hungarian order and from a plain sort, and its regret."""
    rows = []
    for name, row in report["rankers"].items():
        regret, against = row["regret"], row["against"].get("hungarian")
        if regret is None:
            continue
        first = against["first_difference"] if against else None
        tau = against["mean_kendall_tau"] if against else None
        rows.append(
            {
                "Ranker": title(name),
                "Other order": f"{against['other_order']:.0%}" if against else "",
                "Other first candidate": f"{against['other_top']:.0%}" if against else "",
                "First difference at rank (median)": f"{first['p50']:g}" if first else "",
                "Kendall tau": f"{tau:.2f}" if tau is not None else "",
                "Same order as a plain sort": f"{row['same_as_a_sort']:.0%}",
                "Regret, mean": f"{regret['mean']:.2f}",
                "Regret, largest": f"{regret['max']:.2f}",
                "Regret, share of the gain": f"{regret['share_of_gain']:.1%}",
            }
        )
    return pd.DataFrame(rows)


def quality_frame(report: Mapping[str, Any]) -> pd.DataFrame:
    """A row a ranker: its metrics, and what Hungarian is better by, with the 95 % interval."""
    rows = []
    for name, row in report["rankers"].items():
        if row["metrics"]:
            line = {"Ranker": title(name)}
            for metric in COMPARED:
                less = (row["hungarian_less_this"] or {}).get(metric)
                line[metric] = f"{row['metrics'][metric]['mean']:.3f}"
                line[f"Hungarian less this, {metric}"] = _with_interval(less, "+.3f") if less else ""
            rows.append(line)
    return pd.DataFrame(rows)


def verdict_line(report: Mapping[str, Any]) -> str:
    """Markdown: how many matrices got which verdict."""
    counts = report["health"]["verdicts"]
    return "; ".join(f"**{count}** {verdict}" for verdict, count in counts.items() if count) + "."


def health_frame(report: Mapping[str, Any]) -> pd.DataFrame:
    """A row a figure of the matrices' health: median, and the range of the middle nine tenths."""
    found = {name: values for name, values in report["health"]["figures"].items() if values is not None}
    return pd.DataFrame(
        {
            "Number": [HEALTH_TITLES.get(name, name) for name in found],
            "Median": [f"{values['p50']:.2f}" for values in found.values()],
            "9 of 10 slates": [f"{values['p5']:.2f} to {values['p95']:.2f}" for values in found.values()],
        }
    )


def firmness_frame(report: Mapping[str, Any]) -> pd.DataFrame:
    """A row for all ranks, and one for each depth of the top: shares that are firm, leaning, coin-toss."""
    firmness = report["firmness"]
    rows = {"Single ranks": firmness["ranks"] | {"loss": None}}
    rows |= {f"First {top}" if top != "1" else "First place": row for top, row in firmness["top"].items() if row["loss"]}
    shares = {word.capitalize(): [f"{row[word]:.0%}" for row in rows.values()] for word in WORDS}
    losses = [f"{row['loss']['p50']:.2f}" if row["loss"] else "" for row in rows.values()]
    return pd.DataFrame({"What": list(rows)} | shares | {"Loss, median": losses})


def order_frame(orders: Mapping[str, Any]) -> pd.DataFrame:
    """A row a figure of the shuffles: mean over slates with its 95 % interval."""
    found = {name: orders[name] for name in ORDER_TITLES if orders[name] is not None}
    return pd.DataFrame(
        {
            "Number": [ORDER_TITLES[name] for name in found],
            "Mean over slates": [f"{values['mean']:.2f}" for values in found.values()],
            "95 % interval": [f"{values['low']:.2f} to {values['high']:.2f}" for values in found.values()],
        }
    )


def order_lines(orders: Mapping[str, Any]) -> list[str]:
    """Markdown lines on where winners were shown, and on candidates that are there twice."""
    lines = []
    if (fifths := orders["winner_shown_in_fifth"]) is not None:
        shares = ", ".join(f"{share:.0%}" for share in fifths)
        lines.append(
            f"The winner was shown in the first, second, ... last fifth of the input in {shares} (by chance 20% each)."
        )
    if (copies := orders["copies"]) is not None:
        lines.append(
            f"One candidate of each slate put in a second time: side by side on **{copies['adjacent']:.0%}** of "
            f"{plural(copies['slates'], 'slate')}, with {copies['between']['mean']:.1f} others between on average "
            f"(by chance {copies['chance_between']:.1f}), at most {copies['largest']}."
        )
    if (own := orders["duplicates"]) is not None:
        lines.append(
            f"{plural(own['groups'], 'group')} of candidates that read the same: side by side in {own['adjacent']:.0%} of "
            f"the shuffles, with {own['between']:.1f} others between on average, at most {own['largest']}."
        )
    else:
        lines.append("No two candidates of these slates read the same.")
    return lines


def title(name: str) -> str:
    """A ranker's name for people."""
    return DECODER_TITLES.get(name, name.replace("_", " ").capitalize())


def _with_interval(values: Mapping[str, float], style: str) -> str:
    return f"{values['mean']:{style}} ({values['low']:{style}} to {values['high']:{style}})"
