"""Lines on stderr that tell how far a long command is."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable, Iterator
from typing import TypeVar

import typer

from spd_core.recipes.shards import Shard

T = TypeVar("T")
SHOWN_WIDTH = 60
"""Of the line on a terminal, so that a shorter one covers a longer one."""
TERMINAL_SECONDS = 1.0
"""Between two updates of the line on a terminal."""
LOG_SECONDS = 10.0
"""Between two lines where the output goes to a file."""


def with_progress(results: Iterable[T], shard: Shard, *, done: int = 0, total: int | None = None) -> Iterator[T]:
    """The same results, with the number of slates and their rate told now and then by the main process.

    Args:
        results: one a slate.
        shard: says who the main process is.
        done: slates of this process that an earlier run has left.
        total: slates of this process; None if that is not known, and no time left is told.
    """
    begin = shown = time.monotonic()
    is_terminal = sys.stderr.isatty()
    for count, result in enumerate(results, start=1):
        yield result
        now = time.monotonic()
        if shard.is_main and now - shown >= (TERMINAL_SECONDS if is_terminal else LOG_SECONDS):
            text = progress_text(count, now - begin, done=done, total=total)
            typer.echo(text.ljust(SHOWN_WIDTH) if is_terminal else text, err=True, nl=not is_terminal)
            typer.echo("\r" if is_terminal else "", err=True, nl=False)
            shown = now


def progress_text(count: int, seconds: float, *, done: int = 0, total: int | None = None) -> str:
    """Slates so far, their rate, and the time left if the total is known.

    Args:
        count: slates of this run, at least 1.
        seconds: since it began.
        done, total: as in `with_progress`.
    """
    rate = count / max(seconds, 1e-9)
    if total is None:
        return f"{count} slates, {rate:.1f} a second"
    return f"{done + count} of {total} slates, {rate:.1f} a second, {duration_text((total - done - count) / rate)} left"


def duration_text(seconds: float) -> str:
    """A duration with the unit that a reader would choose: 45 s, 12 min, 3.5 h."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 90 * 60 else f"{seconds / 3600:.1f} h"
