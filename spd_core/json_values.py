"""Single values of parsed JSON, checked as they are taken out; each message says where a value stood and what is allowed."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from typing import Any

from spd_core.errors import SlateError


def mapping(value: object, where: str) -> Mapping[str, Any]:
    """The value if it is a JSON object, else `SlateError`; `where` opens each message."""
    if not isinstance(value, Mapping):
        raise SlateError(f"{where}: expected a JSON object, got {type(value).__name__}")
    return value


def sequence(value: object, where: str) -> Sequence[Any]:
    """The value if it is a JSON list."""
    if not isinstance(value, list | tuple):
        raise SlateError(f"{where}: expected a list, got {type(value).__name__}")
    return value


def identifier(value: object, where: str) -> str:
    """An id as text: a non-empty string, or a whole number of any size."""
    if isinstance(value, int) and not isinstance(value, bool):
        return str(value)  # exact for any size; a float would not be
    if not isinstance(value, str) or not value:
        raise SlateError(f"{where} is {value!r}; it must be a non-empty string")
    return value


def optional_text(fields: Mapping[str, Any], key: str, where: str) -> str | None:
    """The string at `key`; None if it is missing or null."""
    value = fields.get(key)
    if value is not None and not isinstance(value, str):
        raise SlateError(f"{where}: {key} is {value!r}; it must be a string")
    return value


def optional_number(value: object, where: str) -> float | None:
    """A finite number; None if it is null."""
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or not abs(value) <= sys.float_info.max:
        raise SlateError(f"{where} is {value!r}; it must be a finite number")
    return value


def optional_numbers(value: object, where: str) -> tuple[float, ...] | None:
    """Finite numbers; None if the whole list is null."""
    if value is None:
        return None
    numbers = [optional_number(entry, f"{where}[{index}]") for index, entry in enumerate(sequence(value, where))]
    if any(number is None for number in numbers):
        raise SlateError(f"{where}: holds null; give one finite number a candidate")
    return tuple(number for number in numbers if number is not None)


def optional_ids(value: object, where: str) -> tuple[str, ...] | None:
    """Ids of a list; None if the whole list is null."""
    return None if value is None else tuple(identifier(entry, where) for entry in sequence(value, where))
