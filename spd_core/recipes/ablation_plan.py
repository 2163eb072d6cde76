"""The plan of an ablation: a TOML file that becomes cells, each with the exact settings it is trained with.

The cube is head x signal x backbone; an axis changes settings of one cell of it, one step at a time.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from itertools import product
from typing import Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from spd_core.ablation import FACTORS, Factors, Point, cell_name
from spd_core.errors import TrainingError, choices
from spd_core.model import StudentConfig
from spd_core.recipes.preset import PRESET_FOLDER, Preset, first_problem, read_settings, settings_names
from spd_core.training.settings import TrainSettings
from spd_core.training.shared_states import Place

PLAN_FOLDER = PRESET_FOLDER / "ablate"
CUBE = "cube"
LABEL = re.compile(r"[A-Za-z0-9._]+")


class Budget(BaseModel):
    """How much each cell of one kind is trained."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    seeds: tuple[int, ...] = Field(default=(0,), min_length=1)
    """A training run for each; the same for all cells of the kind."""
    slates: int = Field(ge=1)
    """Training slates, drawn once: the same for all cells of the kind."""
    train_settings: TrainSettings
    """Of every run; signal and seed are set by the cell."""


class AxisPoint(BaseModel):
    """One step of an axis."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    label: str
    """Short; part of the cell's name."""
    student: dict[str, Any] = Field(default_factory=dict)
    """Settings of the student that it changes; those of `lora` one by one."""

    @model_validator(mode="after")
    def _label_is_a_file_name(self) -> Self:
        if not LABEL.fullmatch(self.label):
            raise ValueError("a label holds letters, digits, dots and underscores only")
        return self


class Axis(BaseModel):
    """Cells that differ from one cell of the cube in some setting."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    title: str
    question: str
    """What it answers, for the page."""
    backbone: Literal["frozen", "lora"]
    """Of the cell it starts from, which has the preset's head and the teacher's signal."""
    points: tuple[AxisPoint, ...] = Field(min_length=2)


@dataclass(frozen=True)
class PlannedCell:
    """One cell with everything that decides its runs beside the seed."""

    name: str
    factors: Factors
    preset: Preset
    """With the cell's student; its training settings are those of the last stage."""
    head_settings: TrainSettings
    """Of the head on frozen states, the first stage of every cell."""
    budget: Budget
    """Of the last stage."""
    changes: dict[str, Any] = field(default_factory=dict)

    @property
    def frozen_student(self) -> StudentConfig:
        """Settings of the first stage's student."""
        return self.preset.student.model_copy(update={"lora": None})

    def settings(self) -> dict[str, Any]:
        """Ready for JSON; two cells with equal settings would be trained alike."""
        return {
            "preset": self.preset.model_dump(mode="json"),
            "head_stage": self.head_settings.model_dump(mode="json"),
            "slates": self.budget.slates,
        }

    def place(self, layer_count: int) -> Place:
        """Where its frozen states are taken."""
        return Place(self.preset.student.layer or layer_count, self.preset.student.readout)


class AblationPlan(BaseModel):
    """What is compared, on which slates, and how much each cell may cost."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    title: str
    preset: Preset
    """What all cells share; `valid` is the held-out file, its first `valid_slates` are measured."""
    curve_slates: int = Field(default=100, ge=1)
    """First held-out slates looked at while training, for the learning curves; nothing is chosen by them."""
    frozen: Budget
    """Cells that train the head alone, and the first stage of the others."""
    lora: Budget
    """Cells that go on from the frozen cell's head with adapters."""
    axes: dict[str, Axis] = Field(default_factory=dict)

    @model_validator(mode="after")
    def _cells_are_comparable(self) -> Self:
        if self.preset.student.user_token:
            raise ValueError("student.user_token must be false: the linear probe has none, and the heads must see the same")
        if self.preset.student.lora is None or self.preset.init or self.preset.role != "student":
            raise ValueError("the preset must be that of a fresh student with lora settings")
        if any(budget.train_settings.keep != "last" for budget in (self.frozen, self.lora)):
            raise ValueError("keep must be 'last': choosing weights by the held-out slates would flatter the cells")
        if self.lora.slates > self.frozen.slates:
            raise ValueError(f"lora.slates {self.lora.slates} is more than frozen.slates {self.frozen.slates}")
        if CUBE in self.axes:
            raise ValueError(f"no axis may be named {CUBE!r}")
        return self

    @classmethod
    def read(cls, name: str) -> Self:
        """Plan of a name in `presets/ablate/`, or of a TOML file.

        Raises:
            TrainingError: no such plan, not TOML, or a key or value that is not allowed.
        """
        return read_settings(cls, name, PLAN_FOLDER, "ablation plan")

    def cube(self) -> list[PlannedCell]:
        """The 12 cells."""
        return [
            self._cell(Factors(head=head, signal=signal, backbone=backbone))
            for head, signal, backbone in product(*FACTORS.values())
        ]

    def axis(self, name: str) -> list[tuple[Point, PlannedCell]]:
        """Points of an axis with their cells; a point that changes nothing is the cube's own cell.

        Raises:
            TrainingError: no axis has that name, or a point sets what no student has.
        """
        if name not in self.axes:
            raise TrainingError(choices("axis", name, [CUBE, *self.axes]))
        axis = self.axes[name]
        factors = Factors(head=self.preset.student.head, signal="teacher", backbone=axis.backbone)
        base = self._cell(factors)
        found = []
        for point in axis.points:
            student = changed_student(base.preset.student, point.student, f"axis {name!r}, point {point.label!r}")
            cell = base if student == base.preset.student else self._cell(factors, f"{name}-{point.label}", student)
            found.append((Point(point.label, cell.name), cell))
        return found

    def cells(self, *, names: tuple[str, ...] = (), axes: tuple[str, ...] = ()) -> list[PlannedCell]:
        """The cells asked for, each once, frozen ones first; all of them if nothing is asked for.

        Args:
            names: of cells.
            axes: names of axes, or ``cube``.

        Raises:
            TrainingError: no cell or axis has that name.
        """
        every = {CUBE: self.cube()} | {name: [cell for _, cell in self.axis(name)] for name in self.axes}
        known = {cell.name: cell for group in every.values() for cell in group}
        for axis in axes:
            if axis not in every:
                raise TrainingError(choices("axis", axis, every))
        for name in names:
            if name not in known:
                raise TrainingError(choices("cell", name, known))
        chosen = [*names, *(cell.name for axis in axes for cell in every[axis])] or list(known)
        cells = [known[name] for name in dict.fromkeys(chosen)]
        return sorted(cells, key=lambda cell: cell.factors.backbone != "frozen")

    def _cell(self, factors: Factors, name: str | None = None, student: StudentConfig | None = None) -> PlannedCell:
        own = {"head": factors.head} | ({"lora": None} if factors.backbone == "frozen" else {})
        in_cube = self.preset.student.model_copy(update=own)
        student = student or in_cube
        budget = self.frozen if factors.backbone == "frozen" else self.lora
        signal = {"signal": factors.signal}
        preset = self.preset.model_copy(
            update={"student": student, "train_settings": budget.train_settings.model_copy(update=signal)}
        )
        before, after = in_cube.model_dump(mode="json"), student.model_dump(mode="json")
        return PlannedCell(
            name=name or cell_name(*factors.key),
            factors=factors,
            preset=preset,
            head_settings=self.frozen.train_settings.model_copy(update=signal),
            budget=budget,
            changes={key: value for key, value in after.items() if value != before[key]},
        )


def changed_student(student: StudentConfig, changes: dict[str, Any], where: str) -> StudentConfig:
    """The student with some settings changed, those of `lora` one by one.

    Raises:
        TrainingError: a setting that no student has, or a value that is not allowed; `where` opens the message.
    """
    content = student.model_dump()
    for key, value in changes.items():
        is_nested = isinstance(value, dict) and isinstance(content.get(key), dict)
        content[key] = content[key] | value if is_nested else value
    try:
        return StudentConfig.model_validate(content)
    except ValidationError as error:
        raise TrainingError(f"{where}: {first_problem(error)}") from error


def plan_names() -> list[str]:
    """Names of the plans that come with the project."""
    return settings_names(PLAN_FOLDER)
