"""From slate to ranking: the laws a result keeps, one at a time, in batches and in threads."""

import copy
import dataclasses
import itertools
import json
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from spd_core import pipeline
from spd_core.backbone import Backbone
from spd_core.checkpoints import random_student
from spd_core.datasets import load_slates
from spd_core.decoding import DECODERS, hungarian
from spd_core.decoding.margins import matrix_warnings, swap_margins
from spd_core.errors import PromptError, ScoreMatrixError, SlateError, SpdError
from spd_core.latency import STAGES, ride_prompts
from spd_core.model import Student, StudentConfig
from spd_core.pipeline import rank_slate, rank_slates, score_slates
from spd_core.prompts import build_prompt
from spd_core.slate import Slate
from spd_core.tokenization import tokenize_slates

MakeSlate = Callable[..., Slate]
SIZES = (3, 12, 1, 7, 20, 2, 9)


def with_head(student: Student, change: Callable[[torch.nn.Module], None]) -> Student:
    """The student with a changed copy of its head."""
    changed = copy.copy(student)
    changed._modules = student._modules | {"head": copy.deepcopy(student.head)}
    change(changed.head)
    return changed.eval()


def mixed_slates(make_slate: MakeSlate) -> list[Slate]:
    return [make_slate(size, f"s{k}", history=k % 4, query="soap" if k % 2 else None) for k, size in enumerate(SIZES)]


# --- one slate


def test_the_matrix_is_the_students_own(tiny_student: Student, make_slate: MakeSlate) -> None:
    slate = make_slate(9)
    batch = tokenize_slates([build_prompt(slate, tiny_student.template)], tiny_student.backbone.tokenizer)
    with torch.inference_mode():
        expected = tiny_student(batch)[0].numpy()
    assert np.array_equal(rank_slate(tiny_student, slate).score_matrix, expected)


@pytest.mark.parametrize("decoder", DECODERS)
def test_a_result_is_what_its_decoder_says_of_its_matrix(tiny_student: Student, make_slate: MakeSlate, decoder: str) -> None:
    slate = make_slate(11)
    result = rank_slate(tiny_student, slate, decoder=decoder)
    assert result.decoder == result.provenance["decoder"] == decoder
    assert np.array_equal(result.ranking, DECODERS[decoder](result.score_matrix.astype(np.float64)))
    assert result.item_ids == tuple(slate.item_ids[index] for index in result.ranking)
    assert sorted(result.item_ids) == sorted(slate.item_ids)


@pytest.mark.parametrize("count", [1, 2, 49, 50])
def test_every_size_up_to_k_is_ranked(tiny_student: Student, make_slate: MakeSlate, count: int) -> None:
    result = rank_slate(tiny_student, make_slate(count))
    assert sorted(result.ranking) == list(range(count))
    assert result.score_matrix.shape == (count, 50)
    assert result.log_assignment.shape == (count, count)
    assert result.margins.shape == result.used_tokens.shape == result.cut_tokens.shape == (count,)


def test_one_candidate_is_certain_and_warns_of_nothing(tiny_student: Student, make_slate: MakeSlate) -> None:
    result = rank_slate(tiny_student, make_slate(1))
    assert result.log_assignment.tolist() == [[0.0]]
    assert np.isnan(result.margins).tolist() == [True]
    assert result.warnings == ()


def test_more_candidates_than_positions_are_refused_with_both_numbers(tiny_student: Student, make_slate: MakeSlate) -> None:
    with pytest.raises(SlateError, match=r"slate 's1' has 51 candidates but the student ranks at most 50"):
        rank_slate(tiny_student, make_slate(51))


def test_a_prompt_beyond_the_context_is_refused_with_both_numbers(tiny_student: Student, make_slate: MakeSlate) -> None:
    wide = copy.copy(tiny_student)
    wide.template = dataclasses.replace(tiny_student.template, candidate_cap=500)
    with pytest.raises(PromptError, match=r"slate 's1': the prompt has \d{4,} tokens but the model takes 4096"):
        rank_slate(wide, make_slate(50, titles=["long title " * 50] * 50))


def test_scores_that_are_not_finite_are_refused_by_slate_item_and_position(
    tiny_student: Student, make_slate: MakeSlate
) -> None:
    def poison(head: torch.nn.Module) -> None:
        head.score.bias.data[1] = torch.nan

    with pytest.raises(ScoreMatrixError, match=r"slate 's1': score of item 1 for position 2 is nan"):
        rank_slate(with_head(tiny_student, poison), make_slate(4))


def test_a_student_in_training_mode_is_refused(tiny_student: Student, make_slate: MakeSlate) -> None:
    training = with_head(tiny_student, lambda head: None)
    training.training = True
    with pytest.raises(SpdError, match=r"training mode.*student\.eval\(\)"):
        rank_slate(training, make_slate(2))


def test_an_unknown_decoder_is_refused(tiny_student: Student, make_slate: MakeSlate) -> None:
    with pytest.raises(SpdError, match=r"unknown decoder 'sort'; choose from expected_position"):
        rank_slate(tiny_student, make_slate(2), decoder="sort")


def test_the_relaxed_assignment_follows_tau_and_the_ranking_does_not(tiny_student: Student, make_slate: MakeSlate) -> None:
    usual = rank_slate(tiny_student, make_slate(8))
    assert (usual.tau, usual.iterations) == (tiny_student.config.tau, tiny_student.config.sinkhorn_iterations)
    cold = rank_slate(tiny_student, make_slate(8), tau=0.001, iterations=3000)
    assert np.array_equal(usual.ranking, cold.ranking)
    assert np.array_equal(np.exp(cold.log_assignment).argmax(axis=0), cold.ranking)
    assert not np.allclose(usual.log_assignment, cold.log_assignment)
    assert rank_slate(tiny_student, make_slate(8), tau=0.001, iterations=1).residual > cold.residual


def test_stages_add_up_to_the_total(tiny_student: Student, make_slate: MakeSlate) -> None:
    timings = rank_slate(tiny_student, make_slate(8)).timings_ms
    assert tuple(timings) == (*STAGES, "total")
    assert min(timings.values()) >= 0
    assert sum(timings[stage] for stage in STAGES) == pytest.approx(timings["total"])


def test_a_result_is_one_json_line_of_the_contract(tiny_student: Student, make_slate: MakeSlate) -> None:
    result = rank_slate(tiny_student, make_slate(3))
    line = json.loads(json.dumps(result.to_json(), allow_nan=False))
    assert set(line) == {"slate_id", "ranking", "decoder", "timings_ms", "provenance", "warnings"}
    assert line["ranking"] == list(result.item_ids)
    backbone = tiny_student.backbone
    assert line["provenance"] == {
        "checkpoint": "unsaved",
        "backbone": "tiny-llama",
        "backbone_fingerprint": backbone.fingerprint,
        "head": "self_attention",
        "readout": "last",
        "layer": 2,
        "template": "shop",
        "template_hash": tiny_student.template.hash,
        "decoder": "hungarian",
        "device": "cpu",
        "dtype": "float32",
    }


# --- warnings and margins


def test_a_constant_matrix_keeps_the_input_order_and_says_so(tiny_student: Student, make_slate: MakeSlate) -> None:
    def silence(head: torch.nn.Module) -> None:
        head.score.weight.data.zero_()
        head.score.bias.data.zero_()

    result = rank_slate(with_head(tiny_student, silence), make_slate(5))
    assert result.ranking.tolist() == [0, 1, 2, 3, 4]
    assert result.warnings[0].startswith("no ranking information")


@pytest.mark.parametrize("decoder", DECODERS)
def test_a_head_that_knows_positions_but_not_items_says_so(
    tiny_student: Student, make_slate: MakeSlate, decoder: str
) -> None:
    def forget_items(head: torch.nn.Module) -> None:
        head.score.weight.data.zero_()

    result = rank_slate(with_head(tiny_student, forget_items), make_slate(5), decoder=decoder)
    assert result.warnings[0].startswith("no ranking information")


def test_constants_added_to_rows_inform_a_sort_but_not_the_assignment() -> None:
    rows = np.arange(4.0)[:, None] + np.zeros((4, 4))
    assert matrix_warnings(rows, swap_margins(rows, np.arange(4)), "hungarian")[0].startswith("no ranking information")
    assert matrix_warnings(rows, swap_margins(rows, np.arange(4)), "first_column") == ()


def test_ties_are_counted() -> None:
    scores = np.array([[5.0, 1.0, 0.0], [2.0, 1.0, 1.0], [2.0, 1.0, 1.0]])
    margins = swap_margins(scores, hungarian(scores))
    assert matrix_warnings(scores, margins, "hungarian") == (
        "exact tie: 1 pairs of neighbours could change places at an equal total",
    )
    assert matrix_warnings(scores, margins, "first_column") == (
        "exact tie: 1 candidates have the very scores of another one",
    )


def test_distinct_scores_warn_of_nothing() -> None:
    scores = np.random.default_rng(0).normal(size=(6, 6))
    for decoder in DECODERS:
        assert matrix_warnings(scores, swap_margins(scores, DECODERS[decoder](scores)), decoder) == ()


@given(st.integers(2, 8), st.integers(0, 2**32 - 1))
def test_a_margin_is_what_the_swap_costs_and_never_a_gain_under_the_exact_decoder(count: int, seed: int) -> None:
    scores = np.random.default_rng(seed).normal(size=(count, count + 2))
    ranking = hungarian(scores)
    total = scores[ranking, range(count)].sum()
    margins = swap_margins(scores, ranking)
    assert np.isnan(margins[-1])
    for rank in range(count - 1):
        swapped = ranking.copy()
        swapped[[rank, rank + 1]] = swapped[[rank + 1, rank]]
        assert margins[rank] == pytest.approx(total - scores[swapped, range(count)].sum())
        assert margins[rank] >= -1e-12


def test_cut_descriptions_are_counted(tiny_student: Student, make_slate: MakeSlate) -> None:
    result = rank_slate(tiny_student, make_slate(3, titles=["soap", "hair oil " * 60, "cream"]))
    cap = tiny_student.template.candidate_cap
    assert f"1 of 3 descriptions were cut to {cap} tokens" in result.warnings
    assert (result.cut_tokens > 0).tolist() == [False, True, False]
    assert result.used_tokens[1] == cap


def test_an_untrained_head_says_so(tiny_backbone: Backbone, make_slate: MakeSlate) -> None:
    result = rank_slate(random_student(tiny_backbone, config=StudentConfig(head_width=64)), make_slate(3))
    assert result.warnings[0].startswith("untrained head")
    assert result.provenance["checkpoint"] == "untrained"


# --- many slates


@settings(max_examples=8)
@given(order=st.permutations(range(len(SIZES))), batch_tokens=st.sampled_from([1, 150, 700, 100_000]))
def test_slates_in_batches_are_ranked_as_alone_and_in_input_order(
    tiny_student: Student, make_slate: MakeSlate, order: list[int], batch_tokens: int
) -> None:
    slates = [mixed_slates(make_slate)[k] for k in order]
    results = list(rank_slates(tiny_student, slates, batch_tokens=batch_tokens))
    scored = list(score_slates(tiny_student, slates, batch_tokens=batch_tokens))
    assert [result.slate_id for result in results] == [slate.slate_id for slate, _ in scored] == [s.slate_id for s in slates]
    for slate, result, (_, matrix) in zip(slates, results, scored, strict=True):
        alone = rank_slate(tiny_student, slate)
        np.testing.assert_allclose(result.score_matrix, alone.score_matrix, atol=1e-4)
        np.testing.assert_array_equal(result.score_matrix, matrix)
        assert result.item_ids == alone.item_ids
        assert np.array_equal(result.used_tokens, alone.used_tokens)


def test_an_endless_stream_is_ranked_as_it_comes(tiny_student: Student, make_slate: MakeSlate) -> None:
    read = itertools.count()

    def endless() -> Iterator[Slate]:
        while True:
            yield make_slate(4, f"s{next(read)}")

    given_out = [result.slate_id for result in itertools.islice(rank_slates(tiny_student, endless(), batch_tokens=200), 30)]
    assert given_out == [f"s{k}" for k in range(30)]
    assert next(read) < 60


def test_no_slates_give_no_rankings(tiny_student: Student) -> None:
    assert list(rank_slates(tiny_student, [])) == []


@pytest.mark.parametrize("limit", [1, 20, 50, 1000])
def test_groups_hold_like_lengths_within_the_limit(limit: int) -> None:
    lengths = [7, 50, 8, 20, 7, 9]
    groups = pipeline._group_by_length(lengths, limit)
    assert sorted(itertools.chain.from_iterable(groups)) == list(range(6))
    for group in groups:
        assert len(group) == 1 or len(group) * max(lengths[index] for index in group) <= limit
    assert (len(groups) == 1) == (limit == 1000)


def test_shared_stages_of_a_batch_are_split_and_each_slates_encoding_is_its_own(
    tiny_student: Student, make_slate: MakeSlate, monkeypatch: pytest.MonkeyPatch
) -> None:
    rides = []

    def watched(*arguments: object) -> object:
        rides.append(ride_prompts(*arguments))  # type: ignore[arg-type]
        return rides[-1]

    monkeypatch.setattr(pipeline, "ride_prompts", watched)
    results = list(rank_slates(tiny_student, mixed_slates(make_slate), batch_tokens=100_000))
    (ride,) = rides
    for result in results:
        assert result.timings_ms["prefill"] == pytest.approx(ride.timings_ms["prefill"] / len(SIZES))
        assert result.timings_ms["tokenize"] > ride.timings_ms["tokenize"] / len(SIZES)
        stages = sum(result.timings_ms[stage] for stage in STAGES)
        assert stages == pytest.approx(result.timings_ms["total"])


# --- threads


def test_eight_threads_times_a_hundred_rankings_equal_the_serial_ones(tiny_student: Student, make_slate: MakeSlate) -> None:
    slates = [make_slate(2 + k % 6, f"s{k}") for k in range(100)]
    serial = [rank_slate(tiny_student, slate) for slate in slates]
    with ThreadPoolExecutor(8) as pool:
        runs = list(pool.map(lambda _: [rank_slate(tiny_student, slate) for slate in slates], range(8)))
    for run in runs:
        for threaded, alone in zip(run, serial, strict=True):
            assert threaded.item_ids == alone.item_ids
            np.testing.assert_allclose(threaded.score_matrix, alone.score_matrix, atol=1e-5)


# --- the real backbone


@pytest.mark.model
def test_the_embedded_backbone_ranks_the_sample_slates() -> None:
    student = random_student(config=StudentConfig(head_width=64, layer=4, readout="mean"))
    slates = load_slates("sample_data/slates/tricky.jsonl")
    for slate, result in zip(slates, rank_slates(student, slates), strict=True):
        assert sorted(result.item_ids) == sorted(slate.item_ids)
