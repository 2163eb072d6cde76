"""Whether slates are larger than any that a checkpoint learned from, where its later positions or numbers are untried."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from spd_core.checkpoint_config import read_any_config
from spd_core.checkpoint_files import find_checkpoint
from spd_core.slate import Slate
from spd_core.teacher_checkpoints import ZERO_SHOT


def counted(slates: Iterable[Slate], sizes: Counter[int]) -> Iterator[Slate]:
    """The same slates; how many have which number of candidates is counted in `sizes` as they pass."""
    for slate in slates:
        sizes[len(slate.candidates)] += 1
        yield slate


def largest_learned(checkpoint: str | Path) -> int | None:
    """Most candidates of a slate that a checkpoint learned from; None where it does not say, and for ``zero-shot``.

    Raises:
        CheckpointError: no such checkpoint, or its config is damaged.
    """
    if checkpoint == ZERO_SHOT:
        return None
    training = read_any_config(find_checkpoint(checkpoint)).training
    return training.largest_slate if training else None


def larger_than(largest: int | None, sizes: Mapping[int, int]) -> int:
    """How many slates have more than `largest` candidates; 0 where that is None.

    Args:
        largest: candidates.
        sizes: number of candidates -> number of slates.
    """
    return 0 if largest is None else sum(count for size, count in sizes.items() if size > largest)


def size_warnings(checkpoints: Iterable[str | Path], sizes: Mapping[int, int]) -> list[str]:
    """A line for each of the checkpoints that some slates are too large for.

    Args:
        checkpoints: ids or folders of students and teachers.
        sizes: number of candidates -> number of slates.

    Raises:
        CheckpointError: as in `largest_learned`.
    """
    told = []
    for checkpoint in dict.fromkeys(checkpoints):
        largest = largest_learned(checkpoint)
        if larger := larger_than(largest, sizes):
            subject = "1 slate has" if larger == 1 else f"{larger} slates have"
            told.append(
                f"{subject} more candidates than any that {Path(checkpoint).name} learned from ({largest}); "
                "it has never seen their later positions"
            )
    return told
