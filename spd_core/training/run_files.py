"""The folder of a training run: log lines, the state to go on from, the best weights; each written aside and renamed."""

from __future__ import annotations

import dataclasses
import json
import os
from pathlib import Path
from typing import Any, TypeVar

import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file

from spd_core.datasets.files import write_aside
from spd_core.errors import TrainingError
from spd_core.training.masters import MasterWeights
from spd_core.training.settings import TrainSettings

State = TypeVar("State")


class RunFiles:
    """Files of one run below `folder`."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        self.state_file = folder / "state.safetensors"
        self.best_file = folder / "best.safetensors"
        self.log_file = folder / "log.jsonl"

    def log(self, entry: dict[str, Any]) -> None:
        """Append one JSON line."""
        with self.log_file.open("a", encoding="utf-8") as stream:
            stream.write(json.dumps(entry) + "\n")

    def save(self, masters: MasterWeights, state: Any, settings: TrainSettings) -> None:
        """Write weights, moments and counters in one file, so that they can never disagree."""
        metadata = {"state": json.dumps(dataclasses.asdict(state)), "settings": settings.model_dump_json()}
        write_tensors(self.state_file, masters.tensors(), metadata)

    def restore(self, masters: MasterWeights, state_type: type[State], settings: TrainSettings) -> State:
        """State of the last save loaded into `masters`, and the log cut back to it; a fresh state if there is none.

        Raises:
            TrainingError: the saved state was made with other settings.
        """
        if not self.state_file.exists():
            self.log_file.unlink(missing_ok=True)
            return state_type()
        with safe_open(self.state_file, "pt") as stream:
            metadata = stream.metadata()
        saved = TrainSettings.model_validate_json(metadata["settings"])
        if saved != settings:
            pairs = zip(saved.model_dump().items(), settings.model_dump().values(), strict=True)
            changed = ", ".join(f"{key}: saved {old}, now {new}" for (key, old), new in pairs if old != new)
            raise TrainingError(
                f"run folder {self.folder.name!r} holds a run with other settings ({changed}); use a new --run"
            )
        masters.load_tensors(load_file(self.state_file))
        state = state_type(**json.loads(metadata["state"]))
        self._cut_log(state.step)  # type: ignore[attr-defined]
        return state

    def _cut_log(self, step: int) -> None:
        """Drop log lines after `step`: the resumed run writes them again."""
        lines = self.log_file.read_text("utf-8").splitlines() if self.log_file.exists() else []
        kept = [line for line in lines if json.loads(line)["step"] <= step]
        write_aside(self.log_file, (f"{line}\n".encode() for line in kept))

    def save_best(self, masters: MasterWeights) -> None:
        """Keep the current masters as the best ones."""
        write_tensors(self.best_file, {str(i): master for i, master in enumerate(masters.masters)}, {})

    @torch.no_grad()
    def restore_best(self, masters: MasterWeights) -> None:
        """Load the best masters, if a validation ever kept some."""
        if self.best_file.exists():
            best = load_file(self.best_file)
            for index, master in enumerate(masters.masters):
                master.copy_(best[str(index)])
            masters.publish()


def write_tensors(file: Path, tensors: dict[str, torch.Tensor], metadata: dict[str, str]) -> None:
    """Write a safetensors file aside, then rename, so that a kill leaves the old one."""
    aside = file.with_suffix(".aside")
    save_file({name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}, aside, metadata=metadata)
    os.replace(aside, file)
