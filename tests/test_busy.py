"""Whoever measures times on a machine at work is told so."""

from __future__ import annotations

import logging
import os

import pytest

from spd_core.recipes.busy import warn_of_other_work


@pytest.mark.parametrize(("load", "told"), [(1.9, False), (2.0, True), (7.0, True)])
def test_half_of_the_cores_busy_is_told(
    load: float, told: bool, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(os, "getloadavg", lambda: (load, 0.0, 0.0))
    monkeypatch.setattr(os, "cpu_count", lambda: 4)
    with caplog.at_level(logging.WARNING):
        warn_of_other_work()
    assert ([f"{load:.1f} of 4 cores were busy" in line for line in caplog.messages] == [True]) == told


def test_nothing_is_told_where_the_system_keeps_no_load(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.delattr(os, "getloadavg", raising=False)
    warn_of_other_work()
    assert caplog.messages == []
