"""Lines on stderr that tell how far a long command is."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable, Iterator
from typing import TypeVar

import typer

from spd_core.recipes.shards import Shard

T = TypeVar("T")
TERMINAL_SECONDS = 1.0
"""Between two updates of the line on a terminal."""
LOG_SECONDS = 10.0
"""Between two lines where the output goes to a file."""


def with_progress(results: Iterable[T], shard: Shard) -> Iterator[T]:
    """The same results, with the number of slates and their rate told now and then by the main process."""
    begin = shown = time.monotonic()
    is_terminal = sys.stderr.isatty()
    for count, result in enumerate(results, start=1):
        yield result
        now = time.monotonic()
        if shard.is_main and now - shown >= (TERMINAL_SECONDS if is_terminal else LOG_SECONDS):
            typer.echo(f"{count} slates, {count / (now - begin):.1f} a second", err=True, nl=not is_terminal)
            typer.echo("\r" if is_terminal else "", err=True, nl=False)
            shown = now
