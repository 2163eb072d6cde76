"""Laws of the Sinkhorn operator: sums, invariances, the cold limit, padding, and that trouble is reported."""

import numpy as np
import pytest
import torch
from torch import Tensor

from spd_core.decoding.hungarian import hungarian
from spd_core.errors import ScoreMatrixError
from spd_core.sinkhorn import log_sinkhorn, sinkhorn_path, square_mask


def random_scores(batch: int, count: int, positions: int, seed: int = 0) -> Tensor:
    return torch.randn(batch, count, positions, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def first_real(counts: list[int]) -> Tensor:
    return torch.arange(max(counts)) < torch.tensor(counts)[:, None]


@pytest.mark.parametrize(("count", "positions"), [(1, 1), (2, 2), (7, 7), (50, 50), (5, 50), (20, 50)])
def test_rows_and_columns_sum_to_one_when_converged(count: int, positions: int) -> None:
    log_assignment, residual = log_sinkhorn(random_scores(3, count, positions), iterations=300)
    assignment = log_assignment.exp()
    assert assignment.shape == (3, count, count)
    assert torch.allclose(assignment.sum(dim=1), torch.ones(3, count, dtype=torch.float64), atol=1e-9)
    assert torch.allclose(assignment.sum(dim=2), torch.ones(3, count, dtype=torch.float64), atol=1e-6)
    assert float(residual.max()) < 1e-6


def test_each_padded_slate_has_its_own_square() -> None:
    counts = [2, 5, 9]
    log_assignment, _ = log_sinkhorn(random_scores(3, 9, 50), first_real(counts), iterations=300)
    for row, n in enumerate(counts):
        own = log_assignment[row].exp()
        assert torch.allclose(own[:n, :n].sum(dim=0), torch.ones(n, dtype=torch.float64), atol=1e-9)
        assert torch.allclose(own[:n, :n].sum(dim=1), torch.ones(n, dtype=torch.float64), atol=1e-6)
        assert own.sum() == pytest.approx(n, abs=1e-6)


def test_padding_gets_no_mass_and_changes_nothing() -> None:
    scores = random_scores(1, 9, 50)
    padded, residual = log_sinkhorn(scores, first_real([9])[:, :9] & (torch.arange(9) < 4), iterations=7)
    alone, residual_alone = log_sinkhorn(scores[:, :4], iterations=7)
    assert torch.equal(padded[:, :4, :4], alone)
    assert bool(torch.isneginf(padded[:, 4:]).all())
    assert bool(torch.isneginf(padded[:, :, 4:]).all())
    assert torch.equal(residual, residual_alone)


@pytest.mark.parametrize(("count", "positions"), [(3, 2), (10, 4), (50, 20)])
def test_more_candidates_than_positions_scale_the_rows(count: int, positions: int) -> None:
    log_assignment, residual = log_sinkhorn(random_scores(2, count, positions), iterations=300)
    assignment = log_assignment.exp()
    assert assignment.shape == (2, count, positions)
    assert torch.allclose(assignment.sum(dim=1), torch.ones(2, positions, dtype=torch.float64), atol=1e-9)
    assert torch.allclose(assignment.sum(dim=2), torch.full((2, count), positions / count, dtype=torch.float64), atol=1e-6)
    assert float(residual.max()) < 1e-6


@pytest.mark.parametrize("seed", range(20))
def test_cold_sinkhorn_is_the_hungarian_assignment(seed: int) -> None:
    count = 2 + seed % 9
    scores = random_scores(1, count, 12, seed)
    log_assignment, residual = log_sinkhorn(scores, tau=0.02, iterations=3000)
    ranking = hungarian(scores[0].numpy())
    assert float(residual.max()) < 0.05
    assert log_assignment[0].argmax(dim=0).tolist() == ranking.tolist()
    assert log_assignment[0].exp().max(dim=0).values.min() > 0.5


def test_adding_a_constant_to_rows_or_columns_changes_nothing() -> None:
    scores = random_scores(4, 8, 8)
    shifted = scores + 5 * random_scores(4, 8, 1, seed=1) + 5 * random_scores(4, 1, 8, seed=2)
    before, after = (log_sinkhorn(matrix, iterations=2000).log_assignment for matrix in (scores, shifted))
    assert torch.allclose(before, after, atol=1e-6)
    for one, other in zip(scores.numpy(), shifted.numpy(), strict=True):
        assert hungarian(one).tolist() == hungarian(other).tolist()


def test_permuting_candidates_permutes_rows() -> None:
    scores = random_scores(1, 8, 8)
    order = torch.tensor([3, 0, 7, 1, 2, 6, 4, 5])
    permuted = log_sinkhorn(scores[:, order]).log_assignment
    assert torch.allclose(permuted, log_sinkhorn(scores).log_assignment[:, order], atol=1e-12)


def test_temperature_divides_the_scores() -> None:
    scores = random_scores(1, 6, 6)
    assert torch.allclose(log_sinkhorn(scores, tau=0.25).log_assignment, log_sinkhorn(scores * 4).log_assignment)


def test_a_very_cold_temperature_gives_no_nan_and_reports_the_residual() -> None:
    ties = random_scores(1, 20, 50).sign()
    scores = (100 * torch.cat([ties, torch.tanh(random_scores(1, 20, 50))])).float()
    log_assignment, residual = log_sinkhorn(scores, tau=1e-4, iterations=20)
    assert not bool(log_assignment.isnan().any())
    assert bool(residual.isfinite().all())
    row_error = (log_assignment.exp().sum(dim=2) - 1).abs().amax(dim=1)
    assert torch.allclose(residual, row_error)
    assert float(residual[1]) > 0.1


def test_more_iterations_leave_less_residual() -> None:
    scores = random_scores(1, 20, 20)
    residuals = [float(log_sinkhorn(scores, tau=0.2, iterations=n).residual) for n in (1, 10, 100, 1000)]
    assert residuals == sorted(residuals, reverse=True)
    assert residuals[0] > 10 * residuals[-1]


def test_a_constant_matrix_spreads_evenly() -> None:
    log_assignment, residual = log_sinkhorn(torch.full((1, 4, 50), 3.0))
    assert torch.allclose(log_assignment.exp(), torch.full((1, 4, 4), 0.25))
    assert float(residual) == pytest.approx(0, abs=1e-6)


def test_one_candidate_takes_its_position() -> None:
    log_assignment, residual = log_sinkhorn(torch.tensor([[[-7.0, 3.0]]]))
    assert log_assignment.tolist() == [[[0.0]]]
    assert residual.tolist() == [0.0]


@pytest.mark.parametrize("scale", [1.0, 100.0, 1e6])
def test_gradients_are_finite_with_padding(scale: float) -> None:
    scores = (scale * random_scores(2, 9, 50)).float().requires_grad_(True)
    mask = first_real([3, 9])
    log_assignment, _ = log_sinkhorn(scores, mask)
    torch.where(square_mask(mask, 9), log_assignment, 0.0).sum().backward()
    assert scores.grad is not None
    assert bool(scores.grad.isfinite().all())
    assert float(scores.grad[0, 3:].abs().max()) == 0.0
    assert float(scores.grad[0, :, 3:].abs().max()) == 0.0


def test_inputs_are_left_alone() -> None:
    scores = random_scores(1, 4, 4)
    kept = scores.clone()
    log_sinkhorn(scores)
    assert torch.equal(scores, kept)


@pytest.mark.parametrize("tau", [0.0, -1.0, float("nan"), float("inf")])
def test_a_senseless_temperature_is_refused(tau: float) -> None:
    with pytest.raises(ScoreMatrixError, match=r"temperature tau is .*; it must be a finite number above 0"):
        log_sinkhorn(torch.zeros(1, 2, 2), tau=tau)


def test_no_iteration_is_refused() -> None:
    with pytest.raises(ScoreMatrixError, match="Sinkhorn iterations is 0; it must be at least 1"):
        log_sinkhorn(torch.zeros(1, 2, 2), iterations=0)


def test_the_square_of_a_slate_is_as_large_as_the_slate() -> None:
    mask = square_mask(first_real([1, 3]), 4)
    assert mask.sum(dim=(1, 2)).tolist() == [1, 9]
    assert np.argwhere(mask[0].numpy()).tolist() == [[0, 0]]


# --- every round of it


def test_each_round_of_the_path_is_the_operator_with_that_many_iterations() -> None:
    scores, mask = random_scores(3, 9, 50), first_real([2, 5, 9])
    path = sinkhorn_path(scores, mask, tau=0.7, iterations=6)
    assert path.log_assignments.shape == (6, 3, 9, 9)
    for rounds in range(1, 7):
        log_assignment, residual = log_sinkhorn(scores, mask, tau=0.7, iterations=rounds)
        assert torch.equal(path.log_assignments[rounds - 1], log_assignment)
        assert torch.equal(path.residuals[rounds - 1], residual)


def test_row_constants_change_no_round_and_column_constants_only_the_way() -> None:
    scores = random_scores(1, 8, 8)
    plain, rows, columns = (
        sinkhorn_path(matrix, iterations=500).log_assignments
        for matrix in (
            scores,
            scores + 5 * random_scores(1, 8, 1, seed=1),
            scores + 5 * random_scores(1, 1, 8, seed=2),
        )
    )
    assert torch.allclose(plain, rows, atol=1e-9)
    assert not torch.allclose(plain[0], columns[0], atol=0.1)
    assert torch.allclose(plain[-1], columns[-1], atol=1e-9)


def test_senseless_settings_of_a_path_are_refused() -> None:
    with pytest.raises(ScoreMatrixError, match="temperature tau is nan"):
        sinkhorn_path(torch.zeros(1, 2, 2), tau=float("nan"))
    with pytest.raises(ScoreMatrixError, match="Sinkhorn iterations is -1"):
        sinkhorn_path(torch.zeros(1, 2, 2), iterations=-1)
