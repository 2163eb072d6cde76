"""Rankers that ask the language model of a teacher in one pass, by name; they write nothing and have no head.

Add one: a file with a class that has `of(model)`, `name` and `rank(slate)`, and a line in `LANGUAGE_MODEL_RANKERS`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from spd_core.errors import SpdError, choices
from spd_core.teachers.autoregressive import AutoregressiveTeacher
from spd_core.teachers.base import Teacher
from spd_core.teachers.first_token import FirstTokenRanker
from spd_core.teachers.pointwise import PointwiseRanker

LANGUAGE_MODEL_RANKERS: Mapping[str, Callable[[AutoregressiveTeacher], Teacher]] = {
    "first_token": FirstTokenRanker.of,
    "pointwise": PointwiseRanker.of,
}


def language_model_ranker(name: str, model: AutoregressiveTeacher) -> Teacher:
    """Ranker of that name on the backbone, language head and wording of a teacher; its mode is not used.

    Args:
        name: key of `LANGUAGE_MODEL_RANKERS`.
        model: `zero_shot_teacher()` for the backbone as it came, `load_teacher(id)` for a checkpoint's adapters.

    Raises:
        SpdError: unknown name.
    """
    if name not in LANGUAGE_MODEL_RANKERS:
        raise SpdError(choices("language model ranker", name, LANGUAGE_MODEL_RANKERS))
    return LANGUAGE_MODEL_RANKERS[name](model)
