"""The gate between a teacher and its students: whether labels are worth learning from, and if not, why not.

It looks at rankings, clicks and the order that was shown; it does not know who ranked. Thresholds stand here and in `bias`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

import numpy as np

from spd_core.metrics import Difference, Interval, MetricCollector, exclusion, kendall_tau, positions_of
from spd_core.slate import Ranking, Slate
from spd_core.teachers.bias import MAX_INPUT_TAU, MAX_TOP_RATIO, InputReport, TwinReport, input_report, twin_gaps
from spd_core.teachers.labelling import Label
from spd_core.teachers.ordinals import KINDS

MIN_VALID_RATE = 0.9
"""Share of answers that are rankings as written; the first thing that a teacher has to learn."""
CLICK_MARGIN = 0.02
"""How far above .5 the lower end of the AUC's interval must lie: two rankers closer than this on 1,000 slates are a tie."""
MIN_CLICKED = 20
"""Slates with a click below which nothing is concluded from clicks: with fewer, the interval itself is not to be trusted."""

Verdict = Literal["passed", "refused", "undecided"]


@dataclass(frozen=True)
class ClickReport:
    """How rankings agree with what was clicked or graded above 0."""

    auc: Interval
    recall_at_1: Interval
    chance_recall_at_1: float
    """Of a random order of these slates; the AUC's is .5."""
    input_auc: Interval
    """AUC of the input order on the same slates."""
    over_input: Difference
    """AUC of the rankings less that of the input order, paired."""


@dataclass(frozen=True)
class GateReport:
    """What was seen of some labels, and whether students may learn from them."""

    slates: int
    kinds: dict[str, int]
    """Answers by kind; all of `KINDS`."""
    clicks: ClickReport | None
    """None with fewer than `MIN_CLICKED` slates to judge by; of the valid answers, like the rest."""
    input_order: InputReport | None
    """None if no valid answer ranks two candidates."""
    twins: TwinReport | None
    """None if no two candidates read the same."""

    @property
    def valid_rate(self) -> float:
        """Share of answers that are a ranking as written."""
        return self.kinds["ok"] / self.slates if self.slates else 0.0

    @property
    def passed(self) -> bool:
        """True where nothing speaks against learning from these labels."""
        return not self.reasons

    @property
    def verdict(self) -> Verdict:
        """What is to be thought of these labels; with too few of them nothing is said either way."""
        if 0 < self.slates < MIN_CLICKED:
            return "undecided"
        return "passed" if self.passed else "refused"

    @property
    def reasons(self) -> tuple[str, ...]:
        """Each thing that speaks against these labels, with its figure and its threshold."""
        return tuple(_reasons(self))

    @property
    def cautions(self) -> tuple[str, ...]:
        """What could not be checked."""
        told = []
        if 0 < self.slates < MIN_CLICKED:
            told.append(f"whether this holds beyond these slates: {self.slates} of at least {MIN_CLICKED} labels")
        if self.clicks is None:
            told.append(f"fewer than {MIN_CLICKED} valid answers have a click to compare with: the order may mean nothing")
        return tuple(told)

    def to_json(self) -> dict[str, Any]:
        """JSON object with the verdict first."""
        verdict = {
            "passed": self.passed,
            "reasons": list(self.reasons),
            "cautions": list(self.cautions),
            "verdict": self.verdict,
        }
        seen = asdict(self) | {"valid_rate": self.valid_rate}
        for name in ("clicks", "input_order"):
            for key, value in (seen[name] or {}).items():
                if isinstance(value, Interval | Difference):
                    seen[name][key] = value._asdict()
        if self.input_order is not None:
            seen["input_order"]["words"] = self.input_order.words
        return verdict | seen | {"thresholds": thresholds()}


def thresholds() -> dict[str, float]:
    """Thresholds of the gate by name."""
    return {
        "valid_rate": MIN_VALID_RATE,
        "auc_low": 0.5 + CLICK_MARGIN,
        "clicked_slates": MIN_CLICKED,
        "input_tau": MAX_INPUT_TAU,
        "top_ratio": MAX_TOP_RATIO,
    }


def _reasons(report: GateReport) -> Iterator[str]:
    if report.slates == 0:
        yield "there are no labels"
    elif report.valid_rate < MIN_VALID_RATE:
        yield f"only {report.valid_rate:.1%} of the answers are valid as written; {MIN_VALID_RATE:.0%} are needed"
    clicks, order = report.clicks, report.input_order
    if clicks is not None and clicks.auc.low <= 0.5 + CLICK_MARGIN:
        yield (
            f"the order is near chance: AUC {clicks.auc.mean:.3f} ({clicks.auc.low:.3f} to {clicks.auc.high:.3f}) against "
            f"the clicks; the lower end must be above {0.5 + CLICK_MARGIN:g}"
        )
    if order is None:
        return
    improves = clicks is not None and clicks.input_auc.low > 0.5 + CLICK_MARGIN and clicks.over_input.low > 0
    if (abs(order.tau.mean) > MAX_INPUT_TAU and not improves) or order.names_one_place:
        yield f"position bias: the teacher {order.words} (Kendall tau with the input order {order.tau.mean:+.2f})"


@dataclass
class GateCollector:
    """What the gate keeps of slates and their labels as they come: a few numbers each."""

    kinds: Counter[str] = field(default_factory=Counter)
    ranked: MetricCollector = field(default_factory=MetricCollector)
    given: MetricCollector = field(default_factory=MetricCollector)
    taus: list[float] = field(default_factory=list)
    tops: list[tuple[int, int]] = field(default_factory=list)
    """(place in the input of the first choice, N)."""
    clicked: list[int] = field(default_factory=list)
    """Places in the input of all clicks."""
    twins: list[tuple[int, float, bool]] = field(default_factory=list)
    """(gap, gap by chance, whether the earlier one is higher) of each pair that reads the same."""

    def add(self, slate: Slate, label: Label) -> None:
        """Take one slate and its label; an answer that is not valid is counted, and its ranking not looked at.

        Raises:
            SlateError: the label does not rank the slate's candidates.
        """
        self.kinds[label.kind] += 1
        ranking = Ranking(label.teacher, label.ranking)
        positions = positions_of(ranking, slate)
        if label.is_repaired:
            return
        if not exclusion(slate):
            self.ranked.add(slate, ranking)
            self.given.add(slate, Ranking("input_order", slate.item_ids))
            self.clicked += [place for place, flag in enumerate(slate.relevant()) if flag]
        if len(positions) > 1:
            self.taus.append(kendall_tau(np.arange(len(positions)), positions))
            self.tops.append((int(positions.argmin()), len(positions)))
            self.twins += twin_gaps(slate, positions.tolist())

    def report(self) -> GateReport:
        """Report on everything taken so far."""
        return GateReport(
            slates=sum(self.kinds.values()),
            kinds={kind: self.kinds[kind] for kind in KINDS},
            clicks=self._clicks(),
            input_order=input_report(self.taus, self.tops, self.clicked) if self.taus else None,
            twins=self._twin_report() if self.twins else None,
        )

    def _clicks(self) -> ClickReport | None:
        ranked, given = self.ranked.table("ranked"), self.given.table("input_order")
        if len(ranked) < MIN_CLICKED:
            return None
        figures = ranked.intervals()
        return ClickReport(
            auc=figures["AUC"],
            recall_at_1=figures["Recall@1"],
            chance_recall_at_1=float(np.mean([1 / row.size for row in self.ranked.rows])),
            input_auc=given.intervals()["AUC"],
            over_input=ranked.compare(given, "AUC"),
        )

    def _twin_report(self) -> TwinReport:
        gap, by_chance, earlier_first = np.asarray(self.twins, dtype=np.float64).mean(axis=0).tolist()
        return TwinReport(len(self.twins), gap, by_chance, earlier_first)
