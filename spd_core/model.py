"""The student: one prefill of the backbone, one readout a candidate, one head, one score matrix.

It knows tensors. Decoding, checkpoints and training are built on top of it.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any, Literal

from peft import LoraConfig, get_peft_model
from pydantic import BaseModel, ConfigDict, Field, model_validator
from torch import Tensor, nn

from spd_core.backbone import Backbone, prefill
from spd_core.heads import build_head
from spd_core.prompts import Template
from spd_core.readouts import gather_readout, gather_user_state
from spd_core.tokenization import SlateBatch


class LoraSettings(BaseModel):
    """Low-rank adaptation of the backbone's linear projections."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    rank: int = Field(default=16, ge=1)
    """r; the paper uses 64."""
    alpha: float = Field(default=32.0, gt=0)
    """Scale numerator: the update is alpha / r * B A. The paper does not give it."""
    dropout: float = Field(default=0.0, ge=0, lt=1)
    """On the input of A."""
    target_modules: str | tuple[str, ...] = "all-linear"
    """Names of the projections; `all-linear` is the paper's choice."""


class StudentConfig(BaseModel):
    """Everything that decides how a student turns a prompt into a score matrix."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    head: Literal["linear_probe", "self_attention", "slot_query"] = "self_attention"
    """Key of `HEADS`."""
    positions: int = Field(default=50, ge=1)
    """K, columns of the score matrix and the largest slate."""
    head_width: int = Field(default=512, ge=64, multiple_of=64)
    """Inner width of the head; the paper's is 512."""
    tau: float = Field(default=1.0, gt=0)
    """Sinkhorn temperature of training; not given in the paper."""
    sinkhorn_iterations: int = Field(default=20, ge=1)
    """L of training; not given in the paper."""
    readout: Literal["last", "newline", "mean"] = "last"
    """Which state stands for a candidate; key of `READOUTS`."""
    layer: int | None = Field(default=None, ge=1)
    """Layer read out, after which the backbone is cut; None is the last one with the final norm, as in the paper."""
    user_token: bool = False
    """Whether the mean state of the user context joins the candidates in a head that attends."""
    lora: LoraSettings | None = LoraSettings()
    """None leaves the backbone frozen."""

    @model_validator(mode="after")
    def _user_token_needs_attention(self) -> StudentConfig:
        if self.user_token and self.head == "linear_probe":
            raise ValueError("head 'linear_probe' scores each item alone and cannot take a user token")
        return self


class Student(nn.Module):
    """Backbone and head as one module that maps a batch of prompts to score matrices."""

    def __init__(self, backbone: Backbone, head: nn.Module, config: StudentConfig, template: Template) -> None:
        super().__init__()
        self.model = backbone.model
        self.head = head
        self.backbone = backbone
        self.config = config
        self.template = template
        self.quick: Callable[[Tensor], Tensor] | None = None
        """A faster way from (1, T) token ids to the same states; see `quick_pass`."""

    def prefill(self, batch: SlateBatch) -> Tensor:
        """(B, T, D) hidden states of the prompts; values at padding are meaningless.

        Args:
            batch: on the student's device.
        """
        if self.quick is not None and len(batch.input_ids) == 1 and bool(batch.attention_mask.all()):
            return self.quick(batch.input_ids)
        return prefill(self.model, batch)

    def forward(self, batch: SlateBatch) -> Tensor:
        """(B, N, K) float32 score matrix M; rows of padding candidates are meaningless.

        Source: SPD paper, section 3.
        """
        return self.score(self.prefill(batch), batch)

    def gather(self, hidden: Tensor, batch: SlateBatch) -> tuple[Tensor, Tensor | None]:
        """(B, N, D) readouts and, for a head with a user token, the (B, D) user state, both float32, of a prefill."""
        if self.config.readout == "mean" or self.config.user_token:
            hidden = hidden.float()  # once for both
        user = gather_user_state(hidden, batch) if self.config.user_token else None
        return gather_readout(hidden, batch, self.config.readout), user

    def score(self, hidden: Tensor, batch: SlateBatch) -> Tensor:
        """(B, N, K) score matrix from the (B, T, D) hidden states of a prefill."""
        states, user = self.gather(hidden, batch)
        matrix: Tensor = self.head(states, batch.head_mask, user)
        return matrix


def build_student(backbone: Backbone, config: StudentConfig, template: Template, *, with_lora: bool = True) -> Student:
    """A student with a fresh head, and fresh (zero-effect) adapters if the config names LoRA.

    Args:
        backbone: loaded at `config.layer`.
        config: settings of the student.
        template: wording of the prompts it will read.
        with_lora: False leaves the adapters out, e.g. to load trained ones.

    Raises:
        SpdError: the head's settings do not fit.
    """
    head = build_head(
        config.head, backbone.hidden_size, config.positions, width=config.head_width, user_token=config.user_token
    ).to(backbone.device)
    if with_lora and config.lora is not None:
        backbone = dataclasses.replace(backbone, model=attach_lora(backbone.model, config.lora))
    return Student(backbone, head, config, template)


def attach_lora(model: nn.Module, settings: LoraSettings) -> nn.Module:
    """The model wrapped by PEFT with adapters in the model's own dtype; only they require gradients."""
    return get_peft_model(model, lora_config(settings), autocast_adapter_dtype=False)  # type: ignore[arg-type]


def lora_config(settings: LoraSettings) -> LoraConfig:
    """PEFT's form of our settings."""
    targets: Any = settings.target_modules
    return LoraConfig(
        r=settings.rank,
        lora_alpha=settings.alpha,  # type: ignore[arg-type]
        lora_dropout=settings.dropout,
        target_modules=targets if isinstance(targets, str) else list(targets),
        bias="none",
    )


def parameter_counts(student: Student) -> dict[str, int]:
    """Parameters of head, adapter and backbone, counted."""
    adapter = sum(p.numel() for name, p in student.model.named_parameters() if "lora_" in name)
    return {
        "head": sum(p.numel() for p in student.head.parameters()),
        "adapter": adapter,
        "backbone": sum(p.numel() for p in student.model.parameters()) - adapter,
    }
