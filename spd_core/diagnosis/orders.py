"""How much the order of the input matters over a file, and whether a candidate that is there twice comes out side by side.

It does not know the model; a scorer turns slates into score matrices (see `order_sensitivity`).
"""

from __future__ import annotations

import dataclasses
import math
import zlib
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from spd_core.decoding import find_decoder, to_positions
from spd_core.metrics import mean_interval
from spd_core.order_sensitivity import OrderSensitivity, Scorer
from spd_core.slate import Slate

FIFTHS = 5
"""Parts of the input in which it is counted where the winner was shown; chance is a fifth each."""


class CopyGap(NamedTuple):
    """How far a candidate and its copy came out from each other."""

    slate_id: str
    between: int
    """Other candidates ranked between the two; 0 is side by side."""
    chance: float
    """What two random places would have between them on average."""


def summarise_orders(results: Sequence[OrderSensitivity]) -> dict[str, Any]:
    """The figures of many slates in one: means over slates with 95 % intervals, null where no slate has the figure.

    `winner_shown_in_fifth` holds the share of shuffles whose first candidate was shown in the first, second, ... fifth of
    the input, over slates of at least as many candidates.
    """
    runs = sum(len(result.positions) for result in results)
    deep = [result for result in results if len(result.given) >= FIFTHS]
    shown = np.concatenate([winner_fifths(result) for result in deep]) if deep else np.zeros(0, dtype=np.int64)
    return {
        "slates": len(results),
        "rankings": runs,
        "mean_kendall_tau": _interval(result.mean_tau for result in results),
        "rank_std": _interval(float(result.std.mean()) for result in results),
        "rank_range": _interval(float((result.worst - result.best).mean()) for result in results),
        "top_stays": _interval(1 - result.first_changes / len(result.positions) for result in results),
        "top_most_frequent": _interval(most_frequent_winner(result) for result in results),
        "position_slope": _interval(result.position_effect.slope for result in results),
        "position_correlation": _interval(result.position_effect.correlation for result in results),
        "winner_shown_in_fifth": [float((shown == fifth).mean()) for fifth in range(FIFTHS)] if len(shown) else None,
        "duplicates": _duplicates(results),
    }


def most_frequent_winner(result: OrderSensitivity) -> float:
    """Share of the shuffles won by the candidate that wins most of them; 1 if one wins all."""
    return float(np.bincount(result.positions.argmin(axis=1)).max() / len(result.positions))


def winner_fifths(result: OrderSensitivity) -> NDArray[np.int64]:
    """(R,) fifth of the input, 0 to 4, in which each shuffle showed the candidate that then came first."""
    count = len(result.given)
    winners = result.positions.argmin(axis=1)
    places = np.argsort(result.orders, axis=1)[np.arange(len(winners)), winners]  # place at which the winner was shown
    fifths: NDArray[np.int64] = places * FIFTHS // count
    return fifths


def with_copy(slate: Slate, *, seed: int = 0) -> tuple[Slate, int, int]:
    """The slate with one of its candidates a second time at a random place, and the places of the two; no label is kept.

    Args:
        slate: any slate; its id takes part in the draw.
        seed: not negative; equal seeds give equal copies.
    """
    rng = np.random.default_rng([seed, zlib.crc32(slate.slate_id.encode("utf-8", "surrogatepass")), 1])
    count = len(slate.candidates)
    original, place = int(rng.integers(count)), int(rng.integers(count + 1))
    copy_id = f"{slate.item_ids[original]} copy"
    while copy_id in slate.item_ids:
        copy_id += " copy"
    copy = dataclasses.replace(slate.candidates[original], item_id=copy_id)
    candidates = (*slate.candidates[:place], copy, *slate.candidates[place:])
    moved = original + (place <= original)
    return Slate(slate.slate_id, slate.user, candidates), moved, place


def measure_copies(
    slates: Iterable[Slate], scorer: Scorer, *, most: int, decoder: str = "hungarian", seed: int = 0
) -> Iterator[CopyGap]:
    """For each slate, how many others come out between a candidate and its copy; slates without room are passed over.

    Args:
        slates: slates that the scorer can rank.
        scorer: see `order_sensitivity.Scorer`.
        most: most candidates that the scorer takes.
        decoder: key of `DECODERS`.
        seed: of the copies.

    Raises:
        SpdError: an unknown decoder, or an error of the scorer.
    """
    decode, pairs = find_decoder(decoder), []

    def copied() -> Iterator[Slate]:
        for slate in slates:
            if len(slate.candidates) < most:
                doubled, one, other = with_copy(slate, seed=seed)
                pairs.append((one, other))
                yield doubled

    for slate, matrix in scorer(copied()):
        one, other = pairs.pop(0)
        positions = to_positions(decode(np.asarray(matrix, dtype=np.float64)))
        yield CopyGap(slate.slate_id, abs(int(positions[one] - positions[other])) - 1, (len(positions) - 2) / 3)


def summarise_copies(gaps: Sequence[CopyGap]) -> dict[str, Any] | None:
    """Share of copies side by side, mean and largest number of others between, and what chance would give; None if none."""
    if not gaps:
        return None
    return {
        "slates": len(gaps),
        "adjacent": float(np.mean([gap.between == 0 for gap in gaps])),
        "between": _interval(gap.between for gap in gaps),
        "largest": max(gap.between for gap in gaps),
        "chance_between": float(np.mean([gap.chance for gap in gaps])),
    }


def _duplicates(results: Sequence[OrderSensitivity]) -> dict[str, Any] | None:
    groups = [(group, len(result.positions)) for result in results for group in result.duplicates]
    if not groups:
        return None
    return {
        "groups": len(groups),
        "adjacent": sum(group.adjacent_runs for group, _ in groups) / sum(runs for _, runs in groups),
        "between": float(np.mean([group.mean_gap for group, _ in groups])),
        "largest": max(group.largest_gap for group, _ in groups),
    }


def _interval(values: Iterable[float]) -> dict[str, float] | None:
    numbers = [value for value in values if math.isfinite(value)]
    return dict(mean_interval(numbers)._asdict()) if numbers else None
