"""Greedy writing: constrained answers are permutations, the cache changes nothing, one pass a token."""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from transformers import LlamaConfig, LlamaForCausalLM

from spd_core.backbone import load_backbone
from spd_core.errors import PromptError, SpdError
from spd_core.slate import Slate
from spd_core.teachers.answers import AnswerCancelled, TokenEvent
from spd_core.teachers.autoregressive import MODES, AutoregressiveTeacher, answer_ids, ordinal_ids, output_weights_of
from spd_core.teachers.ordinals import parse_answer
from spd_core.teachers.writing import ConstrainedWriter, FreeWriter

MakeSlate = Callable[..., Slate]
DIGITS = 10
SEPARATOR = [10]


def digits(number: int) -> list[int]:
    return [int(digit) for digit in str(number)]


def spelled(tokens: list[int]) -> str:
    return "".join(">" if token == SEPARATOR[0] else str(token) for token in tokens)


def random_choice(writer: ConstrainedWriter, rng: np.random.Generator) -> None:
    first, after = torch.from_numpy(rng.normal(size=11)), {f: torch.from_numpy(rng.normal(size=11)) for f in writer.forks()}
    writer.choose(first, after)


@given(st.sampled_from([1, 2, 9, 10, 20, 21, 26, 27, 50, 101]), st.integers(0, 2**32 - 1))
def test_constrained_writing_is_a_permutation_whatever_the_model_says(count: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    writer = ConstrainedWriter([digits(k) for k in range(1, count + 1)], SEPARATOR)
    while not writer.is_done:
        random_choice(writer, rng)
    parsed = parse_answer(spelled(writer.tokens), count)
    assert parsed.kind == "ok"
    assert list(parsed.order) == writer.order


def test_one_and_twelve_part_at_the_second_token() -> None:
    writer = ConstrainedWriter([digits(k) for k in range(1, 13)], SEPARATOR)
    assert writer.forks() == [(1,)]
    for index in (0, 9, 10, 11):  # 1, 10, 11, 12
        writer.push(index)
    assert writer.forks() == []
    assert writer.unused == list(range(1, 9))


def test_forks_name_ancestors_before_heirs() -> None:
    writer = ConstrainedWriter([digits(k) for k in range(1, 112)], SEPARATOR)
    assert writer.forks()[:3] == [(1,), (2,), (3,)]
    assert (1, 0) in writer.forks()  # 10, 100 to 109
    assert (1, 2) not in writer.forks()  # 12 alone


def test_an_ordinal_is_judged_as_a_whole_and_not_by_its_first_digit() -> None:
    writer = ConstrainedWriter([digits(k) for k in range(1, 13)], SEPARATOR)
    first = torch.full((11,), -9.0)
    first[1], first[7] = math.log(0.6), math.log(0.4)  # the 1 is likelier than the 7 ...
    after = torch.full((11,), -9.0)
    after[[0, 1, 2, 10]] = math.log(0.25)  # ... but 1, 10, 11 and 12 share it
    assert writer.choose(first, {(1,): after}) == [7, *SEPARATOR]


def test_the_last_ordinal_is_written_without_being_asked() -> None:
    writer = ConstrainedWriter([digits(k) for k in range(1, 3)], SEPARATOR)
    first = torch.zeros(11)
    first[2] = 1.0
    assert writer.choose(first, {}) == [2, *SEPARATOR, 1]
    assert writer.is_done


@pytest.mark.parametrize("ordinals", [[], [[]], [[1], [1]]])
def test_ordinals_without_tokens_of_their_own_are_refused(ordinals: list[list[int]]) -> None:
    with pytest.raises(SpdError, match="does not write each ordinal in tokens of its own"):
        ConstrainedWriter(ordinals, SEPARATOR)


def test_free_writing_ends_at_the_end_token_or_the_limit() -> None:
    ended, limited = FreeWriter(end_ids=[3], most_tokens=9), FreeWriter(end_ids=[3], most_tokens=2)
    logits = torch.zeros(5)
    logits[3] = 1.0
    ended.choose(logits)
    assert ended.is_done
    logits[4] = 2.0
    limited.choose(logits)
    assert not limited.is_done
    limited.choose(logits)
    assert limited.is_done
    assert limited.tokens == [4, 4]


def logs_after(teacher: AutoregressiveTeacher, ids: list[int]) -> torch.Tensor:
    """(V,) log probabilities of the next token, everything read anew."""
    with torch.inference_mode():
        hidden = teacher.backbone.model(torch.tensor([ids]), use_cache=False).last_hidden_state[0, -1]
        return (hidden @ teacher.output_weights.T).float().log_softmax(dim=0)


def test_free_writing_is_greedy_without_the_cache(tiny_teacher: AutoregressiveTeacher, make_slate: MakeSlate) -> None:
    teacher, slate = tiny_teacher.with_mode("free"), make_slate(12)
    ids, written = teacher.prompt_ids(slate), []
    answer = teacher.answer(slate)
    for _ in range(answer.tokens):
        written.append(int(logs_after(teacher, ids + written).argmax()))
    assert answer.text == teacher.backbone.tokenizer.decode(written, skip_special_tokens=True)
    assert answer.passes == answer.tokens


@pytest.mark.parametrize("count", [12, 102])
def test_constrained_writing_takes_the_likeliest_ordinal_without_the_cache(
    tiny_teacher: AutoregressiveTeacher, make_slate: MakeSlate, count: int
) -> None:
    slate = make_slate(count, titles=["Oil"] * count)
    ids, tokenizer = tiny_teacher.prompt_ids(slate), tiny_teacher.backbone.tokenizer
    sequences, separator = ordinal_ids(tokenizer, count)
    closed = [tuple(row + separator) for row in sequences]
    forks = {row[:k] for row in closed for k in range(1, len(row)) if len({o[k] for o in closed if o[:k] == row[:k]}) > 1}
    unused, expected = list(range(count)), []
    for _ in range(4):
        after = {fork: logs_after(tiny_teacher, ids + list(fork)) for fork in forks}
        first = logs_after(tiny_teacher, ids)
        scores = []
        for index in unused:
            row = closed[index]
            later = sum(float(after[row[:k]][row[k]]) for k in range(1, len(row)) if row[:k] in after)
            scores.append(float(first[row[0]]) + later)
        best = unused.pop(int(np.argmax(scores)))
        expected.append(f"c{best + 1}")
        ids = ids + list(closed[best])
    answer = tiny_teacher.answer(slate)
    assert list(answer.permutation[:4]) == expected


def test_constrained_writing_needs_a_pass_a_rank(tiny_teacher: AutoregressiveTeacher, make_slate: MakeSlate) -> None:
    assert tiny_teacher.answer(make_slate(9)).passes == 8  # no two ordinals share a digit: a prefill, then one a rank
    assert tiny_teacher.answer(make_slate(12)).passes == 1 + 11  # one more for the forks of the first
    assert tiny_teacher.answer(make_slate(1)).passes == 1


@pytest.mark.parametrize("mode", MODES)
def test_a_batch_writes_what_each_slate_alone_does(
    tiny_teacher: AutoregressiveTeacher, make_slate: MakeSlate, mode: str
) -> None:
    teacher = tiny_teacher.with_mode(mode)
    slates = [make_slate(n, f"s{n}", history=n % 3) for n in (3, 11, 7, 1, 12)]
    together = list(teacher.answers(slates, batch_slates=4))
    assert [answer.slate_id for answer in together] == [slate.slate_id for slate in slates]
    assert [answer.text for answer in together] == [teacher.answer(slate).text for slate in slates]


def test_constrained_answers_are_valid_and_ranked(tiny_teacher: AutoregressiveTeacher, make_slate: MakeSlate) -> None:
    slate = make_slate(21)
    answer = tiny_teacher.answer(slate)
    assert answer.kind == "ok"
    assert sorted(answer.permutation) == sorted(slate.item_ids)
    assert tiny_teacher.rank(slate).permutation == answer.permutation


def test_tokens_are_told_as_they_come(tiny_teacher: AutoregressiveTeacher, make_slate: MakeSlate) -> None:
    events: list[TokenEvent] = []
    answer = tiny_teacher.answer(make_slate(12), on_token=events.append)
    assert events[-1].text == answer.text
    assert events[-1].index == answer.tokens - 1
    indices = [event.index for event in events]
    assert indices == sorted(set(indices))
    named = [len(event.order) for event in events]
    assert named == sorted(named)
    assert tuple(f"c{index + 1}" for index in events[-1].order) == answer.permutation
    assert all(a.order == b.order[: len(a.order)] for a, b in itertools.pairwise(events))
    assert list(answer.token_ms) == [event.elapsed_ms for event in events] == sorted(answer.token_ms)
    assert answer.first_token_ms == answer.token_ms[0]
    assert answer.ms == answer.token_ms[-1]


def test_a_number_counts_when_it_has_ended(tiny_teacher: AutoregressiveTeacher, make_slate: MakeSlate) -> None:
    events: list[TokenEvent] = []
    tiny_teacher.answer(make_slate(12), on_token=events.append)
    for event in events[:-1]:
        closed = event.text[: event.text.rfind(">") + 1]
        assert [index + 1 for index in event.order] == [int(number) for number in closed.split(">")[:-1]]


def test_an_answer_can_be_cancelled_between_tokens(tiny_teacher: AutoregressiveTeacher, make_slate: MakeSlate) -> None:
    events: list[TokenEvent] = []
    with pytest.raises(AnswerCancelled, match=r"slate 's1': cancelled after \d+ tokens"):
        tiny_teacher.answer(make_slate(12), on_token=events.append, is_cancelled=lambda: len(events) == 3)
    assert len(events) == 3
    assert tiny_teacher.answer(make_slate(4)).kind == "ok"


def test_an_answer_that_does_not_fit_is_refused_before_it_starts(
    tiny_teacher: AutoregressiveTeacher, make_slate: MakeSlate
) -> None:
    slate = make_slate(400)
    with pytest.raises(PromptError, match=r"slate 's1': prompt and answer need \d+ tokens but the model takes 4096"):
        tiny_teacher.answer(slate)
    with pytest.raises(PromptError, match="prompt and answer need"):
        next(tiny_teacher.answers([slate]))


def test_an_unknown_mode_is_refused(tiny_teacher: AutoregressiveTeacher) -> None:
    with pytest.raises(SpdError, match="unknown decoding mode 'beam'; choose from constrained, free"):
        tiny_teacher.with_mode("beam")


def test_training_tokens_are_what_the_teacher_would_write(tiny_teacher: AutoregressiveTeacher) -> None:
    tokenizer = tiny_teacher.backbone.tokenizer
    order = [11, 0, *range(1, 11)]
    writer = tiny_teacher.new_writer(12)
    assert isinstance(writer, ConstrainedWriter)
    for index in order:
        writer.push(index)
    rows = answer_ids(tokenizer, order)
    assert [token for row in rows for token in row] == [*writer.tokens, tokenizer.eos_token_id]
    assert len(rows) == 12


def test_an_untied_language_head_is_read_from_the_weights(tiny_backbone_dir: Path, tmp_path: Path) -> None:
    folder = tmp_path / "untied"
    tied = load_backbone(str(tiny_backbone_dir), device="cpu", dtype="float32")
    config = LlamaConfig(**(tied.model.config.to_dict() | {"tie_word_embeddings": False}))  # type: ignore[union-attr, operator]
    model = LlamaForCausalLM(config)
    model.save_pretrained(folder)
    backbone = dataclasses.replace(tied, model=model.model)
    assert torch.equal(output_weights_of(backbone, folder), model.lm_head.weight)
    assert torch.equal(output_weights_of(tied, tiny_backbone_dir), tied.model.get_input_embeddings().weight)  # type: ignore[operator]
    with pytest.raises(SpdError, match="backbone 'tiny-llama': has no language head to write with"):
        output_weights_of(backbone, tmp_path)
