"""Slates with a teacher's ranking, ready for training, from the files that a preset names."""

from __future__ import annotations

import dataclasses
import hashlib
import itertools
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from spd_core.datasets import read_slates
from spd_core.datasets.files import read_lines
from spd_core.datasets.jsonl import decode, parse_json
from spd_core.errors import TrainingError, choices
from spd_core.recipes.preset import Preset, data_file
from spd_core.slate import Item, Ranking, Slate
from spd_core.teachers import TEACHERS, with_purchase_first
from spd_core.teachers.base import PURCHASE_SUFFIX
from spd_core.training.examples import TrainingSet, check_signal

STORED = "stored"


def read_training_set(preset: Preset) -> tuple[TrainingSet, list[Slate], dict[str, str]]:
    """Training slates, validation slates, and the SHA-256 of each training file.

    Raises:
        TrainingError: a file or a label is missing.
    """
    files = [data_file(name) for name in preset.train]
    slates = [slate for file in files for slate in first_slates(file, preset.max_slates)]
    valid = first_slates(data_file(preset.valid), preset.valid_slates)
    rank = teacher_at_hand(preset, slates)
    if rank is not None:
        slates, valid = attach_teacher(slates, rank), attach_teacher(valid, rank)
    check_signal(slates, preset.train_settings.signal)
    pool = {item.item_id: item for slate in slates for item in slate.candidates}
    hashes = {file.name: hashlib.sha256(file.read_bytes()).hexdigest() for file in files}
    return TrainingSet(tuple(slates), rank, tuple(pool.values())), valid, hashes


def teacher_name(preset: Preset) -> str:
    """Who ranked the training slates, for the checkpoint's record."""
    return preset.teacher


def first_slates(file: Path, count: int | None) -> list[Slate]:
    """The first `count` slates of a file; None takes all."""
    return list(itertools.islice(read_slates(file), count))


def teacher_at_hand(preset: Preset, slates: Sequence[Slate]) -> Callable[[Slate], Ranking] | None:
    """What ranks a slate as the preset's teacher does, fitted on the training slates; None for stored rankings.

    Raises:
        TrainingError: no teacher has that name.
    """
    if preset.teacher == STORED:
        return None
    name = preset.teacher.removesuffix(PURCHASE_SUFFIX)
    if name not in TEACHERS:
        raise TrainingError(choices("teacher", preset.teacher, [STORED, *TEACHERS]))
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
