"""A stored measurement as sentences and tables: where it is from, the contest with the teacher, throughput, solver times."""

from __future__ import annotations

import pandas as pd

from pages.shared.comparison import ratio_text, times
from pages.shared.measuring import milliseconds
from pages.shared.sides import KIND_TITLES, shown_ms
from pages.shared.text import escaped
from spd_core.capacity import MATRIX_KINDS
from spd_core.figures.bench_curves import CurvePoint, Rate
from spd_core.recipes.bench_passes import OWN
from spd_core.recipes.bench_report import BenchReport, StoredContest, StoredCost, StoredSpread
from spd_core.words import plural

STUDENT = "student, one pass"
WRITERS = {"constrained": "teacher, constrained", "free": "teacher, free"}
MATRICES = tuple(MATRIX_KINDS)
MATRIX_COLUMN = "Matrix {}, ms: median (p95)"
THINKING_COLUMN = "After {} thinking tokens (computed)"


def source_line(report: BenchReport) -> str:
    """Markdown: n, what was ranked by what, when, on what machine and with which code."""
    machine = report.machine
    device = "" if machine.device == "cpu" else f"{escaped(machine.device, 60)}, "
    where = (
        f"{device}{escaped(machine.cpu, 60)}, {plural(machine.threads, 'thread')}, {escaped(machine.dtype, 20)}, "
        f"{'compiled prefill, ' if machine.prefill else ''}"
        f"PyTorch {escaped(machine.torch, 20)}"
    )
    file = f" of {escaped(report.file, 60)}" if report.file else ""
    who = f"checkpoint {escaped(report.checkpoint, 60)}" if report.checkpoint else "checkpoint not recorded"
    when = escaped(report.date, 20) if report.date else "date not recorded"
    commit = f", commit {escaped(report.commit, 20)}" if report.commit else ""
    size = f"{plural(report.candidates, 'candidate')}, {plural(report.tokens, 'token')}"
    return (
        f"n = {plural(report.total.n, 'run')} after {report.warmup} for warm-up, slate {escaped(report.slate_id, 60)}{file} "
        f"({size}): {who}, decoder {escaped(report.decoder, 40)}. :gray[Measured {when}: {where}{commit}.]"
    )


def menu_line(report: BenchReport, name: str) -> str:
    """Plain line for a menu."""
    who = report.checkpoint or "checkpoint not recorded"
    return f"{who}, N = {report.candidates}, n = {report.total.n}, {report.date or 'date not recorded'} ({name})"


def contest_headline(report: BenchReport) -> str:
    """Markdown: how much faster the student is on the largest raced slate, both sides measured."""
    contest = max(report.contests, key=lambda contest: contest.candidates)
    ways = [f"{times(contest.speed_up(cost).direct)} than {_who(cost)}" for cost in contest.teachers]
    return f"With {plural(contest.candidates, 'candidate')} the student is {' and '.join(ways)}"


def _who(cost: StoredCost) -> str:
    return f"{escaped(cost.teacher, 60)} ({cost.mode}{'' if cost.kind == 'ok' else '; it wrote no ranking'})"


def contest_points(report: BenchReport) -> list[CurvePoint]:
    """The contests as the chart draws them; each teacher's point says how many times longer it took."""
    points = []
    for contest in report.contests:
        own = contest.student
        points.append(CurvePoint(STUDENT, contest.candidates, own.median_ms, own.p95_ms, own.n))
        for cost in contest.teachers:
            label, spread = ratio_text(contest.speed_up(cost).direct), cost.total
            series = WRITERS[cost.mode]
            points.append(CurvePoint(series, contest.candidates, spread.median_ms, spread.p95_ms, spread.n, label))
    return points


def contest_frame(report: BenchReport, thinking: int | None) -> pd.DataFrame:
    """A row a side of each contest.

    Args:
        report: with contests.
        thinking: tokens that the teacher is priced for in a column of its own; None leaves that out.
    """
    rows = []
    for contest in sorted(report.contests, key=lambda contest: contest.candidates):
        own = contest.student
        rows.append(_side(contest, STUDENT, own) | {"Tokens": "0", "Passes": "1", "Answer": "always valid"})
        for cost in contest.teachers:
            speed = contest.speed_up(cost)
            side = _side(contest, WRITERS[cost.mode], cost.total)
            side |= {"Tokens": f"{cost.tokens:,}", "Passes": f"{cost.passes:,}", "Answer": KIND_TITLES[cost.kind]}
            side["Student is (measured)"] = times(speed.direct)
            if thinking is not None and speed.token_ms is not None:
                side[THINKING_COLUMN.format(thinking)] = times(speed.after_thinking(thinking))
            rows.append(side)
    speeds = ["Student is (measured)", *([] if thinking is None else [THINKING_COLUMN.format(thinking)])]
    columns = ["Candidates", "Who", "ms, median (p95)", *speeds, "n", "Tokens", "Passes", "Answer"]
    return pd.DataFrame(rows, columns=columns).fillna("")


def _side(contest: StoredContest, who: str, spread: StoredSpread) -> dict[str, object]:
    times_ms = f"{shown_ms(spread.median_ms)} ({shown_ms(spread.p95_ms)})"
    return {"Candidates": str(contest.candidates), "Who": who, "ms, median (p95)": times_ms, "n": spread.n}


def is_thinking_priced(report: BenchReport) -> bool:
    """Whether any teacher's time for a token was seen."""
    return any(cost.token_ms is not None for contest in report.contests for cost in contest.teachers)


def pass_headline(report: BenchReport) -> str:
    """Markdown: what the quickest way of running the prefill gains on how commands run it, on the longest prompt."""
    longest = max(row.tokens for row in report.passes)
    best = max((row for row in report.passes if row.tokens == longest), key=lambda row: row.gain)
    if best.name == OWN:
        return f"No other way of running the prefill is faster at {plural(longest, 'token')}"
    return f"The {best.name} prefill is {best.gain:.2f} times as fast at {plural(longest, 'token')}"


def pass_frame(report: BenchReport) -> pd.DataFrame:
    """A row a way of running the prefill and prompt, the longest prompt first."""
    peak = report.capacity.gemm_tflops if report.capacity else None
    rows = []
    for row in sorted(report.passes, key=lambda row: -row.tokens):
        shown = {
            "Prefill": row.name,
            "Candidates": str(row.candidates),
            "Tokens": f"{row.tokens:,}",
            "ms, median (p95)": f"{shown_ms(row.time.median_ms)} ({shown_ms(row.time.p95_ms)})",
            f"Times as fast as {OWN}": f"{row.gain:.2f}",
        }
        if peak is not None:
            shown["Share of the peak"] = f"{row.tflops / peak:.0%}"
        rows.append(shown | {"Difference of the states": f"{row.difference:.2g}", "n": str(row.time.n)})
    return pd.DataFrame(rows)


def rates(report: BenchReport) -> list[Rate]:
    """Throughput as the chart draws it, by batch size."""
    found = report.capacity.batches if report.capacity else ()
    return sorted(Rate(rate.batch, rate.slates_per_s, rate.time.median_ms, rate.time.n) for rate in found)


def rate_headline(report: BenchReport) -> str:
    """Markdown: the best throughput, and what it gains on the smallest batch."""
    found = rates(report)
    first, best = found[0], max(found, key=lambda rate: rate.slates_per_s)
    gain = best.slates_per_s / first.slates_per_s
    if best is first:
        words = "larger ones gain nothing" if len(found) > 1 else "no other size was measured"
    else:
        words = f"{gain:.2g} times as many as with {plural(first.batch, 'slate')} in a batch"
    return f"Most slates a second: {best.slates_per_s:.3g}, with {plural(best.batch, 'slate')} in a batch; {words}"


def rate_frame(report: BenchReport) -> pd.DataFrame:
    """A row a batch size."""
    found = sorted(report.capacity.batches if report.capacity else (), key=lambda rate: rate.batch)
    return pd.DataFrame(
        {
            "Slates in a batch": [str(rate.batch) for rate in found],
            "Slates a second": [f"{rate.slates_per_s:.3g}" for rate in found],
            "A pass, ms: median (p95)": [f"{shown_ms(rate.time.median_ms)} ({shown_ms(rate.time.p95_ms)})" for rate in found],
            "n": [rate.time.n for rate in found],
        }
    )


def solver_points(report: BenchReport) -> list[CurvePoint]:
    """Solver times as the chart draws them."""
    found = report.capacity.solver if report.capacity else ()
    return [CurvePoint(s.kind, s.candidates, s.time.median_ms, s.time.p95_ms, s.time.n) for s in found]


def solver_headline(report: BenchReport) -> str:
    """Markdown: the time of the slower kind of matrix at the size nearest to the slate's, beside the whole ranking."""
    found = report.capacity.solver if report.capacity else ()
    size = min((s.candidates for s in found), key=lambda size: (abs(size - report.candidates), size))
    slowest = max(s.time.median_ms for s in found if s.candidates == size)
    share = slowest / report.total.median_ms
    near = "" if size == report.candidates else f" (measured size nearest to the slate's {report.candidates})"
    return (
        f"Assigning {plural(size, 'candidate')}{near} takes {milliseconds(slowest)} ms on the slower kind of matrix: "
        f"{share:.2%} of the ranking above"
    )


def solver_frame(report: BenchReport) -> pd.DataFrame:
    """A row a size: the time on each kind of matrix, and of how many matrices each."""
    found = report.capacity.solver if report.capacity else ()
    rows: dict[int, dict[str, str]] = {}
    for solved in found:
        row = rows.setdefault(solved.candidates, {"Candidates": f"{solved.candidates:,}"})
        spread = solved.time
        row[MATRIX_COLUMN.format(solved.kind)] = f"{shown_ms(spread.median_ms)} ({shown_ms(spread.p95_ms)}), n = {spread.n}"
    columns = ["Candidates", *(MATRIX_COLUMN.format(kind) for kind in MATRICES)]
    return pd.DataFrame([rows[size] for size in sorted(rows)], columns=columns).fillna("")
