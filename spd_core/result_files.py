"""Result files read back strictly into their record; each message names the file, the place, and what makes it again."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from spd_core.errors import SpdError

Record = TypeVar("Record", bound=BaseModel)


def peek(path: Path) -> dict[str, Any]:
    """The JSON object in a file, to tell of which command it is; empty where there is none that can be read."""
    try:
        content = json.loads(path.read_bytes())
    except (OSError, ValueError, RecursionError):
        return {}
    return content if isinstance(content, dict) else {}


def read_result(path: Path, kind: type[Record], *, again: str) -> Record:
    """The record in a JSON file.

    Args:
        path: where it lies.
        kind: what it must be.
        again: what to do where it is not, as the end of a sentence.

    Raises:
        SpdError: no such file, not JSON, or not such a record; the message names the first thing that is wrong.
    """
    try:
        return kind.model_validate_json(path.read_bytes())
    except OSError as error:
        raise SpdError(f"{path.name}: cannot be read: {error.strerror or error}; {again}") from None
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(str(part) for part in first["loc"]) or "the whole"
        raise SpdError(f"{path.name}: {place}: {first['msg']}; {again}") from None
