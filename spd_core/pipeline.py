"""From a slate to a ranking with every intermediate that a page or a report shows.

It adds to a ride what is computed from its score matrix: relaxed assignment, margins, warnings, provenance. A student may
be shared by threads; nothing here changes it.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from spd_core.checkpoints import UNTRAINED, largest_slate, origin
from spd_core.decoding.margins import matrix_warnings, swap_margins
from spd_core.latency import Ride, StageClock, encode_slate, ride_prompts
from spd_core.model import Student
from spd_core.sinkhorn import log_sinkhorn
from spd_core.slate import Slate
from spd_core.tokenization import EncodedPrompt

BATCH_TOKENS = {"cpu": 1024, "cuda": 65536}
"""Tokens a pass by device; on a CPU larger batches only add padding, on a GPU small ones leave it idle."""
WINDOW_BATCHES = 4
"""Batches read ahead, so that slates of like length share a pass."""


@dataclass(frozen=True, eq=False)
class RankingResult:
    """A slate's ranking and everything it was made of."""

    slate_id: str
    item_ids: tuple[str, ...]
    """Ranked, best first."""
    ranking: NDArray[np.int64]
    """(N,) candidate index at each rank."""
    score_matrix: NDArray[np.float32]
    """(N, K) M in input order; a slate uses its first N columns."""
    log_assignment: NDArray[np.float32]
    """(N, N) log of the relaxed assignment in input order; for the eye, the ranking does not use it."""
    residual: float
    """Largest |row sum - 1| of the relaxed assignment."""
    tau: float
    iterations: int
    """Both of the Sinkhorn operator that made `log_assignment`."""
    margins: NDArray[np.float64]
    """(N,) total score lost if the items at ranks r and r + 1 changed places; NaN at the last rank. Never negative for
    `hungarian`; other decoders do not maximise the total."""
    decoder: str
    timings_ms: dict[str, float]
    """Of each stage, and `total`; in a batch of B slates the shared stages count 1/B for each."""
    provenance: dict[str, Any]
    """Checkpoint, backbone, device, dtype, template hash, decoder: what the ranking depends on."""
    warnings: tuple[str, ...]
    used_tokens: NDArray[np.int64]
    """(N,) description tokens in the prompt."""
    cut_tokens: NDArray[np.int64]
    """(N,) description tokens beyond the cap."""

    def to_json(self) -> dict[str, Any]:
        """JSON object of a line that `rank` writes."""
        return {
            "slate_id": self.slate_id,
            "ranking": list(self.item_ids),
            "decoder": self.decoder,
            "timings_ms": {stage: round(value, 3) for stage, value in self.timings_ms.items()},
            "provenance": self.provenance,
            "warnings": list(self.warnings),
        }


class _Encoded(NamedTuple):
    slate: Slate
    prompt: EncodedPrompt
    encode_ms: float


class _Ridden(NamedTuple):
    """One slate's row of a ride."""

    slate: Slate
    ride: Ride
    row: int
    timings_ms: dict[str, float]

    @property
    def scores(self) -> NDArray[np.float32]:
        """(N, K) view without padding."""
        return self.ride.scores[self.row, : len(self.slate.candidates)]


def rank_slate(
    student: Student, slate: Slate, *, decoder: str = "hungarian", tau: float | None = None, iterations: int | None = None
) -> RankingResult:
    """Ranking of one slate, with its score matrix and the time of each stage.

    Args:
        student: in eval mode; may be shared by threads.
        slate: N <= K candidates.
        decoder: key of `DECODERS`.
        tau, iterations: of the relaxed assignment that is shown; None takes those of training. The ranking and the
            timings do not include it.

    Raises:
        SpdError: N > K, a prompt beyond the model's context, a score that is not finite, an unknown decoder.
    """
    clock = StageClock(student.backbone.device)
    ride = ride_prompts(student, [encode_slate(student, slate)], decoder, clock)
    return _result(student, _Ridden(slate, ride, 0, ride.timings_ms), decoder, tau, iterations)


def rank_slates(
    student: Student,
    slates: Iterable[Slate],
    *,
    decoder: str = "hungarian",
    tau: float | None = None,
    iterations: int | None = None,
    batch_tokens: int | None = None,
) -> Iterator[RankingResult]:
    """Rankings of many slates in input order, in batches of like length; memory stays that of a few batches.

    Args as in `rank_slate`, and:
        batch_tokens: most tokens a pass, padding included (a longer prompt goes alone); None chooses by device.

    Raises:
        SpdError: as in `rank_slate`; slates before the one at fault may have been given out.
    """
    for ridden in _ride_all(student, slates, decoder, batch_tokens):
        yield _result(student, ridden, decoder, tau, iterations)


def score_slates(
    student: Student, slates: Iterable[Slate], *, batch_tokens: int | None = None
) -> Iterator[tuple[Slate, NDArray[np.float32]]]:
    """Each slate with its (N, K) score matrix, in input order; arguments and errors as in `rank_slates`."""
    for ridden in _ride_all(student, slates, "first_column", batch_tokens):  # the cheapest decoder; its ranking is not used
        yield ridden.slate, ridden.scores.copy()


def _ride_all(student: Student, slates: Iterable[Slate], decoder: str, batch_tokens: int | None) -> Iterator[_Ridden]:
    limit = batch_tokens or BATCH_TOKENS.get(student.backbone.device.type, BATCH_TOKENS["cpu"])
    window: list[_Encoded] = []
    for slate in slates:
        begin = time.perf_counter()
        prompt = encode_slate(student, slate)
        window.append(_Encoded(slate, prompt, (time.perf_counter() - begin) * 1e3))
        if sum(len(entry.prompt.input_ids) for entry in window) >= WINDOW_BATCHES * limit:
            yield from _ride_window(student, window, decoder, limit)
            window = []
    yield from _ride_window(student, window, decoder, limit)


def _ride_window(student: Student, window: list[_Encoded], decoder: str, limit: int) -> Iterator[_Ridden]:
    ridden: dict[int, _Ridden] = {}
    for group in _group_by_length([len(entry.prompt.input_ids) for entry in window], limit):
        entries = [window[index] for index in group]
        ride = ride_prompts(student, [entry.prompt for entry in entries], decoder, StageClock(student.backbone.device))
        for row, (index, entry) in enumerate(zip(group, entries, strict=True)):
            shared = {stage: value / len(group) for stage, value in ride.timings_ms.items()}
            added = {stage: shared[stage] + entry.encode_ms for stage in ("tokenize", "total")}
            ridden[index] = _Ridden(entry.slate, ride, row, shared | added)
    for index in range(len(window)):
        yield ridden.pop(index)


def _group_by_length(lengths: list[int], limit: int) -> list[list[int]]:
    """Indices in groups of like length, each of at most `limit` tokens with padding, or a single longer one."""
    groups: list[list[int]] = []
    for index in sorted(range(len(lengths)), key=lambda index: lengths[index]):
        if groups and (len(groups[-1]) + 1) * lengths[index] <= limit:
            groups[-1].append(index)
        else:
            groups.append([index])
    return groups


def _result(student: Student, ridden: _Ridden, decoder: str, tau: float | None, iterations: int | None) -> RankingResult:
    scores, ranking = ridden.scores.copy(), ridden.ride.rankings[ridden.row]
    tau = student.config.tau if tau is None else tau
    iterations = student.config.sinkhorn_iterations if iterations is None else iterations
    relaxed = log_sinkhorn(torch.from_numpy(scores.astype(np.float64))[None], tau=tau, iterations=iterations)
    margins = swap_margins(scores, ranking)
    used, cut = (
        table[ridden.row, : len(ranking)].numpy() for table in (ridden.ride.batch.used_tokens, ridden.ride.batch.cut_tokens)
    )
    return RankingResult(
        slate_id=ridden.slate.slate_id,
        item_ids=tuple(ridden.slate.item_ids[index] for index in ranking),
        ranking=ranking,
        score_matrix=scores,
        log_assignment=relaxed.log_assignment[0].numpy().astype(np.float32),
        residual=float(relaxed.residual[0]),
        tau=tau,
        iterations=iterations,
        margins=margins,
        decoder=decoder,
        timings_ms=ridden.timings_ms,
        provenance=_provenance(student, decoder),
        warnings=(*_warnings(student, cut), *matrix_warnings(scores, margins, decoder)),
        used_tokens=used,
        cut_tokens=cut,
    )


def _warnings(student: Student, cut_tokens: NDArray[np.int64]) -> Iterator[str]:
    if origin(student) == UNTRAINED:
        yield "untrained head: the scores are random and the ranking means nothing"
    largest = largest_slate(student)
    if largest is not None and len(cut_tokens) > largest:
        yield (
            f"{len(cut_tokens)} candidates, but this checkpoint learned from slates of at most {largest}: it has never seen "
            "the later positions"
        )
    cut = int((cut_tokens > 0).sum())
    if cut:
        yield f"{cut} of {len(cut_tokens)} descriptions were cut to {student.template.candidate_cap} tokens"


def _provenance(student: Student, decoder: str) -> dict[str, Any]:
    backbone, config = student.backbone, student.config
    return {
        "checkpoint": origin(student),
        "backbone": backbone.backbone_id,
        "backbone_fingerprint": backbone.fingerprint,
        "head": config.head,
        "readout": config.readout,
        "layer": backbone.depth,
        "template": student.template.name,
        "template_hash": student.template.hash,
        "decoder": decoder,
        "device": str(backbone.device),
        "dtype": str(backbone.dtype).removeprefix("torch."),
    }
