"""Where score matrices come from in training: live prompts through the backbone, or states cached once.

Both answer the same two calls, `batches` and `score`, so the loop does not know which it has.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple, Protocol

import torch
from accelerate import PartialState
from safetensors.torch import load_file
from torch import Tensor

from spd_core.backbone import prefill
from spd_core.model import Student
from spd_core.prompts import build_prompt
from spd_core.readouts import gather_readout, gather_user_state
from spd_core.slate import Slate
from spd_core.tokenization import EncodedPrompt, SlateBatch, collate_prompts, encode_prompt
from spd_core.training.examples import TrainingSet, teacher_positions, vary_slates
from spd_core.training.run_files import write_tensors
from spd_core.training.settings import TrainSettings

logger = logging.getLogger(__name__)


class Targets(NamedTuple):
    """What a batch of slates should come out as; B slates of up to N candidates."""

    positions: Tensor
    """(B, N) int64, the teacher's rank of each candidate; -1 where padded."""
    relevant: Tensor
    """(B, N) bool, True at labelled candidates."""
    candidate_mask: Tensor
    """(B, N) bool, True where real."""


class TrainingBatch(NamedTuple):
    """Inputs of one forward pass and its targets."""

    inputs: SlateBatch | tuple[Tensor, Tensor]
    """Prompts, or cached (B, N, D) states and (B, D) user states."""
    targets: Targets
    token_count: int

    @property
    def slate_count(self) -> int:
        """B."""
        return len(self.targets.positions)


class Variation(NamedTuple):
    """Which pass and which step the slates are varied for."""

    epoch: int
    step_key: int
    """The same in all processes of a step."""


class Source(Protocol):
    """Gives batches of slates and scores them."""

    lengths: list[int]

    def batches(self, indices: Sequence[int], vary: Variation | None) -> Iterator[TrainingBatch]:
        """The slates at `indices` in forward passes of bounded size; without a variation as they are."""

    def score(self, batch: TrainingBatch) -> Tensor:
        """(B, N, K) score matrices."""


def make_targets(slates: Sequence[Slate], device: torch.device) -> Targets:
    """Targets of slates, padded to the largest."""
    width = max(len(slate.candidates) for slate in slates)
    positions = torch.full((len(slates), width), -1, dtype=torch.int64)
    relevant = torch.zeros(len(slates), width, dtype=torch.bool)
    for row, slate in enumerate(slates):
        count = len(slate.candidates)
        positions[row, :count] = torch.tensor(teacher_positions(slate))
        relevant[row, :count] = torch.tensor(slate.relevant())
    return Targets(positions.to(device), relevant.to(device), (positions >= 0).to(device))


class LiveSource:
    """Slates read by the backbone each time, varied anew each epoch."""

    def __init__(self, student: Student, data: TrainingSet, settings: TrainSettings) -> None:
        self.student = student
        self.data = data
        self.settings = settings
        self.lengths = [text_length(slate) for slate in data.slates]

    def batches(self, indices: Sequence[int], vary: Variation | None) -> Iterator[TrainingBatch]:
        """Tokenised prompts of the slates at `indices`."""
        slates = [self.data.slates[index] for index in indices]
        if vary is not None:
            limit = self.student.config.positions
            slates = vary_slates(slates, self.data, self.settings, epoch=vary.epoch, step_key=vary.step_key, positions=limit)
        tokenizer = self.student.backbone.tokenizer
        encoded = [encode_prompt(build_prompt(slate, self.student.template), tokenizer) for slate in slates]
        for part in split_by_tokens([len(prompt.input_ids) for prompt in encoded], self.settings):
            yield self._collate([slates[i] for i in part], [encoded[i] for i in part])

    def _collate(self, slates: Sequence[Slate], encoded: Sequence[EncodedPrompt]) -> TrainingBatch:
        backbone = self.student.backbone
        inputs = collate_prompts(encoded, pad_id=backbone.tokenizer.pad_token_id, max_tokens=backbone.max_tokens)
        return TrainingBatch(inputs.to(backbone.device), make_targets(slates, backbone.device), inputs.token_count)

    def score(self, batch: TrainingBatch) -> Tensor:
        """(B, N, K) through backbone and head."""
        assert isinstance(batch.inputs, SlateBatch)
        matrix: Tensor = self.student(batch.inputs)
        return matrix


class CachedSource:
    """Readout states of a frozen backbone, computed once; only the head is run afterwards."""

    def __init__(self, student: Student, slates: Sequence[Slate], cache_file: Path | None = None) -> None:
        self.student = student
        self.slates = slates
        self.lengths = [len(slate.candidates) for slate in slates]
        cached = read_states(cache_file, slates)
        self.states = compute_states(student, slates) if cached is None else cached
        if cached is None and cache_file is not None and PartialState().is_main_process:
            cache_file.parent.mkdir(parents=True, exist_ok=True)
            write_tensors(cache_file, self.states, {})

    def batches(self, indices: Sequence[int], vary: Variation | None) -> Iterator[TrainingBatch]:
        """Cached states of the slates at `indices`; the head is equivariant, so nothing is shuffled."""
        slates = [self.slates[index] for index in indices]
        targets = make_targets(slates, self.student.backbone.device)
        states = torch.zeros(*targets.positions.shape, self.student.backbone.hidden_size, device=targets.positions.device)
        for row, slate in enumerate(slates):
            states[row, : len(slate.candidates)] = self.states[f"items/{slate.slate_id}"].float()
        user = torch.stack([self.states[f"user/{slate.slate_id}"].float() for slate in slates])
        yield TrainingBatch((states, user), targets, sum(len(slate.candidates) for slate in slates))

    def score(self, batch: TrainingBatch) -> Tensor:
        """(B, N, K) through the head."""
        states, user = batch.inputs[0], batch.inputs[1]  # type: ignore[index]
        matrix: Tensor = self.student.head(states, batch.targets.candidate_mask, user)
        return matrix

    def all_states(self) -> Tensor:
        """(n, D) float32 states of all candidates, for the head's standardisation."""
        return torch.cat([states for name, states in self.states.items() if name.startswith("items/")]).float()


def text_length(slate: Slate) -> int:
    """A number that grows with the prompt of the slate, without tokenising it."""
    return sum(len(item.title) for item in (*slate.candidates, *slate.user.history[-8:])) + 20 * len(slate.candidates)


def split_by_tokens(lengths: Sequence[int], settings: TrainSettings) -> Iterator[list[int]]:
    """Indices in runs that hold at most `batch_slates` prompts and, padded, at most `batch_tokens` tokens."""
    part: list[int] = []
    for index in range(len(lengths)):
        padded = max(lengths[i] for i in [*part, index]) * (len(part) + 1)
        if part and (len(part) >= settings.batch_slates or padded > settings.batch_tokens):
            yield part
            part = []
        part.append(index)
    yield part


def read_states(cache_file: Path | None, slates: Sequence[Slate]) -> dict[str, Tensor] | None:
    """Cached states if the file holds all of `slates`, else None."""
    if cache_file is None or not cache_file.exists():
        return None
    states = load_file(cache_file)
    complete = all(len(states.get(f"items/{s.slate_id}", ())) == len(s.candidates) for s in slates)
    return states if complete else None


@torch.inference_mode()
def compute_states(student: Student, slates: Sequence[Slate], batch_slates: int = 10) -> dict[str, Tensor]:
    """Readout and user states of each slate in bfloat16, by ``items/<id>`` (N, D) and ``user/<id>`` (D)."""
    backbone, states = student.backbone, {}
    encoded = [encode_prompt(build_prompt(slate, student.template), backbone.tokenizer) for slate in slates]
    order = sorted(range(len(slates)), key=lambda i: len(encoded[i].input_ids))
    for start in range(0, len(order), batch_slates):
        rows = order[start : start + batch_slates]
        batch = collate_prompts(
            [encoded[i] for i in rows], pad_id=backbone.tokenizer.pad_token_id, max_tokens=backbone.max_tokens
        ).to(backbone.device)
        hidden = prefill(student.model, batch)
        readout = gather_readout(hidden, batch, student.config.readout).bfloat16()
        user = gather_user_state(hidden, batch).bfloat16()
        for row, index in enumerate(rows):
            slate = slates[index]
            states[f"items/{slate.slate_id}"] = readout[row, : len(slate.candidates)].clone()
            states[f"user/{slate.slate_id}"] = user[row].clone()
        if start % (50 * batch_slates) == 0:
            logger.info("frozen states: %d of %d slates", start + len(rows), len(slates))
    return states
