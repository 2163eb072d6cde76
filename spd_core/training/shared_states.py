"""Readout states of several layers and readouts from one pass a slate, as files that `CachedSource` reads.

The backbone is the costly part of every frozen run; runs that differ in layer or readout can share its passes.
"""

from __future__ import annotations

import hashlib
import json
import logging
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import torch
from safetensors import safe_open
from torch import Tensor, nn

from spd_core.backbone import Backbone, decoder_layers, prefill
from spd_core.errors import TrainingError
from spd_core.prompts import Template, build_prompt
from spd_core.readouts import gather_readout, gather_user_state
from spd_core.slate import Slate
from spd_core.tokenization import SlateBatch, collate_prompts, encode_prompt
from spd_core.training.run_files import write_tensors

logger = logging.getLogger(__name__)

SLATES_A_PART = 250
"""Slates between two saves: what a killed run loses."""
SLATES_A_PASS = 10


class Place(NamedTuple):
    """Where states are taken."""

    layer: int
    """After which layer; that of the whole backbone comes with its final norm."""
    readout: str
    """Key of `READOUTS`."""

    @property
    def name(self) -> str:
        """Of its file."""
        return f"layer{self.layer}-{self.readout}"


def share_states(
    backbone: Backbone, template: Template, slates: Sequence[Slate], places: Sequence[Place], folder: Path
) -> dict[Place, Path]:
    """File of states for each place, computed together for those that are missing; a killed call goes on at its last part.

    Args:
        backbone: with at least as many layers as the deepest place.
        template: wording of the prompts.
        slates: in the order of their candidates.
        places: layers and readouts.
        folder: one a set of slates; files of other slates, wording or backbone in it are replaced.

    Returns:
        Place -> file with ``items/<id>`` (N, D) and ``user/<id>`` (D) of each slate in bfloat16.

    Raises:
        TrainingError: a place is deeper than the backbone.
    """
    for place in places:
        if not 1 <= place.layer <= backbone.depth:
            raise TrainingError(
                f"states of layer {place.layer} were asked for but the backbone has layers 1 to {backbone.depth}"
            )
    content = content_hash(backbone, template, slates)
    files = {place: folder / f"{place.name}.safetensors" for place in dict.fromkeys(places)}
    missing = [place for place, file in files.items() if _content_of(file) != content]
    if missing:
        parts = folder / "parts"
        folder.mkdir(parents=True, exist_ok=True)
        wanted = f"{content} {' '.join(place.name for place in missing)}"
        made = [
            _part(parts, index, wanted, backbone, template, missing, group) for index, group in enumerate(_groups(slates))
        ]
        for place in missing:
            _join(made, place, files[place], content)
        shutil.rmtree(parts)
    return files


def content_hash(backbone: Backbone, template: Template, slates: Sequence[Slate]) -> str:
    """Hash of everything that decides the states beside the place."""
    digest = hashlib.sha256(f"{backbone.fingerprint} {template.hash} {backbone.dtype}".encode())
    for slate in slates:
        digest.update(json.dumps(slate.to_json(), sort_keys=True, default=str).encode("utf-8", "surrogatepass"))
    return digest.hexdigest()


@torch.inference_mode()
def states_of(backbone: Backbone, batch: SlateBatch, places: Sequence[Place]) -> dict[Place, tuple[Tensor, Tensor]]:
    """(B, N, D) readout and (B, D) user states in bfloat16 of each place, from one pass.

    Args:
        backbone: with at least as many layers as the deepest place.
        batch: on its device.
        places: layers and readouts.
    """
    with _recorded(backbone.model, {place.layer for place in places}, backbone.depth) as hidden:
        hidden[backbone.depth] = prefill(backbone.model, batch)
    users = {layer: gather_user_state(states, batch).bfloat16() for layer, states in hidden.items()}
    return {
        place: (gather_readout(hidden[place.layer], batch, place.readout).bfloat16(), users[place.layer]) for place in places
    }


@contextmanager
def _recorded(model: nn.Module, layers: set[int], depth: int) -> Iterator[dict[int, Tensor]]:
    """A dict that receives the output of the layers, counted from 1, below the last one in the next pass."""
    found: dict[int, Tensor] = {}

    def keep(layer: int) -> Any:
        def hook(module: nn.Module, arguments: Any, output: Any) -> None:
            found[layer] = output[0] if isinstance(output, tuple) else output

        return hook

    modules = decoder_layers(model)
    handles = [modules[layer - 1].register_forward_hook(keep(layer)) for layer in layers if layer < depth]
    try:
        yield found
    finally:
        for handle in handles:
            handle.remove()


def _groups(slates: Sequence[Slate]) -> list[Sequence[Slate]]:
    return [slates[start : start + SLATES_A_PART] for start in range(0, len(slates), SLATES_A_PART)]


def _part(
    folder: Path,
    index: int,
    wanted: str,
    backbone: Backbone,
    template: Template,
    places: Sequence[Place],
    slates: Sequence[Slate],
) -> Path:
    file = folder / f"{index:04d}.safetensors"
    if _content_of(file) != wanted:
        folder.mkdir(exist_ok=True)
        write_tensors(file, _compute(backbone, template, places, slates), {"content": wanted})
        logger.info("shared states: %d slates more, %d places", len(slates), len(places))
    return file


def _compute(backbone: Backbone, template: Template, places: Sequence[Place], slates: Sequence[Slate]) -> dict[str, Tensor]:
    tokenizer, states = backbone.tokenizer, {}
    encoded = [encode_prompt(build_prompt(slate, template), tokenizer) for slate in slates]
    order = sorted(range(len(slates)), key=lambda i: len(encoded[i].input_ids))
    for start in range(0, len(order), SLATES_A_PASS):
        rows = order[start : start + SLATES_A_PASS]
        batch = collate_prompts([encoded[i] for i in rows], pad_id=tokenizer.pad_token_id, max_tokens=backbone.max_tokens)
        for place, (items, user) in states_of(backbone, batch.to(backbone.device), places).items():
            for row, slate in enumerate(slates[i] for i in rows):
                states[f"{place.name}/items/{slate.slate_id}"] = items[row, : len(slate.candidates)].clone()
                states[f"{place.name}/user/{slate.slate_id}"] = user[row].clone()
    return states


def _join(parts: Sequence[Path], place: Place, file: Path, content: str) -> None:
    """One file of a place from all parts."""
    prefix = f"{place.name}/"
    states: dict[str, Tensor] = {}
    for part in parts:
        with safe_open(part, "pt") as stream:
            names = [name for name in stream.keys() if name.startswith(prefix)]  # noqa: SIM118 (it is no dict)
            states |= {name.removeprefix(prefix): stream.get_tensor(name) for name in names}
    write_tensors(file, states, {"content": content})


def _content_of(file: Path) -> str | None:
    """What a file of ours says it holds; None if it is not there."""
    if not file.is_file():
        return None
    with safe_open(file, "pt") as stream:
        metadata: Mapping[str, str] = stream.metadata() or {}
    return metadata.get("content")
