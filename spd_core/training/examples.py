"""Training slates and what each epoch makes of them: a plan of batches, shuffled candidates, smaller and larger slates.

Every random choice is a function of (seed, epoch, slate), so a resumed run makes the same ones.
"""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from spd_core.errors import TrainingError
from spd_core.slate import Item, Ranking, Slate
from spd_core.training.settings import TrainSettings

SMALLEST_SUBSET = 5

RankSlate = Callable[[Slate], Ranking]


@dataclass(frozen=True)
class TrainingSet:
    """Slates that all carry a teacher's ranking (or, for clicks, a label), and where larger slates come from."""

    slates: tuple[Slate, ...]
    rank: RankSlate | None = None
    """A teacher at hand that can rank an extended slate; None forbids extension."""
    pool: tuple[Item, ...] = ()
    """Items that extended slates are filled with."""

    def __post_init__(self) -> None:
        if not self.slates:
            raise TrainingError("got 0 training slates; give a file with at least one")


def check_signal(slates: Sequence[Slate], signal: str) -> None:
    """Raise `TrainingError` naming the first slate that lacks what `signal` learns from."""
    for slate in slates:
        if signal == "teacher" and slate.teacher is None:
            raise TrainingError(f"slate {slate.slate_id!r}: has no teacher ranking; run label first or name a --teacher")
        if signal == "clicks" and not slate.label:
            raise TrainingError(f"slate {slate.slate_id!r}: has no label; clicks cannot be learned from it")


def teacher_positions(slate: Slate) -> list[int]:
    """Rank of each candidate, 0 first, in input order; the input order itself if there is no teacher."""
    if slate.teacher is None:
        return list(range(len(slate.candidates)))
    rank = {item_id: position for position, item_id in enumerate(slate.teacher.permutation)}
    return [rank[item_id] for item_id in slate.item_ids]


def draw_size(data: TrainingSet, settings: TrainSettings, *, epoch: int, step_key: int, count: int, positions: int) -> int:
    """Candidates that the slates of one step get: `count`, or fewer, or more.

    All slates of a step share the draw: one large slate among small ones would pad the whole batch.

    Args:
        data: says whether slates can be extended.
        settings: shares and seed.
        epoch: number of the pass.
        step_key: the same in all processes of a step, e.g. its first slate's index.
        count: candidates of the largest slate of the step.
        positions: K, the largest slate made.
    """
    rng = random.Random(f"{settings.seed}/{epoch}/{step_key}/size")
    draw = rng.random()
    if draw < settings.subset_share and count > SMALLEST_SUBSET:
        return rng.randint(SMALLEST_SUBSET, count)
    if draw > 1 - settings.extend_share and data.rank is not None and count < positions:
        return rng.randint(count + 1, positions)
    return count


def vary_slates(
    slates: Sequence[Slate], data: TrainingSet, settings: TrainSettings, *, epoch: int, step_key: int, positions: int
) -> list[Slate]:
    """The slates of one step, each varied; arguments as in `draw_size` and `vary_slate`."""
    count = max(len(slate.candidates) for slate in slates)
    size = draw_size(data, settings, epoch=epoch, step_key=step_key, count=count, positions=positions)
    sizes = [size if size != count else len(slate.candidates) for slate in slates]
    seed = f"{settings.seed}/{epoch}"
    return [
        vary_slate(slate, data, seed=seed, size=wanted, shuffle=settings.shuffle)
        for slate, wanted in zip(slates, sizes, strict=True)
    ]


def vary_slate(slate: Slate, data: TrainingSet, *, seed: str, size: int, shuffle: bool = True) -> Slate:
    """The slate with shuffled candidates, cut down or filled up to `size` of them.

    Args:
        slate: with or without teacher; a cut keeps its labelled candidates first.
        data: for the pool and the teacher at hand; without one a slate is never filled up.
        seed: of every choice made here, together with the slate's id.
        size: candidates wanted.
        shuffle: False keeps the order of those that stay.
    """
    rng = random.Random(f"{seed}/{slate.slate_id}")
    kept = list(range(len(slate.candidates)))
    if size < len(kept):
        labelled = {i for i, flag in enumerate(slate.relevant()) if flag}
        kept = sorted(kept, key=lambda i: (i not in labelled, rng.random()))[:size]
    if shuffle:
        rng.shuffle(kept)
    else:
        kept.sort()
    varied = select_candidates(slate, kept)
    return extend_slate(varied, data, rng, size) if size > len(kept) and data.rank is not None else varied


def select_candidates(slate: Slate, kept: Sequence[int]) -> Slate:
    """The slate with the candidates at the indices `kept`, in that order; the teacher's order of them stays."""
    candidates = tuple(slate.candidates[i] for i in kept)
    ids = {candidate.item_id for candidate in candidates}
    teacher = slate.teacher and dataclasses.replace(
        slate.teacher, permutation=tuple(item_id for item_id in slate.teacher.permutation if item_id in ids)
    )
    grades = None if slate.grades is None else tuple(slate.grades[i] for i in kept)
    return dataclasses.replace(slate, candidates=candidates, teacher=teacher, grades=grades)


def extend_slate(slate: Slate, data: TrainingSet, rng: random.Random, size: int) -> Slate:
    """The slate filled up with pool items at random places to `size` candidates, ranked anew by the teacher at hand."""
    if data.rank is None:
        raise TrainingError("extending slates needs a teacher at hand; set extend_share = 0 or name a --teacher")
    taken = set(slate.item_ids) | {item.item_id for item in slate.user.history}
    candidates = list(slate.candidates)
    for item in rng.sample(data.pool, min(len(data.pool), 2 * size)):
        if len(candidates) >= size:
            break
        if item.item_id not in taken:
            taken.add(item.item_id)
            candidates.append(item)
    rng.shuffle(candidates)
    wider = dataclasses.replace(slate, candidates=tuple(candidates), teacher=None, grades=None)
    return dataclasses.replace(wider, teacher=data.rank(wider))


def plan_epoch(lengths: Sequence[int], *, batch: int, seed: int, epoch: int) -> list[list[int]]:
    """Batches of slate indices for one epoch: shuffled, alike in length, every index at most once.

    Args:
        lengths: a number a slate that grows with its prompt.
        batch: slates of one step over all processes; a last incomplete batch is dropped unless it is the only one.
        seed: of the run.
        epoch: number of the pass.
    """
    rng = random.Random(f"{seed}/{epoch}/plan")
    order = list(range(len(lengths)))
    rng.shuffle(order)
    window = 40 * batch  # long enough to find neighbours of one length, short enough to stay random
    batches: list[list[int]] = []
    for start in range(0, len(order), window):
        alike = sorted(order[start : start + window], key=lambda i: lengths[i])
        batches += [alike[i : i + batch] for i in range(0, len(alike), batch)]
    full = [indices for indices in batches if len(indices) == batch]
    rng.shuffle(full)
    return full or batches
