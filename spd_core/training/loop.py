"""The training loop: plan, step, validate, save, and go on where a killed run stopped.

It knows a `Learner`: something with parameters, batches, a loss and a validation; not what it learns, nor what a checkpoint
looks like. `students` and `writers` are the two that there are.
"""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import torch
from accelerate import PartialState
from accelerate.utils import reduce
from torch import Tensor, nn

from spd_core.errors import TrainingError
from spd_core.training.examples import plan_epoch
from spd_core.training.masters import MasterWeights, rate_factor
from spd_core.training.run_files import RunFiles
from spd_core.training.settings import TrainSettings
from spd_core.training.sources import Variation

logger = logging.getLogger(__name__)


class Batch(Protocol):
    """Slates of one forward pass."""

    @property
    def slate_count(self) -> int:
        """B."""

    @property
    def token_count(self) -> int:
        """Real tokens, or what stands for them."""


class Report(Protocol):
    """Result of a validation."""

    @property
    def auc(self) -> float:
        """What the best weights are chosen by."""

    def as_dict(self) -> dict[str, float]:
        """Rounded values by name."""


class Learner(Protocol):
    """What a run trains."""

    @property
    def module(self) -> nn.Module:
        """Put into training and evaluation mode."""

    @property
    def lengths(self) -> list[int]:
        """A number a training slate that grows with its prompt."""

    def batches(self, indices: Sequence[int], vary: Variation) -> Iterator[Any]:
        """The training slates at `indices` as `Batch`es of bounded size."""

    def loss(self, batch: Any) -> Tensor:
        """Scalar mean loss over the slates of a batch."""

    def parameter_groups(self) -> list[tuple[list[nn.Parameter], float, float]]:
        """(parameters, peak rate, decay) of what is trained."""

    def validate(self) -> Report:
        """How good it is on held-out slates."""


@dataclass
class RunState:
    """Where a run stands; saved with the weights."""

    step: int = 0
    slates: int = 0
    tokens: int = 0
    seconds: float = 0.0
    best_auc: float = -1.0
    best_step: int = 0
    stale: int = 0
    """Validations since the best one."""
    best_metrics: dict[str, float] = field(default_factory=dict)
    last_metrics: dict[str, float] = field(default_factory=dict)
    last_step: int = 0
    """Of the last validation."""


@dataclass(frozen=True)
class Run:
    """What a training run is made of."""

    learner: Learner
    settings: TrainSettings
    files: RunFiles
    progress: Callable[[dict[str, Any]], None] = lambda entry: None


def train(run: Run) -> RunState:
    """The learner trained in place, left with the weights that the settings say to keep.

    Args:
        run: learner, settings, files of the run, and a callback that gets each log entry.

    Returns:
        State of the finished run.

    Raises:
        TrainingError: the loss or gradient stayed not finite, or the saved state belongs to other settings.
    """
    processes = PartialState()
    masters = MasterWeights(run.learner.parameter_groups())
    state = run.files.restore(masters, RunState, run.settings)
    total = total_steps(run)
    started = time.monotonic() - state.seconds
    batches = remaining_batches(run, state.step, total)
    for epoch, indices in batches:
        run.learner.module.train()
        torch.manual_seed(hash((run.settings.seed, state.step, processes.process_index)) & 0x7FFFFFFF)
        loss, tokens = accumulate(run, masters, indices, epoch)
        norm = masters.step(rate_factor(state.step, total, run.settings.warmup_share), run.settings.clip_norm)
        check_finite(loss, norm, state.step)
        if run.settings.compile:
            torch.compiler.set_stance("eager_on_recompile")  # one graph is compiled; a rare shape is not worth minutes
        state.step, state.slates, state.tokens = state.step + 1, state.slates + len(indices), state.tokens + tokens
        state.seconds = time.monotonic() - started
        record(run, state, total, loss=loss, norm=norm)
        if state.step % run.settings.eval_every == 0 or state.step == total:
            keep_best(run, masters, state)
        if processes.is_main_process and (state.step % run.settings.save_every == 0 or state.step == total):
            run.files.save(masters, state, run.settings)
        if state.stale >= run.settings.patience:
            break
    if run.settings.keep == "best":
        run.files.restore_best(masters)
    run.learner.module.eval()
    return state


def step_slates(settings: TrainSettings) -> int:
    """Slates of one step over all processes."""
    return settings.batch_slates * settings.accumulation * PartialState().num_processes


def total_steps(run: Run) -> int:
    """Steps of the whole run."""
    an_epoch = len(plan_epoch(run.learner.lengths, batch=step_slates(run.settings), seed=run.settings.seed, epoch=0))
    return max(1, round(run.settings.epochs * an_epoch))


def remaining_batches(run: Run, done: int, total: int) -> Iterator[tuple[int, list[int]]]:
    """(epoch, slate indices) of each step from `done` to `total`."""
    step, epoch = 0, 0
    while step < total:
        plan = plan_epoch(run.learner.lengths, batch=step_slates(run.settings), seed=run.settings.seed, epoch=epoch)
        for indices in plan:
            if step >= total:
                return
            if step >= done:
                yield epoch, indices
            step += 1
        epoch += 1


def accumulate(run: Run, masters: MasterWeights, indices: list[int], epoch: int) -> tuple[float, int]:
    """Gradients of one step in the masters; loss per slate and tokens, both over all processes."""
    processes = PartialState()
    mine = indices[processes.process_index :: processes.num_processes]
    loss_sum = torch.zeros(2, dtype=torch.float64)
    for batch in run.learner.batches(mine, Variation(epoch, step_key=indices[0])):
        loss = run.learner.loss(batch)
        share = batch.slate_count / len(indices)
        (loss * share).backward()
        masters.collect()
        loss_sum += torch.tensor([float(loss.detach()) * share, batch.token_count], dtype=torch.float64)
    if processes.num_processes > 1:
        masters.reduce_over_processes()
        loss_sum = reduce(loss_sum.to(processes.device), "sum").cpu()
    return float(loss_sum[0]), int(loss_sum[1])


def check_finite(loss: float, norm: float, step: int) -> None:
    """Raise `TrainingError` when a loss or gradient is not finite; the weights are still those of the last good step."""
    if not (math.isfinite(loss) and math.isfinite(norm)):
        raise TrainingError(
            f"step {step + 1}: loss {loss}, gradient norm {norm}; training stopped before the step was taken. "
            "Lower learning_rate or raise tau, then start again: the saved state is intact"
        )


def record(run: Run, state: RunState, total: int, *, loss: float, norm: float) -> None:
    """Write one log line and hand it to the progress callback; only the main process does."""
    if not PartialState().is_main_process:
        return
    per_step = state.seconds / max(1, state.step)
    entry = {
        "step": state.step,
        "total_steps": total,
        "loss_nats": round(loss, 5),
        "gradient_norm": round(norm, 4),
        "rate_factor": round(rate_factor(state.step - 1, total, run.settings.warmup_share), 5),
        "tokens_per_s": round(state.tokens / max(state.seconds, 1e-9), 1),
        "minutes_left": round(per_step * (total - state.step) / 60, 2),
    }
    run.files.log(entry)
    run.progress(entry)


def keep_best(run: Run, masters: MasterWeights, state: RunState) -> None:
    """Validate, log, and keep the weights aside if the AUC is the best so far."""
    result = run.learner.validate()
    state.last_metrics, state.last_step = result.as_dict(), state.step
    entry = {"step": state.step, "valid": result.as_dict()}
    if result.auc > state.best_auc:
        state.best_auc, state.best_step, state.stale = result.auc, state.step, 0
        state.best_metrics = result.as_dict()
        if PartialState().is_main_process:
            run.files.save_best(masters)
    else:
        state.stale += 1
    if PartialState().is_main_process:
        run.files.log(entry)
        run.progress(entry)
