"""How right rankings are, how alike two of them are, and how sure the figures are."""

from spd_core.metrics.agreement import PERSISTENCE, kendall_tau, rbo, top_k_overlap
from spd_core.metrics.bootstrap import Difference, Interval, mean_interval, mean_intervals, paired_difference
from spd_core.metrics.per_slate import ndcg_at, pair_auc, positions_of, recall_at, reciprocal_rank
from spd_core.metrics.slices import attributes_of, slice_metrics, slice_order, slices_of
from spd_core.metrics.table import (
    EXCLUSIONS,
    METRICS,
    MetricCollector,
    MetricRow,
    MetricTable,
    evaluate_rankings,
    exclusion,
    slate_metrics,
)

__all__ = [
    "EXCLUSIONS",
    "METRICS",
    "PERSISTENCE",
    "Difference",
    "Interval",
    "MetricCollector",
    "MetricRow",
    "MetricTable",
    "attributes_of",
    "evaluate_rankings",
    "exclusion",
    "kendall_tau",
    "mean_interval",
    "mean_intervals",
    "ndcg_at",
    "pair_auc",
    "paired_difference",
    "positions_of",
    "rbo",
    "recall_at",
    "reciprocal_rank",
    "slate_metrics",
    "slice_metrics",
    "slice_order",
    "slices_of",
    "top_k_overlap",
]
