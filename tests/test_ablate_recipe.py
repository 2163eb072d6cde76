"""`ablate`: the plan's cells, shared states equal to each cell's own, runs that go on where they were stopped."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from spd_core.__main__ import main
from spd_core.ablation import CellResult, read_cell, read_cells
from spd_core.backbone import Backbone, load_backbone
from spd_core.checkpoint_config import read_config
from spd_core.datasets import write_jsonl
from spd_core.errors import SpdError, TrainingError
from spd_core.model import StudentConfig, build_student
from spd_core.prompts import TEMPLATES
from spd_core.recipes import ablate as recipe
from spd_core.recipes import ablation_run
from spd_core.recipes.ablate import ablate, cell_slates, format_results
from spd_core.recipes.ablation_ground import read_slate_sets
from spd_core.recipes.ablation_plan import AblationPlan, Budget, plan_names
from spd_core.recipes.evaluate import evaluate_file
from spd_core.recipes.rankers import Loading
from spd_core.slate import Ranking, Slate
from spd_core.training import shared_states
from spd_core.training.shared_states import Place, share_states
from spd_core.training.sources import compute_states

FROZEN, LORA = "self_attention-teacher-frozen", "self_attention-teacher-lora"
PLAN = """
title = "tiny"
curve_slates = 4
[preset]
train = ["{file}"]
valid = "{file}"
valid_slates = 8
backbone = "{backbone}"
[preset.student]
head_width = 64
readout = "mean"
lora = {{ rank = 2 }}
[frozen]
slates = 12
[frozen.train_settings]
epochs = 1
batch_slates = 4
eval_every = 2
save_every = 1
keep = "last"
[lora]
slates = 8
[lora.train_settings]
epochs = 1
batch_slates = 4
eval_every = 1
save_every = 1
keep = "last"
[axes.readout]
title = "Readout"
question = "Which?"
backbone = "frozen"
points = [{{ label = "last", student = {{ readout = "last" }} }}, {{ label = "mean" }}]
[axes.depth]
title = "Depth"
question = "How deep?"
backbone = "frozen"
points = [{{ label = "1", student = {{ layer = 1 }} }}, {{ label = "all" }}]
"""


@pytest.fixture(scope="module")
def slates(make_slate: Callable[..., Slate]) -> list[Slate]:
    """16 labelled slates with a stored teacher that reverses the input order."""
    made = []
    for k in range(16):
        slate = make_slate(5, f"s{k}", titles=[f"Oil {(k + j) % 7}" for j in range(5)], label=(f"c{1 + k % 5}",))
        made.append(dataclasses.replace(slate, teacher=Ranking("reversed", slate.item_ids[::-1])))
    return made


@pytest.fixture(scope="module")
def plan_file(slates: list[Slate], tiny_backbone_dir: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("plan")
    write_jsonl(folder / "slates.jsonl", slates)
    file = folder / "tiny.toml"
    file.write_text(PLAN.format(file=folder / "slates.jsonl", backbone=tiny_backbone_dir))
    return file


@pytest.fixture
def plan(plan_file: Path) -> AblationPlan:
    return AblationPlan.read(str(plan_file))


def run(plan: AblationPlan, folder: Path, names: tuple[str, ...] = (FROZEN, LORA)) -> dict[str, CellResult]:
    """Results of the cells."""
    options = {"run_folder": folder / "run", "device": "cpu", "dtype": "float32"}
    ablate(plan, plan.cells(names=names), out=folder / "out", **options)  # type: ignore[arg-type]
    return read_cells(folder / "out")


def without_minutes(result: CellResult) -> list[dict[str, Any]]:
    """Runs of a result as JSON, but for what a clock decides."""
    runs = [one.model_dump() for one in result.runs]
    for one in runs:
        for stage in one["stages"]:
            stage.pop("minutes")
    return runs


# --- the plan


@pytest.mark.parametrize("name", plan_names())
def test_every_plan_has_the_whole_cube_and_only_valid_settings(name: str) -> None:
    plan = AblationPlan.read(name)
    cells = plan.cells()
    assert len({cell.name for cell in cells}) == len(cells)
    assert {cell.name for cell in plan.cube()} <= {cell.name for cell in cells}
    assert len(plan.frozen.seeds) >= 2
    for cell in cells:
        assert (cell.preset.student.lora is None) == (cell.factors.backbone == "frozen")
        assert cell.preset.train_settings.signal == cell.head_settings.signal == cell.factors.signal
        assert cell.preset.train_settings.keep == "last"


def test_cube_cells_differ_in_their_factors_alone(plan: AblationPlan) -> None:
    cells = plan.cube()
    assert len(cells) == 12
    for cell in cells:
        student = cell.preset.student.model_dump() | {"head": None, "lora": None}
        assert student == cells[0].preset.student.model_dump() | {"head": None, "lora": None}
        assert cell.changes == {}


def test_shipped_axes_change_one_setting_and_share_their_middle_with_the_cube() -> None:
    plan = AblationPlan.read("beauty-cube")
    labels = {name: [point.label for point, _ in plan.axis(name)] for name in plan.axes}
    assert labels["rank"] == ["4", "16", "64"]
    assert labels["readout"] == ["last", "newline", "mean"]
    assert labels["depth"] == ["8", "12", "16", "20", "30"]
    assert labels["tau"] == ["0.1", "0.3", "1", "3", "10"]
    assert labels["iterations"] == ["5", "20", "50"]
    for name in plan.axes:
        found = [cell for _, cell in plan.axis(name)]
        assert len({cell.name for cell in found} & {FROZEN, LORA}) == 1
        if name != "preset":
            assert all(len(cell.changes) <= 1 for cell in found)
    paper = plan.axis("preset")[1][1].preset.student
    assert (paper.layer, paper.readout, paper.lora and paper.lora.rank, paper.head_width) == (30, "last", 64, 512)


def test_cells_are_chosen_by_name_and_axis_each_once_frozen_first(plan: AblationPlan) -> None:
    chosen = plan.cells(names=(LORA, FROZEN), axes=("readout",))
    assert [cell.name for cell in chosen] == [FROZEN, "readout-last", LORA]
    assert len(plan.cells(axes=("cube",))) == 12
    assert len(plan.cells()) == 14


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda plan: plan.cells(names=("nope",)), "unknown cell 'nope'; choose from depth-1"),
        (lambda plan: plan.cells(axes=("nope",)), "unknown axis 'nope'; choose from cube, depth, readout"),
        (lambda plan: AblationPlan.read("nope"), "unknown ablation plan 'nope'; choose from beauty-cube"),
    ],
)
def test_unknown_names_are_listed(plan: AblationPlan, call: Callable[[AblationPlan], object], message: str) -> None:
    with pytest.raises(TrainingError, match=message):
        call(plan)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('keep = "last"', 'keep = "best"', "keep must be 'last'"),
        ('readout = "mean"', 'readout = "mean"\nuser_token = true', "user_token must be false"),
        ("slates = 8\n[lora.", "slates = 99\n[lora.", "lora.slates 99 is more than frozen.slates 12"),
        ('label = "last"', 'label = "../x"', "a label holds letters"),
        ('readout = "last" }', 'colour = "red" }', "axis 'readout', point 'last': colour is 'red'"),
        ("title", "titel", "titel"),
    ],
)
def test_bad_plans_are_named(plan_file: Path, old: str, new: str, message: str, tmp_path: Path) -> None:
    text = plan_file.read_text()
    assert old in text
    file = tmp_path / "bad.toml"
    file.write_text(text.replace(old, new))
    with pytest.raises(TrainingError, match=message):
        AblationPlan.read(str(file)).cells()


# --- shared states


def test_shared_states_are_those_of_each_cut_backbone(tiny_backbone_dir: Path, slates: list[Slate], tmp_path: Path) -> None:
    whole = load_backbone(str(tiny_backbone_dir), device="cpu", dtype="float32")
    places = [Place(1, "mean"), Place(2, "last"), Place(2, "newline")]
    files = share_states(whole, TEMPLATES["shop"], slates, places, tmp_path)
    for place in places:
        cut = load_backbone(str(tiny_backbone_dir), device="cpu", dtype="float32", depth=place.layer)
        config = StudentConfig(head_width=64, readout=place.readout, layer=place.layer, lora=None)  # type: ignore[arg-type]
        own = compute_states(build_student(cut, config, TEMPLATES["shop"]), slates)
        shared = load_file(files[place])
        assert shared.keys() == own.keys()
        assert all(torch.equal(shared[name], own[name]) for name in own)
    assert not (tmp_path / "parts").exists()


def test_states_go_on_at_the_last_part_and_are_kept_until_their_content_changes(
    tiny_backbone: Backbone, slates: list[Slate], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shared_states, "SLATES_A_PART", 6)
    compute, sizes = shared_states._compute, []

    def counted(*arguments: Any) -> dict[str, torch.Tensor]:
        sizes.append(len(arguments[3]))
        if len(sizes) == 2:
            raise KeyboardInterrupt
        return compute(*arguments)

    monkeypatch.setattr(shared_states, "_compute", counted)
    place = Place(1, "mean")
    with pytest.raises(KeyboardInterrupt):
        share_states(tiny_backbone, TEMPLATES["shop"], slates, [place], tmp_path)
    files = share_states(tiny_backbone, TEMPLATES["shop"], slates, [place], tmp_path)
    assert sizes == [6, 6, 6, 4]  # the part that was saved is not computed again
    assert len(load_file(files[place])) == 2 * len(slates)
    share_states(tiny_backbone, TEMPLATES["shop"], slates, [place], tmp_path)
    assert len(sizes) == 4
    share_states(tiny_backbone, TEMPLATES["shop"], slates[:3], [place], tmp_path)
    assert sizes[4:] == [3]


def test_states_below_the_backbone_are_refused(tiny_backbone: Backbone, slates: list[Slate], tmp_path: Path) -> None:
    with pytest.raises(TrainingError, match="layer 3 were asked for but the backbone has layers 1 to 2"):
        share_states(tiny_backbone, TEMPLATES["shop"], slates, [Place(3, "mean")], tmp_path)


# --- runs


def test_two_cells_run_to_results_that_can_be_compared(plan: AblationPlan, tmp_path: Path) -> None:
    results = run(plan, tmp_path)
    frozen, tuned = results[FROZEN], results[LORA]
    assert frozen.source == tuned.source
    assert frozen.source.n == 8
    for result in (frozen, tuned):
        values = result.values("hungarian", "AUC")
        assert values.shape == (8,)
        assert set(np.round(values * 4) / 4) == set(np.round(values, 6))  # one of five is right: AUC is a quarter's multiple
        assert result.interval("hungarian", "AUC").mean == pytest.approx(values.mean())
        assert result.interval("first_column", "MRR").n == 8
    assert [(stage.name, stage.slates, stage.seen, stage.steps) for stage in tuned.runs[0].stages] == [
        ("head", 12, 12, 3),
        ("lora", 8, 8, 2),
    ]
    assert tuned.runs[0].stages[0] == frozen.runs[0].stages[0]  # one run of the head serves both
    assert len(list((tmp_path / "run" / "head").iterdir())) == 1
    assert [(step.stage, step.seen, step.n) for step in tuned.runs[0].curve] == [
        ("head", 8, 4),
        ("head", 12, 4),
        ("lora", 4, 4),
        ("lora", 8, 4),
    ]
    assert all(step.loss_nats is not None for step in tuned.runs[0].curve)


def test_finished_cells_are_passed_over_and_a_new_seed_is_added(
    plan: AblationPlan, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = run(plan, tmp_path, (FROZEN,))[FROZEN]
    train_head, seeds = ablation_run.train_head, []

    def counted(ground: Any, cell: Any, seed: int) -> Any:
        seeds.append(seed)
        return train_head(ground, cell, seed)

    monkeypatch.setattr(ablation_run, "train_head", counted)
    run(plan, tmp_path, (FROZEN,))
    assert seeds == []
    more = plan.model_copy(update={"frozen": plan.frozen.model_copy(update={"seeds": (0, 3)})})
    both = run(more, tmp_path, (FROZEN,))[FROZEN]
    assert seeds == [3]
    assert both.seeds == (0, 3)
    assert both.runs[0] == first.runs[0]
    assert both.interval("hungarian", "AUC").mean == pytest.approx(both.by_seed("hungarian", "AUC").mean())


def test_killed_cell_goes_on_and_ends_as_if_it_had_not_been_killed(
    plan: AblationPlan, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def killed(entry: dict[str, Any]) -> None:
        if entry.get("total_steps") == entry["step"] == 2:  # the last step of the LoRA stage, before it is saved
            raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(ablation_run, "show_progress", killed)
        with pytest.raises(KeyboardInterrupt):
            run(plan, tmp_path / "killed", (LORA,))
    assert not (tmp_path / "killed" / "out").exists()
    assert (tmp_path / "killed" / "run" / "head").exists()
    resumed = run(plan, tmp_path / "killed", (LORA,))[LORA]
    whole = run(plan, tmp_path / "whole", (LORA,))[LORA]
    assert without_minutes(resumed) == without_minutes(whole)


def test_result_of_other_settings_is_never_mixed_in(plan: AblationPlan, tmp_path: Path) -> None:
    run(plan, tmp_path, (FROZEN,))
    longer = plan.frozen.train_settings.model_copy(update={"epochs": 2.0})
    other = plan.model_copy(update={"frozen": Budget(slates=12, train_settings=longer)})
    with pytest.raises(SpdError, match=r"was made with other settings \(preset\.train_settings\.epochs: then 1\.0, now 2\.0"):
        run(other, tmp_path, (FROZEN,))


# --- the command


def test_dry_run_prints_every_cell_with_its_tokens_and_runs_none(
    plan_file: Path, plan: AblationPlan, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(recipe, "ablate", None)
    assert main(["ablate", "--preset", str(plan_file), "--dry-run", "--out", str(tmp_path / "out")]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len([line for line in lines if line.startswith(("linear_probe", "self_attention", "slot_query"))]) == 12
    row = next(line.split() for line in lines if line.startswith(LORA))
    assert row[1:4] == ["all", "seed", "0"]
    read, learned = cell_slates(plan, plan.cells(names=(LORA,))[0], read_slate_sets(plan))
    assert (read, learned) == (2 * 4 + 8, 8)  # two validations and the measurement; one pass over the slates
    tokens = [int(text.replace(",", "")) for text in row[4:]]
    assert tokens[0] == pytest.approx(2 * tokens[1], abs=2)
    frozen = next(line.split() for line in lines if line.startswith(FROZEN))
    assert frozen[4:] == ["0", "0"]
    assert not (tmp_path / "out").exists()


def test_command_writes_one_file_a_cell(plan_file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "out"
    words = [
        "ablate",
        "--preset",
        str(plan_file),
        "--cell",
        "readout-last",
        "--out",
        str(out),
        "--run",
        str(tmp_path / "run"),
    ]
    assert main([*words, "--device", "cpu", "--dtype", "float32"]) == 0
    printed = capsys.readouterr().out
    assert "1 cell in" in printed
    result = read_cell(out / "readout-last.json")
    (row,) = (line for line in printed.splitlines() if line.startswith("readout-last "))
    assert row.split()[1:4] == ["1", "8", f"{result.interval('hungarian', 'AUC')[0]:.3f}"]
    assert result.changes == {"readout": "last"}
    assert result.factors.key == ("self_attention", "teacher", "frozen")
    assert main([*words, "--cell", "nope"]) == 2
    assert "unknown cell 'nope'" in capsys.readouterr().err


def test_results_are_told_with_what_the_factors_do(plan: AblationPlan, tmp_path: Path) -> None:
    results = run(plan, tmp_path)
    lines = list(format_results(list(results.values())))
    assert [line.split()[0] for line in lines[:3]] == ["cell", FROZEN, LORA]
    (effect,) = lines[3:]
    assert effect.startswith("LoRA ")
    assert effect.endswith("mean of 1 of 6 pairs of cells, n = 8.")


def test_students_of_cells_are_saved_with_the_scores_they_were_measured_with(
    plan: AblationPlan, tmp_path: Path, tiny_backbone_dir: Path
) -> None:
    results = run(plan, tmp_path, (FROZEN, LORA, "depth-1"))
    trained = {path: path.read_bytes() for path in (tmp_path / "run").rglob("*.jsonl")}
    assert trained
    cells = plan.cells(names=(FROZEN, LORA, "depth-1"))
    options = {"run_folder": tmp_path / "run", "students": tmp_path / "students", "device": "cpu", "dtype": "float32"}
    ablate(plan, cells, out=tmp_path / "out", **options)  # type: ignore[arg-type]
    loading = Loading(backbone=str(tiny_backbone_dir), device="cpu", dtype="float32")
    for cell in cells:
        folder = tmp_path / "students" / cell.name
        report = evaluate_file(plan.preset.valid, checkpoint=str(folder), limit=plan.preset.valid_slates, loading=loading)
        measured = results[cell.name].values("hungarian", "AUC")
        assert report["per_slate"]["values"]["hungarian"]["AUC"] == pytest.approx(measured.tolist(), abs=1e-4)
        config = read_config(folder)
        assert config.training is not None
        assert (config.id, config.training.seed, config.training.largest_slate) == (cell.name, 0, 5)
        assert config.student.layer == cell.preset.student.layer
    assert trained == {path: path.read_bytes() for path in (tmp_path / "run").rglob("*.jsonl")}  # nothing is trained again
    before = {path: path.stat().st_mtime_ns for path in (tmp_path / "students").rglob("*.json")}
    ablate(plan, cells, out=tmp_path / "out", **options)  # type: ignore[arg-type]
    assert before == {path: path.stat().st_mtime_ns for path in (tmp_path / "students").rglob("*.json")}
