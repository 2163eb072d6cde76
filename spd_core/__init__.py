"""Single pass decoding for generative reranking: rank a slate of candidates from one prefill of a language model.

    from spd_core import load_slates, load_student, rank_slate

    student = load_student("beauty-spd")
    for slate in load_slates("slates.jsonl"):
        print(rank_slate(student, slate).item_ids)

The names are imported when they are first used, so that `import spd_core.slate` does not wait for PyTorch.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from spd_core.checkpoints import load_student
    from spd_core.datasets import load_slates
    from spd_core.pipeline import rank_slate

_PLACES = {"load_student": "checkpoints", "load_slates": "datasets", "rank_slate": "pipeline"}

__all__ = ["load_slates", "load_student", "rank_slate"]


def __getattr__(name: str) -> Any:
    """The public function of that name, imported now."""
    if name not in _PLACES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_PLACES[name]}"), name)
