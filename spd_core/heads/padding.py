"""Which columns of an attention hold nothing, for heads whose slates are padded to one width."""

from __future__ import annotations

from torch import Tensor
from torch.nn import functional


def padding_mask(candidate_mask: Tensor | None, width: int) -> Tensor | None:
    """(B, M) bool mask, True where nothing is, as PyTorch's attention takes it.

    Args:
        candidate_mask: (B, N) bool, True where real; None: all real.
        width: M >= N, columns; those behind the candidates (a user token) are real.
    """
    if candidate_mask is None:
        return None
    return functional.pad(~candidate_mask, (0, width - candidate_mask.shape[1]), value=False)
