"""What is seen inside a student belongs to the pass that ranks; projections and per-layer figures obey their laws."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from numpy.typing import NDArray

from spd_core.checkpoints import random_student
from spd_core.errors import SlateError
from spd_core.heads import HEADS
from spd_core.inside import look_inside, mean_cosines, mean_norms, project
from spd_core.model import Student, StudentConfig
from spd_core.pipeline import rank_slate
from spd_core.readouts import READOUTS
from spd_core.slate import Slate


def random_readouts(layers: int = 3, count: int = 6, width: int = 10, seed: int = 0) -> NDArray[np.float64]:
    return np.random.default_rng(seed).normal(size=(layers, count, width))


@pytest.mark.parametrize("readout", READOUTS)
@pytest.mark.parametrize("head", HEADS)
def test_scores_seen_inside_are_those_of_the_ranking(
    head: str, readout: str, tiny_backbone_dir: object, make_slate: Callable[..., Slate]
) -> None:
    config = StudentConfig(head=head, head_width=64, readout=readout, layer=1, user_token=head != "linear_probe")
    student = random_student(str(tiny_backbone_dir), config=config, device="cpu", dtype="float32")
    slate = make_slate(7)
    inside = look_inside(student, slate)
    assert np.allclose(inside.score_matrix, rank_slate(student, slate).score_matrix, atol=1e-4)
    assert inside.readouts.shape == (2, 7, 64)
    assert inside.layer_count == 1
    assert len(inside.head_maps) == (0 if head == "linear_probe" else 2)
    assert inside.reads_user == (head != "linear_probe")


def test_adapters_that_are_not_merged_are_seen_through(tiny_student: Student, make_slate: Callable[..., Slate]) -> None:
    inside = look_inside(tiny_student, make_slate(5))
    assert np.allclose(inside.score_matrix, rank_slate(tiny_student, make_slate(5)).score_matrix, atol=1e-4)
    assert inside.readouts.shape == (3, 5, 64)


def test_more_candidates_than_positions_are_refused(tiny_student: Student, make_slate: Callable[..., Slate]) -> None:
    with pytest.raises(SlateError, match="has 51 candidates but the student ranks at most 50"):
        look_inside(tiny_student, make_slate(51))


def test_projection_keeps_distances_of_flat_points() -> None:
    flat = random_readouts(1, 6, 2)[0] @ np.linalg.qr(random_readouts(1, 10, 2, seed=1)[0])[0].T
    points, shares = project(flat)
    apart = lambda rows: np.linalg.norm(rows[:, None] - rows[None], axis=2)  # noqa: E731
    assert np.allclose(apart(points), apart(flat))
    assert shares.sum() == pytest.approx(1)
    assert shares[0] >= shares[1]


def test_projection_does_not_depend_on_the_sign_or_place_of_the_readouts_space() -> None:
    readouts = random_readouts()[0]
    turn = np.linalg.qr(random_readouts(1, 10, 10, seed=2)[0])[0]
    assert np.allclose(project(readouts).points, project(readouts @ turn + 5).points)
    points = project(readouts).points
    assert (points[np.abs(points).argmax(axis=0), [0, 1]] > 0).all()


@pytest.mark.parametrize("readouts", [np.ones((1, 4)), np.ones((5, 4)), 1e4 * np.ones((3, 64))])
def test_readouts_that_do_not_differ_are_one_point(readouts: NDArray[np.float64]) -> None:
    points, shares = project(readouts)
    assert points.tolist() == np.zeros((len(readouts), 2)).tolist()
    assert shares.tolist() == [0.0, 0.0]


def test_two_readouts_lie_on_a_line() -> None:
    points, shares = project(np.array([[0.0, 0.0, 0.0], [3.0, 4.0, 0.0]]))
    assert np.allclose(points[:, 1], 0)
    assert abs(points[0, 0] - points[1, 0]) == pytest.approx(5)
    assert shares == pytest.approx([1, 0])


def test_norms_and_cosines_by_hand() -> None:
    readouts = np.array([[[3.0, 4.0], [0.0, 1.0]], [[2.0, 0.0], [5.0, 0.0]], [[1.0, 0.0], [-1.0, 0.0]]])
    assert mean_norms(readouts) == pytest.approx([3, 3.5, 1])
    assert mean_cosines(readouts) == pytest.approx([0.8, 1, -1])


def test_cosine_of_one_candidate_or_of_a_zero_readout_is_not_a_surprise() -> None:
    assert np.isnan(mean_cosines(np.ones((2, 1, 3)))).all()
    assert mean_cosines(np.zeros((1, 2, 3))) == pytest.approx([0])
