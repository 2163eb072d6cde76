"""Slates from a table: one row a candidate, as a spreadsheet exports it; comma, semicolon or tab apart, UTF-8.

Columns, in any order, with a heading row:

- `slate_id`, `item_id`, `title` are needed; `brand`, `category`, `rating` belong to the item.
- `label` marks the right items (1, true, yes, x; 0, false, no or empty for the rest); a slate with none marked has no
  label. `grade` is a number, given for each candidate of a slate or for none.
- `user_id`, `query` and `history` belong to the slate: told once, or the same in each of its rows. `history` lists
  titles, oldest first, with ``|`` between them.
- `role` makes a row a history entry (`history`) instead of a candidate (`candidate` or empty): the way to give a history
  with ids, brands and ratings, in row order, oldest first.
- Any other column is kept with the item, as text; one without a heading is left out.

Rows of one slate need not stand together, so the whole table is held in memory.
"""

from __future__ import annotations

import csv
import io
import math
import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from spd_core.datasets.files import display_name, read_lines
from spd_core.datasets.jsonl import decode
from spd_core.errors import SlateError
from spd_core.slate import Slate

NEEDED = ("slate_id", "item_id", "title")
SLATE_COLUMNS = ("user_id", "query", "history")
KNOWN = (*NEEDED, *SLATE_COLUMNS, "role", "label", "grade", "brand", "category", "rating")
DELIMITERS = ",;\t"
HISTORY_SEPARATOR = "|"
FLAGS = {"1": True, "true": True, "yes": True, "x": True, "0": False, "false": False, "no": False, "": False}


@dataclass(frozen=True)
class Row:
    """One row of the table: its cells by column name, and where it stands for error messages."""

    cells: Mapping[str, str]
    name: str
    line: int

    def error(self, column: str, complaint: str) -> SlateError:
        """Error that opens with file, line and column."""
        return SlateError(f"{self.name} line {self.line}, column {column!r}: {complaint}")


def iter_slates(path: str | os.PathLike[str]) -> Iterator[Slate]:
    """Slates of a CSV file in the order of their first rows.

    Args:
        path: a file, packed if its name ends in ``.gz``, or ``-`` for the standard input.

    Raises:
        SlateError: the file cannot be read, a column is missing, or a cell does not hold what its column needs.
    """
    yield from parse_table(b"".join(read_lines(path)), display_name(path))


def parse_table(data: bytes, name: str) -> list[Slate]:
    """Slates of an uploaded table in the order of their first rows; `name` opens each error message."""
    text = decode(data.removeprefix(b"\xef\xbb\xbf"), name)
    rows_of: dict[str, list[Row]] = {}
    for row in _rows(text, name):
        slate_id = row.cells["slate_id"]
        if not slate_id:
            raise row.error("slate_id", "is empty; each row names its slate")
        rows_of.setdefault(slate_id, []).append(row)
    if not rows_of:
        raise SlateError(f"{name}: holds no rows below the heading")
    return [_slate(slate_id, rows) for slate_id, rows in rows_of.items()]


def _rows(text: str, name: str) -> Iterator[Row]:
    first_line = text.lstrip("\r\n").split("\n", 1)[0]
    delimiter = max(DELIMITERS, key=first_line.count)
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter, strict=True)
    columns: list[str] | None = None
    line = 1
    while True:
        try:
            cells = next(reader, None)
        except csv.Error as error:
            raise SlateError(f"{name} line {line}: not a table: {error}") from None
        if cells is None:
            return
        if any(cell.strip() for cell in cells):
            if columns is None:
                columns = _columns(cells, name, line)
            elif len(cells) != len(columns):
                message = f"{len(cells)} cells in a table of {len(columns)} columns; quote cells that hold {delimiter!r}"
                raise SlateError(f"{name} line {line}: {message}")
            else:
                stripped = (cell.strip() for cell in cells)
                yield Row(dict(zip(columns, stripped, strict=True)), name, line)
        line = reader.line_num + 1


def _columns(cells: list[str], name: str, line: int) -> list[str]:
    columns = [cell.strip().lower() if cell.strip().lower() in KNOWN else cell.strip() for cell in cells]
    for column in NEEDED:
        if column not in columns:
            found = ", ".join(columns)
            raise SlateError(f"{name} line {line}: no column {column!r}; needed: {', '.join(NEEDED)}; found: {found}")
    twice = [column for index, column in enumerate(columns) if column and column in columns[:index]]
    if twice:
        raise SlateError(f"{name} line {line}: column {twice[0]!r} is there twice; rename one")
    return columns


def _slate(slate_id: str, rows: list[Row]) -> Slate:
    told = {column: _told_once(rows, column) for column in SLATE_COLUMNS}
    candidates = [row for row in rows if not _is_history(row)]
    history = [_item(row) for row in rows if _is_history(row)]
    if history and told["history"]:
        entry = next(row for row in rows if row.cells["history"])
        raise entry.error("history", f"slate {slate_id!r} also has rows with role 'history'; use one of the two")
    if told["history"]:
        titles = [title.strip() for title in told["history"].split(HISTORY_SEPARATOR)]
        history = [{"item_id": f"history-{n}", "title": title} for n, title in enumerate(titles, start=1) if title]
    user = {"history": history} | {key: told[key] for key in ("user_id", "query") if told[key]}
    known: dict[str, Any] = {"label": _label(candidates), "grades": _grades(candidates)}
    record: dict[str, Any] = {"slate_id": slate_id, "user": user, "candidates": [_item(row) for row in candidates]}
    record |= {key: value for key, value in known.items() if value}
    try:
        return Slate.from_json(record)
    except SlateError as error:
        raise SlateError(f"{rows[0].name} line {rows[0].line}: {error}") from None


def _item(row: Row) -> dict[str, Any]:
    cells = row.cells
    if not cells["item_id"]:
        raise row.error("item_id", "is empty; each row names its item")
    item: dict[str, Any] = {"item_id": cells["item_id"], "title": cells["title"]}
    item |= {key: cells[key] for key in ("brand", "category") if cells.get(key)}
    if cells.get("rating"):
        item["rating"] = _number(row, "rating")
    return item | {key: value for key, value in cells.items() if key and key not in KNOWN and value}


def _told_once(rows: list[Row], column: str) -> str:
    value = ""
    for row in rows:
        cell = row.cells.get(column, "")
        if cell and value and cell != value:
            raise row.error(column, f"is {cell!r} but was {value!r} in an earlier row of the same slate; give it once")
        value = value or cell
    return value


def _is_history(row: Row) -> bool:
    role = row.cells.get("role", "").lower()
    if role not in ("", "candidate", "history"):
        raise row.error("role", f"is {role!r}; choose from candidate, history")
    return role == "history"


def _label(rows: Iterable[Row]) -> list[str]:
    named = []
    for row in rows:
        cell = row.cells.get("label", "").lower()
        if cell not in FLAGS:
            raise row.error("label", f"is {cell!r}; write 1 for a right item and 0 for the rest")
        if FLAGS[cell]:
            named.append(row.cells["item_id"])
    return named


def _grades(rows: list[Row]) -> list[float]:
    if not any(row.cells.get("grade") for row in rows):
        return []
    return [_number(row, "grade", ", in each candidate row of the slate or in none") for row in rows]


def _number(row: Row, column: str, hint: str = "") -> float:
    cell = row.cells[column]
    try:
        number = float(cell)
    except ValueError:
        number = math.nan
    if not math.isfinite(number):
        raise row.error(column, f"is {cell!r}; it must be a number such as 4.5{hint}")
    return int(number) if number.is_integer() else number
