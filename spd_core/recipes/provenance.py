"""What rankings depend on beside the slates, as reports and label files record it."""

from __future__ import annotations

import hashlib
from typing import Any

from spd_core.backbone import Backbone
from spd_core.checkpoint_config import read_teacher_config
from spd_core.checkpoint_files import find_checkpoint
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
    config = read_teacher_config(find_checkpoint(checkpoint))
    weights = [config.settings_hash, *sorted(record.sha256 for record in config.files.values())]
    return {"checkpoint": teacher.name, "fingerprint": hashlib.sha256("/".join(weights).encode()).hexdigest()[:16]} | facts
