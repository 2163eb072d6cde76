"""Text in a slate that tries to look like something else: control tokens, a ranking, an instruction, invisible characters.

It only finds and names; nothing is changed or refused. It knows characters, not tokens and not the model.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

FOUND_LIMIT = 80
"""Most characters of a finding that are kept."""
OWN_WORDS_LENGTH = 5
"""Shortest wording of the template that counts; shorter ones ("-") stand in any title."""
SPECIAL_TOKEN = "special token"
MEANINGS = {
    SPECIAL_TOKEN: "spells a control token of a language model; here it is split into ordinary tokens",
    "ranking": "looks like the answer of a model that writes rankings; it cannot place anything here",
    "instruction": "talks to the model; it has no say over the assignment, but it is read",
    "template words": "repeats the wording of the prompt itself, as if another section began",
    "control character": "is a control character that a person cannot see",
    "direction override": "changes the direction in which a screen shows text; a model reads it as it is stored",
    "invisible character": "is a character without width that a person cannot see",
    "broken character": "stands where the text held half a character or one that could not be read",
}
"""What each kind of finding is, to be read after the text that was found."""
PATTERNS = {
    SPECIAL_TOKEN: r"<\|[^<>|\s]{1,40}\|>|\[/?INST\]|<</?SYS>>|</?s>|<(?:start|end)_of_turn>",
    "ranking": r"\[?#?\d+\]?(?:\s*>\s*\[?#?\d+\]?)+",
    "instruction": r"\b(?:ignore|disregard|forget)\b.{0,40}?\b(?:previous|prior|above|others?|instructions?|everything)\b"
    r"|\b(?:rank|put|place|list|pick|choose)\b.{0,30}?\bfirst\b|\bsystem prompt\b|\byou (?:are|must) now\b",
}
INVISIBLE = {0x00AD, 0x180E, 0x200B, 0x2060, 0x2061, 0x2062, 0x2063, 0x2064, 0xFEFF, *range(0xE0000, 0xE0080)}
OVERRIDES = {*range(0x202A, 0x202F), *range(0x2066, 0x206A)}


@dataclass(frozen=True)
class Flag:
    """One finding."""

    kind: str
    """Key of `MEANINGS`."""
    found: str
    """The text found, or the name of the character."""

    @property
    def meaning(self) -> str:
        """What the finding is, to be read after `found`."""
        return MEANINGS[self.kind]


def find_suspicious(text: str, *, special_tokens: Sequence[str] = (), own_words: Sequence[str] = ()) -> tuple[Flag, ...]:
    """Findings in a text, each once, by kind and then in the order of the text; empty for an ordinary title.

    Args:
        text: any text.
        special_tokens: control tokens of the tokenizer in use, beside those that are known everywhere.
        own_words: wording of the prompt's template.
    """
    flags = [*_by_pattern(text, special_tokens, own_words), *_by_character(text)]
    return tuple(dict.fromkeys(flags))


def _by_pattern(text: str, special_tokens: Sequence[str], own_words: Sequence[str]) -> Iterator[Flag]:
    literal = [re.escape(token) for token in special_tokens if token]
    patterns = PATTERNS | {SPECIAL_TOKEN: "|".join([*literal, PATTERNS[SPECIAL_TOKEN]])}
    words = [re.escape(word.strip()) for word in own_words if len(word.strip()) >= OWN_WORDS_LENGTH]
    if words:
        patterns["template words"] = "|".join(words)
    for kind, pattern in patterns.items():
        for match in re.finditer(pattern, text, re.IGNORECASE):
            yield Flag(kind, match[0][:FOUND_LIMIT])


def _by_character(text: str) -> Iterator[Flag]:
    for character in text:
        code = ord(character)
        if code in OVERRIDES:
            yield Flag("direction override", character_name(character))
        elif code in INVISIBLE:
            yield Flag("invisible character", character_name(character))
        elif code == 0xFFFD:
            yield Flag("broken character", character_name(character))
        elif unicodedata.category(character) == "Cc" and character != "\n":
            yield Flag("control character", character_name(character))


def character_name(character: str) -> str:
    """``U+202E RIGHT-TO-LEFT OVERRIDE``: code and, where Unicode has one, name."""
    return f"U+{ord(character):04X} {unicodedata.name(character, '')}".rstrip()
