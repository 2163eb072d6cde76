"""Speed paths: each computes the same scores; a recorded pass takes prompts of any length and refuses what it cannot do."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import Tensor

from spd_core.backbone import Backbone, prefill
from spd_core.errors import BackboneError, SpdError
from spd_core.latency import StageClock, encode_slate, ride_prompts
from spd_core.model import Student
from spd_core.recipes.shapes import RandomModel, build_random_model, draw_slates, find_shape
from spd_core.slate import Slate
from spd_core.speed_paths import PATHS, RecordedModel, on_path, paths_on
from spd_core.tokenization import collate_prompts

CPU = torch.device("cpu")
RunPass = Callable[[], Tensor]


@pytest.fixture(scope="module")
def model() -> RandomModel:
    """The tiny shape in float32 on the CPU."""
    return build_random_model(find_shape("tiny-shape"), device="cpu", dtype="float32")


class CountedPasses:
    """Stands for the recorder of CUDA graphs: replays by running the pass again."""

    def __init__(self) -> None:
        self.count = 0

    def __call__(self, run_pass: RunPass) -> RunPass:
        self.count += 1
        return run_pass


def scores_of(student: Student, slates: list[Slate]) -> NDArray[np.float32]:
    encoded = [encode_slate(student, slate) for slate in slates]
    return ride_prompts(student, encoded, "hungarian", StageClock(student.backbone.device)).scores


def test_a_recorded_pass_gives_the_states_of_prompts_of_any_length(model: RandomModel) -> None:
    student, slates = model.student(), draw_slates(model.shape, 8)
    recorded = RecordedModel(model.backbone.model, bucket_tokens=256, record=CountedPasses())
    for batch in (slates[:4], slates[4:], slates[3:7]):  # lengths differ within a batch; others' tokens are left behind
        moved = collate_prompts([encode_slate(student, slate) for slate in batch], pad_id=0)
        assert not bool(moved.attention_mask.all())
        with torch.inference_mode():
            expected, states = (prefill(one, moved)[moved.attention_mask] for one in (model.backbone.model, recorded))
        torch.testing.assert_close(states, expected, atol=1e-5, rtol=1e-4)


def test_a_pass_is_recorded_once_a_batch_size_and_bucket(model: RandomModel) -> None:
    passes = CountedPasses()
    recorded = RecordedModel(model.backbone.model, bucket_tokens=16, record=passes)
    for rows, length in ((1, 16), (1, 9), (1, 16), (1, 17), (2, 16), (1, 32)):
        states = recorded(input_ids=torch.ones(rows, length, dtype=torch.int64)).last_hidden_state
        assert states.shape[:2] == (rows, length)
    assert passes.count == len(recorded.recordings) == 3
    assert set(recorded.recordings) == {(1, 16), (1, 32), (2, 16)}


def test_a_recorded_pass_refuses_what_it_would_get_wrong(model: RandomModel) -> None:
    recorded = RecordedModel(model.backbone.model, record=CountedPasses())
    ids = torch.ones(2, 3, dtype=torch.int64)
    with pytest.raises(BackboneError, match="takes prompts padded on the right"):
        recorded(input_ids=ids, attention_mask=torch.tensor([[1, 1, 1], [0, 1, 1]]))
    with pytest.raises(BackboneError, match="a recorded pass keeps no cache"):
        recorded(input_ids=ids, use_cache=True)
    assert not recorded.recordings


def test_a_model_that_takes_no_prepared_mask_is_refused(tiny_backbone: Backbone) -> None:
    with pytest.raises(BackboneError, match=r"LlamaModel with sdpa attention .* cannot be recorded; use sdpa in a model"):
        RecordedModel(tiny_backbone.model)


def test_attention_that_is_not_fused_is_refused(model: RandomModel) -> None:
    plain = on_path(model.student(), "plain").model
    with pytest.raises(BackboneError, match="Qwen3Model with eager attention"):
        RecordedModel(plain)


@pytest.mark.parametrize("path", paths_on(CPU))
def test_a_path_changes_no_score(path: str, model: RandomModel) -> None:
    student, slates = model.student(), draw_slates(model.shape, 3)
    before = student.model.config._attn_implementation
    np.testing.assert_allclose(scores_of(on_path(student, path), slates), scores_of(student, slates), atol=1e-4)
    assert student.model.config._attn_implementation == before == "sdpa"


def test_recordings_are_for_cuda(model: RandomModel) -> None:
    assert paths_on(torch.device("cuda")) == list(PATHS)
    assert not any(PATHS[path].recorded for path in paths_on(CPU))
    with pytest.raises(BackboneError, match="'recorded' records CUDA graphs but the student is on the CPU"):
        on_path(model.student(), "recorded")


def test_an_unknown_path_is_named_with_the_known_ones(model: RandomModel) -> None:
    with pytest.raises(SpdError, match="unknown speed path 'warp'; choose from compiled, fused, plain, recorded"):
        on_path(model.student(), "warp")


@pytest.mark.gpu
@pytest.mark.parametrize("path", PATHS)
def test_a_path_changes_no_score_on_a_gpu(path: str) -> None:
    model = build_random_model(find_shape("tiny-shape"), device="cuda", dtype="float32")
    student, slates = model.student(), draw_slates(model.shape, 6)
    runner = on_path(student, path)
    for batch in (slates[:1], slates[:4], slates[1:2], slates[2:6]):
        np.testing.assert_allclose(scores_of(runner, batch), scores_of(student, batch), atol=2e-3)
