"""Teachers on disk: they come back writing the same, and are never taken for students."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from spd_core.checkpoint_config import TeacherSettings, read_config, read_teacher_config
from spd_core.checkpoints import list_checkpoints, load_student
from spd_core.errors import CheckpointError, SpdError
from spd_core.slate import Slate
from spd_core.teacher_checkpoints import ZERO_SHOT, list_teachers, load_teacher, save_teacher, zero_shot_teacher
from spd_core.teachers.autoregressive import AutoregressiveTeacher

MakeSlate = Callable[..., Slate]


@pytest.fixture
def home(monkeypatch: pytest.MonkeyPatch, app_home: Path, app_checkpoints: Path, tiny_teacher_dir: Path) -> Path:
    """A machine with one student and one teacher."""
    monkeypatch.setenv("SPD_HOME", str(app_home))
    monkeypatch.setenv("SPD_CHECKPOINTS", f"{app_checkpoints}:{tiny_teacher_dir.parent}")
    return tiny_teacher_dir


@pytest.mark.parametrize("merge", [True, False])
def test_a_saved_teacher_writes_the_same(
    home: Path, tiny_teacher: AutoregressiveTeacher, make_slate: MakeSlate, merge: bool
) -> None:
    slate = make_slate(12)
    loaded = load_teacher("tiny-teacher", device="cpu", dtype="float32", merge=merge)
    assert loaded.name == "tiny-teacher"
    assert loaded.answer(slate).text == tiny_teacher.answer(slate).text


def test_the_adapters_matter(home: Path, tiny_teacher: AutoregressiveTeacher, make_slate: MakeSlate) -> None:
    bare = zero_shot_teacher(device="cpu", dtype="float32")
    assert bare.name == ZERO_SHOT
    assert bare.answer(make_slate(12)).text != tiny_teacher.answer(make_slate(12)).text


def test_teachers_and_students_have_lists_of_their_own(home: Path) -> None:
    assert [info.checkpoint_id for info in list_checkpoints()] == ["tiny-spd"]
    (info,) = list_teachers()
    assert info.checkpoint_id == "tiny-teacher"
    assert info.summary == "SmolLM2-135M-Instruct (LoRA r=2), 2 layers, learned from reference"


def test_a_teacher_is_no_student(home: Path) -> None:
    with pytest.raises(CheckpointError, match="'tiny-teacher' is a teacher, which writes rankings and has no score matrix"):
        load_student("tiny-teacher")
    with pytest.raises(CheckpointError, match="'tiny-spd' is a student, which writes no rankings; choose a teacher"):
        load_teacher("tiny-spd")


def test_a_damaged_teacher_is_listed_with_its_error(home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    copy = Path(shutil.copytree(home, tmp_path / "tiny-teacher"))
    (copy / "adapter" / "adapter_model.safetensors").unlink()
    monkeypatch.setenv("SPD_CHECKPOINTS", str(tmp_path))
    (info,) = list_teachers()
    assert info.config is None
    assert "adapter/adapter_model.safetensors is missing" in info.summary
    with pytest.raises(CheckpointError, match=r"adapter_model\.safetensors is missing"):
        load_teacher("tiny-teacher")


def test_a_changed_setting_is_noticed(home: Path, tmp_path: Path) -> None:
    copy = Path(shutil.copytree(home, tmp_path / "tiny-teacher"))
    record = json.loads((copy / "spd_config.json").read_text("utf-8"))
    record["teacher"]["lora"]["alpha"] = 8.0
    (copy / "spd_config.json").write_text(json.dumps(record), "utf-8")
    with pytest.raises(CheckpointError, match="a setting has changed since it was saved"):
        load_teacher(copy)


def test_another_backbone_is_refused(home: Path, tiny_qwen3_dir: Path) -> None:
    with pytest.raises(CheckpointError, match="belongs to backbone 'SmolLM2-135M-Instruct' with fingerprint"):
        load_teacher("tiny-teacher", backbone=str(tiny_qwen3_dir))


def test_merged_adapters_cannot_be_saved(home: Path, tmp_path: Path) -> None:
    merged = load_teacher("tiny-teacher", device="cpu", dtype="float32")
    with pytest.raises(CheckpointError, match="save it before merging"):
        save_teacher(merged, tmp_path / "again", settings=TeacherSettings(), facts=None, model_card="")
    assert not (tmp_path / "again").exists()


def test_an_untrained_teacher_has_no_adapter_files(home: Path, tmp_path: Path, make_slate: MakeSlate) -> None:
    bare = zero_shot_teacher(device="cpu", dtype="float32")
    save_teacher(bare, tmp_path / "bare", settings=TeacherSettings(lora=None), facts=None, model_card="")
    assert read_teacher_config(tmp_path / "bare").files == {}
    loaded = load_teacher(tmp_path / "bare", device="cpu", dtype="float32")
    assert loaded.answer(make_slate(5)).text == bare.answer(make_slate(5)).text


def test_an_unknown_mode_is_refused(home: Path) -> None:
    with pytest.raises(SpdError, match="unknown decoding mode 'beam'"):
        load_teacher("tiny-teacher", mode="beam")


def test_configs_without_a_role_are_students(app_checkpoints: Path) -> None:
    file = app_checkpoints / "tiny-spd" / "spd_config.json"
    record = json.loads(file.read_text("utf-8"))
    assert record["role"] == "student"
    folder = app_checkpoints.parent / "old" / "tiny-spd"
    shutil.copytree(app_checkpoints / "tiny-spd", folder, dirs_exist_ok=True)
    del record["role"]
    (folder / "spd_config.json").write_text(json.dumps(record), "utf-8")
    assert read_config(folder).student == read_config(app_checkpoints / "tiny-spd").student
