"""Training on label files: each slate gets its own label, what is not fit to learn from stays out, and refusals say why."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from pathlib import Path

import pytest

from spd_core.datasets import write_jsonl
from spd_core.errors import SlateError, TrainingError
from spd_core.recipes.label import label_file
from spd_core.recipes.label_files import file_hash, gate_file
from spd_core.recipes.preset import Preset
from spd_core.recipes.training_data import read_training_set, teacher_name
from spd_core.slate import Slate

COUNT = 40


@pytest.fixture
def slates(make_slate: Callable[..., Slate], tmp_path: Path) -> Path:
    """40 slates of five; the click goes round."""
    slates = [make_slate(5, f"s{k}", titles=[f"Oil {j}" for j in range(5)], label=(f"c{k % 5 + 1}",)) for k in range(COUNT)]
    write_jsonl(tmp_path / "slates.jsonl", slates)
    return tmp_path / "slates.jsonl"


def line(k: int, **changes: object) -> dict[str, object]:
    """Label of slate s<k> that puts its click first and turns the rest, by the teacher `oracle`."""
    order = [f"c{(k + step) % 5 + 1}" for step in (0, 3, 1, 4, 2)]
    return {"slate_id": f"s{k}", "ranking": order, "kind": "ok", "teacher": "oracle", "mode": "free"} | changes


def write_labels(folder: Path, lines: list[dict[str, object]], name: str = "labels.jsonl") -> Path:
    write_jsonl(folder / name, lines)
    return folder / name


def new_preset(slates: Path, *labels: Path, **changes: object) -> Preset:
    files = tuple(str(path) for path in labels)
    fields = {"train": (str(slates),), "valid": str(slates), "valid_slates": 4, "teacher": "labels", "labels": files}
    return Preset.model_validate(fields | changes)


def test_each_slate_gets_its_own_label(slates: Path, tmp_path: Path) -> None:
    labels = write_labels(tmp_path, [line(k) for k in reversed(range(COUNT))])  # joined by id, not by place
    data, valid, hashes = read_training_set(new_preset(slates, labels))
    assert len(data.slates) == COUNT
    for k, slate in enumerate(data.slates):
        assert slate.teacher is not None
        assert (slate.slate_id, slate.teacher.name) == (f"s{k}", "oracle")
        assert list(slate.teacher.permutation) == line(k)["ranking"]
    assert [slate.teacher for slate in valid] == [slate.teacher for slate in data.slates[:4]]
    assert data.rank is None  # nobody at hand could rank a larger slate
    assert hashes == {path.name: file_hash(path) for path in (slates, labels)}


def test_the_checkpoint_will_name_the_teachers_behind_the_labels(slates: Path, tmp_path: Path) -> None:
    one = write_labels(tmp_path, [line(k) for k in range(20)])
    two = write_labels(tmp_path, [line(k, teacher="sage") for k in range(20, COUNT)], "more.jsonl")
    assert teacher_name(new_preset(slates, one, two)) == "oracle, sage"
    assert teacher_name(new_preset(slates, teacher="tfidf+purchase")) == "tfidf+purchase"
    data, _, _ = read_training_set(new_preset(slates, one, two))
    assert [slate.teacher.name for slate in data.slates] == ["oracle"] * 20 + ["sage"] * 20  # type: ignore[union-attr]


def test_slates_without_a_usable_label_stay_out_and_are_counted(
    slates: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    lines = [line(k, kind="missing" if k in (3, 5) else "ok") for k in range(COUNT - 1)]
    preset = new_preset(slates, write_labels(tmp_path, lines))
    with caplog.at_level(logging.INFO, logger="spd_core"):
        data, _, _ = read_training_set(preset)
    ids = [slate.slate_id for slate in data.slates]
    assert ids == [f"s{k}" for k in range(COUNT - 1) if k not in (3, 5)]
    assert "37 of 40 training slates have a usable label; left out: 1 without any, 2 repaired" in caplog.text
    with_repaired, _, _ = read_training_set(preset.changed(repaired=True))
    assert len(with_repaired.slates) == COUNT - 1


def test_validation_slates_without_a_label_are_kept_and_mentioned(
    slates: Path, make_slate: Callable[..., Slate], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    write_jsonl(tmp_path / "valid.jsonl", [make_slate(5, f"v{k}", label=("c1",)) for k in range(4)])
    labels = write_labels(tmp_path, [line(k) for k in range(COUNT)])
    with caplog.at_level(logging.WARNING, logger="spd_core"):
        _, valid, _ = read_training_set(new_preset(slates, labels, valid=str(tmp_path / "valid.jsonl")))
    assert [slate.teacher for slate in valid] == [None] * 4
    assert "validation slates lack labels: kendall_tau while training compares with the input order" in caplog.text


def test_labels_that_the_gate_refused_are_refused_until_told_otherwise(slates: Path, tmp_path: Path) -> None:
    labels = tmp_path / "random.jsonl"
    label_file(str(slates), labels, teacher="random")
    preset = new_preset(slates, labels)
    message = r"random\.jsonl: the gate refuses these labels: the order is near chance: AUC .*anyway with --ungated"
    with pytest.raises(TrainingError, match=message):
        read_training_set(preset)
    data, _, _ = read_training_set(preset.changed(ungated=True))
    assert len(data.slates) == COUNT


def test_the_recorded_verdict_counts_as_long_as_it_is_of_these_labels(slates: Path, tmp_path: Path) -> None:
    labels = write_labels(tmp_path, [line(k) for k in range(COUNT)])
    verdict = {"passed": False, "reasons": ["because of the test"], "labels_sha256": file_hash(labels)}
    gate_file(labels).write_text(json.dumps(verdict))
    with pytest.raises(TrainingError, match="because of the test"):
        read_training_set(new_preset(slates, labels))
    gate_file(labels).write_text(json.dumps(verdict | {"labels_sha256": "of other labels"}))
    read_training_set(new_preset(slates, labels))  # measured anew, and found good


def test_labels_without_a_verdict_are_measured_on_the_slates(slates: Path, tmp_path: Path) -> None:
    copies = [line(k, ranking=[f"c{j + 1}" for j in range(5)]) for k in range(COUNT)]
    with pytest.raises(TrainingError, match=r"labels\.jsonl: the gate refuses.*position bias: the teacher follows the input"):
        read_training_set(new_preset(slates, write_labels(tmp_path, copies)))


def test_a_label_of_other_candidates_stops_with_the_slate(slates: Path, tmp_path: Path) -> None:
    lines = [line(k) for k in range(COUNT)]
    lines[7] = line(7, ranking=["c1", "c2", "c3", "c4", "c9"])
    with pytest.raises(SlateError, match=r"slate 's7': label in labels\.jsonl: ranks 'c9', which is not in the slate"):
        read_training_set(new_preset(slates, write_labels(tmp_path, lines), ungated=True))


def test_settings_that_contradict_each_other_are_named(slates: Path, tmp_path: Path) -> None:
    labels = write_labels(tmp_path, [line(k, kind="format") for k in range(COUNT)])
    with pytest.raises(TrainingError, match="teacher is 'labels' but no label file is named; give one with --labels"):
        read_training_set(new_preset(slates))
    with pytest.raises(
        TrainingError, match="label files are named but the teacher is 'tfidf'; add --teacher labels, or drop"
    ):
        read_training_set(new_preset(slates, labels, teacher="tfidf"))
    with pytest.raises(TrainingError, match=r"0 of 40 training slates have a usable label.*40 repaired ones.*--repaired"):
        read_training_set(new_preset(slates, labels, ungated=True))
    with pytest.raises(TrainingError, match=r"unknown teacher 'oracle'; choose from brand, .*labels, .*stored"):
        read_training_set(new_preset(slates, teacher="oracle"))
