"""Everything that is kept between runs and shared by visitors: the only file with caches, and the one inference gate.

Keys are hashes of our own. Streamlit holds a lock for each key, so ten visitors on a cold server cause one model load. The
gate lets one forward pass run at a time, however many scripts are alive.
"""

from __future__ import annotations

import hashlib
import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import streamlit as st

from pages.shared import warming
from pages.shared.race import Line
from spd_core import teacher_checkpoints
from spd_core.backbone_files import spd_home
from spd_core.checkpoint_config import CheckpointInfo
from spd_core.checkpoints import UNTRAINED, list_checkpoints, load_student, random_student
from spd_core.datasets import load_slates
from spd_core.errors import CheckpointError, SlateError, SpdError, choices
from spd_core.inside import Inside, look_inside
from spd_core.latency import LatencyReport, measure_latency
from spd_core.model import Student
from spd_core.pipeline import RankingResult, rank_slate
from spd_core.race_record import RaceRecord, read_record
from spd_core.sinkhorn_flips import TemperatureSweep, sweep_temperatures
from spd_core.slate import Item, Slate, UserContext
from spd_core.teacher_checkpoints import TeacherInfo
from spd_core.teachers.autoregressive import AutoregressiveTeacher

T = TypeVar("T")

SHELVES = Path(__file__).resolve().parents[2] / "sample_data" / "slates"
RESULTS = SHELVES.parent / "results"
WARMUP_SLATE = Slate("warm-up", UserContext(), tuple(Item(f"{place}", f"Warm-up item {place}") for place in range(10)))
SHORT_WARMUP_SLATE = Slate("warm-up", UserContext(), WARMUP_SLATE.candidates[:2])
"""For a teacher, which takes a pass for every token."""


@st.cache_resource(max_entries=1, show_spinner=False)
def gate() -> threading.Lock:
    """The lock that `inference_gate` holds."""
    return threading.Lock()


@contextmanager
def inference_gate() -> Iterator[None]:
    """Hold the process's only right to run a model."""
    with gate():
        yield


def checkpoints() -> list[CheckpointInfo]:
    """All checkpoints on disk, the broken ones with their error."""
    return list_checkpoints()


@dataclass(frozen=True)
class Loaded:
    """A student that all visitors share, with what the list of checkpoints says about it."""

    student: Student
    key: str
    """Changes whenever a file of the checkpoint does."""
    info: CheckpointInfo | None
    """None for the untrained student."""

    @property
    def is_trained(self) -> bool:
        """Whether the head has ever seen a ranking."""
        return self.info is not None and self.info.config is not None and self.info.config.training is not None


def load(checkpoint_id: str) -> Loaded:
    """The student of a checkpoint, or the untrained one; loaded once for all visitors.

    Raises:
        SpdError: the backbone or the checkpoint is missing or broken.
    """
    info = {known.checkpoint_id: known for known in checkpoints()}.get(checkpoint_id)
    key = _digest(checkpoint_id, str(spd_home()), _stamp(info.folder) if info else "")
    return Loaded(_student(key, checkpoint_id), key, info)


@st.cache_resource(max_entries=3, show_spinner="Loading the language model …")
def _student(key: str, checkpoint_id: str) -> Student:
    model = random_student() if checkpoint_id == UNTRAINED else load_student(checkpoint_id)
    with inference_gate():
        rank_slate(model, WARMUP_SLATE)  # the first pass of a process compiles kernels; no visitor shall be shown its time
    warming.compile_later(model)
    return model


def slate_digest(slate: Slate) -> str:
    """Hash of everything a slate says."""
    return _digest(json.dumps(slate.to_json(), sort_keys=True, default=str))


def ranking(loaded: Loaded, slate: Slate) -> RankingResult:
    """The slate's ranking by this student with the Hungarian decoder; one forward pass for all visitors who ask.

    Raises:
        SpdError: the slate cannot be ranked; errors are not kept.
    """
    key = _digest(slate_digest(slate), loaded.key, loaded.student.template.hash)
    return _ranking(key, loaded.student, slate)


@st.cache_data(max_entries=256, show_spinner="Ranking …")
def _ranking(key: str, _model: Student, _slate: Slate) -> RankingResult:
    with inference_gate():
        return rank_slate(_model, _slate)


def inside(loaded: Loaded, slate: Slate) -> Inside:
    """What was seen inside the student while it scored that slate; one pass for all visitors who ask.

    Raises:
        SpdError: the slate cannot be ranked; errors are not kept.
    """
    return _inside(_digest("inside", slate_digest(slate), loaded.key), loaded.student, slate)


@st.cache_data(max_entries=32, show_spinner="Looking inside …")
def _inside(key: str, _model: Student, _slate: Slate) -> Inside:
    with inference_gate():
        return look_inside(_model, _slate)


def temperature_sweep(loaded: Loaded, slate: Slate, result: RankingResult) -> TemperatureSweep:
    """What the temperature does to the score matrix of that ranking; computed once for all visitors who ask."""
    return _sweep(_digest("sweep", slate_digest(slate), loaded.key), result)


@st.cache_data(max_entries=64, show_spinner="Warming and cooling …")
def _sweep(key: str, _result: RankingResult) -> TemperatureSweep:
    return sweep_temperatures(_result.score_matrix)


def measure(loaded: Loaded, slate: Slate, *, decoder: str, repeats: int, warmup: int) -> LatencyReport:
    """A latency report measured now, with nothing else running a model; never cached."""
    with inference_gate():
        return measure_latency(loaded.student, slate, decoder=decoder, repeats=repeats, warmup=warmup)


def race_now(loaded: Loaded, slate: Slate, decoder: str) -> RankingResult:
    """The slate ranked here and now, never from the cache; the caller holds the inference gate.

    Raises:
        SpdError: the slate cannot be ranked.
    """
    return rank_slate(loaded.student, slate, decoder=decoder)


@st.cache_resource(max_entries=1, show_spinner=False)
def race_line() -> Line:
    """The one line in which the races of all visitors wait."""
    return Line(gate())


def teachers() -> list[TeacherInfo]:
    """All autoregressive teachers on disk, the broken ones with their error."""
    return teacher_checkpoints.list_teachers()


def load_teacher(checkpoint_id: str, mode: str) -> AutoregressiveTeacher:
    """The teacher of a checkpoint in one of its modes; loaded once for all visitors and both modes.

    Raises:
        SpdError: the backbone or the checkpoint is missing or broken.
    """
    info = {known.checkpoint_id: known for known in teachers()}.get(checkpoint_id)
    if info is None:
        raise CheckpointError(choices("teacher", checkpoint_id, [known.checkpoint_id for known in teachers()]))
    key = _digest(checkpoint_id, str(spd_home()), _stamp(info.folder))
    return _teacher(key, checkpoint_id).with_mode(mode)


@st.cache_resource(max_entries=2, show_spinner="Loading the teacher …")
def _teacher(key: str, checkpoint_id: str) -> AutoregressiveTeacher:
    teacher = teacher_checkpoints.load_teacher(checkpoint_id)
    with inference_gate():
        teacher.answer(SHORT_WARMUP_SLATE)  # as in `_student`: the first pass of a process is slower than all others
    return teacher


def recorded_races() -> dict[str, RaceRecord | SpdError]:
    """Recorded races that came with the app, by file name; a damaged one as its error."""
    return {path.name: _recorded(_digest(path.name, _stat(path)), path) for path in sorted(RESULTS.glob("race-*.json"))}


@st.cache_resource(max_entries=32, show_spinner=False)
def _recorded(key: str, path: Path) -> RaceRecord | SpdError:
    try:
        return read_record(path)
    except SpdError as error:
        return error


def shelf_names() -> list[str]:
    """Names of the sample slate files, the demo first."""
    names = sorted(path.stem for path in SHELVES.glob("*.jsonl"))
    return sorted(names, key=lambda name: name != "demo")


def shelf(name: str) -> tuple[Slate, ...]:
    """The slates of one sample file.

    Raises:
        SlateError: there is no such file, or it is damaged.
    """
    if name not in shelf_names():
        raise SlateError(choices("slate file", name, shelf_names()))
    path = SHELVES / f"{name}.jsonl"
    return _shelf(_digest(name, str(path.stat().st_mtime_ns)), path)


@st.cache_resource(max_entries=16, show_spinner=False)
def _shelf(key: str, path: Path) -> tuple[Slate, ...]:
    return tuple(load_slates(path))


@st.cache_resource(max_entries=64, show_spinner=False)
def _of_file(key: str, path: Path, _read: Callable[[Path], T]) -> T:
    return _read(path)


def of_file(path: Path, read: Callable[[Path], T]) -> T:
    """What `read` makes of a file, kept until the file changes; errors are not kept."""
    return _of_file(_digest(read.__module__, read.__qualname__, str(path), _stat(path)), path, read)


def _stamp(folder: Path) -> str:
    """Changes when a file of the folder is replaced, so that a new training run is picked up."""
    return ";".join(f"{path.name} {_stat(path)}" for path in sorted(folder.rglob("*")) if path.is_file())


def _stat(path: Path) -> str:
    return f"{path.stat().st_size} {path.stat().st_mtime_ns}"


def _digest(*parts: str) -> str:
    return hashlib.sha256("\0".join(parts).encode("utf-8", "surrogatepass")).hexdigest()
