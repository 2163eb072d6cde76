"""An evaluation while it runs: in a thread of its own, watched by a page that polls it; it draws nothing.

It holds the inference gate for a few slates at a time, so that other visitors' rankings come in between. What models have
computed is kept by content: a run that was cancelled goes on when it is started again.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from spd_core.errors import SpdError
from spd_core.recipes.evaluate import rank_together
from spd_core.recipes.evaluation import Evaluation, make_report, report_bytes
from spd_core.recipes.evaluation_report import EvaluationReport
from spd_core.recipes.progress import duration_text
from spd_core.recipes.ranker_kinds import Ranker, provenance_of
from spd_core.recipes.rankers import checkpoint_of
from spd_core.recipes.ranking_store import open_store, with_store
from spd_core.slate import Slate

LOGGER = logging.getLogger(__name__)
Phase = Literal["ranking", "figures", "done", "cancelled"]
TOGETHER = 4
"""Slates a ranker gets at a time: few, so that the bar moves and the gate opens often."""
LEFT_ALONE_S = 60.0
"""A run that no page has looked at for so long is given up: its visitor has left."""


@dataclass(frozen=True)
class Job:
    """What is measured."""

    file: str
    """Name of the slate file."""
    slates: Sequence[Slate]
    rankers: Sequence[Ranker]
    names: Sequence[str]
    """Of the rankers as they were asked for; the first is the one that the report is about."""
    cache: Path | None
    """Folder of the store."""


@dataclass(frozen=True)
class Progress:
    """How far a run is."""

    phase: Phase
    done: int
    total: int
    log: tuple[str, ...]
    """A line a stage, with its time."""
    left: str
    """Time left in words; empty while it is not known."""


@dataclass(eq=False)
class EvaluationRun:
    """One run, from the first slate to the report."""

    job: Job
    gate: threading.Lock
    clock: Callable[[], float] = time.monotonic
    phase: Phase = "ranking"
    done: int = 0
    log: list[str] = field(default_factory=list)
    report: EvaluationReport | None = None
    data: bytes = b""
    """The report as a file."""
    error: SpdError | None = None

    def __post_init__(self) -> None:
        self.is_cancelled = threading.Event()
        self.began = self.looked_at = self.clock()
        self.thread = threading.Thread(target=self._serve, name="evaluation", daemon=True)

    def start(self) -> EvaluationRun:
        """Itself, running."""
        self.thread.start()
        return self

    def cancel(self) -> None:
        """Give the run up; it shows at once, and the thread ends at its next slate."""
        self.is_cancelled.set()

    def look(self) -> Progress:
        """How far it is now.

        Raises:
            SpdError: the run has failed.
        """
        self.looked_at = self.clock()
        if self.error is not None:
            raise self.error
        phase = "cancelled" if self.is_cancelled.is_set() and self.report is None else self.phase
        total, done = len(self.job.slates), self.done
        spent = self.clock() - self.began
        left = duration_text(spent / done * (total - done)) if 0 < done < total else ""
        return Progress(phase, done, total, tuple(self.log), left)

    def is_unwanted(self) -> bool:
        """Whether it was cancelled, or its visitor has left."""
        return self.is_cancelled.is_set() or self.clock() - self.looked_at > LEFT_ALONE_S

    def _serve(self) -> None:
        try:
            self.run()
        except SpdError as error:
            self.error = error
        except BaseException as error:  # told to whoever looks; the log has the rest
            LOGGER.error("evaluation of %r", self.job.file, exc_info=error)
            self.error = SpdError("the run broke off through a defect, which the app's log describes; press Run again")

    def run(self) -> None:
        """Rank all slates, then compute the figures; stops between two slates once it is unwanted.

        Raises:
            SpdError: a ranker cannot take a slate, or no slate can be measured.
        """
        evaluation = Evaluation.of(self.job.names)
        with open_store(self.job.cache, self.job.rankers) as store:
            rankers = with_store(self.job.rankers, store)
            for start in range(0, len(self.job.slates), TOGETHER):
                if self.is_unwanted():
                    self.is_cancelled.set()
                    return
                with self.gate:
                    self._measure(rankers, self.job.slates[start : start + TOGETHER], evaluation)
            reused = store.reused if store is not None else 0
        self._note(f"{self.done} slates ranked" + (f", {reused} model results were there already" if reused else ""))
        if self.is_unwanted():
            return
        self.phase = "figures"
        figures = self._figures(evaluation)
        self.data, self.report = report_bytes(figures), EvaluationReport.model_validate(figures)
        self._note("figures and intervals computed")
        self.phase = "done"

    def _measure(self, rankers: Sequence[Ranker], slates: Sequence[Slate], evaluation: Evaluation) -> None:
        for slate, entries in rank_together(rankers, slates, together=TOGETHER):
            evaluation.add(slate, entries)
            self.done += 1
            if self.is_unwanted():
                return

    def _figures(self, evaluation: Evaluation) -> dict[str, Any]:
        first, provenance = self.job.names[0], provenance_of(self.job.rankers)
        return make_report(evaluation, first, provenance, slates=self.job.file, checkpoint=checkpoint_of(first))

    def _note(self, text: str) -> None:
        self.log.append(f"{text} (after {duration_text(self.clock() - self.began)})")
