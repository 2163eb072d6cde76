"""`rank`: each slate of a file ranked by a checkpoint, one JSON line a slate, in the order of the input.

Slates are read, ranked and written as they come, so memory does not grow with the file. The output appears once it is whole.
"""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated

import typer

from spd_core.checkpoints import load_student
from spd_core.datasets import read_slates, write_jsonl
from spd_core.datasets.files import STANDARD_INPUT, write_aside
from spd_core.decoding import find_decoder
from spd_core.errors import SpdError
from spd_core.pipeline import RankingResult, rank_slates
from spd_core.recipes import BackboneOption, CheckpointOption, DecoderOption, DeviceOption, DtypeOption, JsonOption
from spd_core.recipes.progress import with_progress
from spd_core.recipes.shards import Shard, joined_lines, this_shard
from spd_core.recipes.slate_sizes import counted, larger_than, largest_learned, size_warnings
from spd_core.words import plural


@dataclass(frozen=True)
class RankSummary:
    """What one run of `rank` did."""

    slates: int
    """Lines written."""
    seconds: float
    """Without loading."""
    checkpoint: str
    decoder: str
    out: str
    processes: int
    process: int
    """Which of them this one is; the first speaks to the user."""
    larger: int
    """Slates with more candidates than any that the checkpoint learned from."""
    largest_learned: int | None
    """Candidates of the largest of those; None where the checkpoint does not say."""
    warnings: tuple[str, ...]
    """What a reader of the rankings should know."""

    def __str__(self) -> str:
        """One line for the terminal, and one for each warning."""
        slates = plural(self.slates, "slate")
        told = f"ranked {slates} in {self.seconds:.1f} s with {self.checkpoint}; written to {self.out}"
        return "\n".join([told, *(f"warning: {line}" for line in self.warnings)])


def rank_file(
    slates: str,
    out: str | Path,
    *,
    checkpoint: str,
    decoder: str = "hungarian",
    backbone: str | None = None,
    device: str = "auto",
    dtype: str = "auto",
) -> RankSummary:
    """Summary of the run; `out` then holds a line a slate, in the order of `slates`.

    Args:
        slates: JSON lines or CSV, packed if it ends in .gz; ``-`` is the standard input.
        out: JSON lines; replaced only when complete.
        checkpoint, backbone, device, dtype: of `load_student`.
        decoder: key of `DECODERS`.

    Raises:
        SpdError: a bad line (names it), a slate that cannot be ranked, a bad option; `out` is then as it was before.
    """
    find_decoder(decoder)
    target = Path(out)
    if target.exists() and Path(slates).exists() and target.samefile(slates):
        raise SpdError(f"{out}: is the input; write the rankings to another file")
    shard = this_shard(device)
    if slates == STANDARD_INPUT and shard.count > 1:
        raise SpdError(f"standard input cannot be shared by {shard.count} processes; give a file")
    student = load_student(checkpoint, backbone=backbone, device=shard.device, dtype=dtype)
    begin = time.monotonic()
    sizes: Counter[int] = Counter()
    results = rank_slates(student, shard.take(counted(read_slates(slates), sizes)), decoder=decoder)
    count = _write_shares(target, shard, with_progress(results, shard))
    largest = largest_learned(checkpoint)
    told = (larger_than(largest, sizes), largest, tuple(size_warnings([checkpoint], sizes)))
    place = (str(out), shard.count, shard.index)
    return RankSummary(count, time.monotonic() - begin, checkpoint, decoder, *place, *told)


def _write_shares(target: Path, shard: Shard, results: Iterable[RankingResult]) -> int:
    """Lines written to `target`; with several processes each writes a part and the first one joins them."""
    if shard.count == 1:
        return write_jsonl(target, results)
    part = shard.part(target)
    try:
        count = write_jsonl(part, results)
        shard.wait()
        if shard.is_main:
            parts = [shard.part(target, index) for index in range(shard.count)]
            count = sum(1 for _ in joined_lines(parts))
            write_aside(target, joined_lines(parts))
        shard.wait()
    finally:
        part.unlink(missing_ok=True)
    return count


def command(
    slates: Annotated[str, typer.Argument(help="Slates as JSON lines or CSV, .gz or not; - reads the standard input.")],
    checkpoint: CheckpointOption,
    out: Annotated[str, typer.Option(help="Where the rankings go, one JSON line a slate.")],
    decoder: DecoderOption = "hungarian",
    backbone: BackboneOption = None,
    device: DeviceOption = "auto",
    dtype: DtypeOption = "auto",
    as_json: JsonOption = False,
) -> None:
    """Rank each slate of a file with a checkpoint."""
    summary = rank_file(slates, out, checkpoint=checkpoint, decoder=decoder, backbone=backbone, device=device, dtype=dtype)
    if summary.process == 0:
        typer.echo(json.dumps(asdict(summary)) if as_json else str(summary))
