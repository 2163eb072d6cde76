"""Language models of a published architecture with random weights, made in memory: what they cost, not what they say.

The time of a pass does not depend on the values of the weights, so a shape is enough to measure latency where nothing can be
fetched. Rankings of such a model mean nothing.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, replace
from typing import Any

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from torch import nn
from transformers import AutoModelForCausalLM, PreTrainedTokenizerFast, Qwen3Config

from spd_core.backbone import Backbone, choose_device, choose_dtype
from spd_core.checkpoints import random_student
from spd_core.errors import SpdError, choices
from spd_core.model import Student, StudentConfig
from spd_core.prompts import Template, find_template
from spd_core.slate import Item, Slate, UserContext
from spd_core.teachers.autoregressive import AutoregressiveTeacher

PAD, START, END = SPECIAL_TOKENS = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
MERGED_TOKENS = 512
"""Size of the tokenizer's vocabulary, far below that of the models: most words take one or two tokens."""
TEXT = (
    "gentle daily cream serum lotion cleanser for dry oily sensitive skin with shea butter vitamin aloe rose lavender mint "
    "shampoo conditioner hair oil repair colour nail polish lipstick matte gloss eye liner brush set travel size pack of "
    "organic natural fragrance free night day sun protection mask scrub soap hand body face foot"
)
"""What titles are drawn from, word by word."""


@dataclass(frozen=True)
class Shape:
    """An architecture and the load that is put on it."""

    name: str
    source: str
    """Where its dimensions are from."""
    dimensions: dict[str, Any]
    """Of `Qwen3Config`."""
    student: StudentConfig
    """Adapters are left out: merged, they cost nothing."""
    candidates: int
    """N of each slate."""
    history: int
    """Items bought before, in the first slate of a batch; the others have up to three fewer, so that lengths differ."""
    template: Template
    batches: tuple[int, ...]
    """Batch sizes B that are measured."""


_SHOP = find_template("shop")
SHAPES = {
    shape.name: shape
    for shape in (
        Shape(
            name="qwen3-0.6b-shape",
            source="config.json of Qwen/Qwen3-0.6B",
            dimensions={
                "num_hidden_layers": 28,
                "hidden_size": 1024,
                "num_attention_heads": 16,
                "num_key_value_heads": 8,
                "head_dim": 128,
                "intermediate_size": 3072,
                "vocab_size": 151_936,
                "max_position_embeddings": 40_960,
                "rms_norm_eps": 1e-6,
                "tie_word_embeddings": True,
                "rope_parameters": {"rope_type": "default", "rope_theta": 1_000_000.0},
            },
            student=StudentConfig(lora=None),
            candidates=50,
            history=8,
            template=replace(_SHOP, name="shop, 22 tokens a candidate", candidate_cap=22),
            batches=(1, 32),
        ),
        Shape(
            name="tiny-shape",
            source="made up, to try the command",
            dimensions={
                "num_hidden_layers": 2,
                "hidden_size": 64,
                "num_attention_heads": 4,
                "num_key_value_heads": 2,
                "head_dim": 16,
                "intermediate_size": 128,
                "vocab_size": 1024,
                "max_position_embeddings": 1024,
                "tie_word_embeddings": True,
            },
            student=StudentConfig(head_width=64, lora=None),
            candidates=5,
            history=4,
            template=replace(_SHOP, name="shop, 4 tokens a candidate", candidate_cap=4),
            batches=(1, 2),
        ),
    )
}


@dataclass(frozen=True)
class RandomModel:
    """A language model of a shape with random weights, and a tokenizer of its own."""

    shape: Shape
    language_model: nn.Module
    """With language head, for comparison with the library's own generation; shares its weights with `backbone`."""
    backbone: Backbone

    def student(self, seed: int = 0) -> Student:
        """The shape's student with a random head."""
        student = random_student(self.backbone, config=self.shape.student, seed=seed)
        return Student(student.backbone, student.head, student.config, self.shape.template).eval()

    def teacher(self) -> AutoregressiveTeacher:
        """A teacher that writes rankings with the same weights; what it writes is noise."""
        weights = self.language_model.get_output_embeddings().weight.detach()  # type: ignore[operator]
        return AutoregressiveTeacher(self.backbone, weights, self.shape.template, "random")


def find_shape(name: str) -> Shape:
    """The shape of that name.

    Raises:
        SpdError: no shape has that name; the message lists the names.
    """
    if name not in SHAPES:
        raise SpdError(choices("preset", name, SHAPES))
    return SHAPES[name]


def build_random_model(shape: Shape, *, device: str = "auto", dtype: str = "auto", seed: int = 0) -> RandomModel:
    """A model of the shape, ready for inference; nothing is read from disk or from a network.

    Args:
        shape: one of `SHAPES`.
        device: ``auto``, ``cpu`` or ``cuda``.
        dtype: ``auto``, ``float32``, ``bfloat16`` or ``float16``.
        seed: of the weights.

    Raises:
        BackboneError: a bad device or dtype.
    """
    place = choose_device(device)
    tokenizer = build_tokenizer()
    config = Qwen3Config(
        **shape.dimensions, pad_token_id=tokenizer.pad_token_id
    )  # no end token: generation never stops early
    with torch.random.fork_rng(devices=[place] if place.type == "cuda" else []), torch.device(place):
        torch.manual_seed(seed)
        model = AutoModelForCausalLM.from_config(config, dtype=choose_dtype(dtype, place))
    model.requires_grad_(False).eval()
    depth = config.num_hidden_layers
    backbone = Backbone(model.model, tokenizer, f"{shape.name}, random weights", f"random, seed {seed}", depth, depth)
    return RandomModel(shape, model, backbone)


def build_tokenizer() -> PreTrainedTokenizerFast:
    """A byte-level tokenizer that knows the words of `draw_slates`; each digit is a token, as in Qwen's own."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
    )
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=MERGED_TOKENS,
        special_tokens=list(SPECIAL_TOKENS),
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator([" " + TEXT], trainer)
    tokenizer.encode_special_tokens = True
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, bos_token=START, eos_token=END, pad_token=PAD, split_special_tokens=True
    )


def draw_slates(shape: Shape, count: int, *, seed: int = 0) -> list[Slate]:
    """Synthetic slates of N candidates whose titles are long enough to fill the template's caps."""
    rng, words = random.Random(seed), TEXT.split()

    def item(name: str, tokens: int) -> Item:
        return Item(name, " ".join(rng.choice(words) for _ in range(tokens)))

    slates = []
    for index in range(count):
        bought = tuple(item(f"h{k}", shape.template.history_cap) for k in range(shape.history - index % 4))
        candidates = tuple(item(f"c{k}", shape.template.candidate_cap) for k in range(1, shape.candidates + 1))
        slates.append(Slate(f"synthetic-{index + 1}", UserContext(bought, "u1", None), candidates))
    return slates
