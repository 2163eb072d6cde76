"""What exactly is loaded: settings, parameter counts, training and measured quality of a checkpoint, as tables."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pandas as pd
import streamlit as st

from pages.shared.loaders import Loaded
from pages.shared.text import escaped
from spd_core.checkpoint_config import CheckpointConfig
from spd_core.model import StudentConfig, parameter_counts

READOUT_WORDS = {"last": "last token", "newline": "token that closes the line", "mean": "mean over the description"}


def show(loaded: Loaded) -> None:
    """Tables for the loaded student; the text of its model card, if it has one, in an expander."""
    config = loaded.info.config if loaded.info else None
    left, right = st.columns(2, gap="large")
    with left:
        st.markdown("##### Settings", anchors=False)
        _table(settings(loaded))
        st.markdown("##### Parameters, counted", anchors=False)
        counts = config.parameter_counts if config else parameter_counts(loaded.student)
        _table({name.capitalize(): f"{count:,}" for name, count in counts.items()})
    with right:
        if config is None or config.training is None:
            st.warning("The head is untrained: its weights are random, so are its rankings.", icon=":material/warning:")
            st.caption("`python -m spd_core train` makes a checkpoint.")
        else:
            st.markdown("##### Measured quality", anchors=False)
            _show_evaluations(config.metrics)
            st.markdown("##### Training", anchors=False)
            _table(training(config))
    if loaded.info and loaded.info.card:
        with st.expander("The checkpoint's own model card"):
            st.markdown(without_pictures(loaded.info.card), anchors=False)


def settings(loaded: Loaded) -> dict[str, str]:
    """How the student turns a slate into scores, as words."""
    student, config = loaded.student, loaded.student.config
    return {
        "Checkpoint": loaded.info.checkpoint_id if loaded.info else "none",
        "Backbone": f"{student.backbone.backbone_id}, fingerprint {student.backbone.fingerprint}",
        "Layers kept": f"{student.backbone.depth} of {student.backbone.layer_count}",
        "Head": f"{config.head.replace('_', ' ')}, width {config.head_width}",
        "Positions K": str(config.positions),
        "Readout": READOUT_WORDS.get(config.readout, config.readout),
        "User token": "yes" if config.user_token else "no",
        "Temperature tau": f"{config.tau:g}",
        "Sinkhorn iterations": str(config.sinkhorn_iterations),
        "LoRA": _lora(config),
        "Prompt template": f"{student.template.name}, hash {student.template.hash}",
        "Tokens kept": f"{student.template.candidate_cap} a candidate, {student.template.history_cap} a history item, "
        f"newest {student.template.history_limit} items",
    }


def training(config: CheckpointConfig) -> dict[str, str]:
    """Where the weights come from, as words."""
    facts = config.training
    if facts is None:
        return {}
    return {
        "Teacher": facts.teacher,
        "Data": ", ".join(f"{name} (SHA-256 {digest[:12]})" for name, digest in facts.data.items()),
        "Slates seen": f"{facts.slates:,}, repeats counted",
        "Optimiser steps": f"{facts.steps:,}",
        "Time": f"{facts.minutes:.0f} minutes",
        "Seed": str(facts.seed),
        "Date": facts.date,
        "Machine": facts.machine,
        "Versions": ", ".join(f"{name} {number}" for name, number in facts.versions.items()),
    }


def metric_frame(report: Mapping[str, Any]) -> pd.DataFrame:
    """A row a metric of one evaluation: its mean and its 95 % interval."""
    rows = [
        (escaped(name), _number(entry.get("mean")), f"{_number(entry.get('low'))} to {_number(entry.get('high'))}")
        for name, entry in report.get("metrics", {}).items()
    ]
    return pd.DataFrame(rows, columns=["Measure", "Mean", "95 % interval"])


def without_pictures(card: str) -> str:
    """Markdown whose images stay text: a card from elsewhere must not make the browser fetch anything."""
    return card.encode("utf-8", "replace").decode().replace("![", "!\\[")


def _table(entries: Mapping[str, str]) -> None:
    st.table({escaped(name): escaped(value, 300) for name, value in entries.items()}, border="horizontal")


def _lora(config: StudentConfig) -> str:
    if config.lora is None:
        return "none, the backbone is frozen"
    modules = config.lora.target_modules
    where = modules if isinstance(modules, str) else ", ".join(modules)
    return f"rank {config.lora.rank}, alpha {config.lora.alpha:g}, on {where}"


def _show_evaluations(metrics: Mapping[str, Any]) -> None:
    evaluations = metrics.get("evaluations", {})
    for file, report in evaluations.items():
        st.table(metric_frame(report), border="horizontal", hide_index=True)
        decoder = escaped(str(report.get("decoder", "")).replace("_", " "))
        st.caption(f"{escaped(file)}, {decoder} decoder, n = {_number(report.get('n'))}, bootstrap intervals.")
    if not evaluations:
        st.caption("Not evaluated yet: `python -m spd_core evaluate SLATES --checkpoint ID` measures it.")
    if seen := metrics.get("validation"):
        figures = ", ".join(f"{escaped(name)} {_number(value)}" for name, value in seen.items())
        st.caption(f"While training, used to pick the step: {figures}.")


def _number(value: object) -> str:
    return f"{value:.3f}" if isinstance(value, float) else escaped(value, 60)
