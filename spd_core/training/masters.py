"""AdamW with float32 master weights for parameters that compute in bfloat16.

A bfloat16 weight near 1 cannot move by less than .004, so small steps would vanish; the masters keep them.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from accelerate.utils import reduce
from torch import Tensor, nn


class MasterWeights:
    """Optimiser over float32 copies; model parameters receive the rounded values after each step."""

    def __init__(self, groups: Sequence[tuple[Sequence[nn.Parameter], float, float]]) -> None:
        """Args: groups of (parameters, peak learning rate, weight decay)."""
        self.parameters = [parameter for group, _, _ in groups for parameter in group]
        self.masters = [parameter.detach().float().clone() for parameter in self.parameters]
        settings, start = [], 0
        for group, rate, decay in groups:
            masters = self.masters[start : start + len(group)]
            settings.append({"params": masters, "lr": rate, "peak": rate, "weight_decay": decay})
            start += len(group)
        self.optimizer = torch.optim.AdamW([group for group in settings if group["params"]], betas=(0.9, 0.98))

    def collect(self) -> None:
        """Add the model's gradients to the masters' and clear them, so that sums over batches happen in float32."""
        for parameter, master in zip(self.parameters, self.masters, strict=True):
            if parameter.grad is not None:
                gradient = parameter.grad.float()
                master.grad = gradient.clone() if master.grad is None else master.grad.add_(gradient)
                parameter.grad = None

    def reduce_over_processes(self) -> None:
        """Sum the gradients over all processes; with one process nothing happens."""
        present = [master for master in self.masters if master.grad is not None]
        flat = torch.cat([master.grad.flatten() for master in present if master.grad is not None])
        summed = reduce(flat, "sum")
        for master, gradient in zip(present, summed.split([m.numel() for m in present]), strict=True):
            master.grad = gradient.view_as(master)

    def step(self, rate_factor: float, clip_norm: float) -> float:
        """One clipped AdamW step at `rate_factor` times the peak rates.

        Returns:
            Norm of the gradient before clipping; if it is not finite, nothing was changed.
        """
        norm = float(nn.utils.clip_grad_norm_(self.masters, clip_norm))
        if math.isfinite(norm):
            for group in self.optimizer.param_groups:
                group["lr"] = group["peak"] * rate_factor
            self.optimizer.step()
            self.publish()
        self.optimizer.zero_grad(set_to_none=True)
        return norm

    @torch.no_grad()
    def publish(self) -> None:
        """Write the masters, rounded, into the model."""
        for parameter, master in zip(self.parameters, self.masters, strict=True):
            parameter.copy_(master)

    def tensors(self) -> dict[str, Tensor]:
        """Masters and moments by name, for the state file."""
        result: dict[str, Tensor] = {}
        for index, master in enumerate(self.masters):
            result[f"master.{index}"] = master
            moments: dict[str, Any] = self.optimizer.state.get(master, {})
            for key, value in moments.items():
                result[f"{key}.{index}"] = torch.as_tensor(value)
        return result

    def load_tensors(self, tensors: dict[str, Tensor]) -> None:
        """Restore what `tensors` gave, and publish it."""
        for index, master in enumerate(self.masters):
            master.copy_(tensors[f"master.{index}"])
            names = [name for name in ("step", "exp_avg", "exp_avg_sq") if f"{name}.{index}" in tensors]
            if names:
                self.optimizer.state[master] = {name: tensors[f"{name}.{index}"].clone() for name in names}
        self.publish()


def rate_factor(step: int, total: int, warmup_share: float) -> float:
    """Share of the peak rate at `step` of `total`: linear rise over the warm-up, then a cosine down to 0."""
    warmup = max(1, round(total * warmup_share))
    if step < warmup:
        return (step + 1) / warmup
    return 0.5 * (1 + math.cos(math.pi * (step - warmup) / max(1, total - warmup)))
