"""Measuring latency while a visitor watches: in small steps, so that progress shows and Cancel works at once."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence

import numpy as np
import pandas as pd

from pages.shared import loaders
from pages.shared.loaders import Loaded
from pages.shared.text import escaped
from spd_core.figures.latency import StageTime
from spd_core.latency import LatencyReport, Spread
from spd_core.slate import Slate
from spd_core.words import plural

WARMUP = 3
STEP = 2
"""Rides between two looks at the Cancel button; even, because the ride and the bare prefill take turns at going first."""
STAGE_TITLES = {
    "tokenize": "Tokenise",
    "transfer": "Transfer",
    "prefill": "Prefill",
    "gather": "Gather",
    "head": "Head",
    "copy_back": "Copy back",
    "assignment": "Assignment",
}
PAPER_MS = {"prefill": "27.9", "head": "< 0.1", "assignment": "0.008", "total": "28"}
"""Source: SPD paper, latency of the 0.6B model on an A100 80 GB; internal data, N = 50."""


def measured(loaded: Loaded, slate: Slate, *, decoder: str, repeats: int) -> Iterator[LatencyReport]:
    """Reports over 2, 4, ... `repeats` rides; each is complete, the last one is the result.

    Raises:
        SpdError: the slate cannot be ranked.
    """
    report: LatencyReport | None = None
    for start in range(0, repeats, STEP):
        warmup = WARMUP if start == 0 else 0
        step = loaders.measure(loaded, slate, decoder=decoder, repeats=min(STEP, repeats - start), warmup=warmup)
        report = step if report is None else merged(report, step)
        yield report


def merged(first: LatencyReport, second: LatencyReport) -> LatencyReport:
    """One report over the rides of two, of the same slate on the same machine; the warm-up is that of the first."""
    total = _joined(first.total, second.total)
    bare = _joined(first.bare_prefill, second.bare_prefill)
    stages = {stage: _joined(spread, second.stages[stage]) for stage, spread in first.stages.items()}
    pairs = zip(total.samples_ms, bare.samples_ms, strict=True)
    return dataclasses.replace(
        first,
        stages=stages,
        total=total,
        bare_prefill=bare,
        ratio=float(np.median([ride / alone for ride, alone in pairs])),
        assignment_share=stages["assignment"].median_ms / total.median_ms,
    )


def stage_times(report: LatencyReport) -> list[StageTime]:
    """The stages of a report as the waterfall draws them."""
    return [StageTime(STAGE_TITLES.get(s, s), spread.median_ms, spread.p95_ms) for s, spread in report.stages.items()]


def report_frame(report: LatencyReport) -> pd.DataFrame:
    """The report as a table: a row a stage, then the total and the bare prefill; the paper's figures in their own column."""
    rows: Sequence[tuple[str, str, Spread]] = [
        *((key, STAGE_TITLES.get(key, key), spread) for key, spread in report.stages.items()),
        ("total", "Total, tokenise to ranking", report.total),
        ("bare", "Bare prefill of the same tokens", report.bare_prefill),
    ]
    return pd.DataFrame(
        {
            "Stage": [title for _, title, _ in rows],
            "Median, ms": [milliseconds(spread.median_ms) for _, _, spread in rows],
            "p95, ms": [milliseconds(spread.p95_ms) for _, _, spread in rows],
            "Runs": [spread.n for _, _, spread in rows],
            "Paper, A100 (other data and hardware), ms": [PAPER_MS.get(key, "") for key, _, _ in rows],
        }
    )


def circumstances(report: LatencyReport) -> str:
    """Markdown line on what was ranked, and on what."""
    machine = report.machine
    place = "" if machine["device"] == "cpu" else f"{escaped(machine['device'])}, "
    return (
        f"{plural(report.tokens, 'token')}, {plural(report.candidates, 'candidate')}. "
        f":gray[{place}{escaped(machine['cpu'])}, {plural(int(machine['threads']), 'thread')}, "
        f"{escaped(machine['dtype'])}{', compiled prefill' if 'prefill' in machine else ''}, "
        f"PyTorch {escaped(machine['torch'])}.]"
    )


def milliseconds(value: float) -> str:
    """A duration with three figures: ``112``, ``9.53``, ``0.0081``."""
    return f"{value:.0f}" if value >= 100 else f"{value:.3g}"


def _joined(first: Spread, second: Spread) -> Spread:
    return Spread.of([*first.samples_ms, *second.samples_ms])
