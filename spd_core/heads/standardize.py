"""The fixed scaling in front of every head: residual streams have a few dimensions hundreds of times the others."""

from __future__ import annotations

import torch
from torch import Tensor, nn


class Standardize(nn.Module):
    """States with zero mean and unit variance per dimension, by statistics of the training set kept as buffers."""

    mean: Tensor
    scale: Tensor

    def __init__(self, hidden_size: int) -> None:
        super().__init__()
        self.register_buffer("mean", torch.zeros(hidden_size))
        self.register_buffer("scale", torch.ones(hidden_size))

    def fit(self, states: Tensor) -> None:
        """Set the statistics from (n, D) real states, n >= 2; a constant dimension keeps scale 1."""
        deviation = states.float().std(dim=0)
        self.mean = states.float().mean(dim=0).to(self.mean)
        self.scale = torch.where(deviation > 1e-6, deviation, torch.ones_like(deviation)).to(self.scale)

    def forward(self, states: Tensor) -> Tensor:
        """(..., D) -> (..., D)."""
        return (states - self.mean) / self.scale
