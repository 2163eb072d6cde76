"""The files of a labelling run: a part that each process appends to and goes on from, and what is left once all is done.

A part opens with the run's settings, so that it cannot be gone on with under others. A kill may leave its last line torn.
"""

from __future__ import annotations

import fcntl
import hashlib
import itertools
import json
import logging
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from spd_core.datasets.files import write_aside
from spd_core.datasets.jsonl import write_jsonl
from spd_core.errors import SpdError
from spd_core.recipes.shards import Shard, joined_lines
from spd_core.teachers.labelling import COST, Label
from spd_core.words import plural

logger = logging.getLogger(__name__)

SETTINGS = "settings"
LABELS_SHA256 = "labels_sha256"


@dataclass(frozen=True)
class LabelFiles:
    """Places of one run's files."""

    labels: Path
    """One line a slate; the same bytes from every run of the same command, if the teacher gives the same answers."""
    shard: Shard

    @property
    def timings(self) -> Path:
        """What each label cost, one line a slate: no two runs agree on it, so it stands apart."""
        return beside(self.labels, "timings.jsonl")

    @property
    def gate(self) -> Path:
        """Verdict of the gate with the settings of the run; written last."""
        return gate_file(self.labels)

    @property
    def parts(self) -> list[Path]:
        """Part of each process."""
        return [self.shard.part(self.labels, index) for index in range(self.shard.count)]

    def verdict(self, settings: Mapping[str, Any]) -> dict[str, Any] | None:
        """Verdict of a run with the same settings that is complete; None if there is something left to do.

        Raises:
            SpdError: the label file was made by something else, or the parts by another number of processes.
        """
        present = set(self.labels.parent.glob(f"{self.labels.name}.part-*"))
        strays = present - set(self.parts)
        if strays:
            raise SpdError(f"{min(strays)}: was begun by more processes; start as many again, or delete the parts")
        verdict = read_verdict(self.labels)
        if verdict is not None and verdict.get(SETTINGS) == settings:
            return verdict
        if self.labels.exists() and not present:
            old = (verdict or {}).get(SETTINGS, {})
            why = changes(old, settings) if old else "it has no record of how it was made"
            raise SpdError(f"{self.labels}: is there already and not from this command ({why}); name another --out")
        return None

    def finish(self) -> None:
        """Write the label file and its timings from the parts."""
        write_jsonl(self.labels, ({k: v for k, v in record.items() if k != COST} for record in self._records()))
        write_jsonl(self.timings, ({"slate_id": record["slate_id"], **record[COST]} for record in self._records()))

    def write_verdict(self, verdict: Mapping[str, Any], settings: Mapping[str, Any]) -> None:
        """Write the gate's verdict: the run is then complete."""
        record = {**verdict, LABELS_SHA256: file_hash(self.labels), SETTINGS: settings}
        write_aside(self.gate, [json.dumps(record, indent=1).encode() + b"\n"])

    def remove_parts(self) -> None:
        """Delete the parts of all processes."""
        for part in self.parts:
            part.unlink(missing_ok=True)

    def _records(self) -> Iterator[dict[str, Any]]:
        lines = itertools.islice(joined_lines(self.parts), self.shard.count, None)  # each part opens with its settings
        yield from map(json.loads, lines)


@contextmanager
def open_part(part: Path, settings: Mapping[str, Any], *, together: int, total: int) -> Iterator[tuple[IO[bytes], int]]:
    """The part, ready to be appended to, and how many labels it holds; no other process can open it meanwhile.

    Args:
        part: made if it is not there.
        settings: of the run; those in the part must be the same.
        together: labels are kept in multiples of it, so that the rest is asked for in the same batches as without a stop.
        total: labels of a complete part; they are all kept.

    Raises:
        SpdError: the part is of other settings, or another process is writing it.
    """
    with part.open("a+b") as stream:
        try:
            fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise SpdError(f"{part}: another run is writing it; wait for it, or stop it first") from None
        stream.seek(0)
        opening = stream.readline()
        if not opening.endswith(b"\n"):  # new, or killed at once
            stream.truncate(0)
            stream.write(json.dumps({SETTINGS: settings}).encode() + b"\n")
            stream.flush()
            yield stream, 0
            return
        found = changes(record_of(opening).get(SETTINGS, {}), settings)
        if found:
            raise SpdError(f"{part}: was begun with other settings ({found}); repeat that command, or delete the file")
        count, kept, end = kept_lines(stream, len(opening), together=together, total=total)
        if kept < count:
            logger.info("%d of %s kept; the rest were in an unfinished batch of %d", kept, plural(count, "label"), together)
        stream.truncate(end)
        yield stream, kept


def append_labels(stream: IO[bytes], labels: Iterable[Label]) -> int:
    """Number of labels appended, each handed to the system at once: a kill then takes no line that was written."""
    count = 0
    for label in labels:
        stream.write(json.dumps(label.to_json() | {COST: dict(label.cost)}, allow_nan=False).encode() + b"\n")
        stream.flush()
        count += 1
    return count


def kept_lines(stream: IO[bytes], start: int, *, together: int, total: int) -> tuple[int, int, int]:
    """(labels, labels to keep, byte at which those end) of an open part whose labels begin at `start`; see `open_part`."""
    count, offset, kept, end = 0, start, 0, start
    for line in stream:
        if not line.endswith(b"\n") or "slate_id" not in record_of(line):
            break
        count, offset = count + 1, offset + len(line)
        if count % together == 0 or count == total:
            kept, end = count, offset
    return count, kept, end


def record_of(line: bytes) -> dict[str, Any]:
    """JSON object of a line; empty where a crash of the machine left something else."""
    try:
        record = json.loads(line)
    except ValueError:
        return {}
    return record if isinstance(record, dict) else {}


def changes(old: Mapping[str, Any], new: Mapping[str, Any]) -> str:
    """What differs between two settings, in words; empty if nothing does."""
    names = [name for name in {**old, **new} if old.get(name) != new.get(name)]
    return ", ".join(f"{name}: then {old.get(name)!r}, now {new.get(name)!r}" for name in names)


def gate_file(labels: Path) -> Path:
    """Where the verdict on a label file lies."""
    return beside(labels, "gate.json")


def beside(labels: Path, ending: str) -> Path:
    """File beside a label file: `a/b.jsonl.gz` -> `a/b.` and the ending."""
    return labels.with_name(f"{labels.name.removesuffix('.gz').removesuffix('.jsonl')}.{ending}")


def read_verdict(labels: Path) -> dict[str, Any] | None:
    """The gate's verdict on a label file; None if there is none, or it is of other labels."""
    place = gate_file(labels)
    if not labels.is_file() or not place.is_file():
        return None
    verdict = record_of(place.read_bytes())
    return verdict if verdict.get(LABELS_SHA256) == file_hash(labels) else None


def file_hash(path: Path) -> str:
    """SHA-256 of a file in hex."""
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()
