"""The command line: quick to answer, one line for what is wrong, and never a traceback."""

import re
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import pytest
import typer

from spd_core import __main__ as module
from spd_core.__main__ import RECIPES, Recipe, find_command, main
from spd_core.errors import SlateError

ROOT = Path(__file__).resolve().parent.parent


def run(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-m", "spd_core", *words], cwd=ROOT, capture_output=True, text=True, check=False)


@pytest.fixture
def failing(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """A recipe `fail` that raises what the test puts into `.error`."""
    holder = SimpleNamespace(error=None)

    def command(path: str, number: int = 1) -> None:
        """Fail."""
        if holder.error is not None:
            raise holder.error

    monkeypatch.setitem(RECIPES, "fail", Recipe("fake:command", "Fail."))
    monkeypatch.setattr(module, "find_command", lambda place: command)
    return holder


@pytest.mark.parametrize("words", [[], ["--help"]])
def test_help_lists_every_recipe_without_loading_any(words: list[str]) -> None:
    code = f"import sys; from spd_core.__main__ import main; code = main({words}); sys.exit(code or 'torch' in sys.modules)"
    begin = time.monotonic()
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0
    assert all(re.search(rf"^  {name} ", done.stdout, re.MULTILINE) for name in RECIPES)
    assert time.monotonic() - begin < 60  # a second where nothing else runs; with PyTorch five


@pytest.mark.parametrize("name", RECIPES)
def test_every_recipe_is_there_and_explains_itself(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    command = find_command(RECIPES[name].place)
    assert (command.__doc__ or "").strip()
    assert main([name, "--help"]) == 0
    assert f"Usage: python -m spd_core {name}" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["fail"], "error: Missing argument 'path'. See `python -m spd_core fail --help`"),
        (["fail", "x", "--number", "many"], "error: Invalid value for '--number'"),
        (["fail", "x", "--colour"], "error: No such option: --colour. See `python -m spd_core fail --help`"),
        (["fail", "x", "y"], "error: Got unexpected extra argument"),
        (["cook"], "error: No such command 'cook'. See `python -m spd_core --help`"),
        (["--colour"], "error: No such option: --colour. See `python -m spd_core --help`"),
    ],
)
def test_wrong_words_give_one_line_and_exit_code_2(
    failing: SimpleNamespace, capsys: pytest.CaptureFixture[str], words: list[str], message: str
) -> None:
    assert main(words) == 2
    captured = capsys.readouterr()
    assert captured.err.startswith(message)
    assert captured.err.count("\n") == 1
    assert captured.out == ""


@pytest.mark.parametrize(
    ("error", "line"),
    [
        (SlateError("slate 's1': has no\ncandidates"), "error: slate 's1': has no candidates"),
        (FileNotFoundError(2, "No such file or directory", "x.jsonl"), "error: x.jsonl: No such file or directory"),
        (OSError("disk full"), "error: disk full"),
    ],
)
def test_errors_of_users_give_one_line_and_exit_code_2(
    failing: SimpleNamespace, capsys: pytest.CaptureFixture[str], error: Exception, line: str
) -> None:
    failing.error = error
    assert main(["fail", "x"]) == 2
    assert capsys.readouterr().err == line + "\n"


def test_commands_keep_freed_memory(failing: SimpleNamespace, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[bool] = []
    monkeypatch.setattr(module, "keep_freed_memory", lambda: asked.append(True))
    assert main(["fail", "x"]) == 0
    assert asked == [True]


def test_defects_of_ours_are_not_hidden(failing: SimpleNamespace) -> None:
    failing.error = ZeroDivisionError("ours")
    with pytest.raises(ZeroDivisionError):
        main(["fail", "x"])


def test_success_interruption_and_a_chosen_exit_code_are_told_apart(failing: SimpleNamespace) -> None:
    assert main(["fail", "x"]) == 0
    failing.error = typer.Exit(3)
    assert main(["fail", "x"]) == 3
    failing.error = KeyboardInterrupt()
    assert main(["fail", "x"]) == 130


def test_the_process_ends_with_the_exit_code() -> None:
    done = run("cook")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "error: No such command 'cook'. See `python -m spd_core --help`\n"
