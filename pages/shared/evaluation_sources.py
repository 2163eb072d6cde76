"""The slate files that can be evaluated from the app: samples, the visitor's own slates, and the host's data folder."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from itertools import islice
from pathlib import Path

import streamlit as st

from pages.shared import loaders, state
from pages.shared.controls import SHELF_TITLES
from pages.shared.text import shown
from spd_core.datasets import read_slates
from spd_core.errors import SlateError, SpdError
from spd_core.recipes.evaluation_report import EvaluationReport
from spd_core.recipes.preset import data_folder
from spd_core.recipes.ranking_store import content_hash
from spd_core.slate import Slate

DATA_ENDINGS = (".jsonl", ".jsonl.gz", ".csv", ".csv.gz")
MOST_FILES = 200
"""Of the data folder that are offered."""
LARGEST_FILE = 64 * 2**20
"""Bytes of a file that is searched for the slates of a stored result."""


@dataclass(frozen=True)
class Source:
    """A slate file."""

    file: str
    """Name in the report."""
    title: str
    read: Callable[[], Iterable[Slate]]
    """All its slates; raises `SlateError`."""
    path: Path | None = None
    """None for the visitor's own slates, which are no file."""
    shelf: str | None = None
    """Name of the sample file, if it is one."""


def sources() -> dict[str, Source]:
    """All sources by a name for the session, samples first."""
    found: dict[str, Source] = {}
    for name in loaders.shelf_names():
        path = loaders.SHELVES / f"{name}.jsonl"
        title = f"{SHELF_TITLES.get(name, shown(name, 40))} (samples)"
        found[f"shelf {name}"] = Source(path.name, title, partial(loaders.shelf, name), path, name)
    if own := state.own_slates():
        found["own"] = Source("own slates", SHELF_TITLES[state.OWN_SHELF], lambda: own)
    for path in data_files():
        place = path.relative_to(data_folder()).as_posix()
        found[f"data {place}"] = Source(path.name, shown(place, 80), partial(read_slates, path), path)
    return found


def data_files() -> list[Path]:
    """Slate files of the host's data folder, as far as their names tell."""
    folder = data_folder()
    files = (path for path in sorted(folder.rglob("*")) if path.name.endswith(DATA_ENDINGS) and path.is_file())
    return list(islice(files, MOST_FILES)) if folder.is_dir() else []


def pick_source() -> Source:
    """The chosen source; ends the page with a message where there is none."""
    found = sources()
    if not found:
        st.error("There are no slates to measure. Run `python -m spd_core samples` to write the sample files.")
        st.stop()
    names = list(found)
    chosen = state.choose("evaluate file", names, names[0])
    value = st.selectbox(
        "Slate file",
        names,
        **state.bind("evaluate file", chosen),
        format_func=lambda name: found[name].title,
        help="Samples, your own slates (bring them on the Rank page), and files of the host's data folder ($SPD_DATA).",
        width=420,
    )
    return found[state.remember("evaluate file", value or chosen)]


def by_digest(path: Path) -> dict[str, Slate]:
    """The slates of a file by the digest that reports keep of them."""
    return {content_hash(slate)[:16]: slate for slate in read_slates(path)}


def slates_of(report: EvaluationReport) -> tuple[Mapping[str, Slate], Source | None]:
    """The slates of a stored report by digest with the file that holds them; none where that file is not here."""
    wanted = report.per_slate.digests[:1] if report.per_slate is not None else ()
    for source in sources().values():
        if source.path is None or source.file != report.file or source.path.stat().st_size > LARGEST_FILE:
            continue
        try:
            found = loaders.of_file(source.path, by_digest)
        except SpdError:
            continue  # a file of that name that holds no slates is not the one that was measured
        if set(wanted) & set(found):
            return found, source
    return {}, None


def read_first(source: Source, count: int) -> list[Slate]:
    """The first `count` slates of a source.

    Raises:
        SlateError: a line is no slate, or there is none.
    """
    slates = list(islice(source.read(), count))
    if not slates:
        raise SlateError(f"{source.file}: holds no slates; choose another file")
    return slates
