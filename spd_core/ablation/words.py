"""Effects and interactions as sentences that need no statistics to read; every one ends with its number of slates."""

from __future__ import annotations

from spd_core.ablation.effects import Contrast, Effect, Interaction
from spd_core.metrics import Difference

SUBJECTS = {
    "lora": "LoRA",
    "teacher": "Learning from teacher rankings instead of clicks",
    "self_attention": "The self-attention head instead of the linear probe",
    "slot_query": "The slot-query head instead of the linear probe",
}
CONDITIONS = {
    "lora": "with LoRA",
    "frozen": "on the frozen backbone",
    "teacher": "with teacher rankings",
    "clicks": "with clicks",
    "self_attention": "with the self-attention head",
    "slot_query": "with the slot-query head",
    "linear_probe": "with the linear probe",
}
SMALLEST = 5e-4
"""A difference that three decimals show as 0 is called none."""


def is_clear(difference: Difference) -> bool:
    """Whether the 95 % interval leaves 0 out."""
    return difference.low > 0 or difference.high < 0


def effect_sentence(effect: Effect, metric: str) -> str:
    """What one factor does on average, e.g. `LoRA adds 0.060 (0.040 to 0.080) AUC ...`.

    Args:
        effect: of a contrast.
        metric: its name.
    """
    subject, found = SUBJECTS[effect.contrast.high], effect.difference
    if is_clear(found):
        verb = "adds" if found.mean > 0 else "costs"
        text = f"{subject} {verb} {_size(found)} {metric}"
    else:
        text = f"{subject} makes no clear difference: {metric} {_signed(found)}"
    return f"{text}, mean of {_pairs(effect.pairs, effect.possible)}, n = {found.n:,}."


def interaction_sentence(interaction: Interaction, metric: str) -> str:
    """Whether one factor's effect depends on another, both effects named.

    Args:
        interaction: of two contrasts.
        metric: its name.
    """
    subject = SUBJECTS[interaction.first.high]
    high, low = interaction.with_high, interaction.with_low
    conditions = CONDITIONS[interaction.second.high], CONDITIONS[interaction.second.low]
    if high.mean > 0 and low.mean > 0:
        effects = f"adds {_size(high)} {metric} {conditions[0]} and {_size(low)} {conditions[1]}"
    elif high.mean < 0 and low.mean < 0:
        effects = f"costs {_size(high)} {metric} {conditions[0]} and {_size(low)} {conditions[1]}"
    else:
        effects = f"changes {metric} by {_signed(high)} {conditions[0]} and by {_signed(low)} {conditions[1]}"
    return f"{subject} {effects}. {_verdict(interaction)}, n = {interaction.difference.n:,}."


def decoder_sentence(signal: str, difference: Difference, metric: str) -> str:
    """What reading the first column alone does against the full assignment, for the cells of one signal."""
    start = f"Students trained {CONDITIONS[signal]}: sorting the first column instead of the assignment"
    if is_clear(difference):
        verb = "adds" if difference.mean > 0 else "costs"
        return f"{start} {verb} {_size(difference)} {metric}, n = {difference.n:,}."
    return f"{start} makes no clear difference: {metric} {_signed(difference)}, n = {difference.n:,}."


def contrast_title(contrast: Contrast) -> str:
    """A few words for a table's row, e.g. `LoRA against frozen`."""
    return f"{_short(contrast.high)} against {_short(contrast.low)}"


def contrast_label(contrast: Contrast) -> str:
    """A word for a chart's row, e.g. `LoRA`; what it is compared with stands beside the chart."""
    return _short(contrast.high)


def interaction_title(interaction: Interaction) -> str:
    """A few words for a row, e.g. `LoRA x teacher`: the first one's effect at one level of the second against the other."""
    return f"{_short(interaction.first.high)} x {_short(interaction.second.high)}"


def _verdict(interaction: Interaction) -> str:
    found = interaction.difference
    squares = (
        ""
        if interaction.squares == interaction.possible
        else f" ({interaction.squares} of {interaction.possible} levels run)"
    )
    if max(abs(found.low), abs(found.high)) < SMALLEST:
        return f"No interaction: the two effects add up{squares}"
    if not is_clear(found):
        return f"No clear interaction: the two differ by {_signed(found)}{squares}"
    conditions = CONDITIONS[interaction.second.high], CONDITIONS[interaction.second.low]
    more, less = conditions if found.mean > 0 else conditions[::-1]
    return f"They interact: the effect is higher {more} than {less} by {_size(found)}{squares}"


def _pairs(count: int, possible: int) -> str:
    noun = "pair of cells" if possible == 1 else "pairs of cells"
    return f"{count} {noun}" if count == possible else f"{count} of {possible} {noun}"


def _size(found: Difference) -> str:
    """Without its sign: a cost of .02 is told as .02, its interval turned with it."""
    sign = -1.0 if found.mean < 0 else 1.0
    low, high = sorted((sign * found.low, sign * found.high))
    return f"{sign * found.mean:.3f} ({_plain(low)} to {_plain(high)})"


def _signed(found: Difference) -> str:
    return f"{_plain(found.mean, '+')} ({_plain(found.low, '+')} to {_plain(found.high, '+')})"


def _plain(value: float, sign: str = "") -> str:
    return f"{value + 0.0:{sign}.3f}".replace("-0.000", "0.000").replace("+0.000", "0.000")


def _short(level: str) -> str:
    names = {"lora": "LoRA", "self_attention": "self-attention", "slot_query": "slot-query"}
    return names.get(level, level.replace("_", " "))
