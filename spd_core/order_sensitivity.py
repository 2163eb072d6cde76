"""How far a ranking depends on the order in which its candidates are given: the same slate, shuffled and ranked again.

It does not know the model. A scorer turns slates into score matrices, e.g. `functools.partial(score_slates, student)`.
"""

from __future__ import annotations

import dataclasses
import math
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

import numpy as np
from numpy.typing import NDArray

from spd_core.decoding import find_decoder, to_positions
from spd_core.errors import SpdError
from spd_core.metrics.repeats import PositionEffect, input_pull, mean_pairwise_tau
from spd_core.prompts import Template, describe
from spd_core.slate import Slate

Scorer = Callable[[Iterable[Slate]], Iterable[tuple[Slate, NDArray[np.floating]]]]
"""Slates to (slate, (N, K) score matrix) in the same order."""
SHUFFLES = 10


@dataclass(frozen=True)
class DuplicateGroup:
    """Candidates that read the same, and how far apart they came out."""

    candidates: tuple[int, ...]
    """Indices in the order given, two or more."""
    mean_gap: float
    """Other candidates between the first and the last of them, mean over the shuffles; 0 is adjacent."""
    largest_gap: int
    adjacent_runs: int
    """Shuffles in which nothing came between them."""


@dataclass(frozen=True, eq=False)
class OrderSensitivity:
    """One slate ranked from R shuffled orders; candidates are counted in the order given."""

    slate_id: str
    decoder: str
    orders: NDArray[np.int64]
    """(R, N) candidate shown at each place of a shuffle."""
    positions: NDArray[np.int64]
    """(R, N) rank of each candidate in each shuffle, 0 first."""
    given: NDArray[np.int64]
    """(N,) rank of each candidate when the order is as given; compared with, not counted as a shuffle."""
    best: NDArray[np.int64]
    """(N,) smallest rank over the shuffles."""
    median: NDArray[np.float64]
    worst: NDArray[np.int64]
    std: NDArray[np.float64]
    """(N,) standard deviation of the rank over the shuffles; 0 where it never changes."""
    consensus: NDArray[np.int64]
    """(N,) candidates by mean rank, best first; ties in the order given."""
    mean_tau: float
    """Kendall tau of two shuffles' rankings, mean over all pairs; NaN for one candidate."""
    position_effect: PositionEffect
    first_changes: int
    """Shuffles whose first candidate is not the first of the order given."""
    winners: int
    """Candidates that came first in at least one shuffle."""
    duplicates: tuple[DuplicateGroup, ...]

    def to_json(self) -> dict[str, Any]:
        """JSON object of the figures, ranks counted from 1."""
        effect = self.position_effect
        return {
            "slate_id": self.slate_id,
            "decoder": self.decoder,
            "shuffles": len(self.positions),
            "mean_kendall_tau": None if math.isnan(self.mean_tau) else self.mean_tau,
            "mean_rank_std": float(self.std.mean()),
            "first_place_changes": self.first_changes,
            "winners": self.winners,
            "position_effect": effect._asdict(),
            "consensus": self.consensus.tolist(),
            "best": (self.best + 1).tolist(),
            "median": (self.median + 1).tolist(),
            "worst": (self.worst + 1).tolist(),
            "std": self.std.tolist(),
            "given": (self.given + 1).tolist(),
            "duplicates": [dataclasses.asdict(group) for group in self.duplicates],
        }


def draw_orders(slate: Slate, shuffles: int = SHUFFLES, *, seed: int = 0) -> NDArray[np.int64]:
    """(R + 1, N) orders of the candidates: row 0 as given, then R random ones; equal seeds give equal orders.

    Args:
        slate: any slate; its id takes part in the draw, so that two slates are not shuffled alike.
        shuffles: R >= 2.
        seed: not negative.

    Raises:
        SpdError: `shuffles` is below 2.
    """
    if shuffles < 2:
        raise SpdError(f"shuffles is {shuffles}; it must be at least 2, a spread needs something to compare")
    rng = np.random.default_rng([seed, zlib.crc32(slate.slate_id.encode("utf-8", "surrogatepass"))])
    count = len(slate.candidates)
    return np.stack([np.arange(count), *(rng.permutation(count) for _ in range(shuffles))])


def reordered(slate: Slate, order: Sequence[int] | NDArray[np.int64]) -> Slate:
    """The same slate with its candidates, and their grades, in another order; ids stay with their items."""
    grades = None if slate.grades is None else tuple(slate.grades[index] for index in order)
    return dataclasses.replace(slate, candidates=tuple(slate.candidates[index] for index in order), grades=grades)


def measure_orders(
    slates: Iterable[Slate],
    scorer: Scorer,
    template: Template,
    *,
    shuffles: int = SHUFFLES,
    seed: int = 0,
    decoder: str = "hungarian",
) -> Iterator[OrderSensitivity]:
    """Order sensitivity of each slate, streamed; the scorer sees all orders of all slates in one run and may batch them.

    Args:
        slates: slates that the scorer can rank.
        scorer: see `Scorer`.
        template: its fields decide which candidates read the same.
        shuffles: R >= 2 random orders a slate, beside the order given.
        seed: of the shuffles.
        decoder: key of `DECODERS`.

    Raises:
        SpdError: too few shuffles, an unknown decoder, or an error of the scorer.
    """
    waiting: list[tuple[Slate, NDArray[np.int64]]] = []

    def spread_out() -> Iterator[Slate]:
        for slate in slates:
            orders = draw_orders(slate, shuffles, seed=seed)
            waiting.append((slate, orders))
            yield from (reordered(slate, order) for order in orders)

    scored = iter(scorer(spread_out()))
    while matrices := [matrix for _, matrix in islice(scored, shuffles + 1)]:
        slate, orders = waiting.pop(0)
        yield compare_orders(slate, orders, matrices, template, decoder=decoder)


def compare_orders(
    slate: Slate,
    orders: NDArray[np.int64],
    matrices: Sequence[NDArray[np.floating]],
    template: Template,
    *,
    decoder: str = "hungarian",
) -> OrderSensitivity:
    """What the score matrices of one slate's shuffles say about the pull of the input order.

    Args:
        slate: as given.
        orders: (R + 1, N) of `draw_orders`.
        matrices: R + 1 score matrices (N, K), rows in the order in which that shuffle shows the candidates.
        template: its fields decide which candidates read the same.
        decoder: key of `DECODERS`; ties fall by place of input, as in any ranking.

    Raises:
        SpdError: unknown decoder, or a score that is not finite.
    """
    decode = find_decoder(decoder)
    ranked = [
        to_positions(order[decode(np.asarray(matrix, dtype=np.float64))])
        for order, matrix in zip(orders, matrices, strict=True)
    ]
    given, positions = ranked[0], np.stack(ranked[1:])
    first = positions.argmin(axis=1)  # (R,) winner of each shuffle
    return OrderSensitivity(
        slate_id=slate.slate_id,
        decoder=decoder,
        orders=orders[1:],
        positions=positions,
        given=given,
        best=positions.min(axis=0),
        median=np.median(positions, axis=0),
        worst=positions.max(axis=0),
        std=positions.std(axis=0),
        consensus=np.argsort(positions.mean(axis=0), kind="stable"),
        mean_tau=mean_pairwise_tau(positions),
        position_effect=input_pull(np.argsort(orders[1:], axis=1), positions),
        first_changes=int((first != given.argmin()).sum()),
        winners=len(np.unique(first)),
        duplicates=tuple(_gaps(group, positions) for group in _groups_that_read_the_same(slate, template)),
    )


def _groups_that_read_the_same(slate: Slate, template: Template) -> list[tuple[int, ...]]:
    groups: dict[str, list[int]] = {}
    for index, item in enumerate(slate.candidates):
        groups.setdefault(describe(item, template.fields), []).append(index)
    return [tuple(group) for group in groups.values() if len(group) > 1]


def _gaps(group: tuple[int, ...], positions: NDArray[np.int64]) -> DuplicateGroup:
    ranks = positions[:, group]  # (R, size of the group)
    between = ranks.max(axis=1) - ranks.min(axis=1) + 1 - len(group)
    return DuplicateGroup(group, float(between.mean()), int(between.max()), int((between == 0).sum()))
