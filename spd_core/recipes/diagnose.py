"""`diagnose`: what the score matrices of a slate file hold, whether the assignment matters, how much the input order does.

Slates stream through; a few numbers a slate are kept, and the first few slates themselves, which are then shuffled and
ranked again. Under `accelerate launch` each process takes its share.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Annotated, Any, TypeVar

import typer

from spd_core.checkpoints import load_student
from spd_core.datasets import read_slates
from spd_core.datasets.files import STANDARD_INPUT, display_name, write_aside
from spd_core.diagnosis import COMPARED, WORDS, MatrixFigures, build_report, does_it_matter
from spd_core.diagnosis.orders import measure_copies, summarise_copies, summarise_orders
from spd_core.errors import SpdError
from spd_core.model import Student
from spd_core.order_sensitivity import Scorer, measure_orders
from spd_core.pipeline import score_slates
from spd_core.recipes import BackboneOption, CheckpointOption, DeviceOption, DtypeOption, JsonOption
from spd_core.recipes.progress import with_progress
from spd_core.recipes.provenance import made_here, model_facts
from spd_core.recipes.shards import Shard, interleaved, this_shard
from spd_core.slate import Slate
from spd_core.words import plural

T = TypeVar("T")
SHUFFLES = 6
SHUFFLED_SLATES = 60
"""Slates that are shuffled: each costs as many passes as orders, and the means settle with a few dozen."""


def diagnose_file(
    slates: str,
    *,
    checkpoint: str,
    limit: int | None = None,
    shuffles: int = SHUFFLES,
    shuffled_slates: int = SHUFFLED_SLATES,
    backbone: str | None = None,
    device: str = "auto",
    dtype: str = "auto",
) -> dict[str, Any]:
    """Report on one slate file.

    Args:
        slates: JSON lines or CSV; labels or grades are used where there are any.
        checkpoint, backbone, device, dtype: of `load_student`.
        limit: slates read, from the first on; None reads all.
        shuffles: random orders of each shuffled slate, at least 2.
        shuffled_slates: how many of the slates read are shuffled, the first ones; 0 leaves that part out.

    Returns:
        JSON-ready report: ``health``, ``rankers``, ``firmness``, ``orders``; see `diagnosis.build_report`.

    Raises:
        SpdError: a bad line or option, or a slate that cannot be ranked.
    """
    _check(limit, shuffles, shuffled_slates)
    shard = this_shard(device)
    if slates == STANDARD_INPUT and shard.count > 1:
        raise SpdError(f"standard input cannot be shared by {shard.count} processes; give a file")
    student = load_student(checkpoint, backbone=backbone, device=shard.device, dtype=dtype)
    scorer: Scorer = partial(score_slates, student)
    kept: list[Slate] = []
    mine = shard.take(_keeping(islice(read_slates(slates), limit), kept, shuffled_slates))
    figures = MatrixFigures(tau=student.config.tau)
    for slate, scores in with_progress(scorer(mine), shard):
        figures.add(slate, scores)
    orders = _orders(list(shard.take(kept)), student, scorer, shard, shuffles=shuffles)
    gather(figures, shard)
    return build_report(figures, orders=orders, about=_about(slates, checkpoint, student))


def gather(figures: MatrixFigures, shard: Shard) -> None:
    """Join the figures of all processes, rows in the order of the input."""
    shares = _shares(figures, shard)
    if shard.count == 1:
        return
    figures.rows = list(interleaved([share.rows for share in shares]))
    for name, collector in figures.metrics.items():
        collector.rows = list(interleaved([share.metrics[name].rows for share in shares]))
    figures.join_counts(share for index, share in enumerate(shares) if index != shard.index)


def _orders(slates: list[Slate], student: Student, scorer: Scorer, shard: Shard, *, shuffles: int) -> dict[str, Any] | None:
    """Figures of the shuffles and copies of these slates, over all processes; None if no process has a slate."""
    if shard.is_main and slates:
        typer.echo(f"now {plural(len(slates), 'slate')} in {shuffles + 1} orders each", err=True)
    results = list(with_progress(measure_orders(slates, scorer, student.template, shuffles=shuffles), shard))
    copies = list(with_progress(measure_copies(slates, scorer, most=student.config.positions), shard))
    results = list(interleaved(_shares(results, shard)))
    copies = list(interleaved(_shares(copies, shard)))
    return {"shuffles": shuffles} | summarise_orders(results) | {"copies": summarise_copies(copies)} if results else None


def _shares(mine: T, shard: Shard) -> list[T]:
    if shard.count == 1:
        return [mine]
    from accelerate.utils import gather_object

    shares: list[T] = gather_object([mine])
    return shares


def _keeping(slates: Iterable[Slate], kept: list[Slate], count: int) -> Iterator[Slate]:
    """The same slates; the first `count` of them are put into `kept`."""
    for slate in slates:
        if len(kept) < count:
            kept.append(slate)
        yield slate


def _check(limit: int | None, shuffles: int, shuffled_slates: int) -> None:
    if limit is not None and limit < 1:
        raise SpdError(f"limit is {limit}; it must be at least 1, or left out to read the whole file")
    if shuffled_slates < 0:
        raise SpdError(f"shuffle-slates is {shuffled_slates}; it must be 0 or more")
    if shuffled_slates and shuffles < 2:
        raise SpdError(f"shuffles is {shuffles}; it must be at least 2, a spread needs something to compare")


def _about(slates: str, checkpoint: str, student: Student) -> dict[str, Any]:
    facts = model_facts(student.backbone, student.template)
    about = {"file": display_name(slates), "checkpoint": Path(checkpoint).name, "tau": student.config.tau}
    return about | {"provenance": facts, **made_here({"student": facts})}


def format_report(report: Mapping[str, Any]) -> str:
    """The report as tables for the terminal."""
    size = report["candidates"]
    counted = plural(report["slates"], "slate")
    head = f"{report['checkpoint']} on {report['file']}: {counted}, {size['p50']:g} candidates in the median"
    parts = [[head], [does_it_matter(report)], _health_lines(report["health"]), _ranker_lines(report["rankers"])]
    parts += [_quality_lines(report["rankers"]), _firmness_lines(report["firmness"]), _order_lines(report["orders"])]
    return "\n\n".join("\n".join(lines) for lines in parts if lines)


def _health_lines(health: Mapping[str, Any]) -> list[str]:
    counts = ", ".join(f"{verdict} {count}" for verdict, count in health["verdicts"].items() if count)
    lines = [f"verdicts: {counts}", f"{'matrix health':<22}" + "".join(f"{name:>9}" for name in ("mean", "p5", "p50", "p95"))]
    for name, values in health["figures"].items():
        if values is not None:
            numbers = (values[key] for key in ("mean", "p5", "p50", "p95"))
            lines.append(f"{name:<22}" + "".join(f"{value:>9.3f}" for value in numbers))
    return lines


def _ranker_lines(rankers: Mapping[str, Any]) -> list[str]:
    columns = ("other order", "other first", "tau", "first diff.", "a sort", "regret", "most")
    lines = [f"{'against Hungarian':<22}" + "".join(f"{name:>12}" for name in columns)]
    for name, row in rankers.items():
        if row["regret"] is None:
            continue
        against = row["against"].get("hungarian")
        cells = [""] * 4
        if against is not None:
            tau, first = against["mean_kendall_tau"], against["first_difference"]
            cells = [f"{against['other_order']:.1%}", f"{against['other_top']:.1%}"]
            cells += ["" if tau is None else f"{tau:.3f}", "" if first is None else f"rank {first['p50']:g}"]
        regret = row["regret"]
        cells += [f"{row['same_as_a_sort']:.1%}", f"{regret['mean']:.3f}", f"{regret['max']:.3f}"]
        lines.append(f"{name:<22}" + "".join(f"{cell:>12}" for cell in cells))
    return lines


def _quality_lines(rankers: Mapping[str, Any]) -> list[str]:
    measured = {name: row for name, row in rankers.items() if row["metrics"]}
    if not measured:
        return ["no slate has a label by which quality could be measured"]
    count = next(iter(measured.values()))["metrics"]["AUC"]["n"]
    lines = [f"{f'n = {count}':<22}" + "".join(f"{m:>10}{'Hungarian less this':>29}" for m in COMPARED)]
    for name, row in measured.items():
        line = f"{name:<22}"
        for metric in COMPARED:
            less = (row["hungarian_less_this"] or {}).get(metric)
            interval = f"{less['mean']:+.4f} ({less['low']:+.3f} to {less['high']:+.3f})" if less else ""
            line += f"{row['metrics'][metric]['mean']:>10.4f}{interval:>29}"
        lines.append(line)
    return lines


def _firmness_lines(firmness: Mapping[str, Any]) -> list[str]:
    lines = ["how firm: " + ", ".join(f"{share:.1%} of ranks {word}" for word, share in firmness["ranks"].items())]
    for top, row in firmness["top"].items():
        if row["loss"] is not None:
            words = ", ".join(f"{row[word]:.1%} {word}" for word in WORDS)
            lines.append(f"first {top:>2} stay the first {top:>2}: {words}; loss {row['loss']['p50']:.3f} in the median")
    return lines


def _order_lines(orders: Mapping[str, Any] | None) -> list[str]:
    if orders is None:
        return []
    lines = [f"{plural(orders['slates'], 'slate')} in {orders['shuffles']} random orders each"]
    for name, values in orders.items():
        if isinstance(values, Mapping) and "low" in values:
            lines.append(f"{name:<22}{values['mean']:>9.3f} ({values['low']:.3f} to {values['high']:.3f})")
    for name in ("duplicates", "copies"):
        if (found := orders[name]) is not None:
            mean = found["between"]["mean"] if name == "copies" else found["between"]
            lines.append(f"{name}: {found['adjacent']:.1%} side by side, {mean:.2f} others between on average")
    return lines


def command(
    slates: Annotated[str, typer.Argument(help="Slates as JSON lines or CSV, .gz or not; labels are used if there are any.")],
    checkpoint: CheckpointOption,
    out: Annotated[str | None, typer.Option(help="Report as JSON; the app shows those in sample_data/results.")] = None,
    limit: Annotated[int | None, typer.Option(help="Slates read; default: all.")] = None,
    shuffles: Annotated[int, typer.Option(help="Random orders of each shuffled slate.")] = SHUFFLES,
    shuffle_slates: Annotated[int, typer.Option(help="How many of the first slates are shuffled.")] = SHUFFLED_SLATES,
    backbone: BackboneOption = None,
    device: DeviceOption = "auto",
    dtype: DtypeOption = "auto",
    as_json: JsonOption = False,
) -> None:
    """Show what the score matrices of a file hold and whether the assignment and the input order matter."""
    report = diagnose_file(
        slates,
        checkpoint=checkpoint,
        limit=limit,
        shuffles=shuffles,
        shuffled_slates=shuffle_slates,
        backbone=backbone,
        device=device,
        dtype=dtype,
    )
    if this_shard(device).is_main:
        if out is not None:
            write_aside(out, [json.dumps(report, indent=1).encode() + b"\n"])
        typer.echo(json.dumps(report) if as_json else format_report(report))
