"""Presets of training runs: a TOML file read into one frozen record."""

from __future__ import annotations

import os
import tomllib
from pathlib import Path
from typing import Any, Literal, Self, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from spd_core.checkpoint_config import TeacherSettings
from spd_core.errors import TrainingError, choices
from spd_core.model import StudentConfig
from spd_core.training.settings import Polish, TrainSettings, WarmStart

PRESET_FOLDER = Path(__file__).parent / "presets"
Settings = TypeVar("Settings", bound=BaseModel)


class Preset(BaseModel):
    """All that decides a training run."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    role: Literal["student", "teacher"] = "student"
    """What is trained: a student, or an autoregressive teacher that learns to write another teacher's rankings."""
    template: str = "shop"
    """Key of `TEMPLATES`."""
    teacher: str = "stored"
    """`stored` takes each slate's own teacher ranking, `labels` those of the files in `labels`; else a key of `TEACHERS`,
    perhaps with `+purchase` behind it."""
    labels: tuple[str, ...] = ()
    """Files that `label` wrote for the training slates, joined to them by slate id; for the teacher `labels`."""
    ungated: bool = False
    """Learn from label files whose gate failed."""
    repaired: bool = False
    """Learn also from rankings that the teacher did not write whole and that were repaired."""
    train: tuple[str, ...]
    """Slate files, absolute or below the data folder."""
    valid: str
    """Slate file for validation and the final report."""
    valid_slates: int = Field(default=200, ge=1)
    """First slates of `valid` looked at while training."""
    catalogue: str | None = None
    """File of items, one JSON object a line, for the teacher."""
    max_slates: int | None = Field(default=None, ge=1)
    """First slates of each training file used; None uses all."""
    backbone: str | None = None
    """Hub id or folder; None is the embedded model."""
    init: str | None = None
    """Checkpoint (id or folder) whose weights the run starts from; skips the warm start. A student goes on from a student
    with the same settings; a teacher takes the adapters of the layers that the checkpoint has."""
    student: StudentConfig = StudentConfig()
    writer: TeacherSettings = TeacherSettings()
    """Settings of an autoregressive teacher; used where `role` is `teacher`."""
    train_settings: TrainSettings = TrainSettings()
    warm_start: WarmStart | None = None
    """None starts LoRA from a fresh head."""
    polish: Polish | None = None
    """None leaves the head as the LoRA run left it."""

    @classmethod
    def read(cls, name: str) -> Self:
        """Preset of a name in `presets/`, or of a TOML file.

        Raises:
            TrainingError: no such preset, not TOML, or a key or value that is not allowed.
        """
        return read_settings(cls, name, PRESET_FOLDER, "preset")

    def changed(self, **flags: Any) -> Preset:
        """The preset with every flag that is not None in place of its own value; names are looked up at both levels.

        Raises:
            TrainingError: a value that is not allowed.
        """
        content = self.model_dump()
        for name, value in flags.items():
            if value is not None:
                section = content if name in content else content["train_settings"]
                section[name] = value
        try:
            return Preset.model_validate(content)
        except ValidationError as error:
            raise TrainingError(first_problem(error)) from error


def preset_names() -> list[str]:
    """Names of the presets that come with the project."""
    return settings_names(PRESET_FOLDER)


def settings_names(folder: Path) -> list[str]:
    """Names of the TOML files in a folder, sorted."""
    return sorted(file.stem for file in folder.glob("*.toml"))


def read_settings(kind: type[Settings], name: str, folder: Path, what: str) -> Settings:
    """Settings of a name in `folder`, or of a TOML file.

    Args:
        kind: the record that they make.
        name: stem of a file in `folder`, or a path that ends in ``.toml``.
        folder: of the files that come with the project.
        what: they are, for messages.

    Raises:
        TrainingError: no such file, not TOML, or a key or value that is not allowed.
    """
    file = Path(name) if name.endswith(".toml") else folder / f"{Path(name).name}.toml"
    if not file.is_file():
        raise TrainingError(choices(what, name, settings_names(folder)))
    try:
        return kind.model_validate(tomllib.loads(file.read_text("utf-8")))
    except (tomllib.TOMLDecodeError, ValidationError) as error:
        raise TrainingError(f"{what} {name!r}: {first_problem(error)}") from error


def first_problem(error: Exception) -> str:
    """One line for the first thing that is wrong."""
    if isinstance(error, ValidationError):
        first = error.errors()[0]
        return f"{'.'.join(str(part) for part in first['loc'])} is {first['input']!r}: {first['msg']}"
    return str(error)


def data_file(name: str) -> Path:
    """Path of a data file: as given if it exists, else below `$SPD_DATA` or `../shared/data`.

    Raises:
        TrainingError: it is in neither place.
    """
    folder = data_folder()
    for candidate in (Path(name), folder / name):
        if candidate.is_file():
            return candidate
    raise TrainingError(f"data file {name!r} is neither here nor in {folder}; set SPD_DATA to the folder that holds it")


def data_folder() -> Path:
    """Folder of data files: `$SPD_DATA`, else `../shared/data`; it need not exist."""
    return Path(os.environ.get("SPD_DATA") or Path("..") / "shared" / "data")
