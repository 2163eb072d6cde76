"""Formats that slates are read from, by name.

Add one: a file with ``iter_slates(path)`` that yields `Slate`s, and a line in `DATASETS`.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from spd_core.datasets import csv_slates, jsonl
from spd_core.datasets.jsonl import iter_slates, load_slates, write_jsonl
from spd_core.slate import Slate

SlateReader = Callable[[str | os.PathLike[str]], Iterator[Slate]]

DATASETS: Mapping[str, SlateReader] = {
    "jsonl": jsonl.iter_slates,
    "csv": csv_slates.iter_slates,
}
"""Name -> reader of a path: yields slates, raises `SlateError` with file and line."""

TABLE_SUFFIXES = (".csv", ".tsv")


def dataset_of(path: str | os.PathLike[str]) -> str:
    """Name of the format that a file's name tells: ``csv`` for .csv and .tsv, packed or not, else ``jsonl``."""
    name = Path(path).name.lower().removesuffix(".gz")
    return "csv" if name.endswith(TABLE_SUFFIXES) else "jsonl"


def read_slates(path: str | os.PathLike[str]) -> Iterator[Slate]:
    """Slates of a file in the format that its name tells, one at a time.

    Raises:
        SlateError: names file and line.
    """
    return DATASETS[dataset_of(path)](path)


def parse_upload(data: bytes, name: str) -> list[Slate]:
    """Slates of an uploaded or pasted file: CSV if its name says so, else JSON lines, a JSON object or a JSON array.

    Args:
        data: the unpacked bytes.
        name: the file's name; decides the format and opens each error message.

    Raises:
        SlateError: names file, line and, in a table, column.
    """
    return csv_slates.parse_table(data, name) if dataset_of(name) == "csv" else jsonl.parse_text(data, name)


__all__ = [
    "DATASETS",
    "SlateReader",
    "dataset_of",
    "iter_slates",
    "load_slates",
    "parse_upload",
    "read_slates",
    "write_jsonl",
]
