"""Slates from JSON lines and records to JSON lines: one JSON object a line, UTF-8, as in the slate contract.

Reading streams: beside the current line only the slate ids seen so far are kept, to refuse one that comes twice.
"""

from __future__ import annotations

import io
import json
import math
import os
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Protocol

from spd_core.datasets.files import display_name, read_lines, write_aside
from spd_core.errors import SlateError
from spd_core.slate import Slate

BYTE_ORDER_MARK = b"\xef\xbb\xbf"


class HasJson(Protocol):
    """A record that knows its JSON object: a slate, a ranking, an item."""

    def to_json(self) -> Mapping[str, Any]:
        """JSON object of the record."""


def iter_slates(path: str | os.PathLike[str]) -> Iterator[Slate]:
    """Slates of a JSON lines file, in file order, read as they are asked for.

    Args:
        path: a file, packed if its name ends in ``.gz``, or ``-`` for the standard input.

    Raises:
        SlateError: the file cannot be read or holds no slate, or a line is not a slate; names file and line.
    """
    return parse_lines(read_lines(path), display_name(path))


def load_slates(path: str | os.PathLike[str]) -> list[Slate]:
    """All slates of a JSON lines file, in file order; see `iter_slates`."""
    return list(iter_slates(path))


def parse_lines(lines: Iterable[bytes], name: str) -> Iterator[Slate]:
    """Slates of UTF-8 lines; blank lines are skipped, but counted in the line numbers of errors.

    Raises:
        SlateError: a line is not a slate, a slate id comes twice, or there is no slate at all; opens with `name`.
    """
    seen: set[str] = set()
    for number, line in enumerate(lines, start=1):
        where = f"{name} line {number}"
        text = decode(line.removeprefix(BYTE_ORDER_MARK) if number == 1 else line, where).rstrip()
        if text:
            yield _slate(parse_json(text, where), where, seen)
    if not seen:
        raise SlateError(f"{name}: holds no slates; give one JSON object a line")


def parse_text(data: bytes, name: str) -> list[Slate]:
    """Slates of a pasted or uploaded text: JSON lines, one JSON object over several lines, or a JSON array.

    Raises:
        SlateError: as `parse_lines`; for an array, errors count its entries from 1.
    """
    text = decode(data.removeprefix(BYTE_ORDER_MARK), name)
    opening = text.lstrip()
    if not opening.startswith("[") and (not opening or _is_json(opening.splitlines()[0])):
        return list(parse_lines(io.BytesIO(data), name))
    whole = parse_json(text, name)
    records = whole if isinstance(whole, list) else [whole]
    if not records:
        raise SlateError(f"{name}: holds no slates; give one JSON object a slate")
    seen: set[str] = set()
    return [_slate(record, f"{name} entry {number}", seen) for number, record in enumerate(records, start=1)]


def write_jsonl(path: str | os.PathLike[str], records: Iterable[HasJson | Mapping[str, Any]]) -> int:
    """Number of records written, one JSON object a line; the file appears under `path` only once it is complete.

    Args:
        path: where to; packed if the name ends in ``.gz``. Its folder must exist.
        records: slates, rankings or plain mappings, taken one at a time.

    Raises:
        SlateError: the file cannot be written, or a record holds NaN or infinity. `path` is then as it was before.
    """
    count = 0

    def lines() -> Iterator[bytes]:
        nonlocal count
        for record in records:
            fields = record if isinstance(record, Mapping) else record.to_json()
            yield _encode(fields, f"{display_name(path)} record {count + 1}")
            count += 1

    write_aside(path, lines())
    return count


def decode(data: bytes, where: str) -> str:
    """Text of UTF-8 bytes; raises `SlateError`, opened by `where`, on any other encoding."""
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise SlateError(f"{where}: not UTF-8 (byte {error.start + 1}); save the file as UTF-8") from None


def parse_json(text: str, where: str) -> Any:
    """Value of a JSON text; unlike `json.loads` it refuses NaN, Infinity and numbers too large for a float.

    Raises:
        SlateError: opened by `where`, with the parser's reason.
    """
    try:
        return json.loads(text, parse_constant=_refuse_constant, parse_float=_finite_float)
    except json.JSONDecodeError as error:
        place = f"column {error.colno}" if error.lineno == 1 else f"line {error.lineno} column {error.colno}"
        raise SlateError(f"{where}: not JSON: {error.msg} at {place}") from None
    except RecursionError:
        raise SlateError(f"{where}: not JSON: nested too deeply") from None
    except ValueError as error:  # a constant or number we refuse, or an integer of more digits than Python takes
        raise SlateError(f"{where}: not JSON: {error}") from None


def _slate(record: object, where: str, seen: set[str]) -> Slate:
    try:
        slate = Slate.from_json(record)
    except SlateError as error:
        raise SlateError(f"{where}: {error}") from None
    if slate.slate_id in seen:
        raise SlateError(f"{where}: slate_id {slate.slate_id!r} was there before; ids must be unique within a file")
    seen.add(slate.slate_id)
    return slate


def _encode(fields: Mapping[str, Any], where: str) -> bytes:
    try:
        line = json.dumps(fields, ensure_ascii=False, allow_nan=False)
    except ValueError as error:
        raise SlateError(f"{where}: cannot be written as JSON: {error}") from None
    try:
        return line.encode("utf-8") + b"\n"
    except UnicodeEncodeError:  # half of a surrogate pair, which only an escape can carry
        return json.dumps(fields, allow_nan=False).encode("ascii") + b"\n"


def _is_json(text: str) -> bool:
    try:
        json.loads(text)
    except (ValueError, RecursionError):
        return False
    return True


def _refuse_constant(text: str) -> float:
    raise ValueError(f"{text} is not a JSON number; use null or leave the key out")


def _finite_float(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise ValueError(f"{text} is too large for a number")
    return number
