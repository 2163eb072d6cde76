"""`evaluate`: figures that can be checked by hand, every decoder and floor in one pass, nothing half-written."""

from __future__ import annotations

import dataclasses
import json
import re
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from app_machine import TINY_WRITER

from spd_core import __main__ as command_line
from spd_core.checkpoint_config import TrainingFacts, read_config, read_teacher_config
from spd_core.checkpoints import load_student, save_student
from spd_core.datasets import load_slates, write_jsonl
from spd_core.decoding import DECODERS
from spd_core.errors import CheckpointError, SlateError, SpdError
from spd_core.metrics import MetricCollector, MetricRow, evaluate_rankings
from spd_core.model import Student
from spd_core.recipes.evaluate import evaluate_file
from spd_core.recipes.evaluation import Evaluation, format_report, report_bytes
from spd_core.recipes.evaluation_report import read_report
from spd_core.recipes.label import label_file
from spd_core.recipes.model_card import record_report
from spd_core.recipes.rankers import FORMS, Loading, build_rankers, check_rankers, checkpoint_of, split_choice
from spd_core.recipes.ranking_store import content_hash
from spd_core.recipes.shards import Shard
from spd_core.recipes.slate_sizes import size_warnings
from spd_core.slate import Ranking, Slate
from spd_core.teacher_checkpoints import save_teacher
from spd_core.teachers import TEACHERS, pointwise
from spd_core.teachers.autoregressive import AutoregressiveTeacher
from spd_core.teachers.given import AttributeOrder, StoredOrder
from spd_core.teachers.language_model import LANGUAGE_MODEL_RANKERS, language_model_ranker


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
def loading(tiny_backbone_dir: Path) -> Loading:
    return Loading(backbone=str(tiny_backbone_dir), device="cpu", dtype="float32")


@pytest.fixture(scope="module")
def report(checkpoint: str, slate_file: str, loading: Loading) -> dict:
    return evaluate_file(
        slate_file, checkpoint=checkpoint, decoders=list(DECODERS), rankers=["random", "input_order"], loading=loading
    )


@pytest.fixture(scope="module")
def label_path(slate_file: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Labels of the slates by the teacher `random`."""
    path = tmp_path_factory.mktemp("labels") / "labels.jsonl"
    label_file(slate_file, path, teacher="random")
    return path


@pytest.fixture(scope="module")
def contest(tiny_teacher_dir: Path, checkpoint: str, label_path: Path, slate_file: str, loading: Loading) -> dict:
    """Report without --checkpoint: a teacher in both modes, two decoders of a student, labels and a floor."""
    teacher, student = f"teacher:{tiny_teacher_dir}", f"student:{checkpoint}"
    names = [teacher, f"{teacher}:free", student, f"{student}:first_column", f"labels:{label_path}", "random"]
    return evaluate_file(slate_file, rankers=names, loading=loading)


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


def test_slices_hold_every_ranker_with_its_number_of_slates(report: dict) -> None:
    assert list(report["slices"]) == ["same_day_as_history", "candidates", "history", "target place", "brand in history"]
    for rows in report["slices"].values():
        assert sum(row["hungarian"]["AUC"]["n"] for row in rows.values()) == 12
        assert all(set(row) == set(report["rankers"]) for row in rows.values())
    assert report["slices"]["candidates"] == {"6": report["slices"]["candidates"]["6"]}
    assert report["slices"]["candidates"]["6"]["random"]["AUC"] == pytest.approx(report["rankers"]["random"]["AUC"])
    assert report["slices"]["target place"]["first fifth"]["input_order"]["Recall@1"]["mean"] == 0.5  # 1st or 2nd of six
    assert report["slices"]["target place"]["last fifth"]["input_order"]["MRR"]["mean"] == pytest.approx(1 / 6)


def test_each_slate_is_kept_with_its_values_and_what_it_is(report: dict, slate_file: str) -> None:
    rows, slates = report["per_slate"], load_slates(slate_file)[:12]
    assert rows["slate_ids"] == [slate.slate_id for slate in slates]
    assert rows["digests"] == [content_hash(slate)[:16] for slate in slates]
    assert rows["attributes"]["same_day_as_history"] == ["no", "yes"] * 6
    for name, row in report["rankers"].items():
        assert np.mean(rows["values"][name]["MRR"]) == pytest.approx(row["MRR"]["mean"], abs=1e-6)


def test_report_says_when_on_what_and_with_which_code_it_was_made(report: dict) -> None:
    assert re.fullmatch(r"\d{4}-\d{2}-\d{2}", report["date"])
    assert report["machine"]["device"] == "cpu"
    assert {"cpu", "cores", "threads", "torch"} <= set(report["machine"])
    assert "commit" in report
    assert len(report["provenance"]["fingerprint"]) == 16


def test_differences_are_paired_with_the_first_decoder(report: dict) -> None:
    assert set(report["differences"]) == set(report["rankers"]) - {"hungarian"}
    rankers = report["rankers"]
    expected = rankers["hungarian"]["AUC"]["mean"] - rankers["random"]["AUC"]["mean"]
    assert report["differences"]["random"]["AUC"]["mean"] == pytest.approx(expected)


def test_report_is_plain_json_and_its_table_names_every_ranker(report: dict) -> None:
    assert json.loads(json.dumps(report)) == report
    assert json.loads(report_bytes(report)) == report
    assert len(report_bytes(report).splitlines()) < 1000  # the long parts stand on a line each
    text = format_report(report)
    assert all(name in text for name in report["rankers"])
    assert "\nhungarian of tiny by slices:\nslice " in text
    difference = report["differences"]["random"]["AUC"]
    assert "\nhungarian of tiny less each other, paired over the same slates:\nranker " in text
    assert re.search(rf"random +12 +{re.escape(format(difference['mean'], '+.4f'))} \([+-].*\), p [=<] [01]\.\d+\n", text)
    assert re.search(r"same_day_as_history = yes +6 ", text)
    assert "candidates = 6" not in text  # one slice splits nothing
    assert "n = 12" in text
    assert "Recall@10 is 1 for any order on 12 of 12 slates" in text


BAD_RANKERS = {
    "oracle": r"unknown ranker 'oracle'; choose from brand, .*labels:FILE, .*teacher:ID:free",
    "student": r"unknown ranker 'student'",
    "student:beauty-spd:coin": r"unknown decoder 'coin'; choose from",
    "teacher:beauty-teacher:wild": r"unknown decoding mode 'wild'; choose from constrained, free",
    "teacher:nobody": r"unknown teacher 'nobody'; choose from beauty-teacher; ",
    "student:nobody": r"unknown checkpoint 'nobody'; choose from beauty-spd, .*",
    "teacher:beauty-spd": r"checkpoint 'beauty-spd' is a student, which writes no rankings; choose a teacher",
    "student:beauty-teacher": r"checkpoint 'beauty-teacher' is a teacher, which writes rankings and has no score matrix",
    "by:": r"unknown ranker 'by:'; choose from .*by:ATTRIBUTE",
    "first_token": r"unknown ranker 'first_token'; choose from .*first_token:ID",
    "pointwise:nobody": r"unknown teacher 'nobody'",
    "labels:nowhere.jsonl": r"data file 'nowhere\.jsonl' is neither here nor in",
}


@pytest.mark.parametrize("name", BAD_RANKERS)
def test_a_ranker_that_cannot_be_is_named(name: str) -> None:
    with pytest.raises(SpdError, match=BAD_RANKERS[name]):
        check_rankers([name])
    with pytest.raises(SpdError, match=BAD_RANKERS[name]):
        build_rankers([name], Loading(device="cpu"))


def test_unknown_decoder_and_nothing_to_measure_are_named(checkpoint: str, slate_file: str) -> None:
    with pytest.raises(SpdError, match="unknown decoder 'coin'"):
        evaluate_file(slate_file, checkpoint=checkpoint, decoders=["coin"])
    with pytest.raises(SpdError, match="nothing to measure: name a student with --checkpoint, or a --ranker"):
        evaluate_file(slate_file)


def test_every_floor_can_stand_in_a_table(slate_file: str) -> None:
    report = evaluate_file(slate_file, rankers=list(TEACHERS))
    assert list(report["rankers"]) == list(TEACHERS)
    assert set(TEACHERS) < set(FORMS)
    assert report["decoder"] == next(iter(TEACHERS))
    assert (report["checkpoint"], report["answers"], report["provenance"]) == (None, {}, {})
    assert format_report(report).startswith("8 rankers on slates.jsonl: n = 12")


def test_teachers_students_labels_and_floors_stand_in_one_table(contest: dict, tiny_teacher_dir: Path) -> None:
    main = f"teacher:{tiny_teacher_dir}"
    assert len(contest["rankers"]) == 6
    assert {row["AUC"]["n"] for row in contest["rankers"].values()} == {12}
    assert (contest["checkpoint"], contest["decoder"]) == (tiny_teacher_dir.name, main)
    assert contest["metrics"] == contest["rankers"][main]
    assert set(contest["differences"]) == set(contest["rankers"]) - {main}
    assert contest["provenance"]["checkpoint"] == "tiny-teacher"
    assert len(contest["provenance"]["fingerprint"]) == 16
    assert contest["ranker_provenance"][f"{main}:free"] == contest["provenance"]


def test_a_student_among_rankers_is_measured_as_the_main_one_is(contest: dict, report: dict, checkpoint: str) -> None:
    for decoder, name in (("hungarian", f"student:{checkpoint}"), ("first_column", f"student:{checkpoint}:first_column")):
        assert contest["rankers"][name] == report["rankers"][decoder]


def test_labels_are_measured_as_the_teacher_that_wrote_them(contest: dict, label_path: Path) -> None:
    assert contest["rankers"][f"labels:{label_path}"] == contest["rankers"]["random"]
    assert contest["ranker_provenance"][f"labels:{label_path}"] == {"teacher": "random"}


def test_answers_are_counted_by_kind(contest: dict, tiny_teacher_dir: Path, label_path: Path) -> None:
    answers = contest["answers"]
    main, free, labels = f"teacher:{tiny_teacher_dir}", f"teacher:{tiny_teacher_dir}:free", f"labels:{label_path}"
    assert set(answers) == {main, free, labels}
    assert (answers[main]["n"], answers[main]["valid_rate"], answers[main]["kinds"]["ok"]) == (13, 1.0, 13)
    assert answers[free]["kinds"]["ok"] < 13  # random weights write no ranking
    assert sum(answers[free]["kinds"].values()) == 13
    text = format_report(contest)
    assert "answers as written" in text
    wrong = 13 - answers[free]["kinds"]["ok"]
    assert f"{free}: {wrong} of 13 answers were not valid as written and count as repaired" in text


def test_a_teacher_is_measured_by_what_it_writes(contest: dict, tiny_teacher: AutoregressiveTeacher, slate_file: str) -> None:
    slates = [slate for slate in load_slates(slate_file) if slate.label]
    table = evaluate_rankings(slates, [tiny_teacher.rank(slate) for slate in slates])
    assert contest["metrics"]["AUC"]["mean"] == pytest.approx(float(table.values["AUC"].mean()))


@pytest.mark.parametrize("form", LANGUAGE_MODEL_RANKERS)
def test_a_language_model_can_be_asked_in_one_pass(
    form: str,
    tiny_teacher: AutoregressiveTeacher,
    tiny_teacher_dir: Path,
    slate_file: str,
    loading: Loading,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(pointwise, "ANSWERS", (("y", "n"),))  # the tiny tokenizer has no single tokens for the words
    names = [f"{form}:{tiny_teacher_dir}", f"{form}:zero-shot"]
    report = evaluate_file(slate_file, rankers=names, loading=loading)
    slates = [slate for slate in load_slates(slate_file) if slate.label]
    asked = language_model_ranker(form, tiny_teacher)
    table = evaluate_rankings(slates, [asked.rank(slate) for slate in slates])
    assert report["metrics"]["AUC"]["mean"] == pytest.approx(float(table.values["AUC"].mean()))
    assert report["provenance"]["checkpoint"] == "tiny-teacher"
    assert report["ranker_provenance"][names[1]]["checkpoint"] == "zero-shot"
    assert report["answers"] == {}  # nothing is written


def test_a_slate_without_a_line_in_the_label_file_is_named(slate_file: str, tmp_path: Path) -> None:
    label_file(slate_file, tmp_path / "few.jsonl", teacher="random", limit=3)
    names = [f"labels:{tmp_path / 'few.jsonl'}"]
    with pytest.raises(SpdError, match=r"few\.jsonl: has no label of slate 's3'; label the whole file, or use --limit"):
        evaluate_file(slate_file, rankers=[*names, "teacher:zero-shot"], loading=Loading(backbone="no-such-backbone"))
    assert evaluate_file(slate_file, rankers=names, limit=3)["n"] == 3


def test_rankings_that_come_with_the_slates_can_be_measured(make_slate: Callable[..., Slate], tmp_path: Path) -> None:
    ranks = (3, 1, 2)
    slates = [make_slate(3, f"s{k}", label=("c2",)) for k in range(4)]
    ranked = [
        dataclasses.replace(
            slate,
            candidates=tuple(
                dataclasses.replace(candidate, rating=5.0, extra={"first": rank})
                for candidate, rank in zip(slate.candidates, ranks, strict=True)
            ),
            teacher=Ranking("sage", ("c3", "c2", "c1")),
        )
        for slate in slates
    ]
    write_jsonl(tmp_path / "ranked.jsonl", ranked)
    names = ["by:first", "by:rating", "stored", "input_order"]
    found = evaluate_file(str(tmp_path / "ranked.jsonl"), rankers=names)["rankers"]
    assert [found[name]["MRR"]["mean"] for name in names] == [1.0, 0.5, 0.5, 0.5]
    assert AttributeOrder("first").rank(ranked[0]).permutation == ("c2", "c3", "c1")
    assert StoredOrder().rank(ranked[0]).permutation == ("c3", "c2", "c1")
    write_jsonl(tmp_path / "half.jsonl", [*ranked, make_slate(3, "s9", label=("c2",))])
    nowhere = Loading(backbone="no-such-backbone")
    for name in ("stored", "by:first"):  # before the language model is missed
        with pytest.raises(SlateError, match=r"slate 's9': .* the ranker"):
            evaluate_file(str(tmp_path / "half.jsonl"), rankers=["teacher:zero-shot", name], loading=nowhere)
    for ranker, message in (
        (StoredOrder(), "slate 's0': stores no teacher's ranking; leave out the ranker 'stored'"),
        (AttributeOrder("first"), "slate 's0': candidate 'c1' has first None; the ranker 'by:first' needs a number of every"),
        (AttributeOrder("title"), "slate 's0': candidate 'c1' has title '.*'; the ranker 'by:title' needs a number"),
    ):
        with pytest.raises(SlateError, match=message):
            ranker.rank(slates[0])


def test_slates_larger_than_any_learned_from_are_told(
    tiny_student: Student, slate_file: str, loading: Loading, tmp_path: Path
) -> None:
    facts = TrainingFacts(teacher="t", data={}, seed=0, slates=1, steps=1, minutes=0.1, largest_slate=5)
    folder = save_student(tiny_student, tmp_path / "small", facts=facts, model_card="# small")
    told = "12 slates have more candidates than any that small learned from (5); it has never seen their later positions"
    for names in ({"checkpoint": str(folder)}, {"rankers": ["random", f"student:{folder}"]}):
        assert told in evaluate_file(slate_file, loading=loading, **names)["warnings"]
    assert not size_warnings([folder], {5: 7})
    assert size_warnings([folder, "zero-shot"], {6: 1}) == [told.replace("12 slates have", "1 slate has")]


def test_names_of_rankers_are_taken_apart() -> None:
    assert split_choice("beauty-spd:greedy") == ("beauty-spd", "greedy")
    assert split_choice("/a:b/beauty-spd") == ("/a:b/beauty-spd", None)
    assert [checkpoint_of(name) for name in ("student:a:greedy", "teacher:b", "labels:c", "random")] == ["a", "b", None, None]
    assert [checkpoint_of(name) for name in ("first_token:b", "pointwise:zero-shot")] == ["b", "zero-shot"]


def test_the_command_prints_the_table_and_writes_the_report(
    slate_file: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "report.json"
    words = ["evaluate", slate_file, "--ranker", "random", "--ranker", "input_order", "--limit", "6", "--out", str(out)]
    assert command_line.main(words) == 0
    assert capsys.readouterr().out.startswith("2 rankers on slates.jsonl: n = 6")
    whole = json.loads(out.read_text())
    assert whole["n"] == len(whole["per_slate"]["slate_ids"]) == 6
    assert command_line.main([*words, "--no-rows"]) == 0
    capsys.readouterr()
    published = json.loads(out.read_text())
    assert "per_slate" not in published
    assert whole["per_slate"]["slate_ids"][0] not in out.read_text()
    assert read_report(out).rankers.keys() == {"random", "input_order"}
    assert command_line.main([*words, "--card"]) == 2
    assert "--card writes into a checkpoint's model card; name one with --checkpoint" in capsys.readouterr().err


def test_rows_of_processes_are_joined_in_input_order(monkeypatch: pytest.MonkeyPatch) -> None:
    shares = [[MetricRow(f"s{k}", 2, "no_gain", ()) for k in part] for part in ((0, 2, 4), (1, 3))]
    monkeypatch.setattr("accelerate.utils.gather_object", lambda mine: shares if isinstance(mine[0], list) else mine * 2)
    evaluation = Evaluation({"hungarian": MetricCollector()})
    evaluation.kinds["hungarian"] = Counter(ok=2, missing=1)
    evaluation.gather(Shard(0, 2, "cpu"))
    assert evaluation.kinds["hungarian"] == Counter(ok=4, missing=2)
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


def test_a_teachers_card_tells_how_many_answers_were_valid(
    report: dict, tiny_teacher: AutoregressiveTeacher, tmp_path: Path
) -> None:
    facts = TrainingFacts(teacher="reference", data={}, seed=0, slates=1, steps=1, minutes=0.1)
    folder = save_teacher(tiny_teacher, tmp_path / "carded", settings=TINY_WRITER, facts=facts, model_card="# old")
    kinds = {"ok": 9, "format": 0, "repetition": 2, "missing": 1, "out_of_range": 0}
    record_report(folder, report | {"answers": {"free": {"n": 12, "valid_rate": 0.75, "kinds": kinds}}})
    card = (folder / "README.md").read_text("utf-8")
    assert "free: 75.0% of 12 answers valid as written (repetition 2, missing 1)." in card
    assert "learned to write" in card
    assert read_teacher_config(folder).metrics["evaluations"]["slates.jsonl"]["answers"]["free"]["n"] == 12


def test_untrained_checkpoint_has_no_card_for_figures(report: dict, checkpoint: str) -> None:
    with pytest.raises(CheckpointError, match="is untrained"):
        record_report(Path(checkpoint), report)


def test_a_report_that_could_not_be_written_is_told_before_anything_is_read(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert command_line.main(["evaluate", "no-such-slates.jsonl", "--out", str(tmp_path / "no" / "report.json")]) == 2
    assert "in a folder that does not exist" in capsys.readouterr().err
