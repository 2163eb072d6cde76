"""Evaluate: how good rankers are on a slate file, with intervals; where they are good, and the slates on which they fail."""

import streamlit as st

from pages.shared import controls, errors, evaluated, evaluated_slates, evaluation_runs, frame
from pages.shared.evaluation_runs import Evaluated
from spd_core.metrics import mean_interval, ndcg_at, pair_auc, paired_difference, recall_at, reciprocal_rank

SENTENCE = (
    "How often does the right item come out on top? Students, teachers and simpler rankers on the same slates, measured."
)
FORMULAS = [
    r"\text{AUC} = \frac{\text{pairs (right, wrong) in the right order}}{\text{all such pairs}}, \qquad "
    r"\text{Recall@}k = \frac{\text{right items among the first } k}{\text{right items}}",
    r"\text{NDCG@}k = \frac{\sum_{r \le k} g_r / \log_2(r + 1)}{\text{the same of the best order}}, \qquad "
    r"\text{MRR} = \frac{1}{\text{rank of the first right item}}",
]


def page() -> None:
    """A stored result or a run of one's own; everything below is drawn from its report."""
    loaded = frame.open_page("Evaluate", SENTENCE)
    view = controls.pick_option("evaluate view", "Show", ["stored", "run"], ["A stored result", "Measure now"])
    found = evaluation_runs.pick_stored() if view == "stored" else evaluation_runs.measure_now(loaded)
    if found is not None:
        with errors.shown():
            show(found)
    frame.how_computed(FORMULAS, pair_auc, recall_at, ndcg_at, reciprocal_rank, mean_interval, paired_difference)


def show(found: Evaluated) -> None:
    """Rankers, differences, slices, slates, notes, files."""
    report = found.report
    metric = evaluated.pick_metric()
    ranker = evaluated.show_rankers(report, metric)
    left, right = st.columns(2, gap="large")
    with left:
        evaluated.show_differences(report, ranker, metric)
    with right:
        chosen = evaluated.show_slices(report, ranker, metric)
    evaluated_slates.show_slates(report, found.slates, found.source, ranker=ranker, metric=metric, chosen=chosen)
    evaluated.show_left_out(report)
    evaluated.show_downloads(report, found.data)


page()
