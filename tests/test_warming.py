"""What a process does once in the background: it ends, leaves Plotly imported, and raises nothing."""

from __future__ import annotations

import sys
import threading

import pytest

from pages.shared import warming
from pages.shared.warming import compile_later, warm_charts
from spd_core.model import Student


def test_charts_are_warmed_once_and_without_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    raised: list[object] = []
    monkeypatch.setattr(threading, "excepthook", raised.append)
    warm_charts.cache_clear()
    thread = warm_charts()
    assert warm_charts() is thread
    thread.join(60)
    assert not thread.is_alive()
    assert raised == []
    assert "plotly.graph_objects" in sys.modules


def test_a_student_is_compiled_where_that_is_wanted(monkeypatch: pytest.MonkeyPatch, tiny_student: Student) -> None:
    asked: list[tuple[Student, float]] = []
    monkeypatch.setattr(warming, "quicken_aside", lambda student, *, after_seconds: asked.append((student, after_seconds)))
    assert compile_later(tiny_student) is None  # as in every app under test
    assert asked == []
    monkeypatch.delenv("SPD_COMPILE")
    compile_later(tiny_student)
    assert asked == [(tiny_student, warming.COMPILE_AFTER_SECONDS)]
