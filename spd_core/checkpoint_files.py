"""Checkpoint folders on disk: found by id, checked file by file, read strictly, replaced as a whole.

It knows files and tensors by name. What the tensors mean is `checkpoints`' business. Only safetensors is ever read: other
formats can run code when they are opened.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import torch
from pydantic import BaseModel, ConfigDict
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

from spd_core.errors import CheckpointError, choices

CONFIG_FILE = "spd_config.json"
CARD_FILE = "README.md"
HEAD_FILE = "head.safetensors"
ADAPTER_FILE = "adapter/adapter_model.safetensors"
ADAPTER_CONFIG_FILE = "adapter/adapter_config.json"
UNSAFE_SUFFIXES = frozenset({".pt", ".pth", ".pkl", ".pickle", ".bin", ".ckpt", ".joblib"})
CHECKPOINT_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
FETCH_AGAIN = "copy the checkpoint again or train it anew"


class FileRecord(BaseModel):
    """What a file of a checkpoint must look like."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    bytes: int
    """Size."""
    sha256: str
    """Hash of the content."""


def checkpoint_roots() -> tuple[Path, ...]:
    """Folders searched for ids: those of `$SPD_CHECKPOINTS` (separated as in `$PATH`), else `sample_data/checkpoints`."""
    named = os.environ.get("SPD_CHECKPOINTS")
    if named:
        return tuple(Path(part).expanduser() for part in named.split(os.pathsep) if part)
    return (Path(__file__).resolve().parent.parent / "sample_data" / "checkpoints",)


def checkpoint_folders() -> dict[str, Path]:
    """Folder of each checkpoint under the roots by id, sorted; an earlier root wins."""
    found: dict[str, Path] = {}
    for root in checkpoint_roots():
        for folder in sorted(root.iterdir()) if root.is_dir() else ():
            if CHECKPOINT_ID.fullmatch(folder.name) and folder.is_dir():
                found.setdefault(folder.name, folder)
    return dict(sorted(found.items()))


def checkpoint_id(folder: Path) -> str:
    """Id that a checkpoint saved in `folder` gets: the folder's name; where that is plainly `checkpoint`, its parent's."""
    return folder.parent.name if folder.name == "checkpoint" and folder.parent.name else folder.name


def find_checkpoint(checkpoint: str | Path, *, role: str | None = None) -> Path:
    """Folder of a checkpoint.

    Args:
        checkpoint: an id under `checkpoint_roots`, or a folder: any `Path`, or text with a path separator. Text may not
            climb with ``..``, because ids also come from links.
        role: ``student`` or ``teacher``, for the message alone; None lists both.

    Raises:
        CheckpointError: no such checkpoint; the message lists the known ids of that role.
    """
    text = str(checkpoint)
    is_folder = isinstance(checkpoint, Path) or "/" in text or os.sep in text
    if isinstance(checkpoint, str) and ".." in re.split(r"[/\\]", text):
        raise CheckpointError(f"checkpoint {text!r} climbs out of its folder; give an id or an absolute folder")
    if is_folder:
        folder = Path(checkpoint).expanduser()
        if not folder.is_dir():
            raise CheckpointError(f"checkpoint {text!r} is not a folder; give an id or the folder that train wrote")
        return folder
    folders = checkpoint_folders()
    if text not in folders:
        kind = "teacher" if role == "teacher" else "checkpoint"
        fitting = [name for name, folder in folders.items() if role in (None, read_role(folder))]
        known = choices(kind, text, fitting) if fitting else f"unknown {kind} {text!r}; there is none yet"
        raise CheckpointError(f"{known}; `python -m spd_core train` makes one")
    return folders[text]


def read_role(folder: Path) -> str:
    """Whether a checkpoint holds a `student` or a `teacher`; a student if its config cannot tell."""
    try:
        record = json.loads((folder / CONFIG_FILE).read_text("utf-8"))
    except (OSError, ValueError):
        return "student"
    return "teacher" if isinstance(record, dict) and record.get("role") == "teacher" else "student"


def describe_file(file: Path) -> FileRecord:
    """Size and hash of a file."""
    with file.open("rb") as stream:
        return FileRecord(bytes=file.stat().st_size, sha256=hashlib.file_digest(stream, "sha256").hexdigest())


def check_contents(folder: Path, expected: Mapping[str, FileRecord], *, hashes: bool = True) -> None:
    """Raise unless a checkpoint folder holds exactly its own files, each as recorded.

    Args:
        folder: the checkpoint.
        expected: record of each weight file by path inside the folder.
        hashes: False compares sizes alone, which is quick.

    Raises:
        CheckpointError: a link that leaves the folder, a file that can run code, weights nobody recorded, or a recorded
            file that is missing, cut short or changed; the message names the file.
    """
    where = f"checkpoint {folder.name!r}"
    root = folder.resolve()
    for path in sorted(folder.rglob("*")):
        name = path.relative_to(folder).as_posix()
        if not path.resolve().is_relative_to(root):
            raise CheckpointError(f"{where}: {name} is a link that leaves the folder; replace it by the file itself")
        if path.suffix.lower() in UNSAFE_SUFFIXES:
            raise CheckpointError(f"{where}: {name} can run code when opened and is never read; delete it, keep safetensors")
        if path.suffix == ".safetensors" and name not in expected:
            raise CheckpointError(f"{where}: {name} is not part of the checkpoint; delete it or {FETCH_AGAIN}")
    for name, record in expected.items():
        file = folder / name
        if not file.is_file():
            raise CheckpointError(f"{where}: {name} is missing; {FETCH_AGAIN}")
        size = file.stat().st_size
        if size != record.bytes:
            raise CheckpointError(f"{where}: {name} has {size} bytes instead of {record.bytes}; {FETCH_AGAIN}")
        if hashes and describe_file(file) != record:
            raise CheckpointError(f"{where}: {name} is damaged: its content has changed since it was saved; {FETCH_AGAIN}")


def write_tensors(file: Path, tensors: Mapping[str, Tensor]) -> None:
    """Write tensors as safetensors.

    Raises:
        CheckpointError: a tensor holds NaN or infinity.
    """
    _check_finite(file.name, tensors)
    file.parent.mkdir(parents=True, exist_ok=True)
    save_file({name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}, file, {"format": "pt"})


def read_tensors(folder: Path, name: str, expected: Mapping[str, Tensor], *, may_lack: bool = False) -> dict[str, Tensor]:
    """Tensors of one safetensors file, with exactly the expected keys and shapes and finite values.

    Args:
        folder: the checkpoint.
        name: path inside it.
        expected: a tensor of the right shape for each key.
        may_lack: whether expected keys may be missing, e.g. for a checkpoint that has fewer layers.

    Returns:
        CPU tensors by key, in the dtype of the file.

    Raises:
        CheckpointError: the file cannot be read, a key is missing or unexpected, a shape differs, or a value is NaN or
            infinite; the message names file and key.
    """
    where = f"checkpoint {folder.name!r}: {name}"
    try:
        tensors = load_file(folder / name)
    except (SafetensorError, OSError) as error:
        raise CheckpointError(f"{where} cannot be read as safetensors ({error}); {FETCH_AGAIN}") from error
    for key in sorted(() if may_lack else expected.keys() - tensors.keys()):
        raise CheckpointError(f"{where}: weight {key!r} is missing; the checkpoint was made for another model")
    for key in sorted(tensors.keys() - expected.keys()):
        raise CheckpointError(f"{where}: weight {key!r} is not expected; the checkpoint was made for another model")
    for key, tensor in tensors.items():
        shape, wanted = list(tensor.shape), list(expected[key].shape)
        if shape != wanted or not tensor.is_floating_point():
            kind = str(tensor.dtype).removeprefix("torch.")
            raise CheckpointError(
                f"{where}: weight {key!r} is {kind} of shape {shape}, but the settings in {CONFIG_FILE} ask for floating "
                f"point of shape {wanted}; use the {CONFIG_FILE} it was saved with"
            )
    _check_finite(where, tensors)
    return tensors


def _check_finite(where: str, tensors: Mapping[str, Tensor]) -> None:
    for key, tensor in tensors.items():
        bad = int((~torch.isfinite(tensor)).sum())
        if bad:
            raise CheckpointError(f"{where}: weight {key!r} holds {bad} values that are NaN or infinite; train again")


@contextmanager
def replaced_folder(target: Path) -> Iterator[Path]:
    """A fresh folder that takes the place of `target` when the block ends well, and vanishes when it does not.

    Raises:
        CheckpointError: the name is no checkpoint id, or `target` exists and is not a checkpoint.
    """
    if not CHECKPOINT_ID.fullmatch(target.name):
        raise CheckpointError(f"checkpoint id {target.name!r} may only hold letters, digits, '.', '_' and '-'")
    if target.exists() and not (target / CONFIG_FILE).is_file() and not (target.is_dir() and not any(target.iterdir())):
        raise CheckpointError(f"{target} exists and is not a checkpoint; choose another folder or delete it")
    target.parent.mkdir(parents=True, exist_ok=True)
    aside = Path(tempfile.mkdtemp(prefix=f".{target.name}-", dir=target.parent))
    try:
        fresh = aside / "new"
        fresh.mkdir()
        yield fresh
        if target.exists():
            os.replace(target, aside / "old")
        try:
            os.replace(fresh, target)
        except OSError:
            if (aside / "old").exists():
                os.replace(aside / "old", target)
            raise
    finally:
        shutil.rmtree(aside, ignore_errors=True)
