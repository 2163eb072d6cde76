"""Slates with a teacher's ranking, ready for training, from the files that a preset names."""

from __future__ import annotations

import dataclasses
import itertools
import logging
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from spd_core.datasets import read_slates
from spd_core.datasets.files import read_lines
from spd_core.datasets.jsonl import decode, parse_json
from spd_core.errors import TrainingError, choices
from spd_core.recipes.label_files import file_hash, read_verdict
from spd_core.recipes.preset import Preset, data_file
from spd_core.slate import Item, Ranking, Slate
from spd_core.teachers import TEACHERS, with_purchase_first
from spd_core.teachers.base import PURCHASE_SUFFIX
from spd_core.teachers.gate import GateCollector
from spd_core.teachers.labelling import LabelBook
from spd_core.training.examples import TrainingSet, check_signal

logger = logging.getLogger(__name__)

STORED, LABELS = "stored", "labels"


def read_training_set(preset: Preset) -> tuple[TrainingSet, list[Slate], dict[str, str]]:
    """Training slates, validation slates, and the SHA-256 of each training file.

    Raises:
        TrainingError: a file or a label is missing.
    """
    files = [data_file(name) for name in preset.train]
    slates = [slate for file in files for slate in first_slates(file, preset.max_slates)]
    valid = first_slates(data_file(preset.valid), preset.valid_slates)
    rank = teacher_at_hand(preset, slates)
    labels = label_files(preset)
    if rank is not None:
        slates, valid = attach_teacher(slates, rank), attach_teacher(valid, rank)
    elif labels:
        slates, valid = attach_labels(slates, valid, labels, preset)
    check_signal(slates, preset.train_settings.signal)
    pool = {item.item_id: item for slate in slates for item in slate.candidates}
    hashes = {file.name: file_hash(file) for file in (*files, *labels)}
    return TrainingSet(tuple(slates), rank, tuple(pool.values())), valid, hashes


def teacher_name(preset: Preset) -> str:
    """Who ranked the training slates, for the checkpoint's record."""
    labels = label_files(preset)
    return ", ".join(LabelBook.read(labels).teachers) if labels else preset.teacher


def label_files(preset: Preset) -> list[Path]:
    """Label files that the preset learns from; none unless its teacher is `labels`.

    Raises:
        TrainingError: label files without that teacher or the other way round, or a missing file.
    """
    if preset.teacher == LABELS and not preset.labels:
        raise TrainingError("teacher is 'labels' but no label file is named; give one with --labels, as label writes it")
    if preset.teacher != LABELS and preset.labels:
        raise TrainingError(
            f"label files are named but the teacher is {preset.teacher!r}; add --teacher labels, or drop them"
        )
    return [data_file(name) for name in preset.labels]


def attach_labels(
    slates: Sequence[Slate], valid: Sequence[Slate], files: Sequence[Path], preset: Preset
) -> tuple[list[Slate], list[Slate]]:
    """The training slates that have a usable label, with it; the validation slates, with theirs where there is one.

    Raises:
        SlateError: a label is of other candidates, or a slate has two.
        TrainingError: the gate of a file has failed, or no slate has a usable label.
    """
    for file in () if preset.ungated else files:
        check_gate(file, [*slates, *valid])
    book = LabelBook.read(files)
    usable, repaired, unlabelled = [], 0, 0
    for slate in slates:
        label = book.find(slate)
        if label is None:
            unlabelled += 1
        elif label.is_repaired and not preset.repaired:
            repaired += 1
        else:
            usable.append(dataclasses.replace(slate, teacher=Ranking(label.teacher, label.ranking)))
    told = f"{len(usable)} of {len(slates)} training slates have a usable label; left out: {unlabelled} without any"
    logger.info("%s, %d repaired", told, repaired)
    if not usable:
        raise TrainingError(f"{told}, {repaired} repaired ones; label these slates, or take repaired ones with --repaired")
    judged = [with_label(slate, book) for slate in valid]
    if any(slate.teacher is None for slate in judged):
        logger.warning("validation slates lack labels: kendall_tau while training compares with the input order")
    return usable, judged


def with_label(slate: Slate, book: LabelBook) -> Slate:
    """The slate with its label in place of any stored ranking; as it is if it has none."""
    label = book.find(slate)
    return slate if label is None else dataclasses.replace(slate, teacher=Ranking(label.teacher, label.ranking))


def check_gate(file: Path, slates: Sequence[Slate]) -> None:
    """Raise `TrainingError` if the gate refuses a label file: by its recorded verdict, else measured on these slates."""
    verdict = read_verdict(file)
    if verdict is None:
        book, collector = LabelBook.read([file]), GateCollector()
        for slate, label in ((slate, book.find(slate)) for slate in slates):
            if label is not None:
                collector.add(slate, label)
        verdict = collector.report().to_json()
    if not verdict["passed"]:
        reasons = "; ".join(verdict["reasons"])
        raise TrainingError(f"{file.name}: the gate refuses these labels: {reasons}. Learn from them anyway with --ungated")


def first_slates(file: Path, count: int | None) -> list[Slate]:
    """The first `count` slates of a file; None takes all."""
    return list(itertools.islice(read_slates(file), count))


def teacher_at_hand(preset: Preset, slates: Sequence[Slate]) -> Callable[[Slate], Ranking] | None:
    """What ranks a slate as the preset's teacher does, fitted on the training slates; None for stored rankings and
    label files.

    Raises:
        TrainingError: no teacher has that name.
    """
    if preset.teacher in (STORED, LABELS):
        return None
    name = preset.teacher.removesuffix(PURCHASE_SUFFIX)
    if name not in TEACHERS:
        raise TrainingError(choices("teacher", preset.teacher, [STORED, LABELS, *TEACHERS]))
    items = list(read_items(data_file(preset.catalogue))) if preset.catalogue else []
    teacher = TEACHERS[name](slates, items)
    if preset.teacher == name:
        return teacher.rank
    return lambda slate: with_purchase_first(teacher.rank(slate), slate)


def attach_teacher(slates: Sequence[Slate], rank: Callable[[Slate], Ranking]) -> list[Slate]:
    """The slates with their rankings in place of any stored one."""
    return [dataclasses.replace(slate, teacher=rank(slate)) for slate in slates]


def read_items(file: Path) -> Iterator[Item]:
    """Items of a catalogue file, one JSON object a line."""
    for number, line in enumerate(read_lines(file), start=1):
        if line.strip():
            where = f"{file.name} line {number}"
            yield Item.from_json(parse_json(decode(line, where), where), where)
