"""What the temperature does to an assignment, against limits that are known and a case that can be solved by hand."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from spd_core.decoding import to_positions
from spd_core.decoding.hungarian import hungarian
from spd_core.decoding.plain_sort import double_centred
from spd_core.errors import ScoreMatrixError
from spd_core.sinkhorn import log_sinkhorn
from spd_core.sinkhorn_flips import CONVERGED, most_likely, row_entropy, sweep_temperatures

GOLDEN = np.array([[3.0, 1.0, 0.0], [1.0, 0.0, 1.0], [0.0, 1.0, 3.0]])
"""By its symmetry S has the rows (p, q, r), (q, t, q), (r, q, p). With w = exp(1 / tau): r = p / w^3 and p t = q^2 w. The
middle item leaves the middle where t = q = 1/3, that is where w^3 - 2 w^2 + 1 = (w - 1) (w^2 - w - 1) = 0: w is the golden
ratio."""
GOLDEN_TAU = 1 / np.log((1 + np.sqrt(5)) / 2)


def random_matrix(count: int, seed: int, positions: int | None = None) -> NDArray[np.float64]:
    return np.random.default_rng(seed).normal(size=(count, positions or count))


def converged(matrix: NDArray[np.float64], tau: float) -> NDArray[np.float64]:
    scores = torch.from_numpy(matrix)[None]
    return log_sinkhorn(scores, tau=tau, iterations=3000).log_assignment[0].numpy()


def test_flip_of_a_case_solved_by_hand_is_found() -> None:
    sweep = sweep_temperatures(GOLDEN)
    (flip,) = sweep.flips
    assert (flip.item, flip.colder, flip.warmer) == (1, 1, 0)
    assert flip.tau == pytest.approx(GOLDEN_TAU, rel=1e-4)


@pytest.mark.parametrize("seed", range(5))
def test_two_items_never_flip(seed: int) -> None:
    # With two items the odds are exp((a + d - b - c) / (2 tau)): on the same side of 1 at every temperature.
    assert sweep_temperatures(random_matrix(2, seed)).flips == ()


@pytest.mark.parametrize("seed", [0, 1, 2, 4])
def test_on_either_side_of_a_flip_the_item_has_the_two_positions_named(seed: int) -> None:
    matrix = 3 * random_matrix(8, seed)
    sweep = sweep_temperatures(matrix)
    assert sweep.flips
    for flip in sweep.flips:
        colder, warmer = (most_likely(converged(matrix, flip.tau * factor))[flip.item] for factor in (0.999, 1.001))
        assert (colder, warmer) == (flip.colder, flip.warmer)


def test_flips_join_the_places_at_the_ends_of_the_grid() -> None:
    matrix = 3 * random_matrix(8, 11)
    sweep = sweep_temperatures(matrix)
    for item in range(8):
        chain = [flip for flip in sweep.flips if flip.item == item]
        assert [flip.tau for flip in chain] == sorted((flip.tau for flip in chain), reverse=True)
        known = sweep.places[sweep.places[:, item] >= 0, item]
        seen = [known[-1], *(flip.colder for flip in chain)]
        assert seen[-1] == known[0]
        assert [flip.warmer for flip in chain] == seen[:-1]


@pytest.mark.parametrize("seed", range(5))
def test_cold_places_are_the_hungarian_ranking_and_warm_ones_the_largest_double_centred_scores(seed: int) -> None:
    order = np.random.default_rng(seed).permutation(6)
    matrix = np.hstack([4 * np.eye(6)[order] + random_matrix(6, seed), random_matrix(6, seed + 50)])
    sweep = sweep_temperatures(matrix, [0.1, 1.0, 1e4])
    assert sweep.residuals[0] <= CONVERGED
    assert sweep.places[0].tolist() == to_positions(hungarian(matrix[:, :6])).tolist()
    assert sweep.places[-1].tolist() == double_centred(matrix[:, :6]).argmax(axis=1).tolist()


@pytest.mark.parametrize(("count", "positions"), [(1, 4), (7, 7), (5, 50), (9, 4)])
def test_assignments_of_the_sweep_are_those_of_the_operator(count: int, positions: int) -> None:
    matrix = random_matrix(count, 3, positions)
    taus = [0.5, 1.0, 10.0]
    sweep = sweep_temperatures(matrix, taus)
    for tau, logs in zip(taus, sweep.log_assignments, strict=True):
        assert np.allclose(np.exp(logs), np.exp(converged(matrix, tau)), atol=2 * CONVERGED)
    assert (sweep.residuals <= CONVERGED).all()


def test_where_it_does_not_converge_nothing_is_said() -> None:
    ties = np.sign(random_matrix(20, 1)) + 1e-3 * random_matrix(20, 2)
    sweep = sweep_temperatures(100 * ties, [1e-3, 2e-3, 100.0, 200.0])
    assert (sweep.residuals[:2] > CONVERGED).all()
    assert (sweep.places[:2] == -1).all()
    assert np.isnan(sweep.effective_positions[:2]).all()
    assert sweep.coldest == 100.0
    assert all(flip.tau >= 100.0 for flip in sweep.flips)
    assert np.isfinite(sweep.log_assignments).any()
    assert not np.isnan(sweep.log_assignments).any()


def test_sweep_without_any_convergence_has_no_coldest_temperature() -> None:
    ties = np.sign(random_matrix(20, 1)) + 1e-3 * random_matrix(20, 2)
    assert np.isnan(sweep_temperatures(100 * ties, [1e-3, 2e-3]).coldest)


def test_warmer_is_less_sure() -> None:
    effective = sweep_temperatures(random_matrix(10, 4)).effective_positions
    known = effective[np.isfinite(effective)]
    assert (np.diff(known) > -1e-6).all()
    assert known[-1] == pytest.approx(10, abs=0.01)


def test_equal_scores_are_a_tie_for_the_first_position_and_never_flip() -> None:
    sweep = sweep_temperatures(np.full((6, 6), 2.0))
    assert sweep.flips == ()
    assert (sweep.places == 0).all()


@pytest.mark.parametrize("tau", [0.05, 1.0, 20.0])
def test_entropy_lies_between_certain_and_no_idea(tau: float) -> None:
    entropy = row_entropy(log_sinkhorn(torch.from_numpy(random_matrix(9, 0))[None], tau=tau).log_assignment[0].numpy())
    assert (entropy >= 0).all()
    assert (entropy <= np.log(9) + 1e-12).all()


def test_entropy_by_hand() -> None:
    with np.errstate(divide="ignore"):
        logs = np.log(
            np.array([[1.0, 0.0, 0.0, 0.0], [0.5, 0.5, 0.0, 0.0], [0.25, 0.25, 0.25, 0.25], [0.02, 0.02, 0.0, 0.0]])
        )
    assert np.exp(row_entropy(logs)) == pytest.approx([1, 2, 4, 2])


@pytest.mark.parametrize("taus", [[1.0], [2.0, 1.0], [0.0, 1.0], [1.0, np.inf], [np.nan, 1.0]])
def test_senseless_grids_are_refused(taus: list[float]) -> None:
    with pytest.raises(ScoreMatrixError, match="two or more finite numbers above 0 in rising order"):
        sweep_temperatures(GOLDEN, taus)
