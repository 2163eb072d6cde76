"""What it costs to put one candidate at another rank, when all others may move: exact for every candidate and rank.

A forced move starts a chain: the candidate that stood there must go somewhere, and so on until a place is free. The
cheapest chain is a shortest path, so all N x N answers take one pass of Floyd and Warshall's algorithm.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from spd_core.decoding.hungarian import hungarian
from spd_core.decoding.matrix import complete_square

FIRM_ODDS = 20.0
"""Odds from which a rank is called firm; as 19 to 1 is the usual bound for sure, chosen by convention."""
COIN_TOSS_ODDS = 2.0
"""Odds below which a rank is called a coin-toss: the alternative is more than half as likely; chosen by convention."""
FIRM, LEANING, COIN_TOSS = "firm", "leaning", "coin-toss"


@dataclass(frozen=True, eq=False)
class ForcedRanks:
    """The best ranking and what every departure from it costs."""

    ranking: NDArray[np.int64]
    """(N,) candidate index at each rank, of the Hungarian decoder."""
    losses: NDArray[np.float64]
    """(N, N) total score lost if the candidate at rank r is forced to rank c and the others are placed as well as
    possible; >= 0, and 0 on the diagonal."""

    @property
    def leaving(self) -> NDArray[np.float64]:
        """(N,) smallest loss if the candidate at rank r may be anywhere but there; inf for a single candidate."""
        away: NDArray[np.float64] = (self.losses + np.diag(np.full(len(self.losses), np.inf))).min(axis=1)
        return away

    @property
    def one_up(self) -> NDArray[np.float64]:
        """(N,) loss one rank further up; NaN for the first."""
        return np.append(np.nan, np.diag(self.losses, -1))

    @property
    def one_down(self) -> NDArray[np.float64]:
        """(N,) loss one rank further down; NaN for the last."""
        return np.append(np.diag(self.losses, 1), np.nan)

    def leaving_top(self, top: int) -> float:
        """Smallest loss if the first `top` ranks must hold another set of candidates; inf if they hold all there are."""
        return float(self.losses[:top, top:].min(initial=np.inf))

    @property
    def second_best_gap(self) -> float:
        """Total of the best ranking less that of the best other one; inf for a single candidate."""
        return float(self.leaving.min())


def forced_ranks(scores: NDArray[np.floating]) -> ForcedRanks:
    """Total score lost when a candidate is forced to another rank, for every candidate and rank; exact.

    Args:
        scores: (N, K) finite scores, N <= K.

    Returns:
        `ForcedRanks`.

    Raises:
        ScoreMatrixError: a score is not finite, or N > K.
    Source: residual graph of the assignment problem, Ahuja, Magnanti and Orlin, Network Flows (1993), section 9.
    """
    square = complete_square(scores)
    ranking = hungarian(square)
    ranked = square[ranking]  # row r is the candidate at rank r
    step = np.diag(ranked)[:, None] - ranked  # (N, N) loss of moving r to c, the displaced one aside; may be negative
    chain = step.copy()
    np.fill_diagonal(chain, 0.0)
    for via in range(len(square)):
        chain = np.minimum(chain, chain[:, via, None] + chain[None, via])
    losses = np.maximum(step + chain.T, 0.0)  # r goes to c, and a chain leads from c back to r
    np.fill_diagonal(losses, 0.0)
    return ForcedRanks(ranking, losses)


def firmness(forced: ForcedRanks, *, tau: float = 1.0) -> tuple[str, ...]:
    """How sure each rank is, in a word, best rank first: `FIRM`, `LEANING` or `COIN_TOSS`.

    Args:
        forced: of `forced_ranks`.
        tau: temperature of training, which makes differences of totals into log-odds: a ranking whose total is lower by
            `loss` is exp(loss / tau) times less likely in the distribution that Sinkhorn relaxes.
    """
    return tuple(sureness(float(loss), tau=tau) for loss in forced.leaving)


def sureness(loss: float, *, tau: float = 1.0) -> str:
    """`FIRM`, `LEANING` or `COIN_TOSS`: how sure the best ranking is against another one whose total is lower by `loss`."""
    with np.errstate(over="ignore"):
        odds = np.exp(np.float64(loss) / tau)
    return FIRM if odds >= FIRM_ODDS else COIN_TOSS if odds < COIN_TOSS_ODDS else LEANING
