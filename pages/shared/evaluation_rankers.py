"""Who may take part in an evaluation of the app: what is on disk, by the names that the command takes, and made ready."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import streamlit as st

from pages.shared import loaders, state
from pages.shared.loaders import Loaded
from pages.shared.report_frames import title as decoder_title
from pages.shared.text import shown
from spd_core.decoding import DECODERS
from spd_core.errors import SpdError
from spd_core.recipes.evaluation_report import EvaluationReport
from spd_core.recipes.provenance import student_facts
from spd_core.recipes.ranker_kinds import Ranker, StudentRanker, TeacherRanker
from spd_core.recipes.rankers import (
    BY,
    LABELS,
    STORED,
    STUDENT,
    TEACHER,
    Loading,
    other_ranker,
    ranker_of_teacher,
    split_choice,
)
from spd_core.slate import Slate
from spd_core.teachers import TEACHERS
from spd_core.teachers.autoregressive import MODES
from spd_core.teachers.language_model import LANGUAGE_MODEL_RANKERS

DEFAULT = ("reference", "tfidf", "random")
"""Rankers without a language model that stand beside a student at first."""
ONE_PASS = {"first_token": "first letter (FIRST)", "pointwise": "yes/no (pointwise)"}
FLOOR_TITLES = {
    "tfidf": "TF-IDF of titles",
    "cooccurrence": "Bought together",
    "input_order": "Order given",
    "stored": "Stored in the slates",
}


def pick_rankers(loaded: Loaded) -> list[str]:
    """Names of the chosen rankers, the first one chosen first; the page's student is the first unless it is left out."""
    names = ranker_names()
    known = state.get("evaluate rankers", None)
    chosen = [name for name in known if name in names] if known is not None else default_rankers(loaded, names)
    picked = st.multiselect(
        "Rankers",
        names,
        **state.bind("evaluate rankers", chosen),
        format_func=ranker_title,
        placeholder="Students, teachers, rankers without a language model",
        help="Decoders of one student share its pass. A teacher that writes takes seconds a slate.",
    )
    return list(state.remember("evaluate rankers", picked))


def ranker_names() -> list[str]:
    """Every ranker that can be made from what is on disk."""
    students = [info.checkpoint_id for info in loaders.checkpoints() if info.config is not None and info.config.training]
    teachers = [info.checkpoint_id for info in loaders.teachers() if info.config is not None]
    names = [f"{STUDENT}:{checkpoint}:{decoder}" for checkpoint in students for decoder in DECODERS]
    for teacher in teachers:
        names += [f"{TEACHER}:{teacher}", f"{TEACHER}:{teacher}:free"]
        names += [f"{form}:{teacher}" for form in LANGUAGE_MODEL_RANKERS]
    return [*names, *TEACHERS, STORED]


def default_rankers(loaded: Loaded, names: Sequence[str]) -> list[str]:
    """Two decoders of the page's student, and rankers without a language model."""
    own = loaded.info.checkpoint_id if loaded.info else ""
    wanted = [f"{STUDENT}:{own}:{decoder}" for decoder in ("hungarian", "expected_position")]
    return [name for name in [*wanted, *DEFAULT] if name in names]


def build(names: Sequence[str], seen: Iterable[Slate]) -> list[Ranker]:
    """The rankers of those names, with the models that all visitors share.

    Args:
        names: of `ranker_names`.
        seen: slates whose histories the rankers without a language model count.

    Raises:
        SpdError: a checkpoint that is gone or broken.
    """
    students: dict[str, dict[str, str]] = {}
    others: list[Ranker] = []
    known: list[Slate] | None = None
    for name in names:
        form, _, rest = name.partition(":")
        if form == STUDENT:
            checkpoint, decoder = split_choice(rest)
            students.setdefault(checkpoint, {})[name] = decoder or next(iter(DECODERS))
        elif name == STORED:
            others.append(other_ranker(name, Loading()))
        elif name in TEACHERS:
            known = list(seen) if known is None else known
            others.append(TeacherRanker((name,), TEACHERS[name](known, [])))
        else:
            checkpoint, mode = split_choice(rest) if form == TEACHER else (rest, None)
            teacher = loaders.load_teacher(checkpoint, mode or next(iter(MODES)))
            others.append(ranker_of_teacher(name, teacher, checkpoint))
    return [*(_student(checkpoint, decoders) for checkpoint, decoders in students.items()), *others]


def _student(checkpoint: str, decoders: dict[str, str]) -> StudentRanker:
    student = loaders.load(checkpoint).student
    return StudentRanker(student, decoders, student_facts(student, checkpoint))


def ranker_title(name: str, report: EvaluationReport | None = None) -> str:
    """A ranker's name for people, plain.

    Args:
        name: as the command takes it, or a decoder of the report's checkpoint.
        report: that it stands in.
    """
    form, _, rest = name.partition(":")
    owner = student_of(name, report)
    if owner is not None:
        return f"{shown(owner[0], 40)}, {decoder_title(owner[1])}"
    if form == TEACHER and rest:
        checkpoint, mode = split_choice(rest)
        return f"{shown(checkpoint, 40)} teacher, {mode or next(iter(MODES))}"
    if form in ONE_PASS and rest:
        return f"{shown(rest, 40)}, {ONE_PASS[form]}"
    if form == BY and rest:
        return f"by {shown(rest, 40)}"
    if form == LABELS and rest:
        return f"labels of {shown(rest.rsplit('/', 1)[-1], 40)}"
    return FLOOR_TITLES.get(name, decoder_title(shown(name, 60)))


def student_of(name: str, report: EvaluationReport | None = None) -> tuple[str, str] | None:
    """(checkpoint, decoder) of a student among rankers; None for any other ranker."""
    form, _, rest = name.partition(":")
    if form == STUDENT and rest:
        checkpoint, decoder = split_choice(rest)
        return checkpoint.rsplit("/", 1)[-1], decoder or next(iter(DECODERS))
    is_decoder = name in DECODERS and report is not None and report.checkpoint is not None
    return (report.checkpoint, name) if is_decoder and report is not None and report.checkpoint is not None else None


def check(names: Sequence[str]) -> None:
    """Raise `SpdError` if there is nobody to measure."""
    if not names:
        raise SpdError("got 0 rankers; choose at least one")
