"""The commands rank, bench and prepare as a user meets them: what comes out, and what is left behind when it goes wrong."""

import gzip
import io
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from app_machine import FACTS
from transformers.utils.logging import disable_progress_bar

import spd_core
from spd_core import __main__ as command_line
from spd_core import checkpoints, datasets, pipeline
from spd_core.backbone_files import fingerprint_folder
from spd_core.checkpoints import load_student, save_student
from spd_core.datasets import write_jsonl
from spd_core.errors import SpdError
from spd_core.model import Student
from spd_core.pipeline import rank_slate
from spd_core.recipes.bench import bench
from spd_core.recipes.rank import rank_file
from spd_core.recipes.shards import Shard, joined_lines, this_shard
from spd_core.slate import Slate

ROOT = Path(__file__).resolve().parent.parent
MakeSlate = Callable[..., Slate]
TWO_PROCESS_SECONDS = 600  # three interpreters load PyTorch; some 15 s on two idle cores


@pytest.fixture(scope="module")
def checkpoint_root(tiny_student: Student, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder with the tiny student saved as `tiny`."""
    root = tmp_path_factory.mktemp("root")
    save_student(tiny_student, root / "tiny", facts=None, model_card="# Tiny")
    return root


@pytest.fixture
def flags(checkpoint_root: Path, tiny_backbone_dir: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Flags that every command with a student takes here; no progress bars of the model library, as in a fresh process."""
    disable_progress_bar()
    monkeypatch.setenv("SPD_CHECKPOINTS", str(checkpoint_root))
    return ["--checkpoint", "tiny", "--backbone", str(tiny_backbone_dir), "--device", "cpu", "--dtype", "float32"]


@pytest.fixture
def slates(make_slate: MakeSlate, tmp_path: Path) -> Path:
    """A file of seven slates of different sizes."""
    write_jsonl(tmp_path / "in.jsonl", [make_slate(2 + k, f"s{k}", history=k % 3) for k in range(7)])
    return tmp_path / "in.jsonl"


def read(path: Path) -> list[dict[str, object]]:
    return [json.loads(line) for line in path.read_text("utf-8").splitlines()]


def names(folder: Path) -> list[str]:
    return sorted(entry.name for entry in folder.iterdir())


# --- rank


def test_each_slate_becomes_one_line_in_input_order(
    flags: list[str], slates: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert command_line.main(["rank", str(slates), "--out", str(tmp_path / "out.jsonl"), *flags]) == 0
    lines = read(tmp_path / "out.jsonl")
    assert [line["slate_id"] for line in lines] == [f"s{k}" for k in range(7)]
    for count, line in enumerate(lines, start=2):
        assert set(line) == {"slate_id", "ranking", "decoder", "timings_ms", "provenance", "warnings"}
        assert sorted(line["ranking"]) == [f"c{k}" for k in range(1, count + 1)]
    assert "ranked 7 slates" in capsys.readouterr().out
    assert names(tmp_path) == ["in.jsonl", "out.jsonl"]


def test_the_command_ranks_as_the_python_function_does(
    flags: list[str], slates: Path, tmp_path: Path, tiny_backbone_dir: Path
) -> None:
    command_line.main(["rank", str(slates), "--out", str(tmp_path / "out.jsonl"), "--decoder", "greedy", *flags])
    student = load_student("tiny", backbone=str(tiny_backbone_dir), device="cpu", dtype="float32")
    for line, slate in zip(read(tmp_path / "out.jsonl"), datasets.load_slates(slates), strict=True):
        assert line["ranking"] == list(rank_slate(student, slate, decoder="greedy").item_ids)
        assert line["decoder"] == "greedy"


def test_slates_larger_than_any_learned_from_are_counted_on_the_terminal(
    flags: list[str], tiny_student: Student, slates: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:  # fmt: skip
    for name, largest in (("small", 6), ("large", 8)):
        facts = FACTS.model_copy(update={"largest_slate": largest})
        folder = save_student(tiny_student, tmp_path / name, facts=facts, model_card="# Tiny")
        command_line.main(["rank", str(slates), "--out", str(tmp_path / "o.jsonl"), *flags, "--checkpoint", str(folder)])
    told = capsys.readouterr().out
    assert "warning: 2 slates have more candidates than any that small learned from (6)" in told
    assert told.count("warning") == 1


def test_a_summary_is_printed_as_one_json_line(
    flags: list[str], slates: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    command_line.main(["rank", str(slates), "--out", str(tmp_path / "out.jsonl"), "--json", *flags])
    (line,) = capsys.readouterr().out.splitlines()
    summary = json.loads(line)
    assert (summary["slates"], summary["checkpoint"], summary["decoder"], summary["processes"]) == (7, "tiny", "hungarian", 1)
    assert summary["seconds"] > 0


def test_packed_files_and_the_standard_input_are_read(
    flags: list[str], slates: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    packed = tmp_path / "in.jsonl.gz"
    packed.write_bytes(gzip.compress(slates.read_bytes()))
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(slates.read_bytes())))
    for source, out in (str(packed), "a.jsonl"), ("-", "b.jsonl"):
        assert command_line.main(["rank", source, "--out", str(tmp_path / out), *flags]) == 0
    first, second = (read(tmp_path / out) for out in ("a.jsonl", "b.jsonl"))
    assert [line["ranking"] for line in first] == [line["ranking"] for line in second]


def test_a_broken_line_stops_with_its_number_and_leaves_the_old_output(
    flags: list[str], slates: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lines = slates.read_text().splitlines()
    slates.write_text("\n".join([*lines[:4], '{"slate_id": 7', *lines[4:]]))
    (tmp_path / "out.jsonl").write_text("old")
    assert command_line.main(["rank", str(slates), "--out", str(tmp_path / "out.jsonl"), *flags]) == 2
    (error,) = capsys.readouterr().err.splitlines()
    assert error.startswith("error: in.jsonl line 5: not JSON")
    assert (tmp_path / "out.jsonl").read_text() == "old"
    assert names(tmp_path) == ["in.jsonl", "out.jsonl"]


BAD_INPUT = {
    "unknown checkpoint": (["--checkpoint", "nope"], r"unknown checkpoint 'nope'; choose from tiny"),
    "climbing checkpoint": (["--checkpoint", "../../x"], r"'../../x' climbs out"),
    "unknown decoder": (["--decoder", "sort"], r"unknown decoder 'sort'; choose from"),
    "unknown decoder, seen before anything is loaded": (
        ["--decoder", "sort", "--checkpoint", "nope"],
        r"unknown decoder 'sort'; choose from",
    ),
    "unknown device": (["--device", "tpu"], r"unknown device 'tpu'; choose from auto, cpu, cuda"),
    "unknown dtype": (["--dtype", "int4"], r"unknown dtype 'int4'; choose from"),
    "no such folder": (["--out", "/no/such/folder/out.jsonl"], r"/no/such/folder/out.jsonl: cannot be written"),
}


@pytest.mark.parametrize("case", BAD_INPUT)
def test_bad_options_give_one_line_and_exit_code_2(
    flags: list[str], slates: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], case: str
) -> None:
    options, message = BAD_INPUT[case]
    assert command_line.main(["rank", str(slates), "--out", str(tmp_path / "out.jsonl"), *flags, *options]) == 2
    (error,) = capsys.readouterr().err.splitlines()
    assert message in error
    assert names(tmp_path) == ["in.jsonl"]


def test_a_slate_larger_than_k_stops_with_both_numbers(
    flags: list[str], make_slate: MakeSlate, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_jsonl(tmp_path / "big.jsonl", [make_slate(3, "ok"), make_slate(51, "big")])
    assert command_line.main(["rank", str(tmp_path / "big.jsonl"), "--out", str(tmp_path / "out.jsonl"), *flags]) == 2
    assert "slate 'big' has 51 candidates but the student ranks at most 50" in capsys.readouterr().err
    assert names(tmp_path) == ["big.jsonl"]


def test_the_input_is_never_overwritten(flags: list[str], slates: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = slates.read_bytes()
    assert command_line.main(["rank", str(slates), "--out", str(slates), *flags]) == 2
    assert "is the input" in capsys.readouterr().err
    assert slates.read_bytes() == before


# --- several processes


@pytest.mark.parametrize("count", [1, 2, 3, 5])
def test_shares_joined_again_are_the_whole(tmp_path: Path, count: int) -> None:
    records = [f"line {k}\n".encode() for k in range(4)]
    shards = [Shard(index, count, "cpu") for index in range(count)]
    parts = [shard.part(tmp_path / "out.jsonl") for shard in shards]
    for shard, part in zip(shards, parts, strict=True):
        part.write_bytes(b"".join(shard.take(records)))
    assert list(joined_lines(parts)) == records
    assert len(set(parts)) == count


def test_one_process_takes_everything(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("WORLD_SIZE", raising=False)
    shard = this_shard("auto")
    assert (shard.is_main, list(shard.take("abc")), shard.device) == (True, ["a", "b", "c"], "auto")


def run_two_processes(arguments: list[str]) -> tuple[int, str, str]:
    """Exit code, stdout and stderr of a command started as two processes."""
    launch = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2", "-m", "spd_core"]
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    pipe = subprocess.PIPE
    with subprocess.Popen([*launch, *arguments], cwd=ROOT, env=environment, stdout=pipe, stderr=pipe, text=True) as process:
        try:
            out, err = process.communicate(timeout=TWO_PROCESS_SECONDS - 60)
        except subprocess.TimeoutExpired:
            process.terminate()  # the launcher then ends its processes, which a kill would leave behind
            raise
    return process.returncode, out, err


@pytest.mark.timeout(TWO_PROCESS_SECONDS)
def test_two_processes_write_the_file_of_one(flags: list[str], slates: Path, tmp_path: Path) -> None:
    alone, together = tmp_path / "one.jsonl", tmp_path / "two.jsonl.gz"
    command_line.main(["rank", str(slates), "--out", str(alone), *flags])
    code, out, err = run_two_processes(["rank", str(slates), "--out", str(together), "--json", *flags])
    assert code == 0, err
    (summary,) = [json.loads(line) for line in out.splitlines() if line.startswith("{")]
    assert (summary["slates"], summary["processes"]) == (7, 2)
    joined = [json.loads(line) for line in gzip.decompress(together.read_bytes()).splitlines()]
    for key in ("slate_id", "ranking", "provenance"):
        assert [line[key] for line in joined] == [line[key] for line in read(alone)]
    assert names(tmp_path) == ["in.jsonl", "one.jsonl", "two.jsonl.gz"]


@pytest.mark.timeout(TWO_PROCESS_SECONDS)
def test_two_processes_leave_nothing_when_only_one_of_them_fails(
    flags: list[str], make_slate: MakeSlate, tmp_path: Path
) -> None:
    write_jsonl(tmp_path / "in.jsonl", [make_slate(51 if k == 3 else 3, f"s{k}") for k in range(6)])
    code, _, err = run_two_processes(["rank", str(tmp_path / "in.jsonl"), "--out", str(tmp_path / "out.jsonl"), *flags])
    assert code != 0
    assert "error: slate 's3' has 51 candidates" in err
    assert names(tmp_path) == ["in.jsonl"]


def test_the_standard_input_is_not_shared(flags: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("spd_core.recipes.rank.this_shard", lambda device: Shard(0, 2, device))
    with pytest.raises(SpdError, match=r"standard input cannot be shared by 2 processes"):
        rank_file("-", tmp_path / "out.jsonl", checkpoint="tiny")


# --- bench and prepare


def test_bench_measures_the_largest_slate_that_fits(
    flags: list[str], make_slate: MakeSlate, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_jsonl(tmp_path / "in.jsonl", [make_slate(count, f"n{count}") for count in (3, 51, 9, 4)])
    options = ["--slates", str(tmp_path / "in.jsonl"), "--n", "2", "--warmup", "0", *flags]
    assert command_line.main(["bench", "--json", *options]) == 0
    (line,) = capsys.readouterr().out.splitlines()
    report = json.loads(line)
    assert (report["slate_id"], report["candidates"], report["total"]["n"]) == ("n9", 9, 2)
    assert command_line.main(["bench", *options]) == 0
    table = capsys.readouterr().out
    for word in ("tokenize", "prefill", "assignment", "bare prefill", "n = 2 rides", "total / bare prefill"):
        assert word in table


def test_bench_names_a_slate_that_is_not_there(flags: list[str], slates: Path, tiny_backbone_dir: Path) -> None:
    options = {"backbone": str(tiny_backbone_dir), "device": "cpu"}
    assert bench("tiny", slates, slate_id="s1", n=1, warmup=0, **options).latency.slate_id == "s1"
    with pytest.raises(SpdError, match=r"in\.jsonl: holds no slate 'x' of at most 50 candidates"):
        bench("tiny", slates, slate_id="x", **options)


def test_prepare_says_where_a_backbone_is_and_what_it_is(tiny_backbone_dir: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert command_line.main(["prepare", "--backbone", str(tiny_backbone_dir), "--json"]) == 0
    ready = json.loads(capsys.readouterr().out)
    assert ready["folder"] == str(tiny_backbone_dir)
    assert ready["fingerprint"] == fingerprint_folder(tiny_backbone_dir)
    assert command_line.main(["prepare", "--backbone", str(tiny_backbone_dir)]) == 0
    assert f"{tiny_backbone_dir} (fingerprint {ready['fingerprint']})" in capsys.readouterr().out


# --- the package's own names


def test_the_package_offers_its_three_functions() -> None:
    assert spd_core.load_student is checkpoints.load_student
    assert spd_core.load_slates is datasets.load_slates
    assert spd_core.rank_slate is pipeline.rank_slate
    with pytest.raises(AttributeError, match=r"module 'spd_core' has no attribute 'rank_slat'"):
        spd_core.rank_slat  # noqa: B018
