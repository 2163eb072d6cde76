"""The autoregressive teacher: reads a student's prompt and writes the ordinals best first, in a pass each.

It shares the backbone and the wording with the students, so that the two differ only in how a ranking comes out. It does
not know where its weights come from; `teacher_checkpoints` does.
"""

from __future__ import annotations

import dataclasses
import itertools
import re
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from safetensors import safe_open
from torch import Tensor

from spd_core.backbone import Backbone
from spd_core.errors import PromptError, SpdError, choices
from spd_core.prompts import Template, build_prompt
from spd_core.slate import Ranking, Slate
from spd_core.teachers.answers import AnswerCancelled, OnToken, TeacherAnswer, TokenEvent, judged
from spd_core.teachers.ordinals import SEPARATOR
from spd_core.teachers.writing import ConstrainedWriter, FreeWriter, Writer, write_all, write_permutations
from spd_core.tokenization import encode_prompt

LocalMode = Literal["free", "constrained"]
MODES: dict[str, str] = {
    "constrained": "the likeliest ordinal that is still unused, as a whole: always a valid ranking",
    "free": "whatever the model says, judged afterwards",
}
BATCH_SLATES = 16
"""Slates of one batch in `answers`: consecutive ones, so that a batch does not depend on where a run was stopped."""
ENDED_NUMBER = re.compile(r"[0-9]{1,9}(?![0-9])")


@dataclass(frozen=True)
class AutoregressiveTeacher:
    """A language model that writes rankings."""

    backbone: Backbone
    """At full depth; adapters, if any, merged or attached."""
    output_weights: Tensor = field(repr=False)
    """(V, D) of the language head, on the backbone's device and in its dtype."""
    template: Template
    name: str
    mode: LocalMode = "constrained"
    """Key of `MODES`."""

    def __post_init__(self) -> None:
        if self.mode not in MODES:
            raise SpdError(choices("decoding mode", self.mode, MODES))

    def with_mode(self, mode: str) -> AutoregressiveTeacher:
        """The same teacher in another mode.

        Raises:
            SpdError: unknown mode.
        """
        return dataclasses.replace(self, mode=mode)  # type: ignore[arg-type]

    def rank(self, slate: Slate) -> Ranking:
        """Ranking of a slate; repaired where a free answer was not valid."""
        return self.answer(slate).ranking

    def answer(
        self, slate: Slate, *, on_token: OnToken | None = None, is_cancelled: Callable[[], bool] = lambda: False
    ) -> TeacherAnswer:
        """Answer for one slate, streamed.

        Args:
            slate: any slate whose prompt and answer fit the model's context.
            on_token: called after each step: a token where it writes freely, an ordinal where it is constrained.
            is_cancelled: asked between steps.

        Raises:
            AnswerCancelled: `is_cancelled` said so.
            PromptError: prompt and answer are longer than the model's context.
        """
        start = time.perf_counter()
        prompt, writer = self.prompt_ids(slate), self.new_writer(len(slate.candidates))
        self._check_length(slate, prompt)
        times: list[float] = []

        def after_step() -> None:
            times.append((time.perf_counter() - start) * 1e3)
            if on_token is not None:
                on_token(self._event(writer, len(slate.candidates), times[-1]))
            if is_cancelled() and not writer.is_done:
                raise AnswerCancelled(f"slate {slate.slate_id!r}: cancelled after {len(writer.tokens)} tokens")

        passes = self._write([prompt], [writer], after_step)
        cost = {"ms": times[-1], "passes": passes, "first_token_ms": times[0], "token_ms": tuple(times)}
        return self._answer(slate, writer, prompt_tokens=len(prompt), **cost)

    def answers(self, slates: Iterable[Slate], *, batch_slates: int = BATCH_SLATES) -> Iterator[TeacherAnswer]:
        """Answers in input order, `batch_slates` consecutive slates a batch; times are shared out evenly, passes are common.

        Raises:
            PromptError: as in `answer`.
        """
        stream = iter(slates)
        while batch := list(itertools.islice(stream, batch_slates)):
            start = time.perf_counter()
            prompts = [self.prompt_ids(slate) for slate in batch]
            for slate, prompt in zip(batch, prompts, strict=True):
                self._check_length(slate, prompt)
            writers = [self.new_writer(len(slate.candidates)) for slate in batch]
            passes = self._write(prompts, writers)
            each_ms = (time.perf_counter() - start) * 1e3 / len(batch)
            for slate, prompt, writer in zip(batch, prompts, writers, strict=True):
                yield self._answer(slate, writer, prompt_tokens=len(prompt), ms=each_ms, passes=passes)

    def prompt_ids(self, slate: Slate) -> list[int]:
        """Token ids of the student's prompt and the answer's header, which ends in a blank."""
        tokenizer = self.backbone.tokenizer
        prompt = build_prompt(slate, self.template)
        return [*encode_prompt(prompt, tokenizer).input_ids, *text_ids(tokenizer, prompt.answer_header.rstrip() + " ")]

    def new_writer(self, count: int) -> Writer:
        """Writer of an answer about `count` candidates, in the teacher's mode."""
        tokenizer = self.backbone.tokenizer
        ordinals, separator = ordinal_ids(tokenizer, count)
        if self.mode == "constrained":
            return ConstrainedWriter(ordinals, separator)
        valid = sum(len(ids) + len(separator) for ids in ordinals)
        return FreeWriter(end_ids=[tokenizer.eos_token_id], most_tokens=2 * valid + 8)

    def _write(
        self, prompts: Sequence[Sequence[int]], writers: Sequence[Any], after_step: Callable[[], None] = lambda: None
    ) -> int:
        """Passes made until all answers are written."""
        write = write_permutations if self.mode == "constrained" else write_all
        pad_id = int(self.backbone.tokenizer.pad_token_id)
        return write(self.backbone.model, self.output_weights, prompts, writers, pad_id=pad_id, after_step=after_step)

    def _check_length(self, slate: Slate, prompt: Sequence[int]) -> None:
        ordinals, separator = ordinal_ids(self.backbone.tokenizer, len(slate.candidates))
        needed = len(prompt) + sum(len(ids) + len(separator) for ids in ordinals)
        if needed > self.backbone.max_tokens:
            raise PromptError(
                f"slate {slate.slate_id!r}: prompt and answer need {needed} tokens but the model takes "
                f"{self.backbone.max_tokens}; use fewer candidates or lower the caps of the template"
            )

    def _text(self, writer: Writer) -> str:
        return str(self.backbone.tokenizer.decode(writer.tokens, skip_special_tokens=True))

    def _event(self, writer: Writer, count: int, elapsed_ms: float) -> TokenEvent:
        text = self._text(writer)
        ended = text if writer.is_done else text.rstrip("0123456789")
        named = dict.fromkeys(int(number) - 1 for number in ENDED_NUMBER.findall(ended))
        order = tuple(index for index in named if 0 <= index < count)
        return TokenEvent(len(writer.tokens) - 1, text, elapsed_ms, order)

    def _answer(self, slate: Slate, writer: Writer, **cost: Any) -> TeacherAnswer:
        return judged(slate, self._text(writer), teacher=self.name, mode=self.mode, tokens=len(writer.tokens), **cost)


def text_ids(tokenizer: Any, text: str) -> list[int]:
    """Token ids of a text that is no part of a prompt's pieces."""
    return list(tokenizer.backend_tokenizer.encode(text, add_special_tokens=False).ids)


def ordinal_ids(tokenizer: Any, count: int) -> tuple[list[list[int]], list[int]]:
    """Token ids of the ordinals 1..`count`, each encoded alone, and of the separator."""
    return [text_ids(tokenizer, str(number)) for number in range(1, count + 1)], text_ids(tokenizer, SEPARATOR)


def answer_ids(tokenizer: Any, order: Sequence[int]) -> list[list[int]]:
    """Tokens of a written ranking, one list a rank: the ordinal and the separator, or the end token after the last.

    Args:
        tokenizer: of the backbone.
        order: (N,) candidate indices, best first.
    """
    ordinals, separator = ordinal_ids(tokenizer, len(order))
    rows = [ordinals[index] + separator for index in order]
    rows[-1] = [*ordinals[order[-1]], int(tokenizer.eos_token_id)]
    return rows


def output_weights_of(backbone: Backbone, folder: Path) -> Tensor:
    """(V, D) weights that turn a state into logits: those of the input embedding where the model ties them.

    Args:
        backbone: at full depth.
        folder: where its weights lie.

    Raises:
        SpdError: the weights hold no language head.
    """
    model: Any = backbone.model
    if model.config.tie_word_embeddings:
        tied: Tensor = model.get_input_embeddings().weight
        return tied.detach()
    for file in sorted(folder.glob("*.safetensors")):
        with safe_open(file, "pt") as stream:
            if "lm_head.weight" in stream.keys():  # noqa: SIM118 - not a dict
                weights: Tensor = stream.get_tensor("lm_head.weight")
                return weights.to(backbone.device, backbone.dtype)
    raise SpdError(f"backbone {backbone.backbone_id!r}: has no language head to write with; choose a causal language model")
