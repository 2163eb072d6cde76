"""A machine for the app's tests: the tiny backbone where the embedded one would be, and one trained checkpoint on it."""

from __future__ import annotations

import dataclasses
import shutil
from pathlib import Path

from spd_core.backbone_files import EMBEDDED_BACKBONE
from spd_core.checkpoint_config import TeacherSettings, TrainingFacts
from spd_core.checkpoints import save_student
from spd_core.model import LoraSettings, Student
from spd_core.teacher_checkpoints import save_teacher
from spd_core.teachers.autoregressive import AutoregressiveTeacher

REPORT = {"decoder": "hungarian", "n": 9, "metrics": {"AUC": {"mean": 0.7123, "low": 0.6, "high": 0.8}}}
FACTS = TrainingFacts(
    teacher="reference",
    data={"train.jsonl.gz": "0" * 64},
    seed=1,
    slates=10,
    steps=1,
    minutes=1.0,
    metrics={"evaluations": {"valid.jsonl.gz": REPORT}},
)

TINY_WRITER = TeacherSettings(lora=LoraSettings(rank=2, alpha=4.0))


def make_home(folder: Path, backbone: Path) -> Path:
    """`folder` as an `$SPD_HOME` in which `backbone` stands for the embedded one."""
    shutil.copytree(backbone, folder / EMBEDDED_BACKBONE)
    return folder


def make_checkpoints(folder: Path, student: Student) -> Path:
    """`folder` with the student saved as the trained checkpoint `tiny-spd`."""
    backbone = dataclasses.replace(student.backbone, backbone_id=EMBEDDED_BACKBONE)
    renamed = Student(backbone, student.head, student.config, student.template)
    card = "# Card\n\n![picture](http://example.com/x.png)"
    save_student(renamed, folder / "tiny-spd", facts=FACTS, model_card=card)
    return folder


def save_tiny_teacher(folder: Path, teacher: AutoregressiveTeacher) -> Path:
    """Checkpoint of the teacher, saved in `folder` as the trained `tiny-teacher`."""
    backbone = dataclasses.replace(teacher.backbone, backbone_id=EMBEDDED_BACKBONE)
    renamed = dataclasses.replace(teacher, backbone=backbone)
    return save_teacher(renamed, folder / "tiny-teacher", settings=TINY_WRITER, facts=FACTS, model_card="# Card\n")
