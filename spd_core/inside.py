"""What can be seen inside a student while it ranks one slate: where its head looks, and what its readouts are like.

Everything is computed from one pass; nothing here explains a ranking, it only shows what the numbers on the way were.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from spd_core.head_attention import head_attention
from spd_core.latency import encode_slate
from spd_core.layer_states import hidden_by_layer, readouts_by_layer
from spd_core.model import Student
from spd_core.readouts import gather_user_state
from spd_core.slate import Slate
from spd_core.tokenization import collate_prompts


@dataclass(frozen=True, eq=False)
class Inside:
    """One slate's way through a student."""

    readouts: NDArray[np.float32]
    """(L + 1, N, D) readout of each candidate from the embeddings and after each layer; the head reads the last."""
    score_matrix: NDArray[np.float32]
    """(N, K) of the same pass."""
    head_maps: tuple[NDArray[np.float32], ...]
    """Of each attention layer of the head (H, Q, M): reader by what it looks at; none for a linear probe."""
    reads_user: bool
    """Whether the last of the M is the user token, and the last reader too where candidates read each other."""

    @property
    def layer_count(self) -> int:
        """L, layers of the backbone that are used."""
        return len(self.readouts) - 1


class Projection(NamedTuple):
    """Readouts drawn in two dimensions."""

    points: NDArray[np.float64]
    """(N, 2) coordinates; a direction that is not there is 0."""
    shares: NDArray[np.float64]
    """(2,) share of the readouts' variance along each."""


def look_inside(student: Student, slate: Slate) -> Inside:
    """Readouts after every layer and attention maps of the head, from one pass.

    Args:
        student: in eval mode.
        slate: N <= K candidates.

    Raises:
        SpdError: N > K, or a prompt beyond the model's context.
    """
    backbone = student.backbone
    encoded = [encode_slate(student, slate)]
    batch = collate_prompts(encoded, pad_id=backbone.tokenizer.pad_token_id, max_tokens=backbone.max_tokens)
    batch = batch.to(backbone.device)
    hidden = hidden_by_layer(student.model, batch)
    readouts = readouts_by_layer(hidden, batch, student.config.readout)
    user = gather_user_state(hidden[-1], batch) if student.config.user_token else None
    states = torch.from_numpy(readouts[-1])[None].to(backbone.device)
    looked = head_attention(student.head, states, batch.candidate_mask, user)
    maps = tuple(weights[0].float().cpu().numpy() for weights in looked.layers)
    return Inside(readouts, looked.scores[0].float().cpu().numpy(), maps, student.config.user_token)


def mean_norms(readouts: NDArray[np.floating]) -> NDArray[np.float64]:
    """(L + 1,) mean length of the readouts after each layer.

    Args:
        readouts: (L + 1, N, D).
    """
    return np.linalg.norm(np.asarray(readouts, dtype=np.float64), axis=2).mean(axis=1)


def mean_cosines(readouts: NDArray[np.floating]) -> NDArray[np.float64]:
    """(L + 1,) mean cosine of two candidates' readouts after each layer: 1 all point one way; NaN for one candidate.

    Args:
        readouts: (L + 1, N, D).
    """
    values = np.asarray(readouts, dtype=np.float64)
    count = values.shape[1]
    if count < 2:
        return np.full(len(values), np.nan)
    units = values / np.maximum(np.linalg.norm(values, axis=2, keepdims=True), 1e-12)
    cosines = units @ units.transpose(0, 2, 1)  # (L + 1, N, N)
    own = np.trace(cosines, axis1=1, axis2=2)
    return (cosines.sum(axis=(1, 2)) - own) / (count * (count - 1))


def project(readouts: NDArray[np.floating]) -> Projection:
    """The two directions along which the readouts of a slate differ most, and each readout's place on them.

    Principal components by singular values of the centred readouts. A direction has no sign of its own: it is turned so
    that the candidate farthest out lies on its positive side, so equal readouts always give equal pictures.

    Args:
        readouts: (N, D) of one layer.
    Source: Pearson, On lines and planes of closest fit (1901); by singular value decomposition.
    """
    values = np.asarray(readouts, dtype=np.float64)
    left, strengths, _ = np.linalg.svd(values - values.mean(axis=0), full_matrices=False)
    points = np.zeros((len(values), 2))
    energy = np.zeros(2)
    kept = min(2, len(strengths))
    points[:, :kept] = left[:, :kept] * strengths[:kept]
    farthest = points[np.abs(points).argmax(axis=0), [0, 1]]
    points *= np.where(farthest < 0, -1.0, 1.0)
    energy[:kept] = strengths[:kept] ** 2
    total = float((strengths**2).sum())
    is_flat = total <= 1e-18 * max(float((values**2).sum()), 1e-300)
    return Projection(np.zeros_like(points), energy * 0) if is_flat else Projection(points, energy / total)
