"""`evaluate`: how good rankings of a slate file are, with intervals; students, teachers and floors in one table.

Slates stream through; a few numbers a slate are kept. What models have computed is kept on disk, so that a run that was
stopped goes on and one that is repeated is done at once. Under `accelerate launch` each process takes its share.
"""

from __future__ import annotations

import dataclasses
import itertools
import json
import logging
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from spd_core.checkpoint_files import find_checkpoint
from spd_core.datasets import read_slates
from spd_core.datasets.files import STANDARD_INPUT, check_place, write_aside
from spd_core.decoding import DECODERS, find_decoder
from spd_core.errors import SpdError
from spd_core.recipes import BackboneOption, DeviceOption, DtypeOption, JsonOption
from spd_core.recipes.evaluation import Evaluation, format_report, make_report, report_bytes
from spd_core.recipes.model_card import record_report
from spd_core.recipes.progress import with_progress
from spd_core.recipes.ranker_kinds import Ranked, Ranker, provenance_of
from spd_core.recipes.rankers import (
    FORMS,
    STUDENT,
    Loading,
    build_rankers,
    check_given,
    check_rankers,
    checkpoint_of,
    student_ranker,
)
from spd_core.recipes.ranking_store import default_folder, open_store, with_store
from spd_core.recipes.shards import this_shard
from spd_core.recipes.slate_sizes import counted, size_warnings
from spd_core.slate import Slate
from spd_core.teachers.labelling import TOGETHER

logger = logging.getLogger(__name__)


def evaluate_file(
    slates: str,
    *,
    checkpoint: str | None = None,
    decoders: Sequence[str] = ("hungarian",),
    rankers: Sequence[str] = (),
    limit: int | None = None,
    loading: Loading | None = None,
    cache: str | Path | None = None,
) -> dict[str, Any]:
    """Report on one slate file.

    Args:
        slates: JSON lines or CSV with labels or grades.
        checkpoint: student that the report is about; None makes it one about the first of `rankers`.
        decoders: keys of `DECODERS` that read the student's matrix; the first is the one that the report is about.
        rankers: names as in `rankers.FORMS`, to stand beside it.
        limit: first slates of the file; None takes all.
        loading: backbone, device and dtype of all models, and what rankers without one are fitted on.
        cache: folder in which the work of models is kept by content and found again; None keeps nothing.

    Returns:
        JSON-ready report: ``metrics`` and ``n`` of the main ranker, ``rankers`` with all, ``differences`` of the main one
        less each other (paired), ``answers`` by kind where rankers write, ``groups``, ``excluded`` slates by reason,
        ``warnings``; ``slices`` (attribute -> slice -> ranker -> metric), ``per_slate`` values, ``date``, ``machine``,
        ``commit``.

    Raises:
        SpdError: a bad line or option, or no slate that can be measured.
    """
    for name in decoders:
        find_decoder(name)
    check_rankers([*([] if checkpoint is None else [f"{STUDENT}:{checkpoint}"]), *rankers])
    if checkpoint is None and not rankers:
        raise SpdError("nothing to measure: name a student with --checkpoint, or a --ranker")
    loading = loading or Loading()
    shard = this_shard(loading.device)
    loading = dataclasses.replace(loading, device=shard.device, fit=loading.fit or [slates])
    if slates != STANDARD_INPUT:  # which cannot be read twice
        check_given(rankers, itertools.islice(read_slates(slates), limit))
    contestants: list[Ranker] = []
    if checkpoint is not None:
        contestants.append(student_ranker(checkpoint, {name: name for name in decoders}, loading))
    contestants += build_rankers(rankers, loading)
    names = list(dict.fromkeys([*(decoders if checkpoint is not None else ()), *rankers]))
    evaluation = Evaluation.of(names)
    sizes: Counter[int] = Counter()
    share = shard.take(counted(itertools.islice(read_slates(slates), limit), sizes))
    with open_store(cache, contestants) as store:
        for slate, ranked in with_progress(rank_together(with_store(contestants, store), share), shard):
            evaluation.add(slate, ranked)
        if store is not None and store.reused:
            logger.info("%d of %d model results were there already (%s)", store.reused, store.reused + store.made, store.file)
    evaluation.gather(shard)
    subject = checkpoint if checkpoint is not None else checkpoint_of(names[0])
    report = make_report(evaluation, names[0], provenance_of(contestants), slates=slates, checkpoint=subject)
    asked = [subject, *map(checkpoint_of, rankers)]
    report["warnings"] += size_warnings([name for name in asked if name is not None], sizes)
    return report


def rank_together(
    rankers: Sequence[Ranker], slates: Iterable[Slate], *, together: int = TOGETHER
) -> Iterator[tuple[Slate, list[Ranked]]]:
    """Each slate with its rankings by all rankers; a ranker gets `together` slates at a time."""
    stream = iter(slates)
    while batch := list(itertools.islice(stream, together)):
        for slate, *ranked in zip(batch, *(ranker.rank_all(batch) for ranker in rankers), strict=True):
            yield slate, [entry for entries in ranked for entry in entries]


def command(
    slates: Annotated[str, typer.Argument(help="Slates with labels or grades: JSON lines or CSV, .gz or not.")],
    checkpoint: Annotated[
        str | None,
        typer.Option(help="Student: id under sample_data/checkpoints, or a folder; may be left out with --ranker."),
    ] = None,
    out: Annotated[str | None, typer.Option(help="Report as JSON.")] = None,
    decoder: Annotated[list[str] | None, typer.Option(help=f"{', '.join(DECODERS)}, or all; may be given often.")] = None,
    ranker: Annotated[list[str] | None, typer.Option(help=f"To stand beside it, repeatable: {', '.join(FORMS)}.")] = None,
    fit: Annotated[
        list[str] | None, typer.Option(help="Slates whose histories the rankers count; may be given often.")
    ] = None,
    catalogue: Annotated[str | None, typer.Option(help="Items, one JSON object a line, for the rankers.")] = None,
    limit: Annotated[int | None, typer.Option(min=1, help="First slates of the file.")] = None,
    backbone: BackboneOption = None,
    device: DeviceOption = "auto",
    dtype: DtypeOption = "auto",
    cache: Annotated[str | None, typer.Option(help="Folder where the work of models is kept; default: in $SPD_HOME.")] = None,
    no_cache: Annotated[bool, typer.Option("--no-cache", help="Keep nothing and look nothing up.")] = False,
    no_rows: Annotated[
        bool, typer.Option("--no-rows", help="Leave out what is told of each slate, its id included.")
    ] = False,
    card: Annotated[bool, typer.Option("--card", help="Write the figures into the checkpoint's model card too.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Measure students, teachers and floors on slates with labels; differences are paired with the first."""
    decoders = list(DECODERS) if decoder == ["all"] else decoder or ["hungarian"]
    rankers = ranker or []
    subject = checkpoint or (checkpoint_of(rankers[0]) if rankers else None)
    if card and subject is None:
        raise SpdError("--card writes into a checkpoint's model card; name one with --checkpoint")
    if out is not None:
        check_place(out)
    loading = Loading(backbone, device, dtype, fit or [], catalogue)
    report = evaluate_file(
        slates,
        checkpoint=checkpoint,
        decoders=decoders,
        rankers=rankers,
        limit=limit,
        loading=loading,
        cache=None if no_cache else cache or default_folder(),
    )
    if no_rows:
        report.pop("per_slate")
    if this_shard(device).is_main:
        if out is not None:
            write_aside(out, [report_bytes(report)])
        if card and subject is not None:
            record_report(find_checkpoint(subject), report)
        typer.echo(json.dumps(report) if as_json else format_report(report))
