"""The contenders of a frontier run: how each kind of ranker is made ready to rank one slate at a time."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from spd_core.backbone import Backbone
from spd_core.checkpoints import origin
from spd_core.errors import SpdError
from spd_core.frontier import Contender, Outcome
from spd_core.frontier_report import Family
from spd_core.latency import StageClock, encode_slate, ride_prompts
from spd_core.model import Student
from spd_core.recipes.rankers import Loading, fit_floors
from spd_core.slate import Ranking, Slate
from spd_core.teacher_checkpoints import ZERO_SHOT, load_teacher, zero_shot_teacher
from spd_core.teachers import Teacher
from spd_core.teachers.autoregressive import MODES, AutoregressiveTeacher
from spd_core.teachers.language_model import language_model_ranker

DECODERS = ("hungarian", "expected_position", "first_column")
"""Keys of `decoding.DECODERS` that read each student's matrix; each makes a pass of its own, so that its time is whole."""
FLOORS = ("reference", "cooccurrence", "tfidf", "popularity", "random")
"""Keys of `TEACHERS` that stand for rankers without a language model."""
TITLES: Mapping[str, tuple[str, Family]] = {
    "first_token": ("first token (FIRST)", "first_token"),
    "pointwise": ("pointwise yes/no", "pointwise"),
}
"""Key of `LANGUAGE_MODEL_RANKERS` -> name for people, family."""


def student_rankers(student: Student) -> list[Contender]:
    """The student with each decoder."""
    facts = {"checkpoint": origin(student), **_backbone_facts(student.backbone)}
    return [
        Contender(
            name=f"{origin(student)}, {decoder.replace('_', ' ')}, {facts['dtype']}",
            family="student",
            rank=partial(_ride, student, decoder),
            about=facts | {"decoder": decoder},
        )
        for decoder in DECODERS
    ]


def teacher_rankers(checkpoint: str, student: Student, *, backbone: str | None) -> list[Contender]:
    """An autoregressive teacher in each mode and, if it is a checkpoint, the one-pass rankers on its adapters.

    Args:
        checkpoint: id or folder, or `zero-shot` for the student's backbone as it came.
        student: whose device, and for the zero-shot one backbone and wording, are taken.
        backbone: folder or hub id given by the user.

    Raises:
        SpdError: no such checkpoint, or a backbone that cannot write.
    """
    device = str(student.backbone.device)
    is_zero_shot = checkpoint == ZERO_SHOT
    writer = _zero_shot(student, backbone) if is_zero_shot else load_teacher(checkpoint, backbone=backbone, device=device)
    facts = {"checkpoint": writer.name, **_backbone_facts(writer.backbone), "is_zero_shot": is_zero_shot}
    made = [
        Contender(
            f"{writer.name} teacher, {mode}", "teacher", partial(_write, writer.with_mode(mode)), facts | {"decoder": mode}
        )
        for mode in MODES
    ]
    return made if is_zero_shot else made + [_one_pass(name, writer, facts) for name in TITLES]


def zero_shot_rankers(student: Student, *, backbone: str | None) -> tuple[list[Contender], dict[str, str]]:
    """The one-pass rankers on the student's backbone as it came; or none, and for each name why.

    Args as in `teacher_rankers`.
    """
    try:
        writer = _zero_shot(student, backbone)
    except SpdError as error:
        return [], {f"{title}, {ZERO_SHOT}": str(error) for title, _ in TITLES.values()}
    facts = {**_backbone_facts(writer.backbone), "is_zero_shot": True}
    return [_one_pass(name, writer, facts) for name in TITLES], {}


def floor_rankers(fit: Sequence[str], catalogue: str | None) -> list[Contender]:
    """Rankers without a language model, fitted on the histories of slate files.

    Raises:
        SpdError: a missing file or a bad line.
    """
    fitted = fit_floors(FLOORS, Loading(fit=fit, catalogue=catalogue))
    return [Contender(name, "floor", partial(_rank, teacher)) for name, teacher in fitted.items()]


def _zero_shot(student: Student, backbone: str | None) -> AutoregressiveTeacher:
    place = student.backbone
    teacher = zero_shot_teacher(backbone or place.backbone_id, device=str(place.device))
    return dataclasses.replace(teacher, template=student.template)


def _one_pass(name: str, writer: AutoregressiveTeacher, facts: Mapping[str, Any]) -> Contender:
    title, family = TITLES[name]
    return Contender(f"{title}, {writer.name}", family, partial(_rank, language_model_ranker(name, writer)), facts)


def _ride(student: Student, decoder: str, slate: Slate) -> Outcome:
    ride = ride_prompts(student, [encode_slate(student, slate)], decoder, StageClock(student.backbone.device))
    return Outcome(Ranking(decoder, tuple(slate.item_ids[index] for index in ride.rankings[0])))


def _write(teacher: AutoregressiveTeacher, slate: Slate) -> Outcome:
    answer = teacher.answer(slate)
    return Outcome(answer.ranking, not answer.is_repaired)


def _rank(teacher: Teacher, slate: Slate) -> Outcome:
    return Outcome(teacher.rank(slate))


def _backbone_facts(backbone: Backbone) -> dict[str, Any]:
    return {
        "depth": backbone.depth,
        "layers": backbone.layer_count,
        "dtype": str(backbone.dtype).removeprefix("torch."),
    }
