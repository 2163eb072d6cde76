"""Checkpoints: what is saved comes back bit for bit, and anything amiss is refused by name."""

import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from peft import PeftModel
from safetensors.torch import load_file, save_file
from torch import Tensor

from spd_core.backbone import Backbone, load_backbone, prefill
from spd_core.checkpoint_config import TrainingFacts, read_config
from spd_core.checkpoint_files import (
    ADAPTER_CONFIG_FILE,
    ADAPTER_FILE,
    CONFIG_FILE,
    HEAD_FILE,
    check_contents,
    checkpoint_id,
    checkpoint_roots,
    describe_file,
    find_checkpoint,
)
from spd_core.checkpoints import UNSAVED, UNTRAINED, list_checkpoints, load_student, origin, random_student, save_student
from spd_core.errors import BackboneError, CheckpointError
from spd_core.model import LoraSettings, Student, StudentConfig, build_student
from spd_core.prompts import TEMPLATES, build_prompt
from spd_core.slate import Slate
from spd_core.tokenization import tokenize_slates

FACTS = TrainingFacts(
    teacher="reference", data={"train.jsonl": "ab12"}, seed=7, slates=100, steps=10, minutes=0.5, metrics={"auc": 0.75}
)
MakeSlate = Callable[..., Slate]


def scores_of(student: Student, slate: Slate) -> Tensor:
    batch = tokenize_slates([build_prompt(slate, student.template)], student.backbone.tokenizer)
    with torch.inference_mode():
        return student(batch)


@pytest.fixture(scope="module")
def pristine(tiny_student: Student, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder of a saved tiny student; read only."""
    return save_student(tiny_student, tmp_path_factory.mktemp("ckpt") / "tiny-spd", facts=FACTS, model_card="# Tiny\n")


@pytest.fixture
def folder(pristine: Path, tmp_path: Path) -> Path:
    """A copy of the checkpoint to damage."""
    return Path(shutil.copytree(pristine, tmp_path / "tiny-spd"))


def edit_config(folder: Path, **changes: object) -> None:
    file = folder / CONFIG_FILE
    file.write_text(json.dumps(json.loads(file.read_text()) | changes))


def edit_settings(folder: Path, group: str, **changes: object) -> None:
    edit_config(folder, **{group: json.loads((folder / CONFIG_FILE).read_text())[group] | changes})


def record_again(folder: Path, name: str) -> None:
    """Make the recorded hash fit the file, so that the checks behind the hash are reached."""
    edit_settings(folder, "files", **{name: describe_file(folder / name).model_dump()})


def edit_tensors(folder: Path, name: str, change: Callable[[dict[str, Tensor]], None]) -> None:
    tensors = load_file(folder / name)
    change(tensors)
    save_file(tensors, folder / name)
    record_again(folder, name)


def flip_byte(file: Path) -> None:
    content = bytearray(file.read_bytes())
    content[-1] ^= 1
    file.write_bytes(content)


# --- what is saved comes back


def test_a_loaded_student_saved_and_loaded_again_gives_the_same_matrix_bit_for_bit(
    pristine: Path, tiny_backbone: Backbone, make_slate: MakeSlate, tmp_path: Path
) -> None:
    first = load_student(pristine, backbone=tiny_backbone, merge=False)
    again = load_student(
        save_student(first, tmp_path / "again", facts=None, model_card=""), backbone=tiny_backbone, merge=False
    )
    assert torch.equal(scores_of(first, make_slate(9)), scores_of(again, make_slate(9)))


def test_a_folder_called_checkpoint_takes_the_id_of_the_folder_around_it() -> None:
    assert checkpoint_id(Path("runs/mine/checkpoint")) == "mine"
    assert checkpoint_id(Path("sample_data/checkpoints/mine")) == "mine"
    assert checkpoint_id(Path("checkpoint")) == "checkpoint"


def test_saving_loses_no_more_than_bfloat16_rounding(pristine: Path, tiny_student: Student, tiny_backbone: Backbone) -> None:
    saved, loaded = tiny_student.state_dict(), load_student(pristine, backbone=tiny_backbone, merge=False).state_dict()
    assert saved.keys() == loaded.keys()
    for name in saved:
        torch.testing.assert_close(loaded[name], saved[name], rtol=2**-8, atol=0.0)


def test_the_adapters_are_really_in_the_loaded_student(
    pristine: Path, tiny_backbone: Backbone, make_slate: MakeSlate
) -> None:
    student = load_student(pristine, backbone=tiny_backbone)
    without = build_student(tiny_backbone, student.config, student.template, with_lora=False)
    without.head.load_state_dict(student.head.state_dict())
    assert (scores_of(student, make_slate(5)) - scores_of(without.eval(), make_slate(5))).abs().max() > 0.1


def test_merging_the_adapters_changes_nothing_but_rounding(
    pristine: Path, tiny_backbone: Backbone, make_slate: MakeSlate
) -> None:
    apart, merged = (load_student(pristine, backbone=tiny_backbone, merge=merge) for merge in (False, True))
    assert isinstance(apart.model, PeftModel)
    assert not isinstance(merged.model, PeftModel)
    torch.testing.assert_close(scores_of(merged, make_slate(9)), scores_of(apart, make_slate(9)), atol=1e-4, rtol=0)


def test_the_statistics_of_the_head_keep_full_precision(tiny_backbone: Backbone, tmp_path: Path) -> None:
    student = random_student(tiny_backbone, config=StudentConfig(head_width=64))
    student.head.standardize.fit(torch.randn(50, 64) + 1 / 3)
    loaded = load_student(save_student(student, tmp_path / "x", facts=None, model_card=""), backbone=tiny_backbone)
    assert torch.equal(loaded.head.standardize.mean, student.head.standardize.mean)
    assert torch.equal(loaded.head.standardize.scale, student.head.standardize.scale)


def test_a_folder_and_a_loaded_backbone_give_the_same_student(
    pristine: Path, tiny_backbone: Backbone, tiny_backbone_dir: Path, make_slate: MakeSlate
) -> None:
    by_folder = load_student(str(pristine), backbone=str(tiny_backbone_dir), device="cpu", dtype="float32")
    by_object = load_student(pristine, backbone=tiny_backbone)
    assert torch.equal(scores_of(by_folder, make_slate(4)), scores_of(by_object, make_slate(4)))


@pytest.mark.parametrize("merge", [True, False])
def test_loading_leaves_a_given_backbone_as_it_was(
    pristine: Path, tiny_backbone: Backbone, make_slate: MakeSlate, merge: bool
) -> None:
    batch = tokenize_slates([build_prompt(make_slate(3), TEMPLATES["shop"])], tiny_backbone.tokenizer)
    before = prefill(tiny_backbone.model, batch)
    load_student(pristine, backbone=tiny_backbone, merge=merge)
    assert torch.equal(prefill(tiny_backbone.model, batch), before)
    assert not any("lora" in name for name, _ in tiny_backbone.model.named_modules())


def test_a_loaded_student_is_ready_for_inference_with_a_float32_head(pristine: Path, tiny_backbone: Backbone) -> None:
    student = load_student(pristine, backbone=tiny_backbone, dtype="bfloat16")
    assert not student.training
    assert not any(parameter.requires_grad for parameter in student.parameters())
    assert {p.dtype for p in student.head.parameters()} == {torch.float32}
    assert {p.dtype for p in student.model.parameters()} == {torch.bfloat16}


def test_a_cut_backbone_without_adapters_round_trips(tiny_backbone_dir: Path, make_slate: MakeSlate, tmp_path: Path) -> None:
    config = StudentConfig(head="slot_query", head_width=64, layer=1, readout="mean", user_token=True)
    student = random_student(str(tiny_backbone_dir), config=config, device="cpu", dtype="float32")
    for parameter in student.head.parameters():
        parameter.data = parameter.data.bfloat16().float()
    path = save_student(student, tmp_path / "cut", facts=None, model_card="")
    assert not (path / "adapter").exists()
    loaded = load_student(path, backbone=str(tiny_backbone_dir), device="cpu", dtype="float32")
    assert loaded.config == student.config
    assert torch.equal(scores_of(loaded, make_slate(6)), scores_of(student, make_slate(6)))


def test_the_config_says_where_the_weights_come_from(pristine: Path, tiny_student: Student) -> None:
    config = read_config(pristine)
    assert config.training == FACTS
    assert config.metrics == {"auc": 0.75}
    assert set(FACTS.versions) == {"python", "torch", "transformers", "peft"}
    assert config.template == TEMPLATES["shop"]
    assert config.backbone.fingerprint == tiny_student.backbone.fingerprint
    assert config.parameter_counts["adapter"] > 0


def test_plain_peft_reads_the_adapter_and_no_local_path_is_in_it(
    pristine: Path, tiny_backbone_dir: Path, tiny_backbone: Backbone, make_slate: MakeSlate
) -> None:
    text = (pristine / ADAPTER_CONFIG_FILE).read_text()
    assert json.loads(text)["base_model_name_or_path"] == "tiny-llama"
    assert str(tiny_backbone_dir.parent) not in text
    model = load_backbone(str(tiny_backbone_dir), device="cpu", dtype="float32").model
    by_peft = PeftModel.from_pretrained(model, str(pristine / "adapter"), autocast_adapter_dtype=False).float()
    ours = load_student(pristine, backbone=tiny_backbone, merge=False)
    batch = tokenize_slates([build_prompt(make_slate(3), TEMPLATES["shop"])], tiny_backbone.tokenizer)
    torch.testing.assert_close(prefill(by_peft, batch), prefill(ours.model, batch))


def test_origin_names_the_checkpoint_only_of_a_trained_student(
    pristine: Path, tiny_backbone: Backbone, tiny_student: Student, tmp_path: Path
) -> None:
    assert origin(load_student(pristine, backbone=tiny_backbone)) == "tiny-spd"
    assert origin(tiny_student) == UNSAVED
    untrained = random_student(tiny_backbone, config=StudentConfig(head_width=64))
    path = save_student(untrained, tmp_path / "rnd", facts=None, model_card="")
    assert origin(untrained) == origin(load_student(path, backbone=tiny_backbone)) == UNTRAINED


# --- what is amiss is refused by name


def first_key(tensors: dict[str, Tensor]) -> str:
    return sorted(tensors)[0]


def rename_first(tensors: dict[str, Tensor]) -> None:
    tensors["another"] = tensors.pop(first_key(tensors))


def other_k(tensors: dict[str, Tensor]) -> None:
    tensors["score.weight"], tensors["score.bias"] = torch.zeros(20, 64), torch.zeros(20)


def whole_numbers(tensors: dict[str, Tensor]) -> None:
    tensors["score.bias"] = torch.zeros(50, dtype=torch.int32)


def put_nan(tensors: dict[str, Tensor]) -> None:
    tensors[first_key(tensors)].view(-1)[0] = torch.nan


def put_infinity(tensors: dict[str, Tensor]) -> None:
    tensors[first_key(tensors)].view(-1)[0] = torch.inf


def not_safetensors(folder: Path) -> None:
    (folder / HEAD_FILE).write_bytes(b"\x00" * 64)
    record_again(folder, HEAD_FILE)


def no_adapter_any_more(folder: Path) -> None:
    edit_settings(folder, "student", lora=None)
    config = json.loads((folder / CONFIG_FILE).read_text())
    shutil.rmtree(folder / "adapter")
    config["settings_hash"] = "0"
    (folder / CONFIG_FILE).write_text(json.dumps(config))


DAMAGES: dict[str, tuple[Callable[[Path], object], str]] = {
    "no config": (lambda f: (f / CONFIG_FILE).unlink(), r"spd_config\.json is missing"),
    "config cut short": (lambda f: (f / CONFIG_FILE).write_text("{"), r"spd_config\.json is not valid JSON"),
    "config is a list": (lambda f: (f / CONFIG_FILE).write_text("[]"), r"schema version is None"),
    "future schema": (lambda f: edit_config(f, schema_version=2), r"schema version is 2, this code reads 1"),
    "unknown head": (lambda f: edit_settings(f, "student", head="mlp"), r"student\.head is 'mlp'.*self_attention"),
    "unknown setting": (lambda f: edit_settings(f, "student", heads=2), r"student\.heads is 2"),
    "changed wording": (lambda f: edit_settings(f, "template", preamble="Hi"), r"template has hash .* trained with"),
    "changed setting": (lambda f: edit_settings(f, "student", tau=3.0), r"a setting has changed"),
    "lora switched off": (no_adapter_any_more, r"a setting has changed"),
    "adapter not listed": (lambda f: edit_config(f, files={}), r"lists the files \[\], but its settings need"),
    "no head": (lambda f: (f / HEAD_FILE).unlink(), r"head\.safetensors is missing"),
    "no adapter": (lambda f: (f / ADAPTER_FILE).unlink(), r"adapter/adapter_model\.safetensors is missing"),
    "truncated head": (
        lambda f: (f / HEAD_FILE).write_bytes((f / HEAD_FILE).read_bytes()[:1000]),
        r"head\.safetensors has 1000 bytes instead of \d+",
    ),
    "flipped byte in head": (lambda f: flip_byte(f / HEAD_FILE), r"head\.safetensors is damaged"),
    "flipped byte in adapter": (lambda f: flip_byte(f / ADAPTER_FILE), r"adapter_model\.safetensors is damaged"),
    "flipped byte in adapter config": (lambda f: flip_byte(f / ADAPTER_CONFIG_FILE), r"adapter_config\.json is damaged"),
    "not safetensors": (not_safetensors, r"head\.safetensors cannot be read as safetensors"),
    "renamed key in head": (lambda f: edit_tensors(f, HEAD_FILE, rename_first), r"head.*weight 'layers\.0.*' is missing"),
    "renamed key in adapter": (lambda f: edit_tensors(f, ADAPTER_FILE, rename_first), r"adapter.*'base_model.*' is missing"),
    "extra key": (
        lambda f: edit_tensors(f, ADAPTER_FILE, lambda t: t.update(more=torch.zeros(1))),
        r"weight 'more' is not expected",
    ),
    "head of another K": (lambda f: edit_tensors(f, HEAD_FILE, other_k), r"shape \[20\].*ask for .*\[50\]"),
    "whole numbers": (lambda f: edit_tensors(f, HEAD_FILE, whole_numbers), r"'score\.bias' is int32 .*floating point"),
    "NaN in head": (lambda f: edit_tensors(f, HEAD_FILE, put_nan), r"head.*holds 1 values that are NaN"),
    "infinity in adapter": (lambda f: edit_tensors(f, ADAPTER_FILE, put_infinity), r"adapter.*holds 1 values that are NaN"),
    "pickle": (lambda f: (f / "optimizer.pt").write_bytes(b"x"), r"optimizer\.pt can run code"),
    "hidden pickle": (lambda f: (f / "adapter" / "x.PKL").write_bytes(b"x"), r"adapter/x\.PKL can run code"),
    "stray weights": (lambda f: (f / "model.safetensors").write_bytes(b"x"), r"model\.safetensors is not part"),
    "link out": (lambda f: (f / "notes.txt").symlink_to("/etc/hostname"), r"notes\.txt is a link that leaves"),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_checkpoint_is_refused_by_name(folder: Path, tiny_backbone: Backbone, damage: str) -> None:
    harm, message = DAMAGES[damage]
    load_student(folder, backbone=tiny_backbone)
    harm(folder)
    with pytest.raises(CheckpointError, match=f"checkpoint 'tiny-spd'.*{message}"):
        load_student(folder, backbone=tiny_backbone)


def test_the_head_itself_may_not_be_a_link_out(folder: Path, tiny_backbone: Backbone) -> None:
    moved = folder.parent / "elsewhere.safetensors"
    (folder / HEAD_FILE).rename(moved)
    (folder / HEAD_FILE).symlink_to(moved)
    with pytest.raises(CheckpointError, match=r"head\.safetensors is a link that leaves the folder"):
        load_student(folder, backbone=tiny_backbone)


def test_another_backbone_of_the_same_shape_is_refused(
    pristine: Path, tiny_backbone: Backbone, tmp_path: Path, tiny_backbone_dir: Path
) -> None:
    other = Path(shutil.copytree(tiny_backbone_dir, tmp_path / "other-llama"))
    tensors = load_file(other / "model.safetensors")
    tensors["embed_tokens.weight"][0, 0] += 1
    save_file(tensors, other / "model.safetensors", {"format": "pt"})
    with pytest.raises(CheckpointError, match=r"belongs to backbone 'tiny-llama' .* but 'other-llama' has"):
        load_student(pristine, backbone=str(other), device="cpu")


def test_a_loaded_backbone_of_another_depth_is_refused(pristine: Path, tiny_backbone_dir: Path) -> None:
    shallow = load_backbone(str(tiny_backbone_dir), device="cpu", dtype="float32", depth=1)
    with pytest.raises(CheckpointError, match=r"reads layer 2 but the loaded backbone ends at layer 1"):
        load_student(pristine, backbone=shallow)


def test_a_backbone_that_is_not_on_disk_is_asked_for(pristine: Path) -> None:
    with pytest.raises(CheckpointError, match=r"'tiny-llama' is neither .* give its folder with --backbone DIR"):
        load_student(pristine)
    with pytest.raises(BackboneError, match=r"run `python -m spd_core prepare --backbone no-such-model` to download it"):
        load_student(pristine, backbone="no-such-model")


# --- ids, folders, lists


@pytest.fixture
def root(pristine: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """`$SPD_CHECKPOINTS` with one good checkpoint, `good`."""
    (tmp_path / "root").mkdir()
    monkeypatch.setenv("SPD_CHECKPOINTS", str(tmp_path / "root"))
    shutil.copytree(pristine, tmp_path / "root" / "good")
    return tmp_path / "root"


def test_without_a_setting_ids_are_looked_up_beside_the_sample_data(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SPD_CHECKPOINTS", raising=False)
    (place,) = checkpoint_roots()
    assert place.parts[-2:] == ("sample_data", "checkpoints")


def test_the_first_root_wins(root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "second" / "good").mkdir(parents=True)
    monkeypatch.setenv("SPD_CHECKPOINTS", f"{root}:{tmp_path / 'second'}")
    assert find_checkpoint("good") == root / "good"


@pytest.mark.parametrize("name", ["../../x", "a/../good", "..", "..\\good", "/tmp/../etc"])
def test_an_id_that_climbs_is_refused(root: Path, name: str) -> None:
    with pytest.raises(CheckpointError, match=re.escape(repr(name)) + " climbs out"):
        find_checkpoint(name)


def test_an_unknown_id_lists_the_known_ones(root: Path) -> None:
    with pytest.raises(CheckpointError, match=r"unknown checkpoint 'bad'; choose from good; .*train"):
        find_checkpoint("bad")
    shutil.rmtree(root / "good")
    with pytest.raises(CheckpointError, match=r"unknown checkpoint 'good'; there is none yet"):
        find_checkpoint("good")
    with pytest.raises(CheckpointError, match=r"is not a folder"):
        find_checkpoint(root / "good")


def test_the_list_shows_good_checkpoints_and_why_others_are_broken(root: Path) -> None:
    for name in ("cut", "future"):
        shutil.copytree(root / "good", root / name)
    (root / "cut" / HEAD_FILE).write_bytes(b"short")
    edit_config(root / "future", schema_version=99)
    (root / ".hidden").mkdir()
    cut, future, good = list_checkpoints()
    assert (good.checkpoint_id, good.error, good.card) == ("good", None, "# Tiny\n")
    assert "self_attention, K=50, tiny-llama (LoRA r=2), layer 2, last readout" in good.summary
    assert cut.config is None
    assert "5 bytes" in cut.summary
    assert "schema version is 99" in str(future.error)


# --- saving


def folders_beside(path: Path) -> list[str]:
    return sorted(entry.name for entry in path.parent.iterdir())


def test_saving_replaces_a_checkpoint_as_a_whole(folder: Path, tiny_backbone: Backbone) -> None:
    (folder / "notes.txt").write_text("old")
    student = random_student(tiny_backbone, config=StudentConfig(head="linear_probe", head_width=64))
    save_student(student, folder, facts=None, model_card="new")
    assert sorted(path.name for path in folder.iterdir()) == ["README.md", HEAD_FILE, CONFIG_FILE]
    assert folders_beside(folder) == ["tiny-spd"]


def test_a_student_with_nan_is_not_saved_and_the_old_checkpoint_stays(folder: Path, tiny_backbone: Backbone) -> None:
    student = random_student(tiny_backbone, config=StudentConfig(head_width=64))
    student.head.score.bias[3] = torch.nan
    with pytest.raises(CheckpointError, match=r"head\.safetensors: weight 'score\.bias' holds 1 values"):
        save_student(student, folder, facts=None, model_card="")
    check_contents(folder, read_config(folder).files)
    assert folders_beside(folder) == ["tiny-spd"]


def test_a_merged_student_is_not_saved(pristine: Path, tiny_backbone: Backbone, tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match=r"save it before merging"):
        save_student(load_student(pristine, backbone=tiny_backbone), tmp_path / "x", facts=None, model_card="")
    assert not (tmp_path / "x").exists()


def test_saving_over_something_else_is_refused(tiny_student: Student, tmp_path: Path) -> None:
    (tmp_path / "photos").mkdir()
    (tmp_path / "photos" / "a.png").write_bytes(b"x")
    with pytest.raises(CheckpointError, match=r"photos exists and is not a checkpoint"):
        save_student(tiny_student, tmp_path / "photos", facts=None, model_card="")
    with pytest.raises(CheckpointError, match=r"checkpoint id '-x' may only hold"):
        save_student(tiny_student, tmp_path / "-x", facts=None, model_card="")


# --- untrained students


def test_random_students_of_one_seed_are_equal_and_leave_the_random_state_alone(
    tiny_backbone: Backbone, make_slate: MakeSlate
) -> None:
    config = StudentConfig(head_width=64, lora=LoraSettings())
    state = torch.get_rng_state()
    one, same, other = (random_student(tiny_backbone, config=config, seed=seed) for seed in (1, 1, 2))
    assert torch.equal(torch.get_rng_state(), state)
    assert torch.equal(scores_of(one, make_slate(5)), scores_of(same, make_slate(5)))
    assert not torch.equal(scores_of(one, make_slate(5)), scores_of(other, make_slate(5)))
    assert one.config.lora is None
