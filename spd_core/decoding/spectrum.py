"""Singular values and vectors of a score matrix, by PyTorch.

NumPy's would wake a pool of BLAS threads that spins on after the call: rankings of 50 candidates in a row then took one and a
half times as long, since the next prefill had to share its cores with it.
"""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray


def singular_values(matrix: NDArray[np.floating]) -> NDArray[np.float64]:
    """(min(N, C),) singular values of a finite (N, C) matrix, largest first."""
    values: NDArray[np.float64] = torch.linalg.svdvals(_tensor(matrix)).numpy()
    return values


def leading_vectors(matrix: NDArray[np.floating]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """(N,) left and (C,) right singular vector of the largest singular value of a finite (N, C) matrix."""
    left, _, right = torch.linalg.svd(_tensor(matrix), full_matrices=False)
    return left[:, 0].numpy(), right[0].numpy()


def _tensor(matrix: NDArray[np.floating]) -> torch.Tensor:
    # A copy, for PyTorch takes no reversed or read-only views.
    return torch.from_numpy(np.array(matrix, dtype=np.float64, order="C"))
