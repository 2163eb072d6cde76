"""An autoregressive teacher as the training loop sees it: prompts with written rankings, cross-entropy on the ordinals alone.

The loss says little: a uniformly random valid permutation already costs log(N!) nats an answer, which a model that knows
only the format reaches. So the validation decodes, and reports the order beside the share of valid answers.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from spd_core.metrics import kendall_tau, pair_auc
from spd_core.slate import Slate
from spd_core.teachers.answers import TeacherAnswer
from spd_core.teachers.autoregressive import AutoregressiveTeacher, answer_ids
from spd_core.training.examples import TrainingSet, teacher_positions, vary_slates
from spd_core.training.settings import TrainSettings
from spd_core.training.sources import Variation, split_by_tokens, text_length
from spd_core.training.students import trainable_adapters

LARGEST_SLATE = 50
"""Candidates that an extended slate may get."""


class WritingBatch(NamedTuple):
    """Prompts with their answers, padded on the right; A answer tokens in all."""

    input_ids: Tensor
    """(B, T) int64."""
    attention_mask: Tensor
    """(B, T) int64, 1 where real."""
    rows: Tensor
    """(A,) slate of each answer token."""
    places: Tensor
    """(A,) place of the token before it, whose state must foretell it."""
    targets: Tensor
    """(A,) token ids."""
    weights: Tensor
    """(A,) weight of each in the loss."""

    @property
    def slate_count(self) -> int:
        """B."""
        return len(self.input_ids)

    @property
    def token_count(self) -> int:
        """Real tokens."""
        return int(self.attention_mask.sum())


@dataclass(frozen=True)
class WritingValidation:
    """Means over the validation slates, decoded freely; an invalid answer counts as repaired."""

    auc: float
    """Share of (relevant, irrelevant) pairs in the right order; .5 for a random valid permutation."""
    recall_at_1: float
    kendall_tau: float
    """Against the ranking that is learned."""
    valid_share: float
    """Answers that are a permutation as written."""

    def as_dict(self) -> dict[str, float]:
        """Rounded values by name."""
        return {name: round(value, 5) for name, value in dataclasses.asdict(self).items()}


@dataclass(frozen=True)
class WritingLearner:
    """A teacher with its training and validation slates."""

    teacher: AutoregressiveTeacher
    data: TrainingSet
    valid: Sequence[Slate]
    settings: TrainSettings

    @property
    def module(self) -> nn.Module:
        """The language model."""
        return self.teacher.backbone.model

    @property
    def lengths(self) -> list[int]:
        """Of the training slates."""
        return [text_length(slate) for slate in self.data.slates]

    def parameter_groups(self) -> list[tuple[list[Any], float, float]]:
        """(parameters, peak rate, decay) of the adapters."""
        return [(trainable_adapters(self.module), self.settings.learning_rate, 0.0)]

    def batches(self, indices: Sequence[int], vary: Variation) -> Iterator[WritingBatch]:
        """Prompts and answers of the slates at `indices`, varied for the pass and the step."""
        slates = [self.data.slates[index] for index in indices]
        slates = vary_slates(
            slates, self.data, self.settings, epoch=vary.epoch, step_key=vary.step_key, positions=LARGEST_SLATE
        )
        encoded = [self.encode(slate) for slate in slates]
        lengths = [len(prompt) + sum(len(row) for row in answer) for prompt, answer in encoded]
        for part in split_by_tokens(lengths, self.settings):
            yield collate_answers([encoded[i] for i in part], self.teacher.backbone, discount=self.settings.rank_discount)

    def encode(self, slate: Slate) -> tuple[list[int], list[list[int]]]:
        """Token ids of a slate's prompt, and of its teacher's ranking, a list a rank."""
        order = np.argsort(teacher_positions(slate))
        return self.teacher.prompt_ids(slate), answer_ids(self.teacher.backbone.tokenizer, [int(i) for i in order])

    def loss(self, batch: WritingBatch) -> Tensor:
        """Scalar cross-entropy of the answer tokens, the first ranks weighing most."""
        model = self.module
        hidden = model(input_ids=batch.input_ids, attention_mask=batch.attention_mask, use_cache=False).last_hidden_state
        logits = hidden[batch.rows, batch.places] @ self.teacher.output_weights.T  # (A, V)
        nats = nn.functional.cross_entropy(logits.float(), batch.targets, reduction="none")
        return (nats * batch.weights).sum() / batch.weights.sum()

    def validate(self) -> WritingValidation:
        """Report on all validation slates; leaves the model in eval mode."""
        self.module.eval()
        ordered = sorted(self.valid, key=text_length)
        with torch.compiler.set_stance("force_eager"):
            answers = list(self.teacher.with_mode("free").answers(ordered))
        rows = [report_answer(slate, answer) for slate, answer in zip(ordered, answers, strict=True)]
        return WritingValidation(*(float(mean) for mean in np.nanmean(np.array(rows, dtype=np.float64), axis=0)))


def collate_answers(
    encoded: Sequence[tuple[list[int], list[list[int]]]], backbone: Any, *, discount: bool = True
) -> WritingBatch:
    """Prompts and answers as one padded batch on the backbone's device, weighted by `rank_weight`."""
    length = max(len(prompt) + sum(len(row) for row in answer) for prompt, answer in encoded)
    ids = torch.full((len(encoded), length), backbone.tokenizer.pad_token_id, dtype=torch.int64)
    mask = torch.zeros(len(encoded), length, dtype=torch.int64)
    rows: list[int] = []
    places: list[int] = []
    targets: list[int] = []
    weights: list[float] = []
    for row, (prompt, answer) in enumerate(encoded):
        written = [token for tokens in answer for token in tokens]
        end = len(prompt) + len(written)
        ids[row, :end] = torch.tensor(prompt + written)
        mask[row, :end] = 1
        rows += [row] * len(written)
        places += range(len(prompt) - 1, end - 1)
        targets += written
        weights += [rank_weight(rank, discount) for rank, tokens in enumerate(answer) for _ in tokens]
    place = backbone.device
    numbers = [torch.tensor(values).to(place) for values in (rows, places, targets, weights)]
    return WritingBatch(ids.to(place), mask.to(place), *numbers)


def rank_weight(rank: int, discount: bool = True) -> float:
    """Weight of the tokens at a rank (0 first): that of DCG, since the first ranks matter and are learned last; or 1."""
    return 1 / math.log2(rank + 2) if discount else 1.0


def random_order_nats(count: int, tokens_a_rank: Sequence[int], *, discount: bool = True) -> float:
    """Loss of a model that knows the format and draws every valid permutation of `count` candidates alike.

    Args:
        count: N.
        tokens_a_rank: (N,) tokens written at each rank.
        discount: as in `rank_weight`.
    """
    weights = [rank_weight(rank, discount) for rank in range(count)]
    nats = sum(weight * math.log(count - rank) for rank, weight in enumerate(weights))
    return nats / sum(weight * tokens for weight, tokens in zip(weights, tokens_a_rank, strict=True))


def report_answer(slate: Slate, answer: TeacherAnswer) -> tuple[float, ...]:
    """Metrics of one slate in the order of `WritingValidation`'s fields; NaN where a metric is not defined."""
    rank = {item_id: position for position, item_id in enumerate(answer.permutation)}
    positions = np.array([rank[item_id] for item_id in slate.item_ids])
    relevant = np.array(slate.relevant())
    return (
        pair_auc(relevant, positions),
        float(relevant[positions == 0].any()) if relevant.any() else float("nan"),
        kendall_tau(positions, np.array(teacher_positions(slate))),
        float(not answer.is_repaired),
    )
