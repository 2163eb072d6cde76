"""The page Ablations as a visitor meets it: nothing run, some cells, all cells, cells that do not belong together."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping
from itertools import product
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from streamlit.testing.v1 import AppTest
from test_ablation import cube_values, make_result

from pages.shared import ablated, ablation_findings, ablation_tables
from pages.shared.text import escaped, message
from spd_core.ablation import (
    FACTORS,
    cell_name,
    effect_sentence,
    interaction_sentence,
    interactions,
    main_effects,
    write_cell,
)
from spd_core.ablation.frames import COMMAND

ROOT = Path(__file__).resolve().parent.parent
PAGE = "pages/ablations.py"
KEYS = list(product(*FACTORS.values()))


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where the page looks for results; empty."""
    monkeypatch.chdir(ROOT)
    monkeypatch.setattr(ablated, "FOLDER", tmp_path)
    return tmp_path


def visit() -> AppTest:
    """A visitor who comes straight to the page; it needs no model."""
    return AppTest.from_file(str(ROOT / "app.py"), default_timeout=120).switch_page(PAGE).run()


def fill(folder: Path, bonus: Mapping[frozenset[str], float] | None = None) -> dict[tuple[str, str, str], np.ndarray]:
    """Results of all 12 cells, written; their values."""
    values = cube_values(bonus)
    for key, numbers in values.items():
        write_cell(folder, make_result(key, numbers.tolist(), seeds=(0, 1)))
    return values


def words(app: AppTest) -> str:
    """All markdown, captions and messages of a page."""
    kinds = ("markdown", "caption", "info", "warning", "error", "title", "header", "code")
    return "\n".join(str(element.value) for kind in kinds for element in app.get(kind))


def tables(app: AppTest, column: str) -> list[pd.DataFrame]:
    """Tables that have the column."""
    return [table.value for table in app.table if column in table.value]


def is_well(app: AppTest) -> bool:
    """Whether the page ran to its end and shows no error."""
    return not app.exception and not app.error


def test_nothing_run_is_told_with_the_command_and_never_as_a_zero(folder: Path) -> None:
    app = visit()
    assert is_well(app)
    text = words(app)
    assert "No cell of the cube has been run yet" in text
    assert "python -m spd_core ablate" in text
    assert "they were not run yet" in text
    cube, axes = tables(app, "Seed spread")
    assert len(cube) == 12
    for table in (cube, axes):
        assert set(table["AUC"]) == {"not run yet"}
        assert set(table["n"]) == {""}
        assert all("python -m spd_core ablate --cell " in source for source in table["Source"])
    assert "python -m spd_core ablate --axis depth" in text


def test_papers_figures_stand_apart_with_their_source(folder: Path) -> None:
    app = visit()
    (paper,) = [table for table in tables(app, "AUC") if "not given" in set(table["n"])]
    shown = dict(zip(paper["Cell"], paper["AUC"], strict=True))
    assert shown["teacher rankings, LoRA"] == "0.5842"
    assert shown["clicks, LoRA"] == "not reported"
    assert paper["Source"].str.contains("2609.01807").all()
    assert "side by side, not compared with ours" in words(app)
    app.segmented_control(key="widget ablation metric").set_value("MRR").run()
    assert is_well(app)
    assert "The paper gives AUC for these cells, no MRR" in words(app)


def test_full_cube_is_shown_with_intervals_n_source_and_what_works_with_what(folder: Path) -> None:
    values = fill(folder, {frozenset(("teacher", "lora")): 0.05})
    app = visit()
    assert is_well(app)
    text = words(app)
    assert f"n = 40 held-out slates of {escaped('beauty/valid.jsonl.gz')}" in text
    for sentence in (*map(_effect, main_effects(values)), *map(_interaction, interactions(values))):
        assert message(sentence) in text
    assert "They interact" in text
    cube = tables(app, "Seed spread")[0]
    assert set(cube["n"]) == {"40"}
    key = ("slot_query", "teacher", "lora")
    row = cube[cube["Cell"].str.contains("slot")].iloc[-1]
    assert row["AUC"].startswith(f"{values[key].mean():.4f} (")
    assert (row["Seeds"], row["Seed spread"]) == ("2", "0.0000")
    assert row["Trained on"] == "head: 16 of 8 slates in 4 steps"


def _effect(effect: object) -> str:
    return effect_sentence(effect, "AUC")  # type: ignore[arg-type]


def _interaction(entry: object) -> str:
    return interaction_sentence(entry, "AUC")  # type: ignore[arg-type]


def test_every_figure_on_the_page_has_its_n_and_source(folder: Path) -> None:
    fill(folder)
    (folder / f"{cell_name(*KEYS[2])}.json").unlink()
    app = visit()
    assert is_well(app)
    found = tables(app, "Source")
    assert len(found) == 4  # the cube, the paper, the differences, the axes
    for table in found:
        figures = table[table.columns[[name in ("AUC", "MRR") for name in table.columns]][0]]
        for figure, n, source in zip(figures, table["n"], table["Source"], strict=True):
            if any(character.isdigit() for character in figure):
                assert n
                assert source
                assert "python" not in source
            else:
                assert figure in ("not run yet", "not reported")
    sentences = [line for line in words(app).splitlines() if line.startswith("- ")]
    assert len(sentences) == 4 + 5 + 2  # effects, interactions, decoders
    assert all(line.endswith(message("n = 40.")) for line in sentences)


@pytest.mark.parametrize("change", [{"file": " "}, {"n": 0}])
def test_figure_that_lost_its_n_or_source_is_not_shown(
    folder: Path, change: dict[str, object], monkeypatch: pytest.MonkeyPatch
) -> None:
    result = make_result(KEYS[0], [0.5, 0.7])
    metrics = {"hungarian": {"AUC": {"mean": 0.6, "low": 0.5, "high": 0.7, "n": change.get("n", 2)}}}
    source = result.source.model_copy(update={key: value for key, value in change.items() if key == "file"})
    damaged = result.model_copy(update={"source": source, "metrics": metrics})
    monkeypatch.setattr("spd_core.ablation.read_cells", lambda place: {result.cell: damaged})
    app = visit()
    assert not app.exception
    assert "must not be shown" in app.error[0].value
    assert not app.table


def test_cells_of_different_slates_are_refused_by_name(folder: Path) -> None:
    write_cell(folder, make_result(KEYS[0], [0.5, 0.7]))
    write_cell(folder, make_result(KEYS[1], [0.5, 0.7], slates_sha256="other"))
    app = visit()
    assert not app.exception
    assert "were measured on different slates" in app.error[0].value


def test_damaged_file_is_named_and_the_page_stays(folder: Path) -> None:
    (folder / "x.json").write_text("{}")
    app = visit()
    assert not app.exception
    assert "x\\.json" in app.error[0].value


def test_decoder_and_metric_are_followed_and_findings_kept(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fill(folder)
    app = visit()
    app.segmented_control(key="widget ablation decoder").set_value("first_column").run()
    app.segmented_control(key="widget ablation metric").set_value("NDCG@10").run()
    assert is_well(app)
    assert "NDCG@10" in tables(app, "Seed spread")[0]
    monkeypatch.setattr(ablation_findings, "main_effects", None)
    assert is_well(app.run())


def test_axis_points_show_the_cubes_own_cell_where_nothing_is_changed(folder: Path) -> None:
    values = fill(folder)
    write_cell(folder, make_result(("self_attention", "teacher", "frozen"), [0.5] * 40, name="tau-10"))
    app = visit()
    assert is_well(app)
    axes = tables(app, "Axis")[0]
    rows = axes[axes["Axis"] == "Temperature"]
    assert list(rows["AUC"] == "not run yet") == [True, True, False, True, False]
    assert axes[axes["Axis"] == "Readout"]["AUC"].iloc[2] == rows["AUC"].iloc[2]
    lost = 0.5 - values["self_attention", "teacher", "frozen"].mean()
    assert [text.split(" ")[0] for text in rows["Against the cube's cell"]] == ["", "", "", "", f"{lost:+.4f}"]


def test_download_holds_every_cell_and_no_formula() -> None:
    table = pd.DataFrame([{"cell": "=1+1", "label": "a", "mean": np.nan, "low": 0.5, "n": 3, "source": "@x"}])
    table = table.reindex(columns=ablation_tables.COLUMNS)
    (row,) = csv.DictReader(io.StringIO(ablation_tables.as_csv([table])))
    assert (row["cell"], row["source"], row["mean"], row["n"]) == ("'=1+1", "'@x", "", "3")


def test_missing_command_names_a_cell_that_ablate_knows() -> None:
    assert COMMAND.format(cell=cell_name(*KEYS[0])) == "python -m spd_core ablate --cell linear_probe-clicks-frozen"
