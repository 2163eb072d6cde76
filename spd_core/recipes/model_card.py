"""The model card of a checkpoint, written from what is known of its training and from measured results only."""

from __future__ import annotations

import datetime
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from spd_core.checkpoint_config import (
    TeacherCheckpointConfig,
    TeacherSettings,
    TrainingFacts,
    read_any_config,
)
from spd_core.checkpoint_files import CARD_FILE, CONFIG_FILE
from spd_core.datasets.files import write_aside
from spd_core.errors import CheckpointError
from spd_core.model import Student, StudentConfig, parameter_counts
from spd_core.teachers.autoregressive import AutoregressiveTeacher


def write_card(name: str, student: Student, facts: TrainingFacts) -> str:
    """Text of the README.md of a checkpoint that is about to be saved."""
    return card_text(name, student.config, facts, parameter_counts(student), student.backbone.backbone_id)


def write_teacher_card(teacher: AutoregressiveTeacher, settings: TeacherSettings, facts: TrainingFacts) -> str:
    """Text of the README.md of a teacher that is about to be saved."""
    count = sum(p.numel() for name, p in teacher.backbone.model.named_parameters() if "lora_" in name)
    return teacher_card_text(teacher.name, settings, facts, count, teacher.backbone.backbone_id)


def record_report(folder: Path, report: Mapping[str, Any]) -> None:
    """Write the figures of an evaluation into a checkpoint's config and model card, in place of older ones of that file.

    Args:
        folder: of the checkpoint.
        report: of `evaluate_file`.

    Raises:
        CheckpointError: the checkpoint is damaged, or untrained.
    """
    config = read_any_config(folder)
    if config.training is None:
        raise CheckpointError(f"checkpoint {folder.name!r} is untrained; there is no model card to write figures into")
    kept = ("decoder", "n", "metrics", "rankers", "differences", "groups", "provenance")
    figures = (
        {key: report[key] for key in kept}
        | {"answers": report.get("answers", {})}
        | {"date": datetime.date.today().isoformat()}
    )
    known = config.training.metrics.get("evaluations", {})
    metrics = config.training.metrics | {"evaluations": known | {report["file"]: figures}}
    training = config.training.model_copy(update={"metrics": metrics})
    counts, backbone = config.parameter_counts, config.backbone.id
    if isinstance(config, TeacherCheckpointConfig):
        card = teacher_card_text(config.id, config.teacher, training, counts["adapter"], backbone)
    else:
        card = card_text(config.id, config.student, training, counts, backbone)
    changed = config.model_copy(update={"training": training})
    write_aside(folder / CONFIG_FILE, [changed.model_dump_json(indent=2).encode() + b"\n"])
    write_aside(folder / CARD_FILE, [card.encode()])


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
        *fact_lines(facts),
        "Slates beyond K candidates are refused. Candidate order in the prompt can change the ranking. A valid permutation",
        "is guaranteed, as it is for any method that scores and sorts.",
        "",
    ]
    return "\n".join(lines)


def teacher_card_text(name: str, settings: TeacherSettings, facts: TrainingFacts, adapter: int, backbone: str) -> str:
    """Markdown with method, settings, training and results of an autoregressive teacher."""
    lora = f"LoRA r = {settings.lora.rank}, alpha = {settings.lora.alpha:g}" if settings.lora else "none"
    start = facts.settings.get("init")
    train_settings = facts.settings.get("train_settings", {})
    frozen = train_settings.get("frozen_layers", 0)
    started = f"adapters of {start}" if start else "fresh adapters"
    weighted = "weighted by rank like DCG" if train_settings.get("rank_discount", True) else "all alike"
    lines = [
        f"# {name}",
        "",
        "An autoregressive ranker: reads the same prompt as the students and writes the candidates' ordinals best first,",
        "in a forward pass each. It learned to write the rankings of another teacher and is no judge of its own.",
        "",
        "| what | value |",
        "|---|---|",
        f"| backbone | {backbone}, all layers |",
        f"| adapter | {lora}; {adapter:,} parameters |",
        f"| started from | {started}{f', those of the lowest {frozen} layers kept as they were' if frozen else ''} |",
        f"| learned to write | rankings of {facts.teacher} |",
        f"| training objective | cross-entropy of the answer's tokens, {weighted} |",
        *fact_lines(facts),
        "Decoded freely it may write something that is no permutation;",
        "such answers are counted by kind and repaired for display only.",
        "",
    ]
    return "\n".join(lines)


def fact_lines(facts: TrainingFacts) -> list[str]:
    """The end of the table, on training, then the results and the heading of the limits."""
    return [
        f"| training data | {', '.join(facts.data)} |",
        f"| training | {facts.slates:,} slates, {facts.steps:,} steps, {facts.minutes:g} minutes, {facts.machine} |",
        *([] if facts.largest_slate is None else [f"| largest slate seen | {facts.largest_slate} candidates |"]),
        f"| seed, date | {facts.seed}, {facts.date} |",
        "",
        "## Results",
        "",
        *result_lines(facts.metrics),
        "",
        "## Limits",
        "",
        f"Trained on English texts of one source ({', '.join(facts.data)}).",
    ]


def result_lines(metrics: Mapping[str, Any]) -> list[str]:
    """A table for each evaluated file, and the figures looked at while training."""
    lines: list[str] = []
    for file, report in metrics.get("evaluations", {}).items():
        names = list(report["metrics"])
        lines += [
            f"`{file}`, n = {report['n']}, mean and 95 % bootstrap interval, measured {report['date']} "
            f"({report['provenance']['device']}, {report['provenance']['dtype']}):",
            "",
            f"| ranker | {' | '.join(names)} |",
            "|---|" + "---|" * len(names),
        ]
        groups = {f"{report['decoder']}, {k} = {v}": row for k, rows in report["groups"].items() for v, row in rows.items()}
        for ranker, row in (report["rankers"] | groups).items():
            cells = (f"{row[m]['mean']:.4f} ({row[m]['low']:.3f} to {row[m]['high']:.3f})" for m in names)
            lines.append(f"| {ranker} | {' | '.join(cells)} |")
        lines.append("")
        lines += [answer_line(ranker, row) for ranker, row in report.get("answers", {}).items()]
    if "validation" in metrics:
        seen = ", ".join(f"{key} {value:g}" for key, value in metrics["validation"].items())
        lines.append(f"While training, on the first slates of the validation file: {seen}.")
    return lines or ["Not evaluated."]


def answer_line(ranker: str, row: Mapping[str, Any]) -> str:
    """How many of a writing ranker's answers were valid as written, and what was wrong with the others; and a blank line."""
    wrong = ", ".join(f"{kind.replace('_', ' ')} {count}" for kind, count in row["kinds"].items() if count and kind != "ok")
    return f"{ranker}: {row['valid_rate']:.1%} of {row['n']} answers valid as written{f' ({wrong})' if wrong else ''}.\n"
