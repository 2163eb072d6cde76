"""The record of an evaluation on disk, as `evaluate --out` writes it, and the figures that can be drawn anew from its slates.

Records of earlier versions lack slices, single slates and where they were made; what they have is read.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Self

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, model_validator

from spd_core.metrics import METRICS, MetricTable, slice_order, slices_of
from spd_core.metrics.slices import Value
from spd_core.result_files import peek, read_result

MAKE = "python -m spd_core evaluate SLATES.jsonl --checkpoint beauty-spd --out sample_data/results/evaluate-NAME.json"


class Figure(BaseModel):
    """A mean over n slates with its 95 % interval."""

    model_config = ConfigDict(frozen=True, allow_inf_nan=False)
    mean: float
    low: float
    high: float
    n: int = Field(ge=1)


class PairedFigure(Figure):
    """A mean paired difference with its p-value."""

    p_value: float = Field(ge=0, le=1)


class PerSlate(BaseModel):
    """Columns over the n measured slates, in the order of the file."""

    model_config = ConfigDict(frozen=True, allow_inf_nan=False)
    slate_ids: tuple[str, ...]
    digests: tuple[str, ...]
    """Of the slates' content."""
    attributes: dict[str, tuple[Value, ...]]
    values: dict[str, dict[str, tuple[float, ...]]]
    """Ranker -> metric -> values."""

    @model_validator(mode="after")
    def _check_lengths(self) -> Self:
        columns = [
            self.digests,
            *self.attributes.values(),
            *(column for row in self.values.values() for column in row.values()),
        ]
        if any(len(column) != len(self.slate_ids) for column in columns):
            raise ValueError("columns must be as long as slate_ids")
        return self


class EvaluationReport(BaseModel):
    """What rankers were worth on the slates of one file."""

    model_config = ConfigDict(frozen=True, allow_inf_nan=False)
    file: str
    checkpoint: str | None = None
    decoder: str
    """Name of the main ranker."""
    n: int = Field(ge=1)
    rankers: dict[str, dict[str, Figure]] = Field(min_length=1)
    """Ranker -> metric."""
    differences: dict[str, dict[str, PairedFigure]] = {}
    """Ranker -> metric: the main one less this."""
    groups: dict[str, dict[str, dict[str, Figure]]] = {}
    """Of the main ranker alone; `slices` has all."""
    excluded: dict[str, tuple[str, ...]] = {}
    warnings: tuple[str, ...] = ()
    answers: dict[str, Any] = {}
    provenance: dict[str, Any] = {}
    date: str | None = None
    machine: dict[str, str | int] = {}
    commit: str | None = None
    slices: dict[str, dict[str, dict[str, dict[str, Figure]]]] = {}
    """Attribute -> slice -> ranker -> metric."""
    per_slate: PerSlate | None = None

    @model_validator(mode="after")
    def _check_rankers(self) -> Self:
        if self.decoder not in self.rankers:
            raise ValueError("the main ranker is not among the rankers")
        if any(set(row) != set(METRICS) for row in self.rankers.values()):
            raise ValueError(f"each ranker needs exactly the metrics {', '.join(METRICS)}")
        if self.per_slate is not None and set(self.per_slate.values) != set(self.rankers):
            raise ValueError("per_slate holds other rankers than the report")
        return self

    @property
    def all_slices(self) -> dict[str, dict[str, dict[str, dict[str, Figure]]]]:
        """`slices`; of an older record its groups, which tell of the main ranker only."""
        if self.slices:
            return self.slices
        return {key: {value: {self.decoder: row} for value, row in rows.items()} for key, rows in self.groups.items()}

    def table(self, ranker: str) -> MetricTable:
        """Values of each slate; asked only where there is `per_slate`."""
        assert self.per_slate is not None
        columns = {metric: np.array(column) for metric, column in self.per_slate.values[ranker].items()}
        return MetricTable(ranker, self.per_slate.slate_ids, columns, {}, {})

    def differences_to(self, ranker: str, metric: str) -> dict[str, PairedFigure]:
        """Each other ranker -> `ranker`'s metric less its; those that an older record does not hold are left out."""
        others = [name for name in self.rankers if name != ranker]
        if self.per_slate is not None:
            own = self.table(ranker)
            found = {name: own.compare(self.table(name), metric)._asdict() for name in others}
            return {name: PairedFigure(**figure) for name, figure in found.items()}
        kept = self.differences if ranker == self.decoder else {}
        return {name: kept[name][metric] for name in others if metric in kept.get(name, {})}

    def members(self, attribute: str, value: str) -> list[int]:
        """Indices of the measured slates in a slice."""
        column = self.per_slate.attributes.get(attribute, ()) if self.per_slate is not None else ()
        return [index for index, name in enumerate(slices_of(column)) if name == value]

    def slice_names(self, attribute: str) -> list[str]:
        """Slices of an attribute in a reader's order."""
        if self.per_slate is not None and attribute in self.per_slate.attributes:
            return slice_order(self.per_slate.attributes[attribute])
        return list(self.all_slices[attribute])


def read_report(path: Path) -> EvaluationReport:
    """The report in a file that `evaluate` wrote.

    Raises:
        SpdError: no such file, or it is not such a report; the message names the first thing that is wrong.
    """
    return read_result(path, EvaluationReport, again="make it again with `python -m spd_core evaluate`")


def read_if_report(path: Path) -> EvaluationReport | None:
    """The report in a file; None where the file is of another command.

    Raises:
        SpdError: its name begins with ``evaluate``, or it looks like such a report, and it is damaged.
    """
    if path.name.startswith("evaluate") or set(peek(path)) >= {"decoder", "differences", "rankers"}:
        return read_report(path)
    return None
