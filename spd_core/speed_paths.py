"""Ways to run the same student faster: fused attention, compiled layers, passes recorded once per length and replayed.

A path changes how the backbone is computed, never what it computes. It knows no clock; whether a path is worth it is measured
by whoever asks for it.
"""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor, nn
from transformers.modeling_outputs import BaseModelOutputWithPast

from spd_core.backbone import decoder_layers
from spd_core.errors import BackboneError, SpdError, choices
from spd_core.model import Student

BUCKET_TOKENS = 64
"""Prompts are lengthened to a multiple of this, a tile of the attention kernels, so that few passes need recording."""
WARM_UP_PASSES = 3
"""Before a recording: libraries set up their work space, and layers are compiled."""
RunPass = Callable[[], Tensor]


@dataclass(frozen=True)
class SpeedPath:
    """One way to run a backbone."""

    name: str
    attention: Literal["eager", "sdpa"]
    """`eager` is written out in PyTorch operations; `sdpa` is fused, and FlashAttention where its conditions hold."""
    compiled: bool
    """Whether each layer goes through torch.compile, for the shapes it meets."""
    recorded: bool
    """Whether passes are recorded as CUDA graphs by length bucket."""
    summary: str


PATHS = {
    path.name: path
    for path in (
        SpeedPath("fused", "sdpa", False, False, "fused attention, as every command runs it"),
        SpeedPath("recorded", "sdpa", False, True, "fused attention, passes replayed as CUDA graphs, no padding mask"),
        SpeedPath("plain", "eager", False, False, "attention written out, nothing fused"),
        SpeedPath("compiled", "sdpa", True, True, "as recorded, with compiled layers"),
    )
}


def paths_on(device: torch.device) -> list[str]:
    """Names of the paths that a device can take; recordings need CUDA."""
    return [name for name, path in PATHS.items() if device.type == "cuda" or not path.recorded]


def on_path(student: Student, name: str) -> Student:
    """The student with its backbone run another way; head, wording and scores (but for rounding) are the same.

    Args:
        student: in eval mode, adapters merged; it is not changed, though a path may share its weights.
        name: key of `PATHS`.

    Raises:
        SpdError: no path has that name; the message lists the names.
        BackboneError: the path cannot run here, or not with this model.
    """
    if name not in PATHS:
        raise SpdError(choices("speed path", name, PATHS))
    path, model = PATHS[name], student.model
    if path.recorded and student.backbone.device.type != "cuda":
        raise BackboneError(f"speed path {name!r} records CUDA graphs but the student is on the CPU; use --device cuda")
    if path.compiled or model.config._attn_implementation != path.attention:  # type: ignore[union-attr]
        model = copy.deepcopy(model)
        model.set_attn_implementation(path.attention)  # type: ignore[operator]
    if path.compiled:
        for layer in decoder_layers(model):
            layer.compile(dynamic=False)  # layers share one compiled function a shape, so a deep model costs no more
    if path.recorded:
        model = RecordedModel(model)
    backbone = dataclasses.replace(student.backbone, model=model)
    return Student(backbone, student.head, student.config, student.template).eval()


class RecordedModel(nn.Module):
    """A backbone whose passes are recorded once per batch size and length bucket, then replayed without Python.

    Prompts are lengthened on the right to the bucket. What stands there is never read by the tokens before it, since
    attention is causal; so no padding mask is needed, and attention stays on its fastest kernel. A replay overwrites what
    the replay before it returned: one caller at a time, who reads the states before the next pass.
    """

    def __init__(
        self, model: nn.Module, *, bucket_tokens: int = BUCKET_TOKENS, record: Callable[[RunPass], RunPass] | None = None
    ) -> None:
        """Wrap a base model.

        Args:
            model: in eval mode, with fused attention in every layer, such as Qwen3.
            bucket_tokens: lengths are rounded up to a multiple of it.
            record: turns a pass into its replay; None records CUDA graphs.

        Raises:
            BackboneError: the model takes no prepared masks, or its attention is not fused and causal.
        """
        super().__init__()
        config: Any = model.config
        kinds = set(getattr(config, "layer_types", None) or ())
        if kinds != {"full_attention"} or config._attn_implementation != "sdpa":
            raise BackboneError(
                f"backbone of type {type(model).__name__} with {config._attn_implementation} attention in layers of kind "
                f"{sorted(kinds)} cannot be recorded; use sdpa in a model whose layers are all full_attention, such as Qwen3"
            )
        self.model = model
        self.config = config
        self.bucket_tokens = bucket_tokens
        self.record = record or record_cuda_graph
        self.recordings: dict[tuple[int, int], tuple[Tensor, RunPass]] = {}
        """(B, bucket) -> token ids that the pass reads, and its replay."""

    @torch.inference_mode()
    def forward(
        self,
        input_ids: Tensor,
        attention_mask: Tensor | None = None,
        position_ids: Tensor | None = None,
        use_cache: bool = False,
    ) -> BaseModelOutputWithPast:
        """States of one pass.

        Args:
            input_ids: (B, T).
            attention_mask: (B, T), real tokens first in each row; None if all are real.
            position_ids: those of prompts that begin at token 0, which every pass assumes.
            use_cache: must be False.

        Returns:
            `last_hidden_state` (B, T, D), valid until the next pass; values at padding are meaningless.

        Raises:
            BackboneError: a prompt is padded on the left, or a cache is asked for.
        """
        if use_cache or (attention_mask is not None and not bool(attention_mask[:, 0].all())):
            raise BackboneError("a recorded pass keeps no cache and takes prompts padded on the right; use another path")
        rows, length = input_ids.shape
        shape = rows, -(-length // self.bucket_tokens) * self.bucket_tokens
        if shape not in self.recordings:
            self.recordings[shape] = self._new_recording(shape, input_ids.device)
        ids, replay = self.recordings[shape]
        ids[:, :length].copy_(input_ids)
        return BaseModelOutputWithPast(last_hidden_state=replay()[:, :length])

    def _new_recording(self, shape: tuple[int, int], device: torch.device) -> tuple[Tensor, RunPass]:
        ids = torch.zeros(shape, dtype=torch.int64, device=device)
        unmasked = {"full_attention": None}  # prepared, as the model's own look at masks would wait for the device

        def run_pass() -> Tensor:
            states: Tensor = self.model(input_ids=ids, attention_mask=unmasked, use_cache=False).last_hidden_state
            return states

        return ids, self.record(run_pass)


def record_cuda_graph(run_pass: RunPass) -> RunPass:
    """A replay of the pass as one CUDA graph: it reads the memory that the pass read and returns one and the same tensor."""
    aside = torch.cuda.Stream()
    aside.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(aside):
        for _ in range(WARM_UP_PASSES):
            run_pass()
    torch.cuda.current_stream().wait_stream(aside)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, stream=aside):  # where everything is set up by now
        states = run_pass()

    def replay() -> Tensor:
        graph.replay()
        return states

    return replay
