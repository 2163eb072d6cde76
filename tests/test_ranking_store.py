"""What models have computed is found again: after a kill, by other decoders, and only where nothing it depends on changed."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from spd_core.checkpoints import save_student
from spd_core.datasets import write_jsonl
from spd_core.decoding import DECODERS
from spd_core.errors import SpdError
from spd_core.model import Student
from spd_core.recipes import ranker_kinds, ranking_store
from spd_core.recipes.evaluate import evaluate_file
from spd_core.recipes.ranker_kinds import Ranked, read_order, written_order
from spd_core.recipes.rankers import Loading
from spd_core.recipes.ranking_store import (
    FILE,
    KeptRanker,
    RankingStore,
    code_hash,
    default_folder,
    identity_hash,
    result_key,
)
from spd_core.slate import Ranking, Slate

MakeSlate = Callable[..., Slate]
COUNT = 20


class Killed(BaseException):
    """What no code of ours catches."""


@pytest.fixture(scope="module")
def slates(make_slate: MakeSlate) -> list[Slate]:
    return [
        make_slate(6, f"s{k}", titles=[f"Soap {k} {c}" for c in "abcdef"], label=(f"c{k % 6 + 1}",)) for k in range(COUNT)
    ]


@pytest.fixture(scope="module")
def slate_file(slates: list[Slate], tmp_path_factory: pytest.TempPathFactory) -> str:
    file = tmp_path_factory.mktemp("slates") / "slates.jsonl"
    write_jsonl(file, slates)
    return str(file)


@pytest.fixture(scope="module")
def checkpoint(tiny_student: Student, tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(save_student(tiny_student, tmp_path_factory.mktemp("c") / "tiny", facts=None, model_card="# tiny"))


@pytest.fixture(scope="module")
def loading(tiny_backbone_dir: Path) -> Loading:
    return Loading(backbone=str(tiny_backbone_dir), device="cpu", dtype="float32")


@dataclass
class Watched:
    """The student's scoring: which slates it was asked for, and after how many it is killed."""

    asked: list[str] = field(default_factory=list)
    kill_after: int | None = None

    def score(self, student: Student, slates: Sequence[Slate]) -> Iterator[tuple[Slate, Any]]:
        for slate, scores in SCORE(student, slates):
            if self.kill_after is not None and len(self.asked) == self.kill_after:
                raise Killed
            self.asked.append(slate.slate_id)
            yield slate, scores


SCORE = ranker_kinds.score_slates


@pytest.fixture
def watched(monkeypatch: pytest.MonkeyPatch) -> Watched:
    seen = Watched()
    monkeypatch.setattr(ranker_kinds, "score_slates", seen.score)
    return seen


class TestRun:
    def test_killed_run_goes_on_where_it_stopped_and_ends_in_the_same_report(
        self, watched: Watched, slate_file: str, checkpoint: str, loading: Loading, tmp_path: Path
    ) -> None:
        names = {"checkpoint": checkpoint, "decoders": ["hungarian", "greedy"], "rankers": ["random"], "loading": loading}
        whole = evaluate_file(slate_file, **names)
        watched.asked, watched.kill_after = [], 7
        with pytest.raises(Killed):
            evaluate_file(slate_file, **names, cache=tmp_path)
        first, watched.asked, watched.kill_after = watched.asked, [], None
        assert evaluate_file(slate_file, **names, cache=tmp_path) == whole
        assert first + watched.asked == [f"s{k}" for k in range(COUNT)]
        assert len(first) == 7

    def test_second_run_asks_no_model_whatever_the_decoder(
        self, watched: Watched, slate_file: str, checkpoint: str, loading: Loading, tmp_path: Path
    ) -> None:
        evaluate_file(slate_file, checkpoint=checkpoint, loading=loading, cache=tmp_path)
        watched.asked = []
        again = evaluate_file(slate_file, checkpoint=checkpoint, decoders=list(DECODERS), loading=loading, cache=tmp_path)
        assert watched.asked == []
        assert again["rankers"] == evaluate_file(
            slate_file, checkpoint=checkpoint, decoders=list(DECODERS), loading=loading
        )["rankers"]  # fmt: skip

    def test_changed_title_is_ranked_anew_and_a_changed_label_is_not(
        self, watched: Watched, slates: list[Slate], checkpoint: str, loading: Loading, tmp_path: Path
    ) -> None:
        file = tmp_path / "slates.jsonl"
        write_jsonl(file, slates)
        before = evaluate_file(str(file), checkpoint=checkpoint, loading=loading, cache=tmp_path)
        retitled = replace(slates[3].candidates[2], title="Soap 3 with lavender")
        changed = list(slates)
        changed[3] = replace(slates[3], candidates=(*slates[3].candidates[:2], retitled, *slates[3].candidates[3:]))
        changed[5] = replace(slates[5], label=("c1",))
        write_jsonl(file, changed)
        watched.asked = []
        after = evaluate_file(str(file), checkpoint=checkpoint, loading=loading, cache=tmp_path)
        assert watched.asked == ["s3"]
        assert after["per_slate"]["values"] != before["per_slate"]["values"]

    def test_other_weights_and_another_number_format_are_not_served(
        self, watched: Watched, slate_file: str, checkpoint: str, loading: Loading, tiny_student: Student, tmp_path: Path
    ) -> None:
        evaluate_file(slate_file, checkpoint=checkpoint, loading=loading, cache=tmp_path / "kept")
        head = {name: tensor.clone() for name, tensor in tiny_student.head.state_dict().items()}
        try:
            with_bias = {name: tensor + 0.5 if name.endswith("bias") else tensor for name, tensor in head.items()}
            tiny_student.head.load_state_dict(with_bias)
            other = str(save_student(tiny_student, tmp_path / "tiny", facts=None, model_card="# tiny"))
        finally:
            tiny_student.head.load_state_dict(head)
        for changed in ({"checkpoint": other, "loading": loading}, {"loading": replace(loading, dtype="bfloat16")}):
            watched.asked = []
            evaluate_file(slate_file, **{"checkpoint": checkpoint} | changed, cache=tmp_path / "kept")
            assert len(watched.asked) == COUNT

    def test_teachers_are_kept_by_mode_and_with_the_kind_of_each_answer(
        self, slate_file: str, tiny_teacher_dir: Path, loading: Loading, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        free, asked = f"teacher:{tiny_teacher_dir}:free", f"first_token:{tiny_teacher_dir}"
        first = evaluate_file(slate_file, rankers=[free, asked], loading=loading, limit=4, cache=tmp_path)
        monkeypatch.setattr(ranker_kinds.WritingRanker, "work", no_work)
        monkeypatch.setattr(ranker_kinds.TeacherRanker, "work", no_work)
        assert evaluate_file(slate_file, rankers=[free, asked], loading=loading, limit=4, cache=tmp_path) == first
        assert first["answers"][free]["kinds"]["ok"] < 4  # random weights write no ranking
        with pytest.raises(RuntimeError, match="StopIteration"):  # the other mode has to ask
            evaluate_file(slate_file, rankers=[free.removesuffix(":free")], loading=loading, limit=4, cache=tmp_path)

    def test_nothing_is_written_where_no_model_is_asked(self, slate_file: str, tmp_path: Path) -> None:
        evaluate_file(slate_file, rankers=["random", "tfidf"], cache=tmp_path / "kept")
        assert not (tmp_path / "kept").exists()


def no_work(self: object, slates: Sequence[Slate]) -> Iterator[bytes]:
    return iter(())


class TestStore:
    def test_a_result_is_there_for_whoever_opens_the_folder_next(self, tmp_path: Path) -> None:
        store = RankingStore(tmp_path / "new" / "folder")
        assert store.find("k") is None
        store.keep("k", b"\x00made")
        assert RankingStore(tmp_path / "new" / "folder").find("k") == b"\x00made"  # without closing the first

    def test_many_may_write_at_once(self, tmp_path: Path) -> None:
        def write(worker: int) -> None:
            store = RankingStore(tmp_path)
            for number in range(20):
                store.keep(f"{worker} {number}", b"%d" % number)
            store.close()

        with ThreadPoolExecutor(4) as pool:
            list(pool.map(write, range(4)))
        store = RankingStore(tmp_path)
        assert [store.find(f"{worker} {number}") for worker in range(4) for number in range(20)] == [
            b"%d" % number for _ in range(4) for number in range(20)
        ]

    def test_damaged_file_and_a_folder_that_cannot_be_are_named(self, tmp_path: Path) -> None:
        (tmp_path / FILE).write_bytes(b"no database " * 500)
        with pytest.raises(SpdError, match=r"rankings\.sqlite: file is not a database; delete the file, or go without it"):
            RankingStore(tmp_path)
        with pytest.raises(SpdError, match=r"cannot be made: .*; name another --cache"):
            RankingStore(tmp_path / FILE / "below")

    def test_only_missing_slates_are_asked_for_and_the_order_is_that_of_the_input(
        self, slates: list[Slate], tmp_path: Path
    ) -> None:
        asked: list[str] = []
        store = RankingStore(tmp_path)
        ranker = KeptRanker(Reversing(asked), store)
        list(ranker.rank_all(slates[1:3]))
        entries = list(ranker.rank_all(slates[:4]))
        assert asked == ["s1", "s2", "s0", "s3"]
        assert [entry[0].ranking.permutation for entry in entries] == [slate.item_ids[::-1] for slate in slates[:4]]
        assert (store.reused, store.made) == (2, 4)

    def test_folder_is_in_the_home_of_the_backbones(self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
        monkeypatch.setenv("SPD_HOME", str(tmp_path))
        assert default_folder() == tmp_path / "evaluations"


class Reversing:
    """Reverses the input and notes what it was asked for."""

    names, provenance, identity = ("reversing",), {}, {"form": "reversing"}

    def __init__(self, asked: list[str]) -> None:
        self.asked = asked

    def work(self, slates: Sequence[Slate]) -> Iterator[bytes]:
        for slate in slates:
            self.asked.append(slate.slate_id)
            yield written_order(slate, Ranking("reversing", slate.item_ids[::-1]))

    def read(self, slate: Slate, made: bytes) -> list[Ranked]:
        return [read_order("reversing", slate, made)]


class TestKeys:
    def test_key_hangs_on_ranker_slate_and_code(self, slates: list[Slate], monkeypatch: pytest.MonkeyPatch) -> None:
        name = identity_hash({"form": "student", "fingerprint": "a"})
        keys = {result_key(name, slates[0]), result_key(name, slates[1])}
        keys.add(result_key(identity_hash({"form": "student", "fingerprint": "b"}), slates[0]))
        monkeypatch.setattr(ranking_store, "code_hash", lambda: "other code")
        keys.add(result_key(identity_hash({"form": "student", "fingerprint": "a"}), slates[0]))
        assert len(keys) == 4

    def test_code_that_only_draws_or_counts_is_left_out(self, monkeypatch: pytest.MonkeyPatch) -> None:
        read: list[str] = []
        bytes_of = Path.read_bytes
        monkeypatch.setattr(Path, "read_bytes", lambda path: read.append(path.as_posix()) or bytes_of(path))
        code_hash.cache_clear()
        code_hash()
        names = {name.split("spd_core/")[-1] for name in read}
        assert {"prompts.py", "tokenization.py", "backbone.py", "model.py", "pipeline.py", "teachers/writing.py"} <= names
        assert not any(name.startswith(("figures/", "recipes/", "metrics/")) for name in names)

    def test_orders_survive_the_way_to_bytes_and_back(self, slates: list[Slate]) -> None:
        slate = slates[0]
        cycle = Ranking("any", (*slate.item_ids[1:3], slate.item_ids[0], *slate.item_ids[3:]))
        made = read_order("me", slate, written_order(slate, cycle, "missing"))
        assert (made.name, made.ranking.permutation, made.kind) == ("me", cycle.permutation, "missing")
