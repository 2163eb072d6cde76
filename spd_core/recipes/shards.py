"""One file's work shared by several processes: process i of W takes records i, i + W, i + 2 W, ...

Start them with `accelerate launch` on GPUs, or with `torchrun` anywhere.
"""

from __future__ import annotations

import itertools
import os
import signal
import sys
from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import TypeVar

from spd_core.errors import SpdError

T = TypeVar("T")
LONGEST_WAIT = timedelta(days=7)


@dataclass(frozen=True)
class Shard:
    """Which of how many processes this one is, and the device it should use."""

    index: int
    count: int
    device: str

    @property
    def is_main(self) -> bool:
        """True in the process that joins the parts and speaks to the user."""
        return self.index == 0

    def take(self, records: Iterable[T]) -> Iterator[T]:
        """This process's share of the records; it reads them all."""
        return itertools.islice(records, self.index, None, self.count)

    def part(self, path: Path, index: int | None = None) -> Path:
        """Where a process writes its share of `path`; this process if `index` is None."""
        return path.with_name(f"{path.name}.part-{self.index if index is None else index}")

    def wait(self) -> None:
        """Return once all processes have come here.

        Raises:
            SpdError: another process failed; its own message says why.
        """
        if self.count > 1:
            from accelerate import PartialState

            try:
                PartialState().wait_for_everyone()
            except RuntimeError as error:
                raise SpdError("another process of this run failed; see its message") from error


def this_shard(device: str) -> Shard:
    """This process's share; the whole work unless `accelerate launch` (or torchrun) started several processes.

    Args:
        device: as the user gave it; with several processes ``auto`` and ``cuda`` become this process's own GPU.
    """
    count = int(os.environ.get("WORLD_SIZE", "1"))
    if count == 1:
        return Shard(0, 1, device)
    import torch
    from accelerate import PartialState

    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # the launcher stops us: leave no half-written file
    on_cpu = device == "cpu" or not torch.cuda.is_available()  # without the word, CPU processes would not find each other
    state = PartialState(cpu=on_cpu, timeout=LONGEST_WAIT)
    own = "cpu" if state.device.type == "cpu" else str(state.device)
    return Shard(state.process_index, state.num_processes, own)


def joined_lines(parts: list[Path]) -> Iterator[bytes]:
    """Lines of the parts in the order of the records that `Shard.take` dealt out."""
    with ExitStack() as stack:
        yield from interleaved([stack.enter_context(part.open("rb")) for part in parts])


def interleaved(shares: Iterable[Iterable[T]]) -> Iterator[T]:
    """Records of all processes in the order that `Shard.take` dealt them out; no record may be None."""
    for record in itertools.chain.from_iterable(itertools.zip_longest(*shares)):
        if record is not None:
            yield record
