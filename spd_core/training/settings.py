"""How a student is trained: every knob in one frozen record that goes into the checkpoint."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field


class TrainSettings(BaseModel):
    """Settings of one training run. The paper gives none of them; the defaults were chosen on `beauty/valid`."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    seed: int = 0
    """Decides initial weights, order of slates, shuffles and dropout."""
    signal: Literal["teacher", "clicks"] = "teacher"
    """What is learned: the teacher's whole ranking, or the labelled items at position 1."""
    click_weight: float = Field(default=0.0, ge=0)
    """Weight of the click loss added to the teacher loss."""
    epochs: float = Field(default=1.0, gt=0)
    """Passes over the training slates; may be a fraction."""
    batch_slates: int = Field(default=10, ge=1)
    """Slates of one forward pass in one process."""
    batch_tokens: int = Field(default=7000, ge=1)
    """Most tokens, padding counted, of one forward pass; a larger step is taken in parts."""
    accumulation: int = Field(default=1, ge=1)
    """Forward passes of one process summed into one step."""
    learning_rate: float = Field(default=3e-4, gt=0)
    """Peak rate of the adapters."""
    head_learning_rate: float = Field(default=3e-4, gt=0)
    """Peak rate of the head."""
    weight_decay: float = Field(default=0.05, ge=0)
    """AdamW decay of the head's weights; adapters are not decayed."""
    warmup_share: float = Field(default=0.05, ge=0, lt=1)
    """Share of the steps with rising rate; the rest falls along a cosine to 0."""
    clip_norm: float = Field(default=1.0, gt=0)
    """Largest norm of the whole gradient."""
    frozen_layers: int = Field(default=0, ge=0)
    """Lowest layers of the backbone whose adapters stay as the run found them; what lies below costs no backward pass."""
    shuffle: bool = True
    """Show the candidates of a slate in another order in every pass; off, they stand as in the file."""
    rank_discount: bool = True
    """A writing teacher's first ranks weigh most, as in DCG; off, all ranks weigh alike."""
    subset_share: float = Field(default=0.0, ge=0, le=1)
    """Share of steps whose slates are cut to a random size of 5 or more candidates."""
    extend_share: float = Field(default=0.0, ge=0, le=1)
    """Share of steps whose slates are filled up with other items to a random size up to K; needs a teacher at hand."""
    eval_every: int = Field(default=200, ge=1)
    """Steps between validations."""
    keep: Literal["best", "last"] = "best"
    """Which weights a run ends with: those of the best validation, or the last ones. With few validation slates the best
    one is mostly luck (200 slates tell AUCs apart by .04), and a cosine schedule ends where it is steadiest."""
    patience: int = Field(default=1000, ge=1)
    """Validations without a better AUC before training stops early."""
    save_every: int = Field(default=50, ge=1)
    """Steps between saved states."""
    compile: bool = False
    """Compile the backbone; pays after some hundreds of steps."""


class WarmStart(BaseModel):
    """A head trained on cached states of the frozen backbone before the adapters move; LoRA from a fresh head stalls."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    slates: int = Field(default=2500, ge=1)
    """First training slates of each file that are cached."""
    epochs: float = Field(default=4.0, gt=0)
    """Passes; a head overfits within minutes."""
    head_learning_rate: float = Field(default=1e-3, gt=0)
    """Peak rate."""
    batch_slates: int = Field(default=50, ge=1)
    """Slates of one step."""


class Polish(BaseModel):
    """The head trained on after the adapters are done, on states of the adapted backbone, at a warmer temperature.

    A warm temperature makes the relaxed assignment less like the hard one; rows then agree more on their own places, and
    the Hungarian decoder gains at the top (beauty valid: Recall@1 .246 -> .279; a cold one, tau = .3, loses: .230).
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    slates: int = Field(default=600, ge=1)
    """Training slates whose states are cached."""
    epochs: float = Field(default=3.0, gt=0)
    """Passes."""
    head_learning_rate: float = Field(default=2e-4, gt=0)
    """Peak rate."""
    batch_slates: int = Field(default=50, ge=1)
    """Slates of one step."""
    tau: float = Field(default=3.0, gt=0)
    """Sinkhorn temperature of this stage, which becomes the student's."""
