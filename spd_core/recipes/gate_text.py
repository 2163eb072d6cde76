"""The gate's verdict in words for the terminal."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from spd_core.words import plural


def format_gate(verdict: Mapping[str, Any]) -> Iterator[str]:
    """Lines of a verdict, see `GateReport.to_json`: the verdict, its figures, then what speaks against the labels.

    Args:
        verdict: as it stands in ``LABELS.gate.json``.
    """
    taken = "train takes these labels" if verdict["passed"] else "train takes these labels only with --ungated"
    if verdict.get("verdict") == "undecided":
        yield f"gate: undecided, {plural(verdict['slates'], 'label')} cannot tell; {taken}"
    else:
        yield f"gate: {'passed' if verdict['passed'] else f'REFUSED; {taken}'}"
    kinds = ", ".join(f"{kind} {count}" for kind, count in verdict["kinds"].items())
    yield f"  valid as written  {verdict['valid_rate']:.1%} of {verdict['slates']} answers ({kinds})"
    clicks, order, twins = (verdict[name] for name in ("clicks", "input_order", "twins"))
    if clicks:
        auc, recall = clicks["auc"], clicks["recall_at_1"]
        yield (
            f"  clicks            AUC {interval_text(auc)}, Recall@1 {interval_text(recall)}, chance 0.500 and "
            f"{clicks['chance_recall_at_1']:.3f}, n = {auc['n']}"
        )
    if order:
        yield f"  input order       {order['words']}; Kendall tau {order['tau']['mean']:+.3f}"
    if twins:
        yield (
            f"  equal candidates  {twins['pairs']} pairs, {twins['mean_gap']:.1f} candidates between the two "
            f"({twins['chance_gap']:.1f} by chance), the earlier one first in {twins['earlier_first_share']:.0%}"
        )
    yield from (f"  speaks against    {reason}" for reason in verdict["reasons"])
    yield from (f"  not checked       {caution}" for caution in verdict["cautions"])


def interval_text(interval: Mapping[str, float]) -> str:
    """A mean with its 95 % interval."""
    return f"{interval['mean']:.3f} ({interval['low']:.3f} to {interval['high']:.3f})"
