"""Why one candidate stands above another, and what in the input it hangs on: things left out one at a time, ranked again.

It does not know the model. The matrix of a slate says what a swap would cost; the matrices of the slate with one thing
left out say what moves that. One thing at a time shows what each does beside all others, not what two do together.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from spd_core.decoding import to_positions
from spd_core.decoding.hungarian import hungarian
from spd_core.decoding.matrix import complete_square
from spd_core.decoding.plain_sort import double_centred
from spd_core.errors import SpdError, choices
from spd_core.prompts import Template
from spd_core.slate import Slate

Kind = Literal["history", "query", "query word", "candidate"]
KINDS: tuple[Kind, ...] = ("history", "query", "query word", "candidate")


class SwapGain(NamedTuple):
    """What a ranking would lose if two candidates changed places and all others stayed; in score units."""

    above: int
    """Index of the candidate that stands higher."""
    below: int
    upper: int
    """Rank of `above`, 0 first."""
    lower: int
    stake_above: float
    """How much better the higher place suits `above` than the lower one does, less what it is for the average candidate."""
    stake_below: float
    """The same for `below`."""

    @property
    def gain(self) -> float:
        """M[A, i] + M[B, j] - M[A, j] - M[B, i] with A above at rank i and B below at rank j; never negative at the best
        ranking."""
        return self.stake_above - self.stake_below


@dataclass(frozen=True)
class Change:
    """One thing left out of a slate."""

    kind: Kind
    index: int
    """Which one: of the history as it is read, oldest first, of the query's words or of the candidates; 0 for a query."""
    text: str
    """What it reads; for an item its title."""
    slate: Slate
    """The slate without it."""


@dataclass(frozen=True, eq=False)
class Effect:
    """What leaving out one thing does to a pair of candidates."""

    change: Change
    gain: float
    """Swap gain of the pair at the places they held before."""
    shift: float
    """`gain` less that of the slate as it is; below 0: without it the order of the two is less sure, or turned round."""
    rank_above: int
    """New rank of the candidate that stood higher, 0 first."""
    rank_below: int
    ranking: tuple[str, ...]
    """New ranking of item ids, best first."""

    @property
    def is_turned(self) -> bool:
        """Whether the candidate that stood lower now stands higher."""
        return self.rank_below < self.rank_above


def swap_gain(scores: NDArray[np.floating], ranking: NDArray[np.int64], above: int, below: int) -> SwapGain:
    """What the ranking would lose if two candidates changed places and all others stayed.

    Args:
        scores: (N, K) finite scores, N <= K; constants added to a row or column change nothing.
        ranking: (N,) candidate index at each rank.
        above: index of a candidate.
        below: index of one that stands lower.

    Raises:
        SpdError: the two are one, or stand the other way round.
        ScoreMatrixError: a score is not finite, or N > K.
    """
    positions = to_positions(ranking)
    upper, lower = int(positions[above]), int(positions[below])
    if upper >= lower:
        raise SpdError(
            f"candidate {above + 1} at rank {upper + 1} does not stand above candidate {below + 1} at rank {lower + 1}"
        )
    return stakes(scores, above, below, upper=upper, lower=lower)


def stakes(scores: NDArray[np.floating], above: int, below: int, *, upper: int, lower: int) -> SwapGain:
    """The swap gain of two candidates at two given ranks, wherever a decoder would put them.

    Args:
        scores: (N, K) finite scores, N <= K.
        above, below: candidate indices.
        upper, lower: ranks, 0 first.
    """
    centred = double_centred(complete_square(scores))  # constants of a column would make both stakes look high or low
    better = centred[:, upper] - centred[:, lower]
    return SwapGain(above, below, upper, lower, float(better[above]), float(better[below]))


def leave_one_out(slate: Slate, template: Template, kinds: Sequence[Kind] = KINDS) -> tuple[Change, ...]:
    """The slate with one thing left out at a time, in the order of `kinds`.

    Args:
        slate: any slate; a single candidate is never left out.
        template: says how much of the history is read; purchases that the prompt does not reach never take a place in it.
        kinds: what may be left out; a query of one word is left out as a whole only.

    Raises:
        SpdError: unknown kind.
    """
    read = as_read(slate, template)
    makers = {"history": _histories, "query": _queries, "query word": _query_words, "candidate": _candidates}
    for kind in kinds:
        if kind not in makers:
            raise SpdError(choices("kind of change", kind, makers))
    return tuple(change for kind in kinds for change in makers[kind](read))


def as_read(slate: Slate, template: Template) -> Slate:
    """The slate with no more history than the prompt reads: then leaving out one purchase lets no older one in."""
    newest = slate.user.history[-template.history_limit :] if template.history_limit else ()
    return dataclasses.replace(slate, user=dataclasses.replace(slate.user, history=newest))


def effects_on(
    pair: SwapGain,
    slate: Slate,
    ranking: NDArray[np.int64],
    changes: Sequence[Change],
    matrices: Sequence[NDArray[np.floating]],
) -> list[Effect]:
    """What each change does to a pair of candidates, the largest shift of the swap gain first.

    Args:
        pair: swap gain in the slate as it is.
        slate: as it is.
        ranking: (N,) its ranking. Where a rival is left out, the places below it move up by one.
        changes: of `leave_one_out`; those that leave out one of the pair are passed over.
        matrices: the score matrix of each changed slate, in the same order.

    Raises:
        ScoreMatrixError: a score is not finite.
    """
    two = {slate.item_ids[pair.above], slate.item_ids[pair.below]}
    effects = [
        _effect_on(pair, slate, ranking, change, matrix)
        for change, matrix in zip(changes, matrices, strict=True)
        if two <= set(change.slate.item_ids)
    ]
    return sorted(effects, key=lambda effect: -abs(effect.shift))


def _effect_on(
    pair: SwapGain, slate: Slate, ranking: NDArray[np.int64], change: Change, scores: NDArray[np.floating]
) -> Effect:
    kept = change.slate.item_ids
    above, below = (kept.index(slate.item_ids[index]) for index in (pair.above, pair.below))
    upper, lower = pair.upper, pair.lower
    if change.kind == "candidate":
        gone = int(to_positions(ranking)[change.index])
        upper, lower = upper - (gone < upper), lower - (gone < lower)
    after = stakes(scores, above, below, upper=upper, lower=lower)
    order = hungarian(np.asarray(scores, dtype=np.float64))
    positions = to_positions(order)
    return Effect(
        change=change,
        gain=after.gain,
        shift=after.gain - pair.gain,
        rank_above=int(positions[above]),
        rank_below=int(positions[below]),
        ranking=tuple(kept[index] for index in order),
    )


def _histories(slate: Slate) -> list[Change]:
    history = slate.user.history
    return [
        Change("history", index, item.title, _with_user(slate, history=history[:index] + history[index + 1 :]))
        for index, item in enumerate(history)
    ]


def _queries(slate: Slate) -> list[Change]:
    query = slate.user.query
    return [] if query is None else [Change("query", 0, query, _with_user(slate, query=None))]


def _query_words(slate: Slate) -> list[Change]:
    words = (slate.user.query or "").split()
    if len(words) < 2:
        return []
    return [
        Change("query word", index, word, _with_user(slate, query=" ".join(words[:index] + words[index + 1 :])))
        for index, word in enumerate(words)
    ]


def _candidates(slate: Slate) -> list[Change]:
    if len(slate.candidates) == 1:
        return []
    return [Change("candidate", index, item.title, _without(slate, index)) for index, item in enumerate(slate.candidates)]


def _with_user(slate: Slate, **fields: object) -> Slate:
    return dataclasses.replace(slate, user=dataclasses.replace(slate.user, **fields))  # type: ignore[arg-type]


def _without(slate: Slate, gone: int) -> Slate:
    """The slate without one candidate; label, grades and teacher play no part in a ranking and are dropped."""
    return Slate(slate.slate_id, slate.user, slate.candidates[:gone] + slate.candidates[gone + 1 :])
