"""`label`: the same file whatever happened on the way, verdicts beside it, and refusals that leave everything as it was."""

from __future__ import annotations

import json
import logging
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from fake_endpoint import says, serving

from spd_core import __main__ as command_line
from spd_core.datasets import write_jsonl
from spd_core.errors import SpdError
from spd_core.recipes import progress
from spd_core.recipes.label import label_file
from spd_core.recipes.label_files import LabelFiles
from spd_core.recipes.progress import duration_text, progress_text
from spd_core.recipes.shards import Shard
from spd_core.recipes.source_teachers import SourceTeacher, find_teacher
from spd_core.slate import Slate
from spd_core.teacher_checkpoints import load_teacher
from spd_core.teachers import TEACHERS
from spd_core.teachers.answers import TeacherAnswer, judged
from spd_core.words import plural

ROOT = Path(__file__).resolve().parent.parent
TOGETHER = 4
COUNT = 30
TWO_PROCESS_SECONDS = 600  # three interpreters load PyTorch


class BatchWriter:
    """Writes rankings that depend on which slates share its request, as bfloat16 batches do; may fail at one slate."""

    name = "batch-writer"

    def __init__(self, fails_at: str | None = None) -> None:
        self.fails_at = fails_at
        self.asked: list[str] = []

    def answers(self, slates: Iterable[Slate]) -> Iterator[TeacherAnswer]:
        batch = list(slates)
        for slate in batch:
            if slate.slate_id == self.fails_at:
                raise SpdError(f"slate {slate.slate_id!r}: the teacher is gone")
            self.asked.append(slate.slate_id)
            turn = int(batch[0].slate_id[1:]) * len(batch) % len(slate.candidates)
            order = [*range(turn, len(slate.candidates)), *range(turn)]
            text = ">".join(str(index + 1) for index in order) + "\N{SNOWMAN}" * (slate.slate_id == "s5")
            cost = {"ms": float(len(self.asked)), "passes": 2, "tokens": 3, "prompt_tokens": 4}
            yield judged(slate, text, teacher=self.name, mode="free", **cost)


@pytest.fixture
def slates(make_slate: Callable[..., Slate], tmp_path: Path) -> Path:
    """30 slates with a click each."""
    write_jsonl(tmp_path / "in.jsonl", [make_slate(2 + k % 5, f"s{k}", label=("c1",)) for k in range(COUNT)])
    return tmp_path / "in.jsonl"


@pytest.fixture
def ask(monkeypatch: pytest.MonkeyPatch) -> Callable[[BatchWriter], BatchWriter]:
    """Function that puts a fake in place of the teacher that the recipe loads."""

    def put(writer: BatchWriter) -> BatchWriter:
        source = SourceTeacher(writer, "free", {"fingerprint": "f1"}, TOGETHER)
        monkeypatch.setattr("spd_core.recipes.label.find_teacher", lambda *args, **options: source)
        return writer

    return put


def run(slates: Path, out: Path, **options: Any) -> Any:
    return label_file(str(slates), out, teacher="batch-writer", mode="free", **options)


def read(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text("utf-8").splitlines()]


def names(folder: Path) -> list[str]:
    return sorted(entry.name for entry in folder.iterdir())


@pytest.fixture
def whole(slates: Path, ask: Callable[[BatchWriter], BatchWriter], tmp_path: Path) -> dict[str, bytes]:
    """Label file and verdict of a run that nothing stopped, by name."""
    folder = tmp_path / "whole"
    folder.mkdir()
    ask(BatchWriter())
    run(slates, folder / "out.jsonl")
    return {name: (folder / name).read_bytes() for name in ("out.jsonl", "out.gate.json")}


def test_each_slate_becomes_one_line_in_input_order(
    slates: Path, ask: Callable[[BatchWriter], BatchWriter], tmp_path: Path
) -> None:
    ask(BatchWriter())
    summary = run(slates, tmp_path / "out.jsonl")
    lines = read(tmp_path / "out.jsonl")
    assert [line["slate_id"] for line in lines] == [f"s{k}" for k in range(COUNT)]
    assert lines[5]["text"].endswith("\N{SNOWMAN}")
    assert (lines[5]["kind"], lines[5]["is_repaired"]) == ("format", True)
    assert lines[0]["provenance"] == {"fingerprint": "f1"}
    timings = read(tmp_path / "out.timings.jsonl")
    assert [(line["slate_id"], line["ms"]) for line in timings] == [(f"s{k}", k + 1.0) for k in range(COUNT)]
    assert (summary.slates, summary.labelled, summary.teacher) == (COUNT, COUNT, "batch-writer")
    assert summary.gate["kinds"]["format"] == 1
    assert names(tmp_path) == ["in.jsonl", "out.gate.json", "out.jsonl", "out.timings.jsonl"]


def test_a_packed_output_has_its_files_beside_it(
    slates: Path, ask: Callable[[BatchWriter], BatchWriter], tmp_path: Path
) -> None:
    ask(BatchWriter())
    run(slates, tmp_path / "out.jsonl.gz", limit=5)
    assert names(tmp_path) == ["in.jsonl", "out.gate.json", "out.jsonl.gz", "out.timings.jsonl"]
    assert len(read(tmp_path / "out.timings.jsonl")) == 5


# --- stopped and gone on with


def test_a_run_cut_anywhere_ends_in_the_same_files(
    slates: Path,
    ask: Callable[[BatchWriter], BatchWriter],
    whole: dict[str, bytes],
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Also within a line, within the settings, and after everything is labelled and nothing is joined."""
    caplog.set_level(logging.INFO, logger="spd_core")
    out, part = tmp_path / "out.jsonl", tmp_path / "out.jsonl.part-0"
    ask(BatchWriter(fails_at="s29"))
    with pytest.raises(SpdError, match=r"slate 's29': the teacher is gone"):
        run(slates, out)
    full = part.read_bytes()
    assert names(tmp_path) == ["in.jsonl", "out.jsonl.part-0", "whole"]
    for size in [0, 1, *range(300, len(full), 997), len(full) - 1, len(full)]:
        part.write_bytes(full[:size])
        writer = ask(BatchWriter())
        caplog.clear()
        run(slates, out)
        assert {name: (tmp_path / name).read_bytes() for name in whole} == whole, f"cut after byte {size}"
        left = max(full[:size].count(b"\n") - 1, 0)
        kept = left // TOGETHER * TOGETHER
        dropped = f"{kept} of {plural(left, 'label')} kept; the rest were in an unfinished batch of {TOGETHER}"
        assert caplog.messages == ([dropped] if left > kept else [])
        assert writer.asked == [f"s{k}" for k in range(kept, COUNT)]
        assert not part.exists()
        for name in whole:
            (tmp_path / name).unlink()


def test_a_line_of_garbage_is_not_gone_on_from(
    slates: Path, ask: Callable[[BatchWriter], BatchWriter], whole: dict[str, bytes], tmp_path: Path
) -> None:
    out, part = tmp_path / "out.jsonl", tmp_path / "out.jsonl.part-0"
    ask(BatchWriter(fails_at="s20"))
    with pytest.raises(SpdError, match="the teacher is gone"):
        run(slates, out)
    lines = part.read_bytes().splitlines(keepends=True)
    lines[7] = b"\0" * 40 + b"\n"  # what a crash of the machine may leave of a block
    part.write_bytes(b"".join(lines))
    writer = ask(BatchWriter())
    run(slates, out)
    assert writer.asked[0] == "s4"
    assert out.read_bytes() == whole["out.jsonl"]


def test_a_stop_between_the_last_steps_is_made_good(
    slates: Path, ask: Callable[[BatchWriter], BatchWriter], whole: dict[str, bytes], tmp_path: Path
) -> None:
    out, part = tmp_path / "out.jsonl", tmp_path / "out.jsonl.part-0"
    ask(BatchWriter(fails_at="s29"))
    with pytest.raises(SpdError):
        run(slates, out)
    partial = part.read_bytes()
    ask(BatchWriter())
    run(slates, out)
    (tmp_path / "out.gate.json").unlink()  # the label file is there, the verdict is not, the part is
    part.write_bytes(partial)
    run(slates, out)
    assert {name: (tmp_path / name).read_bytes() for name in whole} == whole
    part.write_bytes(partial)  # everything is there but the part has not gone
    assert run(slates, out).labelled == 0
    assert not part.exists()


def test_what_is_labelled_is_not_asked_for_again_when_only_the_joining_failed(
    slates: Path, ask: Callable[[BatchWriter], BatchWriter], whole: dict[str, bytes], tmp_path: Path
) -> None:
    def full_disk(files: LabelFiles) -> None:
        raise SpdError("the disk is full")

    ask(BatchWriter())
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(LabelFiles, "finish", full_disk)
        with pytest.raises(SpdError, match="the disk is full"):
            run(slates, tmp_path / "out.jsonl")
    writer = ask(BatchWriter())
    run(slates, tmp_path / "out.jsonl")
    assert writer.asked == []  # also not the last batch, which is smaller than the others
    assert (tmp_path / "out.jsonl").read_bytes() == whole["out.jsonl"]


def test_a_finished_run_is_not_done_again(
    slates: Path, ask: Callable[[BatchWriter], BatchWriter], whole: dict[str, bytes], tmp_path: Path
) -> None:
    writer = ask(BatchWriter())
    summary = run(slates, tmp_path / "whole" / "out.jsonl")
    assert (writer.asked, summary.labelled, summary.slates) == ([], 0, COUNT)
    assert summary.gate == json.loads(whole["out.gate.json"])


STALLS = """
import signal, sys
from spd_core import __main__
from spd_core.teacher_checkpoints import load_teacher
from spd_core.teachers import TEACHERS
from spd_core.teachers.input_order import RandomOrder

class Stalling(RandomOrder):
    def rank(self, slate):
        if slate.slate_id == "s137":
            print("here", flush=True)
            signal.pause()
        return super().rank(slate)

TEACHERS["random"] = lambda slates, items: Stalling()
sys.exit(__main__.main(sys.argv[1:]))
"""


@pytest.mark.timeout(TWO_PROCESS_SECONDS)
def test_a_killed_command_goes_on_and_gives_the_same_file(make_slate: Callable[..., Slate], tmp_path: Path) -> None:
    slates = tmp_path / "in.jsonl"
    write_jsonl(slates, [make_slate(8, f"s{k}", label=(f"c{k % 8 + 1}",)) for k in range(300)])
    out, alone = tmp_path / "out.jsonl", tmp_path / "alone.jsonl"
    words = ["label", str(slates), "--teacher", "random", "--out"]
    environment = os.environ | {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-c", STALLS, *words, str(out)]
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "here\n"
        process.send_signal(signal.SIGKILL)
    assert process.returncode == -signal.SIGKILL
    assert names(tmp_path) == ["in.jsonl", "out.jsonl.part-0"]
    assert len((tmp_path / "out.jsonl.part-0").read_bytes().splitlines()) == 1 + 137
    assert command_line.main([*words, str(out)]) == 0
    assert command_line.main([*words, str(alone)]) == 0
    assert out.read_bytes() == alone.read_bytes()
    assert (tmp_path / "out.gate.json").read_bytes() == (tmp_path / "alone.gate.json").read_bytes()
    assert len(read(tmp_path / "out.timings.jsonl")) == 300
    assert not list(tmp_path.glob("*.part-*"))


# --- refused


def changed_mode(slates: Path, out: Path, ask: Callable[[BatchWriter], BatchWriter]) -> None:
    ask(BatchWriter())
    run(slates, out, limit=20)


def changed_input(slates: Path, out: Path, ask: Callable[[BatchWriter], BatchWriter]) -> None:
    ask(BatchWriter())
    slates.write_text(slates.read_text().replace("Lumen", "Orris"))
    run(slates, out)


@pytest.mark.parametrize(
    ("again", "what"), [(changed_mode, "limit: then None, now 20"), (changed_input, "slates_sha256: then '")]
)
def test_a_part_of_other_settings_is_left_alone(
    slates: Path,
    ask: Callable[[BatchWriter], BatchWriter],
    tmp_path: Path,
    again: Callable[[Path, Path, Callable[[BatchWriter], BatchWriter]], None],
    what: str,
) -> None:
    out, part = tmp_path / "out.jsonl", tmp_path / "out.jsonl.part-0"
    ask(BatchWriter(fails_at="s9"))
    with pytest.raises(SpdError, match="the teacher is gone"):
        run(slates, out)
    before = part.read_bytes()
    message = r"part-0: was begun with other settings \(" + what + r".*repeat that command, or delete the file"
    with pytest.raises(SpdError, match=message):
        again(slates, out, ask)
    assert part.read_bytes() == before


def test_a_label_file_of_another_run_is_not_replaced(
    slates: Path, ask: Callable[[BatchWriter], BatchWriter], whole: dict[str, bytes], tmp_path: Path
) -> None:
    out = tmp_path / "whole" / "out.jsonl"
    with pytest.raises(
        SpdError, match=r"is there already and not from this command \(limit: then None, now 3\); name another"
    ):
        run(slates, out, limit=3)
    out.with_name("out.gate.json").unlink()
    with pytest.raises(SpdError, match=r"\(it has no record of how it was made\)"):
        run(slates, out)
    assert out.read_bytes() == whole["out.jsonl"]


def test_two_runs_do_not_write_one_file(slates: Path, ask: Callable[[BatchWriter], BatchWriter], tmp_path: Path) -> None:
    class Meddling(BatchWriter):
        def answers(self, batch: Iterable[Slate]) -> Iterator[TeacherAnswer]:
            with pytest.raises(SpdError, match=r"part-0: another run is writing it; wait for it, or stop it first"):
                run(slates, tmp_path / "out.jsonl")
            yield from super().answers(batch)

    ask(Meddling())
    assert run(slates, tmp_path / "out.jsonl", limit=None).labelled == COUNT


def test_the_input_and_the_standard_input_are_refused(slates: Path, tmp_path: Path) -> None:
    before = slates.read_bytes()
    with pytest.raises(SpdError, match=r"in\.jsonl: is the input; write the labels to another file"):
        run(slates, slates)
    with pytest.raises(SpdError, match="standard input cannot be gone back to after a stop; give a file"):
        run(Path("-"), tmp_path / "out.jsonl")
    assert slates.read_bytes() == before


def test_a_broken_line_is_found_before_anything_is_labelled(
    slates: Path, ask: Callable[[BatchWriter], BatchWriter], tmp_path: Path
) -> None:
    slates.write_text(slates.read_text() + '{"slate_id": ')
    writer = ask(BatchWriter())
    with pytest.raises(SpdError, match=r"in\.jsonl line 31: not JSON"):
        run(slates, tmp_path / "out.jsonl")
    assert writer.asked == []


REMOTE = ["--teacher", "remote", "--base-url", "http://localhost:1/v1", "--model", "m", "--key-env", "none"]
OPTIONS = {
    "unknown teacher": (["--teacher", "oracle"], "unknown teacher 'oracle'; choose from "),
    "mode of a counting teacher": (
        ["--teacher", "random", "--mode", "free"],
        "mode 'free': only for an autoregressive teacher",
    ),
    "unknown mode": (
        ["--teacher", "zero-shot", "--mode", "wild"],
        "unknown decoding mode 'wild'; choose from constrained, free",
    ),
    "remote without address": (["--teacher", "remote", "--model", "m"], "--teacher remote needs --base-url"),
    "address without remote": (["--teacher", "random", "--model", "m"], "model: only for --teacher remote, not 'random'"),
    "effort without remote": (
        ["--teacher", "random", "--reasoning-effort", "low"],
        "reasoning_effort: only for --teacher remote, not 'random'",
    ),
    "field left out without remote": (
        ["--teacher", "random", "--leave-out", "thinking"],
        "thinking: only for --teacher remote, not 'random'",
    ),
    "field that must be sent": (
        [*REMOTE, "--leave-out", "messages"],
        "unknown field to leave out 'messages'; choose from temperature, thinking",
    ),
    "thinking given and left out": (
        [*REMOTE, "--leave-out", "thinking", "--no-thinking"],
        "--leave-out thinking contradicts --thinking and --no-thinking; give one of them",
    ),
    "unknown effort": ([*REMOTE, "--reasoning-effort", "huge"], "remote teacher: reasoning_effort: input should be 'none', "),
    "unknown field of tokens": (
        [*REMOTE, "--tokens-field", "n"],
        "remote teacher: tokens_field: input should be 'max_tokens' ",
    ),
    "no such folder": (
        ["--teacher", "random", "--out", "/no/such/out.jsonl"],
        "in a folder that does not exist",
    ),
}


@pytest.mark.parametrize("case", OPTIONS)
def test_bad_options_give_one_line_and_exit_code_2(
    slates: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], case: str
) -> None:
    options, message = OPTIONS[case]
    assert command_line.main(["label", str(slates), "--out", str(tmp_path / "out.jsonl"), *options]) == 2
    (error,) = capsys.readouterr().err.splitlines()
    assert message in error
    assert names(tmp_path) == ["in.jsonl"]


# --- teachers by name


@pytest.mark.parametrize("name", ["reference", "input_order"])
def test_counting_teachers_label_what_they_were_fitted_on(
    slates: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    assert command_line.main(["label", str(slates), "--teacher", name, "--out", str(tmp_path / "out.jsonl")]) == 0
    shown = capsys.readouterr().out
    assert f"30 slates labelled by {name}, 30 of them now" in shown
    assert "gate: REFUSED; train takes these labels only with --ungated" in shown
    assert "speaks against    position bias: the teacher follows the input order" in shown  # all scores are equal
    assert {line["mode"] for line in read(tmp_path / "out.jsonl")} == {"computed"}
    (fitted,) = read(tmp_path / "out.jsonl")[0]["provenance"]["fitted_on"]
    assert fitted == "in.jsonl"


@pytest.mark.parametrize("mode", ["constrained", "free"])
def test_a_checkpoint_labels_what_its_teacher_writes(
    make_slate: Callable[..., Slate],
    tiny_teacher_dir: Path,
    tiny_backbone_dir: Path,
    tmp_path: Path,
    mode: str,
) -> None:
    slates = [make_slate(2 + k, f"s{k}") for k in range(4)]
    write_jsonl(tmp_path / "in.jsonl", slates)
    flags = ["--mode", mode, "--backbone", str(tiny_backbone_dir), "--device", "cpu", "--dtype", "float32"]
    words = ["label", str(tmp_path / "in.jsonl"), "--teacher", str(tiny_teacher_dir), "--out", str(tmp_path / "out.jsonl")]
    assert command_line.main([*words, *flags]) == 0
    teacher = load_teacher(tiny_teacher_dir, mode=mode, backbone=str(tiny_backbone_dir), device="cpu", dtype="float32")
    for line, answer in zip(read(tmp_path / "out.jsonl"), teacher.answers(slates), strict=True):
        assert (line["text"], line["kind"], line["tokens"]) == (answer.text, answer.kind, answer.tokens)
        assert line["ranking"] == list(answer.permutation)
        assert (line["mode"], line["teacher"], line["provenance"]["checkpoint"]) == (mode, "tiny-teacher", "tiny-teacher")
        assert line["provenance"]["template_hash"] == teacher.template.hash
        assert len(line["provenance"]["fingerprint"]) == 16


def test_the_summary_is_one_json_line(slates: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["label", str(slates), "--teacher", "random", "--limit", "7", "--out", str(tmp_path / "out.jsonl"), "--json"]
    assert command_line.main(words) == 0
    (line,) = capsys.readouterr().out.splitlines()
    summary = json.loads(line)
    assert (summary["slates"], summary["teacher"], summary["gate"]["slates"]) == (7, "random", 7)


def test_a_remote_teacher_gets_its_settings_and_only_what_decides_the_answer_is_recorded(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "secret")
    remote = {"base_url": "http://localhost:1/v1", "model": "m", "concurrency": 3, "thinking": True, "input_price": 1.0}
    source = find_teacher("remote", mode=None, remote=remote, loading=None)  # type: ignore[arg-type]
    assert (source.mode, source.together) == ("remote", 1)
    assert (source.provenance["model"], source.provenance["thinking"]) == ("m", True)
    assert not {"concurrency", "input_price", "key_env"} & set(source.provenance)
    assert "secret" not in json.dumps(dict(source.provenance))


REQUESTS: dict[str, tuple[str, dict[str, Any], set[str]]] = {
    "as it comes": (
        "",
        {"temperature": 0.0, "chat_template_kwargs": {"enable_thinking": False}, "max_tokens": 80},
        {"reasoning_effort", "max_completion_tokens"},
    ),
    "thinking": ("--thinking", {"chat_template_kwargs": {"enable_thinking": True}, "max_tokens": 8272}, set()),
    "a newer hosted model": (
        "--leave-out thinking --leave-out temperature --reasoning-effort low "
        "--tokens-field max_completion_tokens --max-tokens 99",
        {"reasoning_effort": "low", "max_completion_tokens": 99},
        {"temperature", "chat_template_kwargs", "max_tokens"},
    ),
}


@pytest.mark.parametrize("case", REQUESTS)
def test_flags_decide_which_fields_a_remote_teacher_is_sent(
    make_slate: Callable[..., Slate], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, case: str
) -> None:
    pytest.importorskip("openai", reason="the package openai is not installed")
    flags, sent, unsent = REQUESTS[case]
    for name in ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.lower(), raising=False)
    write_jsonl(tmp_path / "in.jsonl", [make_slate(2)])
    words = ["label", str(tmp_path / "in.jsonl"), "--out", str(tmp_path / "out.jsonl"), "--teacher", "remote"]
    with serving(says("2>1")) as fake:
        assert command_line.main([*words, "--base-url", fake.url, "--model", "m", "--key-env", "none", *flags.split()]) == 0
    (asked,) = fake.requests
    assert sent.items() <= asked.body.items()
    assert not unsent & asked.body.keys()
    (line,) = read(tmp_path / "out.jsonl")
    assert line["provenance"]["reasoning_effort"] == sent.get("reasoning_effort")
    assert line["provenance"]["temperature"] == sent.get("temperature", 0.0 if case == "thinking" else None)


# --- several processes


@pytest.mark.parametrize("count", [2, 3])
def test_shares_of_several_processes_are_joined_in_input_order(
    slates: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, count: int
) -> None:
    """The first process joins last here, in place of the barrier that lets it wait for the others."""
    monkeypatch.setattr(Shard, "wait", lambda self: None)

    def share(index: int, out: str, count: int = count) -> Any:
        monkeypatch.setattr("spd_core.recipes.label.this_shard", lambda device: Shard(index, count, "cpu"))
        return label_file(str(slates), tmp_path / out, teacher="random")

    for index in reversed(range(count)):
        summary = share(index, "out.jsonl")
        assert summary.process == index
    share(0, "alone.jsonl", 1)
    assert (tmp_path / "out.jsonl").read_bytes() == (tmp_path / "alone.jsonl").read_bytes()
    assert not list(tmp_path.glob("*.part-*"))


def test_parts_of_more_processes_are_not_mistaken(slates: Path, tmp_path: Path) -> None:
    (tmp_path / "out.jsonl.part-1").touch()
    with pytest.raises(SpdError, match=r"part-1: was begun by more processes; start as many again, or delete the parts"):
        label_file(str(slates), tmp_path / "out.jsonl", teacher="random")


@pytest.mark.timeout(TWO_PROCESS_SECONDS)
def test_two_launched_processes_write_the_file_of_one(slates: Path, tmp_path: Path) -> None:
    words = ["label", str(slates), "--teacher", "random", "--device", "cpu", "--out"]
    launch = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2", "-m", "spd_core"]
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    command: Sequence[str] = [*launch, *words, str(tmp_path / "two.jsonl")]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("gate: REFUSED") == 1
    assert command_line.main([*words, str(tmp_path / "one.jsonl")]) == 0
    assert (tmp_path / "two.jsonl").read_bytes() == (tmp_path / "one.jsonl").read_bytes()


# --- progress


def test_progress_tells_rate_and_time_left() -> None:
    assert progress_text(30, 10.0) == "30 slates, 3.0 a second"
    assert progress_text(30, 10.0, done=70, total=1000) == "100 of 1,000 slates, 3.0 a second, 5 min left"
    assert progress_text(1, 10.0) == "1 slate, 0.1 a second"
    assert progress_text(0, 0.0, total=24, since=22.0) == "0 of 24 slates, none yet in 22 s"
    assert progress_text(12, 20.0, total=24, since=5.0) == "12 of 24 slates, 0.6 a second, 15 s left"
    assert [duration_text(seconds) for seconds in (0, 89, 90, 5399, 12600)] == ["0 s", "89 s", "2 min", "90 min", "3.5 h"]


def test_progress_is_told_while_the_next_result_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[str] = []
    is_told = threading.Event()
    monkeypatch.setattr(progress, "LOG_SECONDS", 0.001)

    def echo(text: str, **_: object) -> None:
        told.append(text)
        if text.startswith("2 of 3 slates, "):
            is_told.set()

    def results() -> Iterator[int]:
        yield from (1, 2)  # at once; the third one waits until something is said of them
        assert is_told.wait(timeout=20)
        yield 3

    monkeypatch.setattr(progress.typer, "echo", echo)
    assert list(progress.with_progress(results(), Shard(0, 1, "cpu"), total=3)) == [1, 2, 3]
    assert told[-1].startswith("2 of 3 slates, ") or told[-1].startswith("3 of 3 slates, ")
    silent = threading.active_count()
    assert list(progress.with_progress(iter([1]), Shard(1, 2, "cpu"))) == [1]
    assert threading.active_count() == silent  # other processes tell nothing


def test_every_counting_teacher_can_label(slates: Path) -> None:
    from spd_core.recipes.rankers import Loading

    for name in TEACHERS:
        source = find_teacher(name, mode=None, remote={}, loading=Loading(fit=[str(slates)]))
        assert source.teacher.name == name
        assert source.together == 1
