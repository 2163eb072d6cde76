"""`evaluate`: figures that can be checked by hand, every decoder and floor in one pass, nothing half-written."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from spd_core.checkpoint_config import TrainingFacts, read_config
from spd_core.checkpoints import load_student, save_student
from spd_core.datasets import write_jsonl
from spd_core.decoding import DECODERS
from spd_core.errors import CheckpointError, SpdError
from spd_core.metrics import MetricCollector, MetricRow
from spd_core.model import Student
from spd_core.recipes.evaluate import Evaluation, evaluate_file, fit_floors, format_report
from spd_core.recipes.model_card import record_report
from spd_core.recipes.shards import Shard
from spd_core.slate import Slate


@pytest.fixture(scope="module")
def checkpoint(tiny_student: Student, tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(save_student(tiny_student, tmp_path_factory.mktemp("c") / "tiny", facts=None, model_card="# tiny"))


@pytest.fixture(scope="module")
def slate_file(make_slate: Callable[..., Slate], tmp_path_factory: pytest.TempPathFactory) -> str:
    slates = [
        make_slate(
            6,
            f"s{k}",
            titles=[f"Soap {k} {c}" for c in "abcdef"],
            label=(f"c{k % 6 + 1}",),
            extra={"same_day_as_history": 3 * (k % 2)},
        )
        for k in range(12)
    ]
    slates.append(make_slate(4, "unlabelled"))
    file = tmp_path_factory.mktemp("slates") / "slates.jsonl"
    write_jsonl(file, slates)
    return str(file)


@pytest.fixture(scope="module")
def report(checkpoint: str, slate_file: str, tiny_backbone_dir: Path) -> dict:
    floors = fit_floors(["random", "input_order"], [slate_file], None)
    return evaluate_file(
        slate_file,
        checkpoint=checkpoint,
        decoders=list(DECODERS),
        floors=floors,
        backbone=str(tiny_backbone_dir),
        device="cpu",
        dtype="float32",
    )


def test_every_ranker_is_measured_on_the_same_slates(report: dict) -> None:
    assert set(report["rankers"]) == {*DECODERS, "random", "input_order"}
    assert {row["AUC"]["n"] for row in report["rankers"].values()} == {12} == {report["n"]}
    assert report["excluded"]["no_relevant"] == ["unlabelled"]


def test_input_order_has_the_auc_of_arithmetic(report: dict) -> None:
    # labels cycle through the six places twice, so the mean share of candidates below the label is one half
    assert report["rankers"]["input_order"]["AUC"]["mean"] == pytest.approx(0.5)
    assert report["rankers"]["input_order"]["Recall@1"]["mean"] == pytest.approx(1 / 6)


def test_groups_split_the_slates(report: dict) -> None:
    groups = report["groups"]["same_day_as_history"]
    assert {value: row["AUC"]["n"] for value, row in groups.items()} == {"no": 6, "yes": 6}
    mean = np.mean([row["AUC"]["mean"] for row in groups.values()])
    assert mean == pytest.approx(report["metrics"]["AUC"]["mean"])


def test_differences_are_paired_with_the_first_decoder(report: dict) -> None:
    assert set(report["differences"]) == set(report["rankers"]) - {"hungarian"}
    rankers = report["rankers"]
    expected = rankers["hungarian"]["AUC"]["mean"] - rankers["random"]["AUC"]["mean"]
    assert report["differences"]["random"]["AUC"]["mean"] == pytest.approx(expected)


def test_report_is_plain_json_and_its_table_names_every_ranker(report: dict) -> None:
    assert json.loads(json.dumps(report)) == report
    text = format_report(report)
    assert all(name in text for name in report["rankers"])
    assert "n = 12" in text
    assert "Recall@10 is 1 for any order on 12 of 12 slates" in text


def test_unknown_ranker_and_decoder_are_named(checkpoint: str, slate_file: str) -> None:
    with pytest.raises(SpdError, match="unknown ranker 'oracle'"):
        fit_floors(["oracle"], [slate_file], None)
    with pytest.raises(SpdError, match="unknown decoder 'coin'"):
        evaluate_file(slate_file, checkpoint=checkpoint, decoders=["coin"])


def test_rows_of_processes_are_joined_in_input_order(monkeypatch: pytest.MonkeyPatch) -> None:
    shares = [[MetricRow(f"s{k}", 2, "no_gain", ()) for k in part] for part in ((0, 2, 4), (1, 3))]
    monkeypatch.setattr("accelerate.utils.gather_object", lambda mine: shares if isinstance(mine[0], list) else mine)
    evaluation = Evaluation({"hungarian": MetricCollector()})
    evaluation.gather(Shard(0, 2, "cpu"))
    assert [row.slate_id for row in evaluation.collectors["hungarian"].rows] == ["s0", "s1", "s2", "s3", "s4"]


def test_figures_go_into_config_and_card_and_the_checkpoint_still_loads(
    report: dict, tiny_student: Student, tiny_backbone_dir: Path, tmp_path: Path
) -> None:
    facts = TrainingFacts(teacher="stored", data={}, seed=0, slates=1, steps=1, minutes=0.1)
    folder = save_student(tiny_student, tmp_path / "carded", facts=facts, model_card="# old")
    record_report(folder, report)
    card = (folder / "README.md").read_text()
    assert f"{report['metrics']['AUC']['mean']:.4f}" in card
    assert "hungarian, same_day_as_history = yes" in card
    figures = read_config(folder).metrics["evaluations"]["slates.jsonl"]
    assert figures["n"] == 12
    load_student(folder, backbone=str(tiny_backbone_dir), device="cpu", dtype="float32")


def test_untrained_checkpoint_has_no_card_for_figures(report: dict, checkpoint: str) -> None:
    with pytest.raises(CheckpointError, match="is untrained"):
        record_report(Path(checkpoint), report)
