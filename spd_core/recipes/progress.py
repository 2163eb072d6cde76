"""Lines on stderr that tell how far a long command is."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Iterable, Iterator
from typing import TypeVar

import typer

from spd_core.recipes.shards import Shard
from spd_core.words import plural

T = TypeVar("T")
SHOWN_WIDTH = 60
"""Of the line on a terminal, so that a shorter one covers a longer one."""
TERMINAL_SECONDS = 1.0
"""Between two updates of the line on a terminal."""
LOG_SECONDS = 10.0
"""Between two lines where the output goes to a file."""


def with_progress(results: Iterable[T], shard: Shard, *, done: int = 0, total: int | None = None) -> Iterator[T]:
    """The same results, with the number of slates and their rate told now and then by the main process.

    Results may come many at a time after a long wait, so the time is watched beside them.

    Args:
        results: one a slate.
        shard: says who the main process is.
        done: slates of this process that an earlier run has left.
        total: slates of this process; None if that is not known, and no time left is told.
    """
    if not shard.is_main:
        yield from results
        return
    watch = Watch(done, total)
    teller = threading.Thread(target=watch.tell_until_over, daemon=True)
    teller.start()
    try:
        for result in results:
            watch.count_one()
            yield result
    finally:
        watch.over.set()
        teller.join()


class Watch:
    """How many results there are and when the last one came; shared by the loop that counts and the thread that tells."""

    def __init__(self, done: int, total: int | None) -> None:
        self.done, self.total = done, total
        self.over = threading.Event()
        """Nothing more is told once it is set."""
        self.begin = time.monotonic()
        self.counted = (0, self.begin)

    def count_one(self) -> None:
        """Take note of one more result."""
        self.counted = (self.counted[0] + 1, time.monotonic())

    def tell_until_over(self) -> None:
        """A line on stderr every now and then."""
        is_terminal = sys.stderr.isatty()
        while not self.over.wait(TERMINAL_SECONDS if is_terminal else LOG_SECONDS):
            text = self.text(time.monotonic())
            typer.echo(f"{text.ljust(SHOWN_WIDTH)}\r" if is_terminal else text, err=True, nl=not is_terminal)

    def text(self, now: float) -> str:
        """The line at the time `now` of `time.monotonic`; what is left counts from the last result on."""
        count, last = self.counted
        return progress_text(count, last - self.begin, done=self.done, total=self.total, since=now - last)


def progress_text(count: int, seconds: float, *, done: int = 0, total: int | None = None, since: float = 0.0) -> str:
    """Slates so far, their rate, and the time left if the total is known.

    Args:
        count: slates of this run.
        seconds: from its begin to the last of them.
        done, total: as in `with_progress`.
        since: seconds that have passed since the last of them.
    """
    so_far = plural(count, "slate") if total is None else f"{done + count} of {plural(total, 'slate')}"
    if count == 0:
        return f"{so_far}, none yet in {duration_text(since)}"
    rate = count / max(seconds, 1e-9)
    text = f"{so_far}, {rate:.1f} a second"
    if total is None:
        return text
    return f"{text}, {duration_text(max(0.0, (total - done - count) / rate - since))} left"


def duration_text(seconds: float) -> str:
    """A duration with the unit that a reader would choose: 45 s, 12 min, 3.5 h."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 90 * 60 else f"{seconds / 3600:.1f} h"
