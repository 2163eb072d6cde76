"""Laws that hold for every head, and the sizes that the paper gives."""

import pytest
import torch
from torch import Tensor

from spd_core.errors import SpdError
from spd_core.heads import HEADS, build_head
from spd_core.heads.standardize import Standardize

HIDDEN, POSITIONS = 24, 12
ATTENDING = [name for name in HEADS if name != "linear_probe"]


def new_head(name: str, *, user_token: bool = False) -> torch.nn.Module:
    torch.manual_seed(0)
    return build_head(name, HIDDEN, POSITIONS, width=64, user_token=user_token).eval()


def new_states(batch: int, count: int, seed: int = 0) -> Tensor:
    return torch.randn(batch, count, HIDDEN, generator=torch.Generator().manual_seed(seed))


def all_real(states: Tensor) -> Tensor:
    return torch.ones(states.shape[:2], dtype=torch.bool)


@pytest.mark.parametrize(
    ("name", "paper"), [("linear_probe", 550_000), ("self_attention", 4_200_000), ("slot_query", 4_000_000)]
)
def test_parameter_counts_are_the_papers(name: str, paper: int) -> None:
    head = build_head(name, 1024, 50, width=512, user_token=False)
    assert sum(p.numel() for p in head.parameters()) == pytest.approx(paper, rel=0.05)


@pytest.mark.parametrize("name", HEADS)
@pytest.mark.parametrize("count", [1, 2, POSITIONS, POSITIONS + 5])
def test_a_slate_gives_one_row_a_candidate_and_one_column_a_position(name: str, count: int) -> None:
    states = new_states(3, count)
    scores = new_head(name)(states, all_real(states))
    assert scores.shape == (3, count, POSITIONS)
    assert scores.dtype == torch.float32
    assert bool(scores.isfinite().all())


@pytest.mark.parametrize("name", HEADS)
def test_permuting_candidates_permutes_rows(name: str) -> None:
    states, order = new_states(2, 7), torch.tensor([4, 0, 6, 1, 2, 5, 3])
    head = new_head(name)
    with torch.inference_mode():
        straight, permuted = head(states, all_real(states)), head(states[:, order], all_real(states))
    assert torch.allclose(permuted, straight[:, order], atol=1e-5)
    assert not torch.allclose(permuted, straight, atol=1e-3)


@pytest.mark.parametrize("name", HEADS)
def test_a_padded_batch_scores_each_slate_as_alone(name: str) -> None:
    states, counts = new_states(3, 9), [9, 1, 4]
    mask = torch.arange(9) < torch.tensor(counts)[:, None]
    states[~mask] = 1e3  # what stands in the padding must not matter
    head = new_head(name)
    with torch.inference_mode():
        together = head(states, mask)
        for row, n in enumerate(counts):
            alone = head(states[row : row + 1, :n], mask[row : row + 1, :n])
            assert torch.allclose(together[row, :n], alone[0], atol=1e-5)


@pytest.mark.parametrize(("name", "user_token"), [*((name, False) for name in HEADS), *((name, True) for name in ATTENDING)])
def test_no_mask_means_that_all_candidates_are_real(name: str, user_token: bool) -> None:
    states, user = new_states(2, 6), torch.ones(2, HIDDEN)
    head = new_head(name, user_token=user_token)
    with torch.inference_mode():
        torch.testing.assert_close(head(states, None, user), head(states, all_real(states), user), atol=1e-5, rtol=1e-5)


def test_the_linear_probe_scores_each_candidate_alone() -> None:
    states = new_states(1, 5)
    changed = states.clone()
    changed[0, 3] += 1.0
    head = new_head("linear_probe")
    difference = (head(changed, all_real(states)) - head(states, all_real(states))).abs().sum(dim=2)[0]
    assert (difference > 0).tolist() == [False, False, False, True, False]


@pytest.mark.parametrize("name", ATTENDING)
def test_heads_that_attend_see_the_other_candidates(name: str) -> None:
    states = new_states(1, 5)
    changed = states.clone()
    changed[0, 3] += 1.0
    head = new_head(name)
    difference = (head(changed, all_real(states)) - head(states, all_real(states))).abs().sum(dim=2)[0]
    assert bool((difference > 1e-6).all())


@pytest.mark.parametrize("name", ATTENDING)
def test_the_user_token_changes_the_scores_and_takes_no_row(name: str) -> None:
    states = new_states(2, 5)
    head = new_head(name, user_token=True)
    one = head(states, all_real(states), new_states(2, 1, seed=1)[:, 0])
    other = head(states, all_real(states), new_states(2, 1, seed=2)[:, 0])
    assert one.shape == other.shape == (2, 5, POSITIONS)
    assert not torch.allclose(one, other, atol=1e-4)


@pytest.mark.parametrize("name", ATTENDING)
def test_a_user_of_one_slate_does_not_reach_another(name: str) -> None:
    states, users = new_states(2, 5), new_states(2, 1, seed=1)[:, 0]
    other_users = users.clone()
    other_users[1] += 1.0
    head = new_head(name, user_token=True)
    one, other = head(states, all_real(states), users), head(states, all_real(states), other_users)
    assert torch.allclose(one[0], other[0], atol=1e-6)
    assert not torch.allclose(one[1], other[1], atol=1e-4)


@pytest.mark.parametrize("name", ATTENDING)
def test_a_head_with_a_user_token_needs_the_user_state(name: str) -> None:
    with pytest.raises(TypeError, match="built with a user token; pass user_state"):
        new_head(name, user_token=True)(new_states(1, 2), all_real(new_states(1, 2)))


def test_the_linear_probe_refuses_a_user_token() -> None:
    with pytest.raises(
        SpdError, match="'linear_probe' scores each item alone and cannot take a user token; set user_token = false"
    ):
        new_head("linear_probe", user_token=True)


def test_an_unknown_head_is_refused_with_the_list() -> None:
    with pytest.raises(SpdError, match="unknown head 'mlp'; choose from linear_probe, self_attention, slot_query"):
        new_head("mlp")


def test_a_head_without_positions_is_refused() -> None:
    with pytest.raises(SpdError, match="head 'linear_probe': K is 0; it must be at least 1"):
        build_head("linear_probe", HIDDEN, 0, width=64, user_token=False)


@pytest.mark.parametrize("name", HEADS)
def test_gradients_reach_every_parameter(name: str) -> None:
    states = new_states(2, 5)
    head = new_head(name)
    (head(states, all_real(states)) ** 2).sum().backward()
    silent = [key for key, p in head.named_parameters() if p.grad is None or not bool(p.grad.abs().sum() > 0)]
    assert silent == []


@pytest.mark.parametrize("name", HEADS)
def test_every_head_says_in_one_line_what_it_does(name: str) -> None:
    first = (HEADS[name].__doc__ or "").splitlines()[0]
    assert 20 <= len(first) <= 110


def test_standardised_states_have_zero_mean_and_unit_variance() -> None:
    states = 300 * new_states(1, 200)[0] + 40
    states[:, 0] = 7.0  # a constant dimension has no variance to divide by
    standardize = Standardize(HIDDEN)
    standardize.fit(states)
    scaled = standardize(states)
    assert torch.allclose(scaled.mean(dim=0), torch.zeros(HIDDEN), atol=1e-4)
    assert torch.allclose(scaled[:, 1:].std(dim=0), torch.ones(HIDDEN - 1), atol=1e-4)
    assert scaled[:, 0].abs().max() == 0


def test_statistics_are_saved_with_the_head_and_are_not_trained() -> None:
    head = new_head("linear_probe")
    assert {"standardize.mean", "standardize.scale"} <= set(head.state_dict())
    assert not any(name.startswith("standardize") for name, _ in head.named_parameters())
