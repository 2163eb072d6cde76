"""Lines out of files and files written whole: the part of reading and writing that is the same for every format.

Knows nothing of slates. A name that ends in ``.gz`` is packed; ``-`` is the standard input.
"""

from __future__ import annotations

import contextlib
import gzip
import os
import sys
import uuid
import zlib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import IO

from spd_core.errors import SlateError

STANDARD_INPUT = "-"


def display_name(path: str | os.PathLike[str]) -> str:
    """Short name of an input for error messages: the file's name without its folder."""
    return "standard input" if os.fspath(path) == STANDARD_INPUT else Path(path).name


def read_lines(path: str | os.PathLike[str]) -> Iterator[bytes]:
    """Lines of a file, one at a time, each with its line end; memory stays that of one line.

    Args:
        path: a file, packed if its name ends in ``.gz``, or ``-`` for the standard input.

    Raises:
        SlateError: the file is missing, cannot be read, or its gzip stream is damaged or cut off.
    """
    name = display_name(path)
    lines_read = 0
    try:
        with _open(path) as stream:
            for line in stream:
                yield line
                lines_read += 1
    except FileNotFoundError:
        raise SlateError(f"{os.fspath(path)}: no such file; check the path") from None
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        message = f"{name}: gzip stream is damaged after line {lines_read} ({error}); copy or pack the file again"
        raise SlateError(message) from None
    except OSError as error:
        raise SlateError(f"{os.fspath(path)}: cannot be read: {error.strerror or error}") from None


def check_place(path: str | os.PathLike[str]) -> None:
    """Raise `SlateError` if no file could be written there: a folder, or one in a folder that does not exist.

    For commands that work for minutes before they write.
    """
    target = Path(path)
    if target.is_dir() or not target.absolute().parent.is_dir():
        raise SlateError(f"{target}: is a folder, or in a folder that does not exist; name a file in a folder that does")


def write_aside(path: str | os.PathLike[str], chunks: Iterable[bytes]) -> None:
    """A file that appears under `path` only once all chunks are in it; after an error the old file is untouched.

    Writes to a hidden file in the same folder and renames it. A device or pipe is written directly: renaming onto
    ``/dev/null`` would replace it.

    Args:
        path: where to; packed if the name ends in ``.gz``. Its folder must exist.
        chunks: taken one at a time; what they raise passes through.

    Raises:
        SlateError: the folder is missing, or the file cannot be written.
    """
    target = Path(path)
    direct = target.exists() and not target.is_file() and not target.is_dir()
    aside = target if direct else target.with_name(f".{target.name}.{uuid.uuid4().hex}.part")
    with _as_slate_error(target):
        raw = aside.open("wb")
    try:
        packed = gzip.GzipFile(filename="", mode="wb", fileobj=raw, mtime=0) if target.suffix == ".gz" else None
        stream: IO[bytes] = raw if packed is None else packed  # type: ignore[assignment]
        for chunk in chunks:
            with _as_slate_error(target):
                stream.write(chunk)
        with _as_slate_error(target):
            stream.close()
            raw.close()
            if not direct:
                os.replace(aside, target)
    finally:
        with contextlib.suppress(OSError):  # a full disk fails here a second time; its error is already on the way
            raw.close()
        if not direct:
            aside.unlink(missing_ok=True)


@contextlib.contextmanager
def _as_slate_error(target: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise SlateError(f"{target}: cannot be written: {error.strerror or error}") from None


def _open(path: str | os.PathLike[str]) -> contextlib.AbstractContextManager[IO[bytes]]:
    if os.fspath(path) == STANDARD_INPUT:
        return contextlib.nullcontext(sys.stdin.buffer)
    if Path(path).suffix == ".gz":
        return gzip.open(path, "rb")  # type: ignore[return-value]
    return Path(path).open("rb")
