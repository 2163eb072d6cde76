"""What a process does once in the background: it ends, leaves Plotly imported, and raises nothing."""

from __future__ import annotations

import sys
import threading

import pytest

from pages.shared.warming import warm_charts


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
