"""Rankers by name, as `evaluate --ranker` and `label --teacher` take them: floors, students, teachers, label files."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from spd_core.checkpoint_config import read_config, read_teacher_config
from spd_core.checkpoint_files import find_checkpoint
from spd_core.checkpoints import load_student
from spd_core.datasets import read_slates
from spd_core.decoding import DECODERS, find_decoder
from spd_core.errors import SpdError, choices
from spd_core.recipes.preset import data_file
from spd_core.recipes.provenance import student_facts, teacher_facts
from spd_core.recipes.ranker_kinds import LabelRanker, Ranker, StudentRanker, TeacherRanker, WritingRanker
from spd_core.recipes.training_data import read_items
from spd_core.slate import Slate
from spd_core.teacher_checkpoints import ZERO_SHOT, load_teacher, zero_shot_teacher
from spd_core.teachers import TEACHERS, Teacher
from spd_core.teachers.autoregressive import MODES, AutoregressiveTeacher
from spd_core.teachers.given import AttributeOrder, StoredOrder
from spd_core.teachers.labelling import LabelBook
from spd_core.teachers.language_model import LANGUAGE_MODEL_RANKERS, language_model_ranker

STUDENT, TEACHER, LABELS, STORED, BY = "student", "teacher", "labels", "stored", "by"
FORMS = (
    *TEACHERS,
    STORED,
    f"{BY}:ATTRIBUTE",
    "student:ID",
    "student:ID:DECODER",
    "teacher:ID",
    "teacher:ID:free",
    *(f"{name}:ID" for name in LANGUAGE_MODEL_RANKERS),
    "labels:FILE",
)
"""Every form that a ranker's name can have; the ID of a teacher, `first_token` or `pointwise` may be `zero-shot`.

`stored` is the ranking that stands in each slate, `by:ATTRIBUTE` the order of a number that each candidate carries.
"""


@dataclass(frozen=True)
class Loading:
    """How the models of rankers are loaded, and what the others are fitted on."""

    backbone: str | None = None
    device: str = "auto"
    dtype: str = "auto"
    fit: Sequence[str] = ()
    """Slate files whose histories are counted; none takes the file that is ranked."""
    catalogue: str | None = None
    """File of items."""


def build_rankers(names: Sequence[str], loading: Loading) -> list[Ranker]:
    """The rankers of those names, models loaded and floors fitted; decoders of one student share its pass.

    Raises:
        SpdError: a name of no known form, an unknown checkpoint, decoder or mode, or a missing file.
    """
    check_rankers(names)
    students: dict[str, dict[str, str]] = {}
    floors, others = [], []
    for name in dict.fromkeys(names):
        form, _, rest = name.partition(":")
        if form == STUDENT and rest:
            checkpoint, decoder = split_choice(rest)
            students.setdefault(checkpoint, {})[name] = decoder or next(iter(DECODERS))
        elif name == STORED or (form in (TEACHER, LABELS, BY, *LANGUAGE_MODEL_RANKERS) and rest):
            others.append(name)
        else:
            floors.append(name)
    rankers: list[Ranker] = [student_ranker(checkpoint, chosen, loading) for checkpoint, chosen in students.items()]
    rankers += [other_ranker(name, loading) for name in others]
    return rankers + [TeacherRanker((name,), teacher) for name, teacher in fit_floors(floors, loading).items()]


def check_rankers(names: Iterable[str]) -> None:
    """Raise `SpdError` where `build_rankers` would, as far as that can be told before a model is loaded."""
    for name in names:
        form, _, rest = name.partition(":")
        if name in TEACHERS or name == STORED or (form == BY and rest):
            continue
        if form not in (STUDENT, TEACHER, LABELS, *LANGUAGE_MODEL_RANKERS) or not rest:
            raise SpdError(choices("ranker", name, FORMS))
        if form == LABELS:
            data_file(rest)
            continue
        checkpoint, choice = split_choice(rest) if form in (STUDENT, TEACHER) else (rest, None)
        if form == STUDENT:
            find_decoder(choice or next(iter(DECODERS)))
            read_config(find_checkpoint(checkpoint, role=STUDENT))
        elif checkpoint != ZERO_SHOT:
            read_teacher_config(find_checkpoint(checkpoint, role=TEACHER))
        if form == TEACHER:
            check_mode(choice)


def check_given(names: Iterable[str], slates: Iterable[Slate]) -> None:
    """Raise `SpdError` if a ranker that computes nothing (label file, stored order, attribute) lacks a slate.

    Args:
        names: of rankers, whatever their form.
        slates: read only where such a ranker is among them.
    """
    given = [other_ranker(name, Loading()) for name in names if name.partition(":")[0] in (LABELS, STORED, BY)]
    if given:
        for slate in slates:
            for ranker in given:
                list(ranker.rank_all([slate]))


def student_ranker(checkpoint: str, decoders: Mapping[str, str], loading: Loading) -> StudentRanker:
    """Ranker of a student's checkpoint; `decoders` as there."""
    student = load_student(checkpoint, backbone=loading.backbone, device=loading.device, dtype=loading.dtype)
    return StudentRanker(student, decoders, student_facts(student, checkpoint))


def other_ranker(name: str, loading: Loading) -> Ranker:
    """Ranker of ``stored``, ``by:ATTRIBUTE``, ``labels:FILE``, ``teacher:ID``, ``teacher:ID:MODE``, ``first_token:ID`` or
    ``pointwise:ID``."""
    form, _, rest = name.partition(":")
    if form in (STORED, BY):
        return TeacherRanker((name,), AttributeOrder(rest) if rest else StoredOrder())
    if form == LABELS:
        book = LabelBook.read([data_file(rest)])
        return LabelRanker((name,), book, {"teacher": ", ".join(book.teachers)})
    checkpoint, mode = split_choice(rest) if form == TEACHER else (rest, None)
    teacher = autoregressive_teacher(checkpoint, mode or "constrained", loading)
    return ranker_of_teacher(name, teacher, checkpoint)


def ranker_of_teacher(name: str, teacher: AutoregressiveTeacher, checkpoint: str) -> TeacherRanker | WritingRanker:
    """Ranker of a loaded teacher, in its mode or in the single pass that `name` asks for.

    Args:
        name: one of the forms with a teacher's ID.
        teacher: of `checkpoint`.
        checkpoint: id or folder, or ``zero-shot``.
    """
    form, facts = name.partition(":")[0], teacher_facts(teacher, checkpoint)
    if form == TEACHER:
        return WritingRanker((name,), teacher, facts, teacher.mode)
    return TeacherRanker((name,), language_model_ranker(form, teacher), facts)


def autoregressive_teacher(checkpoint: str, mode: str, loading: Loading) -> AutoregressiveTeacher:
    """Teacher of a checkpoint, or ``zero-shot``: the backbone as it came.

    Raises:
        SpdError: unknown checkpoint or mode.
    """
    check_mode(mode)
    if checkpoint == ZERO_SHOT:
        return zero_shot_teacher(loading.backbone, mode=mode, device=loading.device, dtype=loading.dtype)
    return load_teacher(checkpoint, mode=mode, backbone=loading.backbone, device=loading.device, dtype=loading.dtype)


def check_mode(mode: str | None) -> None:
    """Raise `SpdError` if an autoregressive teacher has no such mode; None is the usual one."""
    if mode is not None and mode not in MODES:
        raise SpdError(choices("decoding mode", mode, MODES))


def checkpoint_of(name: str) -> str | None:
    """Checkpoint that a ranker's name holds: an id or a folder; None for rankers without one."""
    form, _, rest = name.partition(":")
    if form in LANGUAGE_MODEL_RANKERS:
        return rest or None
    return split_choice(rest)[0] if form in (STUDENT, TEACHER) else None


def split_choice(text: str) -> tuple[str, str | None]:
    """(checkpoint, what stands behind its last colon): ``beauty-spd:greedy``; None if nothing does or it is of a path."""
    checkpoint, colon, choice = text.rpartition(":")
    return (checkpoint, choice) if colon and "/" not in choice else (text, None)


def fit_floors(names: Sequence[str], loading: Loading) -> dict[str, Teacher]:
    """Rankers without a language model by name, fitted on the histories of the slate files of `loading`.

    Raises:
        SpdError: a missing file.
    """
    if not names:
        return {}
    seen = [slate for name in loading.fit for slate in read_slates(data_file(name))]
    items = list(read_items(data_file(loading.catalogue))) if loading.catalogue else []
    return {name: TEACHERS[name](seen, items) for name in names}
