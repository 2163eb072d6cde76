"""The command line, `python -m spd_core <recipe>`: finds the recipe, runs it, turns errors into one line and exit code 2.

Only the recipe that is asked for is imported, so that `--help` does not wait for PyTorch. It knows no recipe's options.
"""

from __future__ import annotations

import importlib
import logging
import os
import sys
import warnings
from collections.abc import Callable, Sequence
from typing import NamedTuple

import typer

from spd_core.errors import SpdError
from spd_core.process_memory import keep_freed_memory


class Recipe(NamedTuple):
    """Where a recipe's function is and what the list of recipes says about it."""

    place: str
    """Module and function, `package.module:function`."""
    summary: str


RECIPES = {
    "prepare": Recipe(
        "spd_core.recipes.prepare:command", "Make the backbone ready: convert the embedded one or fetch another."
    ),
    "rank": Recipe("spd_core.recipes.rank:command", "Rank each slate of a file with a checkpoint."),
    "evaluate": Recipe("spd_core.recipes.evaluate:command", "Measure a checkpoint on slates with labels."),
    "diagnose": Recipe("spd_core.recipes.diagnose:command", "Look inside the score matrices of a whole slate file."),
    "train": Recipe("spd_core.recipes.train:command", "Train a student from a preset."),
    "label": Recipe("spd_core.recipes.label:command", "Rank each slate with a teacher, for students to learn from."),
    "frontier": Recipe("spd_core.recipes.frontier:command", "Quality against latency of all kinds of rankers in one run."),
    "layers": Recipe("spd_core.recipes.layers:command", "Find from which layer a checkpoint's ranking can be read."),
    "bench": Recipe("spd_core.recipes.bench:command", "Time each stage from tokens to ranking on this machine."),
    "race": Recipe("spd_core.recipes.race:command", "Race a student against a teacher on one slate and record it."),
    "ablate": Recipe("spd_core.recipes.ablate:command", "Train and measure every mix of head, signal and backbone."),
    "samples": Recipe("spd_core.recipes.make_samples:main", "Write the synthetic sample slates again."),
}

EXIT_BAD_INPUT = 2


def main(arguments: Sequence[str] | None = None) -> int:
    """Exit code of one command: 0 done, 2 bad input (one line on stderr says what), 130 interrupted.

    Args:
        arguments: words after the program's name; None takes those of this process.
    """
    words = list(sys.argv[1:] if arguments is None else arguments) or ["--help"]
    wanted = next((word for word in words if not word.startswith("-")), None)
    _configure_output(wanted)
    keep_freed_memory()
    try:
        code = build_app(wanted)(words, prog_name="python -m spd_core", standalone_mode=False)
    except typer.TyperException as error:
        known = f"{wanted} " if wanted in RECIPES else ""
        return _refuse(f"{error.format_message().rstrip('.')}. See `python -m spd_core {known}--help`")
    except SpdError as error:
        return _refuse(str(error))
    except OSError as error:  # a path that is missing, not ours to write, or on a full disk
        return _refuse(f"{error.filename}: {error.strerror}" if error.filename else str(error))
    return code if isinstance(code, int) else 0


def build_app(wanted: str | None) -> typer.Typer:
    """The command line with all recipes listed and the wanted one ready to run; the others are not imported."""
    app = typer.Typer(
        help="Single pass decoding: rank a slate from one prefill of a language model.",
        add_completion=False,
        pretty_exceptions_enable=False,
        rich_markup_mode=None,
    )
    app.callback()(_keep_recipes_as_subcommands)
    for name, recipe in RECIPES.items():
        command = find_command(recipe.place) if name == wanted else _not_imported
        app.command(name, short_help=recipe.summary)(command)
    return app


def find_command(place: str) -> Callable[..., object]:
    """The function at `package.module:function`."""
    module, _, function = place.partition(":")
    command: Callable[..., object] = getattr(importlib.import_module(module), function)
    return command


def _keep_recipes_as_subcommands() -> None:
    """Single pass decoding: rank a slate from one prefill of a language model."""


def _not_imported() -> None:
    raise AssertionError("a recipe that was not asked for has run")


def _configure_output(wanted: str | None) -> None:
    """Progress of our own goes to stderr; the model library stays quiet, except for the downloads of `prepare`."""
    logging.basicConfig(level=logging.WARNING, format="%(message)s")
    logging.getLogger("spd_core").setLevel(logging.INFO)
    os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
    warnings.filterwarnings("ignore", category=FutureWarning, module="transformers")
    if wanted != "prepare":
        os.environ.setdefault("HF_HUB_DISABLE_PROGRESS_BARS", "1")


def _refuse(message: str) -> int:
    typer.echo("error: " + " ".join(message.split()), err=True)
    return EXIT_BAD_INPUT


if __name__ == "__main__":
    sys.exit(main())
