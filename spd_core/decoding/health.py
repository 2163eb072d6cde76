"""Whether a score matrix holds a ranking at all, and more than one score per candidate: a verdict with its numbers.

It looks at one matrix and knows no label: "healthy" says that the assignment has something to decide, not that it is right.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from spd_core.decoding.forced_ranks import COIN_TOSS_ODDS, forced_ranks
from spd_core.decoding.matrix import own_square
from spd_core.decoding.plain_sort import LEADING, is_flat, leading_share, sort_gains
from spd_core.decoding.spectrum import singular_values

BROKEN = "not usable"
NOTHING_TO_RANK = "nothing to rank"
NO_INFORMATION = "no ranking information"
TOO_FEW = "too few candidates to tell"
ONE_SCORE = "one score per candidate"
HEALTHY = "healthy"
VERDICTS = {
    BROKEN: "Some scores are not finite numbers, so no ranking can be decoded.",
    NOTHING_TO_RANK: "One candidate has one place.",
    NO_INFORMATION: "Every ranking has the same total, so the one shown means nothing.",
    TOO_FEW: "With so few candidates a sort can match the assignment by chance.",
    ONE_SCORE: "The matrix holds one score per candidate; the solver only sorts.",
    HEALTHY: "The matrix holds more than one score per candidate, so the assignment has something to decide.",
}
"""Verdict -> what it means, in one sentence."""

SORT_GAIN_LIMIT = 0.98
"""Gain of the sort by the first singular score from which the solver only sorts. A rank-1 matrix with 1 % noise reaches
about .99, random matrices of 20 about .23; on 160 slates of 20 beauty-spd has .93 in the median and passes on one in 16."""
SHARE_LIMIT = 0.8
"""Least share of the energy for one score. Permutation-like matrices have the gain too, since each candidate knows its own
place, but shares of .1 to .4; random ones of 8 have at most .65, a smooth preference -|i - j| has .92."""
FEWEST_TO_JUDGE = 8
"""Of random matrices, the sort reaches that gain in 12 % at 5 candidates, 3 % at 6, 1 % at 7, none of 600 at 8."""


@dataclass(frozen=True)
class MatrixHealth:
    """What one slate's score matrix is like; every number is over the slate's own N x N part."""

    verdict: str
    """Key of `VERDICTS`."""
    candidates: int
    not_finite: int
    """Scores that are NaN or infinite; if there are any, the other numbers are NaN or 0."""
    raw_share: float
    """Share of the energy in the first singular value of the raw scores."""
    centred_share: float
    """The same after double-centring, which takes out what no assignment can see."""
    sort_gains: dict[str, float]
    """Plain sort -> how much of the assignment's gain over an average ranking it reaches; that by the first singular
    score decides the verdict."""
    collisions: int
    """Candidates whose favourite position is also the favourite of an earlier one: what the assignment has to settle."""
    row_spread: float
    """Standard deviation of the scores along a row, mean over candidates: how much positions differ for one candidate."""
    column_spread: float
    """Standard deviation down a column, mean over positions; 0 means that candidates are not told apart."""
    second_best_gap: float
    """Best total less that of the best other ranking, in score units; inf for one candidate."""
    coin_tosses: int
    """Candidates that another ranking, at odds below `COIN_TOSS_ODDS`, puts elsewhere."""
    duplicates: int
    """Candidates with the very scores of an earlier one."""

    @property
    def meaning(self) -> str:
        """The verdict as a sentence."""
        return VERDICTS[self.verdict]


def matrix_health(scores: NDArray[np.floating], *, tau: float = 1.0) -> MatrixHealth:
    """Verdict on a score matrix, with the numbers behind it; takes any values, broken ones too.

    Args:
        scores: (N, K), N <= K.
        tau: temperature of training, for the odds of the near ties.

    Raises:
        ScoreMatrixError: N > K.
    """
    square = own_square(np.asarray(scores, dtype=np.float64))
    count, bad = len(square), int((~np.isfinite(square)).sum())
    if bad:
        nan = float("nan")
        return MatrixHealth(BROKEN, count, bad, nan, nan, {}, 0, nan, nan, nan, 0, 0)
    forced, gains = forced_ranks(square), sort_gains(square)
    return MatrixHealth(
        verdict=judge(square, gains[LEADING]),
        candidates=count,
        not_finite=0,
        raw_share=raw_share(square),
        centred_share=leading_share(square),
        sort_gains=gains,
        collisions=count - len(np.unique(square.argmax(axis=1))),
        row_spread=float(square.std(axis=1).mean()),
        column_spread=float(square.std(axis=0).mean()),
        second_best_gap=forced.second_best_gap,
        coin_tosses=int((forced.leaving < tau * np.log(COIN_TOSS_ODDS)).sum()),
        duplicates=count - len(np.unique(square, axis=0)),
    )


def judge(square: NDArray[np.float64], gain: float) -> str:
    """Key of `VERDICTS` for a finite (N, N) matrix on which the sort by the first singular score has that gain."""
    if len(square) == 1:
        return NOTHING_TO_RANK
    if is_flat(square):
        return NO_INFORMATION
    if len(square) < FEWEST_TO_JUDGE:
        return TOO_FEW
    is_sort = gain >= SORT_GAIN_LIMIT and leading_share(square) >= SHARE_LIMIT
    return ONE_SCORE if is_sort else HEALTHY


def raw_share(matrix: NDArray[np.float64]) -> float:
    """Share of the energy in the first singular value, 0 to 1, without centring; 0 for a matrix of zeros."""
    energy = singular_values(matrix) ** 2
    return float(energy[0] / energy.sum()) if energy[0] > 0 else 0.0
