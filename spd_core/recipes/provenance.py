"""What rankings depend on beside the slates, as reports and label files record it."""

from __future__ import annotations

import hashlib
import subprocess
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import torch

from spd_core.backbone import Backbone
from spd_core.checkpoint_config import CheckpointRecord, read_config, read_teacher_config
from spd_core.checkpoint_files import find_checkpoint
from spd_core.latency import describe_host
from spd_core.model import Student
from spd_core.prompts import Template
from spd_core.teacher_checkpoints import ZERO_SHOT
from spd_core.teachers.autoregressive import AutoregressiveTeacher


def model_facts(backbone: Backbone, template: Template) -> dict[str, Any]:
    """What a model's output depends on beside its checkpoint, ready for JSON."""
    return {
        "backbone": backbone.backbone_id,
        "dtype": str(backbone.dtype).removeprefix("torch."),
        "device": backbone.device.type,
        "template_hash": template.hash,
    }


def teacher_facts(teacher: AutoregressiveTeacher, checkpoint: str) -> dict[str, Any]:
    """What an autoregressive teacher's answers depend on; its fingerprint covers settings and weights."""
    facts = model_facts(teacher.backbone, teacher.template) | {"backbone_fingerprint": teacher.backbone.fingerprint}
    if checkpoint == ZERO_SHOT:
        return {"checkpoint": ZERO_SHOT, "fingerprint": teacher.backbone.fingerprint} | facts
    config = read_teacher_config(find_checkpoint(checkpoint, role="teacher"))
    return {"checkpoint": teacher.name, "fingerprint": _fingerprint(config)} | facts


def student_facts(student: Student, checkpoint: str) -> dict[str, Any]:
    """What a student's score matrices depend on; its fingerprint covers settings and weights."""
    config = read_config(find_checkpoint(checkpoint, role="student"))
    facts = model_facts(student.backbone, student.template) | {"backbone_fingerprint": student.backbone.fingerprint}
    return {"checkpoint": config.id, "fingerprint": _fingerprint(config)} | facts


def _fingerprint(config: CheckpointRecord) -> str:
    weights = [config.settings_hash, *sorted(record.sha256 for record in config.files.values())]
    return hashlib.sha256("/".join(weights).encode()).hexdigest()[:16]


def made_here(provenance: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """``date``, ``machine`` and ``commit`` of a result that is being written.

    Args:
        provenance: ranker -> its facts; those on CUDA make the machine's device the GPU.
    """
    on_gpu = any(facts.get("device") == "cuda" for facts in provenance.values())
    machine = describe_host(torch.device("cuda" if on_gpu else "cpu"))
    return {"date": datetime.now(UTC).date().isoformat(), "machine": machine, "commit": source_commit()}


def source_commit() -> str | None:
    """Commit that the source is of, with ``+`` where files differ from it; None where that is not known."""
    place = Path(__file__).resolve().parent
    try:
        told = [
            subprocess.run(["git", *words], cwd=place, capture_output=True, text=True, check=True).stdout.strip()
            for words in (["rev-parse", "--short", "HEAD"], ["status", "--porcelain", "--untracked-files=no"])
        ]
    except (OSError, subprocess.CalledProcessError):
        return None
    return told[0] + ("+" if told[1] else "")
