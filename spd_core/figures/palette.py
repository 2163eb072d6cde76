"""The colors of all figures, for light and for dark ground; chosen to stay apart for color-blind readers."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Palette:
    """Colors by role; movement is blue against orange, never red against green."""

    ink: str
    """Text and outlines."""
    quiet: str
    """Lines and text that may stay in the background."""
    accent: str
    """What the eye shall find first."""
    up: str
    down: str
    sequential: tuple[str, ...]
    """Low to high; low is near the ground."""
    diverging: tuple[str, ...]
    """Below zero, zero, above zero."""
    outline: str
    """Frame of a chosen cell, readable on every color of both scales."""


LIGHT = Palette(
    ink="#1d2a2c",
    quiet="#8a989a",
    accent="#0b6e6e",
    up="#1f6fb2",
    down="#b85c00",
    sequential=("#f2f7f7", "#c6e3e1", "#84c3c0", "#3d9795", "#0b6e6e", "#053f41"),
    diverging=("#8c4a00", "#dd9a4f", "#f6f4f1", "#6db3b3", "#07595b"),
    outline="#d3246b",
)
DARK = Palette(
    ink="#e6eeee",
    quiet="#7d8c8f",
    accent="#58c9c1",
    up="#6fb4ee",
    down="#f0a04b",
    sequential=("#182124", "#14393c", "#14585a", "#1f807f", "#4db3ac", "#b4f0e6"),
    diverging=("#f2ab5e", "#8a5a22", "#20292c", "#217f7f", "#8be6dc"),
    outline="#ff7ab0",
)


def palette(*, dark: bool) -> Palette:
    """The palette for a dark or a light ground."""
    return DARK if dark else LIGHT
