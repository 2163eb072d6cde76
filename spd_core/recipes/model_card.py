"""The model card of a checkpoint, written from what is known of its training and from measured results only."""

from __future__ import annotations

from typing import Any

from spd_core.checkpoint_config import TrainingFacts
from spd_core.model import Student, StudentConfig, parameter_counts


def write_card(name: str, student: Student, facts: TrainingFacts) -> str:
    """Text of the checkpoint's README.md."""
    counts = parameter_counts(student)
    backbone = student.backbone
    return card_text(name, student.config, facts, counts, f"{backbone.backbone_id} ({backbone.layer_count} layers)")


def card_text(name: str, config: StudentConfig, facts: TrainingFacts, counts: dict[str, int], backbone: str) -> str:
    """Markdown with method, settings, training and results of a student."""
    adapter = f"LoRA r = {config.lora.rank}, alpha = {config.lora.alpha:g}" if config.lora else "none (frozen backbone)"
    lines = [
        f"# {name}",
        "",
        "A single pass decoding student: one prefill of the language model, one state a candidate, one score matrix, one",
        "assignment. Method: SPD, arXiv 2609.01807; these weights are ours and the paper's figures are not theirs.",
        "",
        "| what | value |",
        "|---|---|",
        f"| backbone | {backbone}, cut after layer {config.layer or 'last'} |",
        f"| readout | {config.readout}{' with user token' if config.user_token else ''} |",
        f"| head | {config.head}, width {config.head_width}, K = {config.positions} |",
        f"| adapter | {adapter} |",
        f"| parameters | head {counts['head']:,}, adapter {counts['adapter']:,}, backbone {counts['backbone']:,} |",
        f"| training objective | Sinkhorn cross-entropy, tau = {config.tau:g}, {config.sinkhorn_iterations} iterations |",
        f"| teacher | {facts.teacher} |",
        f"| training data | {', '.join(facts.data)} |",
        f"| training | {facts.slates:,} slates, {facts.steps:,} steps, {facts.minutes:g} minutes, {facts.machine} |",
        f"| seed, date | {facts.seed}, {facts.date} |",
        "",
        "## Results",
        "",
        *result_lines(facts.metrics),
        "",
        "## Limits",
        "",
        "Trained on English product titles of one shop; slates beyond K candidates are refused. Candidate order in",
        "the prompt can change it. A valid permutation is guaranteed, as it is for any method that scores and sorts.",
        "",
    ]
    return "\n".join(lines)


def result_lines(metrics: dict[str, Any]) -> list[str]:
    """A table for each evaluated file, and the figures looked at while training."""
    lines: list[str] = []
    for file, report in metrics.get("evaluations", {}).items():
        lines += [f"`{file}`, decoder {report['decoder']}, n = {report['n']}, 95 % bootstrap intervals:", ""]
        lines += ["| metric | value | interval |", "|---|---|---|"]
        for metric, value in report["metrics"].items():
            lines.append(f"| {metric} | {value['mean']:.4f} | {value['low']:.4f} to {value['high']:.4f} |")
        lines.append("")
    if "validation" in metrics:
        seen = ", ".join(f"{key} {value:g}" for key, value in metrics["validation"].items())
        lines.append(f"While training (used to pick the step): {seen}.")
    return lines or ["Not evaluated."]
