"""Laws of the losses: where they start and end, what they look at, and that their gradients are right."""

import math
from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from spd_core.loss import click_cross_entropy, sinkhorn_cross_entropy

Loss = Callable[[Tensor], Tensor]


def all_real(batch: int, count: int) -> Tensor:
    return torch.ones(batch, count, dtype=torch.bool)


def random_scores(batch: int, count: int, positions: int = 50) -> Tensor:
    return torch.randn(batch, count, positions, generator=torch.Generator().manual_seed(0), dtype=torch.float64)


@pytest.mark.parametrize("count", [1, 2, 5, 20, 50])
def test_an_untrained_head_stands_at_log_n(count: int) -> None:
    positions = torch.randperm(count)[None]
    constant = torch.zeros(1, count, 50)
    assert float(sinkhorn_cross_entropy(constant, positions, all_real(1, count))) == pytest.approx(math.log(count), abs=1e-5)
    clicked = torch.arange(count)[None] == 0
    assert float(click_cross_entropy(constant, clicked, all_real(1, count))) == pytest.approx(math.log(count), abs=1e-5)


def test_a_perfect_matrix_costs_nothing_and_a_wrong_one_much() -> None:
    ranks = torch.tensor([[1, 2, 0]])  # a 3-cycle: item 0 at rank 1, item 1 at rank 2, item 2 at rank 0
    perfect = torch.zeros(1, 3, 5)
    perfect[0, [0, 1, 2], [1, 2, 0]] = 30.0
    assert float(sinkhorn_cross_entropy(perfect, ranks, all_real(1, 3))) == pytest.approx(0, abs=1e-4)
    inverse = torch.tensor([[2, 0, 1]])
    assert float(sinkhorn_cross_entropy(perfect, inverse, all_real(1, 3))) > 5


def test_descending_the_teacher_loss_finds_the_teachers_ranking() -> None:
    ranks = torch.tensor([[1, 2, 0, 3]])
    scores = torch.zeros(1, 4, 4, requires_grad=True)
    optimizer = torch.optim.SGD([scores], lr=2.0)
    for _ in range(60):
        optimizer.zero_grad()
        sinkhorn_cross_entropy(scores, ranks, all_real(1, 4)).backward()
        optimizer.step()
    assert scores.detach()[0].argmax(dim=1).tolist() == [1, 2, 0, 3]


def test_the_teacher_loss_is_the_mean_over_slates_of_means_over_candidates() -> None:
    scores, mask = random_scores(2, 5), torch.arange(5) < torch.tensor([5, 2])[:, None]
    ranks = torch.tensor([[4, 2, 0, 1, 3], [1, 0, -1, -1, -1]])
    both = sinkhorn_cross_entropy(scores, ranks, mask)
    first = sinkhorn_cross_entropy(scores[:1], ranks[:1], mask[:1])
    second = sinkhorn_cross_entropy(scores[1:, :2], ranks[1:, :2], mask[1:, :2])
    assert float(both) == pytest.approx((float(first) + float(second)) / 2)


def test_the_click_loss_looks_only_at_position_one_of_the_relaxed_assignment() -> None:
    scores = random_scores(1, 4, 4)
    from_scratch = scores[0].clone()
    for _ in range(200):  # rows, then columns
        from_scratch = from_scratch - from_scratch.logsumexp(dim=1, keepdim=True)
        from_scratch = from_scratch - from_scratch.logsumexp(dim=0, keepdim=True)
    one, two = torch.tensor([[False, True, False, False]]), torch.tensor([[False, True, False, True]])
    loss = click_cross_entropy(scores, one, all_real(1, 4), iterations=200)
    assert float(loss) == pytest.approx(-float(from_scratch[1, 0]))
    loss = click_cross_entropy(scores, two, all_real(1, 4), iterations=200)
    assert float(loss) == pytest.approx(-math.log(from_scratch[1, 0].exp() + from_scratch[3, 0].exp()))


def test_the_click_loss_does_not_care_how_the_rest_is_ordered() -> None:
    scores = torch.zeros(1, 3, 3)
    scores[0, 1, 0] = 30.0
    other = scores.clone()
    other[0, 0, 1] = other[0, 2, 2] = 9.0
    clicked = torch.tensor([[False, True, False]])
    losses = [float(click_cross_entropy(m, clicked, all_real(1, 3), iterations=2000)) for m in (scores, other)]
    assert losses == pytest.approx([0, 0], abs=1e-3)


def test_slates_without_a_click_add_nothing_to_the_click_loss() -> None:
    scores = random_scores(2, 4)
    clicked = torch.tensor([[False, True, False, False], [False, False, False, False]])
    both = click_cross_entropy(scores, clicked, all_real(2, 4))
    assert float(both) == pytest.approx(float(click_cross_entropy(scores[:1], clicked[:1], all_real(1, 4))))
    none = scores.clone().requires_grad_(True)
    loss = click_cross_entropy(none, torch.zeros_like(clicked), all_real(2, 4))
    loss.backward()
    assert float(loss.detach()) == 0.0
    assert none.grad is not None
    assert float(none.grad.abs().max()) == 0.0


@pytest.fixture(params=["teacher", "click"])
def loss_of_padded(request: pytest.FixtureRequest) -> Loss:
    """A loss of a (2, 5, 8) score matrix whose slates have 5 and 3 candidates."""
    mask = torch.arange(5) < torch.tensor([5, 3])[:, None]
    ranks = torch.tensor([[4, 2, 0, 1, 3], [2, 0, 1, -1, -1]])
    if request.param == "teacher":
        return lambda scores: sinkhorn_cross_entropy(scores, ranks, mask, tau=0.7, iterations=5)
    return lambda scores: click_cross_entropy(scores, ranks == 0, mask, tau=0.7, iterations=5)


def test_losses_ignore_padding(loss_of_padded: Loss) -> None:
    scores = random_scores(2, 5, 8)
    other = scores.clone()
    other[1, 3:] = 1e4  # padded candidates
    other[1, :, 3:] = -1e4  # positions beyond the slate
    other[:, :, 5:] = 77.0
    assert float(loss_of_padded(scores)) == pytest.approx(float(loss_of_padded(other)), abs=1e-12)


def test_gradients_equal_finite_differences(loss_of_padded: Loss) -> None:
    scores = random_scores(2, 5, 8).requires_grad_(True)
    assert torch.autograd.gradcheck(loss_of_padded, (scores,))


@pytest.mark.parametrize("loss", [sinkhorn_cross_entropy, click_cross_entropy])
def test_temperature_and_iterations_reach_the_sinkhorn_operator(loss: Callable[..., Tensor]) -> None:
    scores, ranks = random_scores(1, 4), torch.tensor([[2, 0, 3, 1]])
    target = ranks == 0 if loss is click_cross_entropy else ranks
    warm, cold = loss(4 * scores, target, all_real(1, 4)), loss(scores, target, all_real(1, 4), tau=0.25)
    assert float(warm) == pytest.approx(float(cold))
    assert float(loss(scores, target, all_real(1, 4), iterations=1)) != pytest.approx(
        float(loss(scores, target, all_real(1, 4)))
    )


def test_a_click_on_padding_is_no_click() -> None:
    scores, mask = random_scores(1, 4), torch.tensor([[True, True, False, False]])
    loss = click_cross_entropy(scores, torch.tensor([[False, False, True, False]]), mask)
    assert float(loss) == 0.0


@pytest.mark.parametrize("scale", [1e3, 1e6])
def test_extreme_scores_give_finite_losses_and_gradients(scale: float) -> None:
    scores = (scale * random_scores(1, 5)).float().requires_grad_(True)
    loss = sinkhorn_cross_entropy(scores, torch.arange(5)[None], all_real(1, 5))
    loss = loss + click_cross_entropy(scores, torch.arange(5)[None] == 2, all_real(1, 5))
    loss.backward()
    assert bool(loss.isfinite())
    assert scores.grad is not None
    assert bool(scores.grad.isfinite().all())
