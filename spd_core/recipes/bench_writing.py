"""Writing rankings token by token with a model of random weights: the cost of what the student's one pass replaces.

Our own loop, constrained and free, beside the library's generation, which shows whether our loop is slow. What is written
is noise, so every way writes as many tokens as a ranking takes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from spd_core.capacity import repeated_ms
from spd_core.errors import SpdError, choices
from spd_core.latency import Spread
from spd_core.recipes.shape_report import WritingCost
from spd_core.recipes.shapes import RandomModel
from spd_core.slate import Slate
from spd_core.teachers.autoregressive import answer_ids
from spd_core.teachers.writing import FreeWriter, write_all

WAYS: dict[str, str] = {
    "constrained": "our loop, only ordinals that are still unused",
    "free": "our loop, whatever is likeliest, a pass for each of as many tokens",
    "generate": "the library's own generation of as many tokens",
    "generate static": "the same with its static cache, for which it compiles and records the passes on CUDA",
}


def measure_writing(model: RandomModel, way: str, slates: Sequence[Slate], *, repeats: int) -> WritingCost:
    """Time of writing the rankings of B slates in one batch, after one batch that is not counted.

    Args:
        model: writes noise, but as many tokens as a ranking takes.
        way: key of `WAYS`.
        slates: B of them, each of N candidates.
        repeats: n >= 1.

    Raises:
        SpdError: unknown way; the message lists the names.
    """
    if way not in WAYS:
        raise SpdError(choices("way of writing", way, WAYS))
    tokens = answer_tokens(model, len(slates[0].candidates))
    passes: list[int] = []

    def write() -> None:
        passes.append(write_rankings(model, way, slates))

    spread = Spread.of(repeated_ms(write, repeats, model.backbone.device))
    return WritingCost(way=way, batch=len(slates), tokens=tokens, passes=passes[-1], total=spread)


def answer_tokens(model: RandomModel, count: int) -> int:
    """Tokens of a written ranking of `count` candidates, without an end token."""
    return sum(map(len, answer_ids(model.backbone.tokenizer, range(count)))) - 1


def write_rankings(model: RandomModel, way: str, slates: Sequence[Slate]) -> int:
    """Forward passes made until a ranking of each slate is written; what is written is thrown away."""
    teacher, tokenizer = model.teacher(), model.backbone.tokenizer
    if way == "constrained":
        return max(answer.passes for answer in teacher.answers(slates, batch_slates=len(slates)))
    prompts = [teacher.prompt_ids(slate) for slate in slates]
    length = answer_tokens(model, len(slates[0].candidates))
    if way == "free":
        writers = [FreeWriter(end_ids=(), most_tokens=length) for _ in slates]
        return write_all(model.backbone.model, teacher.output_weights, prompts, writers, pad_id=tokenizer.pad_token_id)
    padded = tokenizer.pad({"input_ids": prompts}, padding_side="left", return_tensors="pt").to(model.backbone.device)
    options: dict[str, Any] = {"max_new_tokens": length, "do_sample": False, "pad_token_id": tokenizer.pad_token_id}
    if way == "generate static":
        options["cache_implementation"] = "static"
    written = model.language_model.generate(**padded, **options)  # type: ignore[operator]
    return int(written.shape[1] - padded["input_ids"].shape[1])
