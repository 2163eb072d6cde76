"""The rankings that are nearly as good as the best one: how many there are, which, and who may stand where in them.

Which ranks a candidate can take is exact for any number of candidates, from forced ranks. The rankings themselves are
listed best first, by Murty's algorithm, up to a limit.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import count as counter
from itertools import islice, takewhile
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import linear_sum_assignment

from spd_core.decoding.comparison import total_of
from spd_core.decoding.forced_ranks import forced_ranks
from spd_core.decoding.hungarian import hungarian
from spd_core.decoding.matrix import complete_square
from spd_core.errors import SpdError

TOLERANCE = 1e-9
"""Of totals, relative to the largest score: losses that differ by less are equal but for rounding."""


class Runner(NamedTuple):
    """A ranking and how much its total lacks."""

    loss: float
    """Best total less this one; 0 for the best."""
    ranking: NDArray[np.int64]
    """(N,) candidate index at each rank."""


@dataclass(frozen=True, eq=False)
class NearOptimal:
    """All rankings whose total is within `epsilon` of the best."""

    epsilon: float
    ranking: NDArray[np.int64]
    """(N,) the best one, of the Hungarian decoder."""
    losses: NDArray[np.float64]
    """(N, N) smallest loss of a ranking that puts the candidate of rank r at rank c; of `forced_ranks`."""
    reachable: NDArray[np.bool_]
    """(N, N) whether the candidate of rank r stands at rank c in one of these rankings; exact, True on the diagonal."""
    runners: tuple[Runner, ...]
    """The rankings, best first, as many as the limit allows."""
    is_complete: bool
    """Whether `runners` holds all of them."""

    @property
    def highest(self) -> NDArray[np.int64]:
        """(N,) best rank, 0 first, of the candidate at rank r in any of these rankings."""
        first: NDArray[np.int64] = self.reachable.argmax(axis=1)
        return first

    @property
    def lowest(self) -> NDArray[np.int64]:
        """(N,) worst rank of the candidate at rank r in any of these rankings."""
        last: NDArray[np.int64] = len(self.ranking) - 1 - self.reachable[:, ::-1].argmax(axis=1)
        return last


def near_optimal(scores: NDArray[np.floating], *, epsilon: float, limit: int = 200) -> NearOptimal:
    """The rankings whose total score is within `epsilon` of the best, and the ranks that each candidate takes in them.

    Args:
        scores: (N, K) finite scores, N <= K.
        epsilon: not negative, in score units; tau * log(odds) for rankings at most `odds` times less likely.
        limit: most rankings listed; the ranks taken do not depend on it.

    Raises:
        SpdError: epsilon or limit out of range.
        ScoreMatrixError: a score is not finite, or N > K.
    Source: Murty, An algorithm for ranking all the assignments in order of increasing cost, Operations Research 1968.
    """
    if not epsilon >= 0:
        raise SpdError(f"epsilon is {epsilon!r}; it must be 0 or more")
    if limit < 1:
        raise SpdError(f"limit is {limit}; it must be at least 1")
    square = complete_square(scores)
    forced, bound = forced_ranks(square), epsilon + _slack(square)
    within = takewhile(lambda runner: runner.loss <= bound, rankings_by_loss(square))
    found = list(islice(within, limit + 1))
    reachable = forced.losses <= bound
    return NearOptimal(epsilon, forced.ranking, forced.losses, reachable, tuple(found[:limit]), len(found) <= limit)


def rankings_by_loss(scores: NDArray[np.floating]) -> Iterator[Runner]:
    """Every ranking of N candidates, best total first, each once; the k-th takes at most N more solutions.

    Args:
        scores: (N, K) finite scores, N <= K.

    Raises:
        ScoreMatrixError: a score is not finite, or N > K.
    """
    square = complete_square(scores)
    best = hungarian(square)
    top = total_of(square, best)
    ties = counter()  # a heap must never compare arrays
    queue = [(0.0, next(ties), best, 0, np.zeros(square.shape, dtype=bool))]
    while queue:
        loss, _, ranking, held, barred = heapq.heappop(queue)
        yield Runner(loss, ranking)
        # Part what is left of this subset by the first rank at which a ranking departs from the one given out.
        for rank in range(held, len(square)):
            further = barred.copy()
            further[ranking[rank], rank] = True
            solved = _solve(square, ranking[:rank], further)
            if solved is not None:
                worse = max(loss, top - total_of(square, solved))  # not below its parent but by rounding
                heapq.heappush(queue, (worse, next(ties), solved, rank, further))


def _solve(square: NDArray[np.float64], held: NDArray[np.int64], barred: NDArray[np.bool_]) -> NDArray[np.int64] | None:
    """Best ranking that opens with `held` and uses no barred (candidate, rank); None if there is none."""
    first, size = len(held), len(square)
    free = np.setdiff1d(np.arange(size), held)
    part = np.where(barred[free, first:], -np.inf, square[free, first:])
    try:
        rows, columns = linear_sum_assignment(part, maximize=True)
    except ValueError:  # SciPy's word for: every assignment needs a barred cell
        return None
    ranking = np.empty(size, dtype=np.int64)
    ranking[:first] = held
    ranking[first + columns] = free[rows]
    return ranking


def _slack(square: NDArray[np.float64]) -> float:
    return TOLERANCE * max(1.0, float(np.abs(square).max()))
