"""Freed memory stays in the process where that can be asked for, and users' own settings are left alone."""

from __future__ import annotations

import platform
import subprocess
import sys

import pytest

from spd_core.process_memory import SET_BY_USERS, keep_freed_memory

needs_glibc = pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="the allocator is not glibc's")
FAULTS = """
import resource, sys
from spd_core.process_memory import keep_freed_memory
if sys.argv[1] == "keep":
    assert keep_freed_memory()

def faults():
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt

def fill():
    held = [bytearray(3_000_000) for _ in range(40)]
    for block in held:
        block[::4096] = bytes(len(block[::4096]))

fill()
before = faults()
fill()
print(faults() - before)
"""


def run_faults(mode: str) -> int:
    """Of a process in whose environment nothing sets the allocator."""
    done = subprocess.run([sys.executable, "-c", FAULTS, mode], capture_output=True, text=True, check=True, env={"PATH": ""})
    return int(done.stdout)


@needs_glibc
def test_freed_memory_is_used_again_without_page_faults() -> None:
    assert run_faults("keep") < 0.1 * run_faults("leave")


@needs_glibc
@pytest.mark.parametrize("name", SET_BY_USERS)
def test_settings_of_users_are_left_alone(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(name, "1")
    assert not keep_freed_memory.__wrapped__()


def test_other_allocators_are_not_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(platform, "libc_ver", lambda: ("", ""))
    assert not keep_freed_memory.__wrapped__()
