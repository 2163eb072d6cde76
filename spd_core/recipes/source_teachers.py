"""Teachers that `label` can ask, by name: an autoregressive one's checkpoint, a remote one, or one that counts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from spd_core.checkpoint_files import checkpoint_folders
from spd_core.errors import SpdError, choices
from spd_core.prompts import find_template
from spd_core.recipes.label_files import file_hash
from spd_core.recipes.preset import data_file
from spd_core.recipes.provenance import teacher_facts
from spd_core.recipes.rankers import Loading, autoregressive_teacher, fit_floors
from spd_core.teacher_checkpoints import ZERO_SHOT, list_teachers
from spd_core.teachers import TEACHERS, Teacher
from spd_core.teachers.answers import WritingTeacher
from spd_core.teachers.labelling import COMPUTED, TOGETHER

REMOTE = "remote"
TEACHER_FORMS = ("a checkpoint", REMOTE, ZERO_SHOT, *TEACHERS)


@dataclass(frozen=True)
class SourceTeacher:
    """A teacher to be asked for labels."""

    teacher: Teacher | WritingTeacher
    mode: str
    provenance: Mapping[str, Any]
    """What its rankings depend on beside the slate."""
    together: int
    """Slates that share a batch and with it the last bits; 1 if each answer stands alone."""
    checkpoint: str | None = None
    """Id or folder; None for a teacher without one."""


def find_teacher(name: str, *, mode: str | None, remote: Mapping[str, Any], loading: Loading) -> SourceTeacher:
    """The teacher of that name, ready.

    Args:
        name: checkpoint id or folder, ``remote``, ``zero-shot``, or a key of `TEACHERS`.
        mode: of an autoregressive teacher; None is constrained.
        remote: settings of `RemoteSettings`; base_url and model are needed.
        loading: of models, and what counting teachers count.

    Raises:
        SpdError: unknown name, an option that is missing or of another teacher.
    """
    if mode is not None and (name == REMOTE or name in TEACHERS):
        raise SpdError(f"mode {mode!r}: only for an autoregressive teacher, not {name!r}; leave it out")
    if name == REMOTE:
        return remote_source(remote)
    if name in TEACHERS:
        teacher = fit_floors([name], loading)[name]
        counted = [*loading.fit, *([loading.catalogue] if loading.catalogue else [])]
        fitted_on = {file.name: file_hash(file) for file in map(data_file, counted)}
        return SourceTeacher(teacher, COMPUTED, {"fitted_on": fitted_on}, together=1)
    if "/" not in name and name != ZERO_SHOT and name not in checkpoint_folders():
        known = [info.checkpoint_id for info in list_teachers()]
        raise SpdError(choices("teacher", name, [*known, REMOTE, ZERO_SHOT, *TEACHERS]))
    writer = autoregressive_teacher(name, mode or "constrained", loading)
    return SourceTeacher(writer, writer.mode, teacher_facts(writer, name), together=TOGETHER, checkpoint=name)


def remote_source(settings: Mapping[str, Any]) -> SourceTeacher:
    """A remote teacher; what decides its answers is its provenance, how fast they come is not.

    Raises:
        SpdError: base_url or model is missing, or a setting is not allowed.
    """
    from spd_core.teachers.remote import remote_teacher

    missing = [f"--{name.replace('_', '-')}" for name in ("base_url", "model") if name not in settings]
    if missing:
        raise SpdError(f"--teacher remote needs {' and '.join(missing)}")
    teacher = remote_teacher(**settings)
    decides = {"base_url", "model", "thinking", "reasoning_effort", "temperature", "max_tokens", "template"}
    chosen = teacher.settings.model_dump(include=decides)
    return SourceTeacher(
        teacher, REMOTE, chosen | {"template_hash": find_template(teacher.settings.template).hash}, together=1
    )
