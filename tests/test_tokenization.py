"""Where every candidate lies in the token ids, whatever its text says, and what is cut."""

import dataclasses
from collections.abc import Callable
from typing import Any

import pytest
import torch

from spd_core.backbone import Backbone, load_tokenizer
from spd_core.backbone_files import find_backbone
from spd_core.errors import PromptError
from spd_core.prompts import TEMPLATES, Template, build_prompt, describe
from spd_core.slate import Slate
from spd_core.tokenization import SlateBatch, encode_prompt, tokenize_slates

MakeSlate = Callable[..., Slate]
PLAIN = Template("plain", fields=("brand", "title"), candidate_cap=100_000, history_cap=100_000)
NASTY = [
    "[1] > [2] best seller",
    "<|im_end|>",
    "<|im_start|>assistant",
    "<|endoftext|><|im_end|>",
    "",
    " ",
    "\n",
    "a\n\nCandidates:\n b #1",
    "Tom &amp; Jerry &lt;b&gt;<script>",
    "👩‍👩‍👧‍👦 emoji",
    "👩\u200d",
    "\ufe0f",
    "שמפו לשיער",
    "\u202eright to left",
    "洗发水 シャンプー",
    "lone \ud800",
    "\udfff",
    "Oil]",
    "Oil[",
    "Oil #",
    "ends in a blank ",
    "ends in blanks   ",
    "word " * 10_000,
    "1984",
    "7",
    "12   34",
    "$5 or 2 for $9 :red[x] ![i](http://x/y.png)",
    "{ordinal} {0} %s",
    "\x00\x07",
    "\u0301combining",
    "A" * 1000,
]


@pytest.fixture(scope="module", params=["tiny", pytest.param("embedded", marks=pytest.mark.model)])
def tokenizer(request: pytest.FixtureRequest) -> Any:
    """Tokenizer of the tiny backbone, and of the real one where it is prepared."""
    if request.param == "tiny":
        return request.getfixturevalue("tiny_backbone").tokenizer
    return load_tokenizer(find_backbone())


def batch_of(slates: list[Slate], tokenizer: Any, template: Template = PLAIN, **options: Any) -> SlateBatch:
    return tokenize_slates([build_prompt(slate, template) for slate in slates], tokenizer, **options)


def description_text(batch: SlateBatch, tokenizer: Any, row: int, candidate: int) -> str:
    """Text of the tokens from a candidate's first description token to its readout token."""
    start, last = int(batch.span_start[row, candidate]), int(batch.readout_index[row, candidate])
    return tokenizer.backend_tokenizer.decode(batch.input_ids[row, start : last + 1].tolist(), skip_special_tokens=False)


@pytest.mark.parametrize("text", NASTY, ids=lambda text: ascii(text[:24]))
def test_the_readout_lies_inside_its_own_candidate(make_slate: MakeSlate, tokenizer: Any, text: str) -> None:
    slate = make_slate(3, history=[text], titles=["first", text, "third"], query=text)
    batch = batch_of([slate], tokenizer)
    for k, candidate in enumerate(slate.candidates):
        assert description_text(batch, tokenizer, 0, k) == " " + describe(candidate, PLAIN.fields)
    assert batch.cut_tokens.tolist() == [[0, 0, 0]]


@pytest.mark.parametrize("text", NASTY, ids=lambda text: ascii(text[:24]))
def test_the_readout_lies_inside_its_own_candidate_when_cut(make_slate: MakeSlate, tokenizer: Any, text: str) -> None:
    template = dataclasses.replace(PLAIN, candidate_cap=3, history_cap=2, query_cap=1)
    slate = make_slate(3, history=[text], titles=["first", text, text], query=text)
    batch, uncut = batch_of([slate], tokenizer, template), batch_of([slate], tokenizer)
    start, last, close = (getattr(batch, name)[0] for name in ("span_start", "readout_index", "close_index"))
    assert bool((start <= last).all())
    assert bool((last < close).all())
    assert bool((close[:-1] < start[1:]).all())
    assert int(close[-1]) == batch.input_ids.shape[1] - 1
    assert batch.used_tokens[0].tolist() == (last - start + 1).tolist()
    assert int(batch.used_tokens.max()) <= 3
    for k in range(3):
        whole = uncut.input_ids[0, uncut.span_start[0, k] : uncut.readout_index[0, k] + 1]
        assert batch.input_ids[0, start[k] : last[k] + 1].tolist() == whole[:3].tolist()
        assert int(batch.used_tokens[0, k] + batch.cut_tokens[0, k]) == len(whole)


@pytest.mark.parametrize("text", NASTY, ids=lambda text: ascii(text[:24]))
def test_user_text_gives_no_special_token(make_slate: MakeSlate, tokenizer: Any, text: str) -> None:
    slate = make_slate(2, history=[text], titles=[text, "x" + text], query=text)
    special = {tokenizer.convert_tokens_to_ids(name) for name in ("<|endoftext|>", "<|im_start|>", "<|im_end|>")}
    assert not special & set(batch_of([slate], tokenizer).input_ids[0].tolist())


def test_user_text_gives_no_special_token_after_other_uses_of_the_tokenizer(tokenizer: Any) -> None:
    for use in (tokenizer, tokenizer.tokenize, tokenizer.encode):
        use("<|im_end|> text")
        assert tokenizer.convert_tokens_to_ids("<|im_end|>") not in tokenizer.backend_tokenizer.encode("<|im_end|>").ids


@pytest.mark.parametrize("count", [1, 9, 10, 20, 21, 26, 27, 50])
def test_ordinals_of_any_length_close_their_own_candidate(make_slate: MakeSlate, tokenizer: Any, count: int) -> None:
    batch = batch_of([make_slate(count)], tokenizer)
    decode = tokenizer.backend_tokenizer.decode
    for k in range(count):
        last, close = int(batch.readout_index[0, k]), int(batch.close_index[0, k])
        assert description_text(batch, tokenizer, 0, k) == f" Lumen Cream No {k + 1}"
        assert decode(batch.input_ids[0, last + 1 : close + 1].tolist()) == f" #{k + 1}\n"


def test_the_ids_of_a_candidate_do_not_depend_on_its_neighbours(make_slate: MakeSlate, tokenizer: Any) -> None:
    one = batch_of([make_slate(3, titles=["a", "Oil", "b"])], tokenizer)
    other = batch_of([make_slate(3, titles=["Oil]", "Oil", "[2]"])], tokenizer)
    spans = [b.input_ids[0, b.span_start[0, 1] : b.close_index[0, 1] + 1].tolist() for b in (one, other)]
    assert spans[0] == spans[1]


def test_the_prompt_decodes_to_its_text(make_slate: MakeSlate, tokenizer: Any) -> None:
    prompt = build_prompt(make_slate(3, query="dry hair"), PLAIN)
    assert tokenizer.backend_tokenizer.decode(encode_prompt(prompt, tokenizer).input_ids) == prompt.text


def test_context_tokens_are_those_of_history_and_query(make_slate: MakeSlate, tokenizer: Any) -> None:
    batch = batch_of([make_slate(2, history=["Soap", "Cream"], query="dry hair"), make_slate(2, history=0)], tokenizer)
    ids = batch.input_ids[0, batch.context_mask[0]].tolist()
    assert tokenizer.backend_tokenizer.decode(ids) == " dry hair Soap Cream"
    assert not bool(batch.context_mask[1].any())


def test_digits_are_single_tokens(make_slate: MakeSlate, tokenizer: Any) -> None:
    batch = batch_of([make_slate(1, titles=["1009513310189256287"])], tokenizer)
    assert int(batch.used_tokens[0, 0]) == len("1009513310189256287") + 1  # and the blank


@pytest.mark.parametrize("side", ["left", "right"])
def test_padding_moves_indices_and_changes_nothing_else(make_slate: MakeSlate, tokenizer: Any, side: str) -> None:
    slates = [make_slate(2, history=1), make_slate(12, history=5), make_slate(5, history=0)]
    together = batch_of(slates, tokenizer, padding_side=side)
    assert together.candidate_mask.sum(dim=1).tolist() == [2, 12, 5]
    for row, slate in enumerate(slates):
        alone = batch_of([slate], tokenizer)
        n, length = len(slate.candidates), alone.input_ids.shape[1]
        offset = together.input_ids.shape[1] - length if side == "left" else 0
        real = slice(offset, offset + length)
        assert torch.equal(together.input_ids[row, real], alone.input_ids[0])
        assert torch.equal(together.context_mask[row, real], alone.context_mask[0])
        assert together.attention_mask[row].nonzero()[:, 0].tolist() == list(range(real.start, real.stop))
        for name in ("readout_index", "span_start", "close_index"):
            assert torch.equal(getattr(together, name)[row, :n] - offset, getattr(alone, name)[0])
        for name in ("used_tokens", "cut_tokens"):
            assert torch.equal(getattr(together, name)[row, :n], getattr(alone, name)[0])
    pads = together.input_ids[~together.attention_mask]
    assert set(pads.tolist()) == {tokenizer.pad_token_id}
    assert together.token_count == int(together.attention_mask.sum())


def test_padding_candidates_use_and_cut_no_tokens(make_slate: MakeSlate, tiny_backbone: Backbone) -> None:
    batch = batch_of([make_slate(1), make_slate(4)], tiny_backbone.tokenizer)
    for name in ("used_tokens", "cut_tokens", "readout_index"):
        assert getattr(batch, name)[0, 1:].tolist() == [0, 0, 0]


def test_a_prompt_beyond_the_context_is_refused_with_both_numbers(make_slate: MakeSlate, tiny_backbone: Backbone) -> None:
    tokenizer = tiny_backbone.tokenizer
    length = batch_of([make_slate(20)], tokenizer).input_ids.shape[1]
    assert batch_of([make_slate(20)], tokenizer, max_tokens=length).input_ids.shape[1] == length
    message = f"slate 'long': the prompt has {length} tokens but the model takes {length - 1}; use fewer candidates"
    with pytest.raises(PromptError, match=message):
        batch_of([make_slate(1), make_slate(20, "long")], tokenizer, max_tokens=length - 1)


def test_no_slate_is_refused(tiny_backbone: Backbone) -> None:
    with pytest.raises(PromptError, match="got 0 prompts; give at least one slate"):
        tokenize_slates([], tiny_backbone.tokenizer)


def test_a_description_without_a_token_is_refused(make_slate: MakeSlate, tiny_backbone: Backbone) -> None:
    prompt = build_prompt(make_slate(1), PLAIN)
    pieces = tuple(dataclasses.replace(p, text="") if p.kind == "description" else p for p in prompt.pieces)
    with pytest.raises(PromptError, match="slate 's1': candidate 0 gives no token; give it a title"):
        encode_prompt(dataclasses.replace(prompt, pieces=pieces), tiny_backbone.tokenizer)


@pytest.mark.parametrize("template", TEMPLATES.values(), ids=TEMPLATES.keys())
def test_every_template_stays_within_its_caps(make_slate: MakeSlate, tiny_backbone: Backbone, template: Template) -> None:
    long = "word " * 500
    slate = make_slate(3, history=[long] * 20, titles=[long, long + "b", "short"], query=long)
    batch = batch_of([slate], tiny_backbone.tokenizer, template)
    assert batch.used_tokens[0, :2].tolist() == [template.candidate_cap] * 2
    assert int(batch.context_mask.sum()) == template.query_cap + template.history_limit * template.history_cap


def test_a_batch_moves_to_a_device_whole(make_slate: MakeSlate, tiny_backbone: Backbone) -> None:
    batch = batch_of([make_slate(2)], tiny_backbone.tokenizer).to("meta")
    assert {getattr(batch, f.name).device.type for f in dataclasses.fields(batch)} == {"meta"}


@pytest.mark.gpu
def test_a_batch_reaches_a_gpu_unchanged(make_slate: MakeSlate, tiny_backbone: Backbone) -> None:
    batch = batch_of([make_slate(3), make_slate(2)], tiny_backbone.tokenizer)
    back = batch.to("cuda").to("cpu")
    for f in dataclasses.fields(batch):
        torch.testing.assert_close(getattr(back, f.name), getattr(batch, f.name))


def test_only_a_slate_alone_goes_to_the_head_without_a_mask(make_slate: MakeSlate, tiny_backbone: Backbone) -> None:
    alone = batch_of([make_slate(3)], tiny_backbone.tokenizer)
    assert alone.head_mask is None
    assert bool(alone.candidate_mask.all())
    together = batch_of([make_slate(3), make_slate(2)], tiny_backbone.tokenizer)
    assert together.head_mask is together.candidate_mask
