"""What `spd_config.json` says: the settings of a student or a teacher, what it is bound to, where its weights come from."""

from __future__ import annotations

import datetime
import hashlib
import json
import platform
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from spd_core.checkpoint_files import CARD_FILE, CONFIG_FILE, FETCH_AGAIN, FileRecord, read_role
from spd_core.errors import CheckpointError
from spd_core.model import LoraSettings, StudentConfig
from spd_core.prompts import Template

SCHEMA_VERSION = 1


def _versions() -> dict[str, str]:
    return {"python": platform.python_version()} | {name: version(name) for name in ("torch", "transformers", "peft")}


class TrainingFacts(BaseModel):
    """Where a student's weights come from, and how good they were found to be."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    teacher: str
    """Name of the teacher, or of the labels, that supervised it."""
    data: dict[str, str]
    """SHA-256 of each training file by file name."""
    seed: int
    slates: int
    """Slates seen, counting repeats."""
    steps: int
    """Optimiser steps."""
    minutes: float
    """Wall time of training."""
    largest_slate: int | None = None
    """Most candidates of a slate it learned from; None where nobody wrote it down."""
    settings: dict[str, Any] = Field(default_factory=dict)
    """The exact settings of the training run."""
    metrics: dict[str, Any] = Field(default_factory=dict)
    """Results on held-out slates, with n and intervals."""
    date: str = Field(default_factory=lambda: datetime.date.today().isoformat())
    machine: str = Field(default_factory=lambda: f"{platform.system()} {platform.machine()}")
    versions: dict[str, str] = Field(default_factory=_versions)


class BackboneRecord(BaseModel):
    """The backbone that a checkpoint is bound to."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    id: str
    fingerprint: str
    """Hash of weights and tokenizer."""
    layer_count: int
    """Layers of the uncut model."""


class TeacherSettings(BaseModel):
    """Everything that decides how an autoregressive teacher differs from its backbone."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    lora: LoraSettings | None = LoraSettings()
    """None leaves the backbone as it is: a zero-shot teacher."""


class CheckpointRecord(BaseModel):
    """What the `spd_config.json` of every checkpoint says."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    schema_version: int
    id: str
    template: Template
    template_hash: str
    backbone: BackboneRecord
    settings_hash: str
    """Hash over settings, template and backbone, so that a changed setting is noticed."""
    training: TrainingFacts | None
    """None for an untrained one."""
    parameter_counts: dict[str, int]
    files: dict[str, FileRecord]
    """Size and hash of each weight file."""

    @property
    def metrics(self) -> dict[str, Any]:
        """Results on held-out slates; empty if untrained."""
        return self.training.metrics if self.training else {}


class CheckpointConfig(CheckpointRecord):
    """Content of a student's `spd_config.json`."""

    role: Literal["student"] = "student"
    student: StudentConfig


class TeacherCheckpointConfig(CheckpointRecord):
    """Content of a teacher's `spd_config.json`."""

    role: Literal["teacher"]
    teacher: TeacherSettings


Config = TypeVar("Config", bound=CheckpointRecord)


@dataclass(frozen=True)
class CheckpointInfo:
    """A student's checkpoint as a list shows it: its config, or why it cannot be used."""

    checkpoint_id: str
    folder: Path
    config: CheckpointConfig | None
    error: str | None = None

    @property
    def summary(self) -> str:
        """One line: head, backbone and depth, or the error."""
        if self.config is None:
            return self.error or ""
        student, backbone = self.config.student, self.config.backbone
        lora = f"LoRA r={student.lora.rank}" if student.lora else "frozen"
        depth = student.layer or backbone.layer_count
        return f"{student.head}, K={student.positions}, {backbone.id} ({lora}), layer {depth}, {student.readout} readout"

    @property
    def card(self) -> str:
        """Text of the model card; empty if there is none."""
        file = self.folder / CARD_FILE
        return file.read_text("utf-8") if file.is_file() else ""


def settings_hash(settings: StudentConfig | TeacherSettings, template: Template, backbone: BackboneRecord) -> str:
    """First 16 hex digits of a SHA-256 over everything that decides the scores, beside the weights."""
    role = "student" if isinstance(settings, StudentConfig) else "teacher"
    record = {role: settings.model_dump(mode="json"), "template": template.hash, "backbone": backbone.model_dump()}
    return hashlib.sha256(json.dumps(record, sort_keys=True).encode()).hexdigest()[:16]


def read_config(folder: Path) -> CheckpointConfig:
    """Content of a student's `spd_config.json`, valid in itself; weights are not looked at.

    Raises:
        CheckpointError: missing, not JSON, another schema version, an unknown key or choice, or hashes that do not fit.
    """
    if read_role(folder) == "teacher":
        raise CheckpointError(
            f"checkpoint {folder.name!r} is a teacher, which writes rankings and has no score matrix; choose a student"
        )
    config = _read_config(folder, CheckpointConfig)
    _check_settings(folder, config, settings_hash(config.student, config.template, config.backbone))
    return config


def read_any_config(folder: Path) -> CheckpointConfig | TeacherCheckpointConfig:
    """Content of the `spd_config.json` of a student or a teacher; errors as in `read_config`."""
    return read_teacher_config(folder) if read_role(folder) == "teacher" else read_config(folder)


def read_teacher_config(folder: Path) -> TeacherCheckpointConfig:
    """Content of a teacher's `spd_config.json`; errors as in `read_config`."""
    if (folder / CONFIG_FILE).is_file() and read_role(folder) == "student":
        raise CheckpointError(f"checkpoint {folder.name!r} is a student, which writes no rankings; choose a teacher")
    config = _read_config(folder, TeacherCheckpointConfig)
    _check_settings(folder, config, settings_hash(config.teacher, config.template, config.backbone))
    return config


def _read_config(folder: Path, kind: type[Config]) -> Config:
    where = f"checkpoint {folder.name!r}: {CONFIG_FILE}"
    try:
        record = json.loads((folder / CONFIG_FILE).read_text("utf-8"))
    except FileNotFoundError as error:
        raise CheckpointError(f"{where} is missing; {FETCH_AGAIN}") from error
    except ValueError as error:
        raise CheckpointError(f"{where} is not valid JSON ({error}); {FETCH_AGAIN}") from error
    found = record.get("schema_version") if isinstance(record, dict) else None
    if found != SCHEMA_VERSION:
        raise CheckpointError(f"{where}: schema version is {found!r}, this code reads {SCHEMA_VERSION}; update the project")
    try:
        return kind.model_validate(record)
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(str(part) for part in first["loc"])
        raise CheckpointError(f"{where}: {place} is {first['input']!r}: {first['msg']}; {FETCH_AGAIN}") from error


def _check_settings(folder: Path, config: CheckpointRecord, expected_hash: str) -> None:
    where = f"checkpoint {folder.name!r}: {CONFIG_FILE}"
    if config.template.hash != config.template_hash:
        raise CheckpointError(
            f"{where}: the prompt template has hash {config.template.hash} but the {config.role} was trained with "  # type: ignore[attr-defined]
            f"{config.template_hash}; use the template it was trained with"
        )
    if expected_hash != config.settings_hash:
        raise CheckpointError(f"{where}: a setting has changed since it was saved; {FETCH_AGAIN}")
