"""Imports point down only: the floors of the project, read from the source of every file."""

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
FLOORS = (
    {"slate", "json_values", "errors", "words", "process_memory"},
    {"prompts", "sinkhorn", "decoding", "metrics", "backbone_files", "suspicious_text", "result_files"},
    {
        "backbone",
        "readouts",
        "heads",
        "head_attention",
        "tokenization",
        "datasets",
        "order_sensitivity",
        "sinkhorn_flips",
        "layer_probe",
    },
    {"model", "loss", "teachers", "prompt_view", "fused_llama", "layer_states", "diagnosis", "explanations", "ablation"},
    {
        "training",
        "checkpoints",
        "checkpoint_config",
        "checkpoint_files",
        "checkpoint_weights",
        "teacher_checkpoints",
        "latency",
        "speed_paths",
        "quick_pass",
        "frontier_report",
    },
    {"pipeline", "figures", "inside", "attention_rollout", "race", "race_record", "capacity", "frontier"},
    {"recipes"},
    {"__init__", "__main__"},
    {"pages.shared"},
    {"pages"},
    {"app"},
)
FLOOR_OF = {unit: floor for floor, units in enumerate(FLOORS) for unit in units}
NEIGHBOURS = {
    ("slate", "errors"),
    ("slate", "json_values"),
    ("json_values", "errors"),
    ("backbone", "tokenization"),
    ("backbone", "readouts"),
    ("readouts", "tokenization"),
    ("checkpoints", "checkpoint_files"),
    ("checkpoints", "checkpoint_config"),
    ("checkpoints", "checkpoint_weights"),
    ("checkpoint_config", "checkpoint_files"),
    ("checkpoint_weights", "checkpoint_files"),
    ("checkpoint_weights", "checkpoint_config"),
    ("teacher_checkpoints", "checkpoint_files"),
    ("teacher_checkpoints", "checkpoint_config"),
    ("teacher_checkpoints", "checkpoint_weights"),
}
"""The only imports within a floor: who imports whom."""
SOURCES = sorted(
    path.relative_to(ROOT).as_posix()
    for place in ("spd_core", "pages", "app.py")
    for path in ([ROOT / place] if place.endswith(".py") else (ROOT / place).rglob("*.py"))
    if path.is_file()
)


def unit_of(module: str) -> str:
    """Unit of a dotted module name: `spd_core.heads.slot_query` -> `heads`, `pages.shared.text` -> `pages.shared`."""
    parts = module.split(".")
    if parts[0] == "spd_core":
        return parts[1] if len(parts) > 1 else "__init__"
    return "pages.shared" if parts[:2] == ["pages", "shared"] else parts[0]


def imported_units(tree: ast.AST, package: list[str]) -> Iterator[str]:
    """Units of this project that a source imports anywhere, also inside functions."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            above = package[: len(package) - node.level + 1] if node.level else []
            module = ".".join([*above, *([node.module] if node.module else [])])
            is_package = (ROOT / module.replace(".", "/")).is_dir()
            names = [f"{module}.{alias.name}" for alias in node.names] if is_package else [module]
        else:
            continue
        for name in names:
            if name.split(".")[0] in ("spd_core", "pages", "app"):
                unit = unit_of(name)
                yield unit if unit in FLOOR_OF else "__init__"


@pytest.mark.parametrize("source", SOURCES)
def test_imports_point_down(source: str) -> None:
    module = source.removesuffix(".py").replace("/", ".")
    own = unit_of(module)
    assert own in FLOOR_OF, f"{source}: put {own!r} on a floor of this test"
    tree = ast.parse((ROOT / source).read_text("utf-8"))
    for other in set(imported_units(tree, module.split(".")[:-1])) - {own}:
        points_down = FLOOR_OF[other] < FLOOR_OF[own] or (own, other) in NEIGHBOURS
        assert points_down, f"{source} (floor {FLOOR_OF[own]}) imports {other} (floor {FLOOR_OF[other]})"


@pytest.mark.parametrize("source", [source for source in SOURCES if source.startswith("pages/") and source.count("/") == 1])
def test_pages_do_not_import_each_other(source: str) -> None:
    tree = ast.parse((ROOT / source).read_text("utf-8"))
    assert "pages" not in set(imported_units(tree, ["pages"]))


@pytest.mark.parametrize("source", [source for source in SOURCES if source.startswith("spd_core/")])
def test_the_core_does_not_know_streamlit(source: str) -> None:
    tree = ast.parse((ROOT / source).read_text("utf-8"))
    names = {alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names}
    names |= {node.module or "" for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    assert not {name for name in names if name.split(".")[0] == "streamlit"}


@pytest.mark.parametrize("module", ["spd_core.slate", "spd_core.errors", "spd_core.__main__"])
def test_the_ground_floor_and_the_command_line_load_without_torch(module: str) -> None:
    code = f"import sys, {module}; sys.exit('torch' in sys.modules or 'numpy' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=False).returncode == 0
