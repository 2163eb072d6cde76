"""What models have computed, kept on disk by content: the same ranker on the same slate is asked once, in any run.

The key covers everything that a result depends on: the slate but for what is known of its right order, the ranker's
weights, settings and number format, and the code. So nothing here is ever out of date, and all of it may be deleted at any
time. What a run has computed is there for the next one even if it is killed.
"""

from __future__ import annotations

import functools
import hashlib
import json
import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any, TypeGuard

from spd_core.backbone_files import spd_home
from spd_core.errors import SpdError
from spd_core.recipes.ranker_kinds import Costly, Ranked, Ranker
from spd_core.slate import Slate

FILE = "rankings.sqlite"
KNOWN_ORDER = ("label", "grades", "teacher")
"""Keys of a slate that no ranker looks at."""
OTHER_CODE = ("recipes", "figures", "metrics", "training", "ablation", "diagnosis", "decoding", "frontier", "race")
"""Units of `spd_core`, by how their names begin, that can be changed without changing what a model computes."""
WAIT_S = 60.0
"""For another process that is writing."""


def default_folder() -> Path:
    """`evaluations` in `$SPD_HOME`, where prepared backbones lie too."""
    return spd_home() / "evaluations"


class RankingStore:
    """Results by key in one file; several processes may use it at once."""

    def __init__(self, folder: str | Path) -> None:
        """Open or make the file; a connection belongs to the thread that makes it.

        Raises:
            SpdError: the folder cannot be written, or the file is damaged.
        """
        self.file = Path(folder).expanduser() / FILE
        self.reused = self.made = 0
        """Results that were there, and that were not."""
        try:
            self.file.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise SpdError(f"{self.file.parent}: cannot be made: {error.strerror}; name another --cache") from None
        with self._guarded():
            self._connection = sqlite3.connect(self.file, timeout=WAIT_S, isolation_level=None)
            self._connection.execute("PRAGMA journal_mode = WAL")
            self._connection.execute("PRAGMA synchronous = NORMAL")
            self._connection.execute("CREATE TABLE IF NOT EXISTS results (key TEXT PRIMARY KEY, made BLOB) WITHOUT ROWID")

    def find(self, key: str) -> bytes | None:
        """The result of that key; None if there is none."""
        with self._guarded():
            row = self._connection.execute("SELECT made FROM results WHERE key = ?", (key,)).fetchone()
        return None if row is None else bytes(row[0])

    def keep(self, key: str, made: bytes) -> None:
        """Write a result down; it is there even if the process is killed right afterwards."""
        with self._guarded():
            self._connection.execute("INSERT OR REPLACE INTO results VALUES (?, ?)", (key, made))

    def close(self) -> None:
        """Let go of the file."""
        self._connection.close()

    @contextmanager
    def _guarded(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.Error as error:
            raise SpdError(f"{self.file}: {error}; delete the file, or go without it (--no-cache)") from None


@dataclass(frozen=True)
class KeptRanker:
    """A costly ranker that is asked only for what the store does not hold."""

    ranker: Costly
    store: RankingStore

    @property
    def names(self) -> tuple[str, ...]:
        """Of the ranker."""
        return self.ranker.names

    @property
    def provenance(self) -> Mapping[str, Any]:
        """Of the ranker."""
        return self.ranker.provenance

    def rank_all(self, slates: Sequence[Slate]) -> Iterator[list[Ranked]]:
        """Rankings of each slate, kept as they come.

        Raises:
            SpdError: what the ranker raises.
        """
        name = identity_hash(self.ranker.identity)
        keys = [result_key(name, slate) for slate in slates]
        found = {key: made for key in keys if (made := self.store.find(key)) is not None}
        fresh = self.ranker.work([slate for slate, key in zip(slates, keys, strict=True) if key not in found])
        for slate, key in zip(slates, keys, strict=True):
            made = found.get(key)
            if made is None:
                made = next(fresh)
                self.store.keep(key, made)
                self.store.made += 1
            else:
                self.store.reused += 1
            yield self.ranker.read(slate, made)


@contextmanager
def open_store(folder: str | Path | None, rankers: Sequence[Ranker]) -> Iterator[RankingStore | None]:
    """The store in a folder while it is needed; None without a folder, or if no ranker's work is worth keeping."""
    if folder is None or not any(is_kept(ranker) for ranker in rankers):
        yield None
        return
    store = RankingStore(folder)
    try:
        yield store
    finally:
        store.close()


def with_store(rankers: Sequence[Ranker], store: RankingStore | None) -> list[Ranker]:
    """The same rankers, those whose work is kept asked only for what the store does not hold."""
    return list(rankers) if store is None else [KeptRanker(r, store) if is_kept(r) else r for r in rankers]


def is_kept(ranker: Ranker) -> TypeGuard[Costly]:
    """Whether a ranker's work is kept."""
    return isinstance(ranker, Costly) and bool(ranker.identity)


def content_hash(slate: Slate) -> str:
    """SHA-256 of all that a ranker may look at."""
    record = {key: value for key, value in slate.to_json().items() if key not in KNOWN_ORDER}
    return hashlib.sha256(json.dumps(record, sort_keys=True, default=str).encode()).hexdigest()


def identity_hash(identity: Mapping[str, Any]) -> str:
    """SHA-256 of a ranker's identity, the code and the libraries that compute."""
    record = {"ranker": dict(identity), "code": code_hash()}
    record |= {name: version(name) for name in ("torch", "transformers")}
    return hashlib.sha256(json.dumps(record, sort_keys=True).encode()).hexdigest()


def result_key(identity: str, slate: Slate) -> str:
    """Key of a ranker's result on a slate; `identity` is of `identity_hash`."""
    return hashlib.sha256(f"{identity} {content_hash(slate)}".encode()).hexdigest()


@functools.cache
def code_hash() -> str:
    """SHA-256 of the sources that decide what a model computes."""
    root = Path(__file__).resolve().parents[1]
    digest = hashlib.sha256()
    for path in sorted(root.rglob("*.py")):
        place = path.relative_to(root)
        if not place.parts[0].startswith(OTHER_CODE):
            digest.update(f"{place.as_posix()}\0".encode() + path.read_bytes() + b"\0")
    return digest.hexdigest()
