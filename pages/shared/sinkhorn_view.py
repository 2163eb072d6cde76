"""Sinkhorn as a visitor explores it: the relaxed assignment round by round and temperature by temperature."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
import streamlit as st
import torch
from numpy.typing import NDArray

from pages.shared import frame
from pages.shared.rankings import positions
from pages.shared.text import escaped, ordinal, shown
from spd_core.figures.sinkhorn_curves import certainty_chart, flip_chart, residual_chart
from spd_core.pipeline import RankingResult
from spd_core.sinkhorn import sinkhorn_path
from spd_core.sinkhorn_flips import CONVERGED, TemperatureSweep, most_likely, row_entropy
from spd_core.slate import Slate
from spd_core.words import plural

LARGE_RESIDUAL = 0.05
"""A row sum this far off is visible in the picture; chosen by eye."""


@dataclass(frozen=True)
class Relaxed:
    """One slate's matrix relaxed at one temperature, with every round on the way."""

    slate: Slate
    result: RankingResult
    tau: float
    trained_at: tuple[float, int]
    """Temperature and rounds of training."""
    logs: NDArray[np.float64]
    """(L, N, N) log of the relaxed assignment after each round."""
    residuals: NDArray[np.float64]
    """(L,) largest row-sum error after each round."""
    sweep: TemperatureSweep

    @property
    def titles(self) -> list[str]:
        """Short titles in input order."""
        return [shown(item.title, 60) for item in self.slate.candidates]

    @property
    def entropy(self) -> NDArray[np.float64]:
        """(N,) of each row after the last round, in nats."""
        return row_entropy(self.logs[-1])

    @property
    def order(self) -> list[int]:
        """Candidates as ranked."""
        return [int(index) for index in self.result.ranking]


def relax(
    slate: Slate,
    result: RankingResult,
    sweep: TemperatureSweep,
    *,
    tau: float,
    iterations: int,
    trained_at: tuple[float, int],
) -> Relaxed:
    """Everything the page shows, computed from the matrix in memory.

    Raises:
        ScoreMatrixError: tau or iterations out of range.
    """
    scores = torch.from_numpy(result.score_matrix.astype(np.float64))[None]
    path = sinkhorn_path(scores, tau=tau, iterations=iterations)
    return Relaxed(slate, result, tau, trained_at, path.log_assignments[:, 0].numpy(), path.residuals[:, 0].numpy(), sweep)


def headline(relaxed: Relaxed) -> str:
    """Markdown: how sure the assignment is at this temperature, and whether it agrees with the ranking."""
    count = len(relaxed.titles)
    if count == 1:
        return "One candidate has one position: there is nothing to relax."
    spread = float(np.exp(relaxed.entropy.mean()))
    agree = int((most_likely(relaxed.logs[-1]) == positions(relaxed.result)).sum())
    return (
        f"At temperature **{relaxed.tau:g}** a candidate is spread over **{spread:.1f}** of {count} positions. For "
        f"**{agree} of {count}** the most likely position is their place in the Hungarian ranking."
    )


def show_convergence(relaxed: Relaxed) -> None:
    """A warning in words where the rows are still off, else the residual in one quiet line."""
    residual, rounds = float(relaxed.residuals[-1]), len(relaxed.residuals)
    if residual > LARGE_RESIDUAL:
        st.warning(
            f"Not converged: after {plural(rounds, 'round')} some row still misses its sum of 1 by {residual:.2f}. The "
            "picture is not an assignment yet: take more rounds or a warmer temperature. The ranking uses the raw scores and "
            "is not affected.",
            icon=":material/warning:",
        )
    else:
        st.caption(f"Residual {residual:.1e} after {plural(rounds, 'round')}: every row sums to 1 as nearly as that.")


def show_residuals(relaxed: Relaxed) -> None:
    """The residual over the rounds."""
    trained = relaxed.trained_at[1]
    marked = {"training": trained} if trained <= len(relaxed.residuals) else {}
    st.markdown("##### How it converges", anchors=False)
    chart = residual_chart(relaxed.residuals, marked, limit=LARGE_RESIDUAL, dark=frame.is_dark())
    st.altair_chart(chart, width="stretch", alt="Line of the residual over the rounds, on a logarithmic axis.")
    st.caption("Largest distance of a row sum from 1 after each round. Above the dotted line the picture is off.")


def show_certainty(relaxed: Relaxed) -> None:
    """How many positions each row is spread over."""
    st.markdown("##### How sure each place is", anchors=False)
    chart = certainty_chart(
        relaxed.titles, relaxed.entropy, positions=positions(relaxed.result), row_order=relaxed.order, dark=frame.is_dark()
    )
    st.altair_chart(chart, width="stretch", alt="A bar a candidate: over how many positions its row is spread.")
    st.caption("Exponential of each row's entropy: 1 is certain of one position, N is no idea. Rows as ranked.")


def show_flips(relaxed: Relaxed) -> None:
    """At which temperatures the most likely positions change, with training's temperature marked."""
    sweep = relaxed.sweep
    st.markdown("##### Where the temperature changes its mind", anchors=False)
    st.markdown(flip_sentence(relaxed))
    if not np.isfinite(sweep.coldest):
        return
    marked = {"training": relaxed.trained_at[0]}
    if not np.isclose(relaxed.tau, relaxed.trained_at[0]):
        marked["chosen"] = relaxed.tau
    inside = {name: tau for name, tau in marked.items() if sweep.coldest <= tau <= sweep.taus[-1]}
    chart = flip_chart(relaxed.titles, sweep, inside, row_order=relaxed.order, dark=frame.is_dark())
    st.altair_chart(chart, width="stretch", alt="A row a candidate: its most likely position over the temperature.")
    st.caption(
        "Numbers and shades: most likely position. A bar breaks where it flips. Rows as ranked: cold, they approach 1, 2, 3."
    )


def flip_sentence(relaxed: Relaxed) -> str:
    """Markdown: how many flips there are, where the first warm one is, and what could not be seen."""
    sweep, trained = relaxed.sweep, relaxed.trained_at[0]
    if not np.isfinite(sweep.coldest):
        return "Sinkhorn converged at none of the temperatures tried: nothing can be said about flips."
    count = len(relaxed.titles)
    restless = len({flip.item for flip in sweep.flips})
    unseen = f"Below {sweep.coldest:.2g} Sinkhorn did not converge; flips there are not counted."
    if not sweep.flips:
        return f"No most likely position changes between {sweep.coldest:.2g} and {sweep.taus[-1]:g}. {unseen}"
    colder = [flip.tau for flip in sweep.flips if flip.tau < trained]
    nearest = f"The next flip below training's {trained:g} is at {max(colder):.3g}. " if colder else ""
    return (
        f"**{plural(len(sweep.flips), 'flip')}** between {sweep.coldest:.2g} and {sweep.taus[-1]:g}, of {restless} of "
        f"{plural(count, 'candidate')}. {nearest}{unseen}"
    )


def flip_table(relaxed: Relaxed) -> pd.DataFrame:
    """All flips, warmest first."""
    flips = sorted(relaxed.sweep.flips, key=lambda flip: -flip.tau)
    return pd.DataFrame(
        {
            "Temperature": [float(f"{flip.tau:.4g}") for flip in flips],
            "Candidate": [relaxed.titles[flip.item] for flip in flips],
            "Colder": [ordinal(flip.colder + 1) for flip in flips],
            "Warmer": [ordinal(flip.warmer + 1) for flip in flips],
        }
    )


def certainty_table(relaxed: Relaxed) -> pd.DataFrame:
    """A row a candidate as ranked: entropy, effective positions, most likely position, and the whole row."""
    logs, order = relaxed.logs[-1], relaxed.order
    probabilities = np.exp(logs[order])
    table = pd.DataFrame(
        {
            "Rank": range(1, len(order) + 1),
            "Candidate": [relaxed.titles[index] for index in order],
            "Most likely": [ordinal(int(place) + 1) for place in most_likely(logs)[order]],
            "Entropy, nats": relaxed.entropy[order].round(4),
            "Effective positions": np.exp(relaxed.entropy[order]).round(2),
        }
    )
    columns = [ordinal(place + 1) for place in range(probabilities.shape[1])]
    return pd.concat([table, pd.DataFrame(probabilities.round(5), columns=columns)], axis=1)


def residual_table(relaxed: Relaxed) -> pd.DataFrame:
    """The residual after each round."""
    residuals: Sequence[str] = [f"{value:.3e}" for value in relaxed.residuals]
    return pd.DataFrame({"Round": range(1, len(residuals) + 1), "Residual": residuals})


def surest(relaxed: Relaxed) -> str:
    """Markdown: the surest and the least sure candidate."""
    entropy = relaxed.entropy
    if len(entropy) == 1 or float(np.ptp(entropy)) < CONVERGED:
        return "All candidates are equally sure of their place."
    low, high = int(entropy.argmin()), int(entropy.argmax())
    sure, unsure = (escaped(relaxed.slate.candidates[index].title, 60) for index in (low, high))
    return (
        f"Surest of its place: **{sure}** ({np.exp(entropy[low]):.1f} positions). Least sure: **{unsure}** "
        f"({np.exp(entropy[high]):.1f})."
    )
