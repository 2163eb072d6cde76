"""Words that figures are told with, on the terminal, in reports and on pages."""

from __future__ import annotations


def plural(count: int, noun: str) -> str:
    """``1 candidate``, ``2 candidates``, ``1,000 passes``."""
    ending = "" if count == 1 else "es" if noun.endswith("s") else "s"
    return f"{count:,} {noun}{ending}"
