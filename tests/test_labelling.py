"""Labels: lines that come back as they went, batches that do not depend on where a run began, and slates that find theirs."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import pytest

from spd_core.datasets import write_jsonl
from spd_core.errors import SlateError
from spd_core.slate import Slate
from spd_core.teachers.answers import TeacherAnswer, judged
from spd_core.teachers.input_order import InputOrder
from spd_core.teachers.labelling import TOGETHER, Label, LabelBook, label_slates, read_labels

MakeSlate = Callable[..., Slate]


class Writer:
    """Writes the input order, and remembers which slates it was asked for together."""

    name = "writer"

    def __init__(self) -> None:
        self.requests: list[list[str]] = []

    def answers(self, slates: Iterable[Slate]) -> Iterator[TeacherAnswer]:
        asked = list(slates)
        self.requests.append([slate.slate_id for slate in asked])
        for slate in asked:
            text = ">".join(str(k + 1) for k in range(len(slate.candidates)))
            cost = {"ms": 1.23456, "passes": 3, "tokens": 5, "prompt_tokens": 40, "extra": {"cost": 0.5}}
            yield judged(slate, text, teacher=self.name, mode="free", **cost)


def test_a_written_answer_becomes_a_line_and_the_line_a_label_again(make_slate: MakeSlate, tmp_path: Path) -> None:
    slate = make_slate(3)
    label = Label.of_answer(
        judged(slate, "2>1", teacher="t", mode="free", ms=7.0, passes=3, tokens=4, prompt_tokens=9), {"a": 1}
    )
    assert (label.kind, label.is_repaired, label.ranking) == ("missing", True, ("c2", "c1", "c3"))
    write_jsonl(tmp_path / "labels.jsonl", [label])
    (back,) = read_labels(tmp_path / "labels.jsonl")
    assert back == Label(**{**vars(label), "cost": {}})
    record = json.loads((tmp_path / "labels.jsonl").read_text())
    assert (record["text"], record["tokens"], record["prompt_tokens"], record["passes"]) == ("2>1", 4, 9, 3)
    assert (record["teacher"], record["mode"], record["is_repaired"]) == ("t", "free", True)
    assert "ms" not in record  # no two runs agree on it


def test_what_an_answer_cost_stands_apart(make_slate: MakeSlate) -> None:
    (label,) = label_slates(Writer(), [make_slate(3)], provenance={}, together=4)
    assert label.cost == {"ms": 1.235, "cost": 0.5}


def test_a_teacher_that_computes_is_asked_slate_by_slate(make_slate: MakeSlate) -> None:
    labels = list(label_slates(InputOrder(), [make_slate(2, "a"), make_slate(3, "b")], provenance={"x": 1}, together=1))
    assert [(label.slate_id, label.ranking) for label in labels] == [("a", ("c1", "c2")), ("b", ("c1", "c2", "c3"))]
    assert {(label.kind, label.mode, label.text, label.tokens) for label in labels} == {("ok", "computed", "", 0)}
    assert labels[0].provenance == {"x": 1}
    assert labels[0].cost["ms"] >= 0


@pytest.mark.parametrize("start", [0, 4, 8])
def test_batches_are_the_same_wherever_a_run_goes_on(make_slate: MakeSlate, start: int) -> None:
    slates = [make_slate(2, f"s{k}") for k in range(10)]
    whole, rest = Writer(), Writer()
    everything = list(label_slates(whole, slates, provenance={}, together=4))
    later = list(label_slates(rest, slates[start:], provenance={}, together=4))
    assert [label.slate_id for label in everything] == [slate.slate_id for slate in slates]
    assert later == everything[start:]
    assert whole.requests == [["s0", "s1", "s2", "s3"], ["s4", "s5", "s6", "s7"], ["s8", "s9"]]
    assert rest.requests == whole.requests[start // 4 :]


def test_answers_that_stand_alone_are_asked_for_in_one_stream(make_slate: MakeSlate) -> None:
    writer = Writer()
    list(label_slates(writer, [make_slate(2, f"s{k}") for k in range(2 * TOGETHER)], provenance={}, together=1))
    assert [len(request) for request in writer.requests] == [2 * TOGETHER]


BROKEN = {
    '{"slate_id": "s1", "kind": "ok"}': r"labels\.jsonl line 2: is no label: it needs a slate_id and a ranking of item ids",
    '{"slate_id": "s1", "ranking": [1, 2], "kind": "ok"}': r"line 2: is no label",
    '["s1"]': r"line 2: is no label",
    '{"slate_id": "s1", "ranking": ["c1"], "kind": "fine"}': r"line 2: unknown kind 'fine'; choose from format, missing, ok",
    '{"slate_id": "s1", "ranki': r"line 2: not JSON",
}


@pytest.mark.parametrize("line", BROKEN)
def test_a_line_that_is_no_label_is_named(tmp_path: Path, line: str) -> None:
    good = '{"slate_id": "s0", "ranking": ["c1"], "kind": "ok"}'
    (tmp_path / "labels.jsonl").write_text(f"{good}\n{line}\n")
    with pytest.raises(SlateError, match=BROKEN[line]):
        list(read_labels(tmp_path / "labels.jsonl"))


def write_labels(path: Path, *labels: tuple[str, list[str]]) -> Path:
    write_jsonl(
        path, [{"slate_id": slate_id, "ranking": ranking, "kind": "ok", "teacher": "t"} for slate_id, ranking in labels]
    )
    return path


def test_a_slate_finds_the_label_of_its_candidates(make_slate: MakeSlate, tmp_path: Path) -> None:
    """The same slate id may stand for other candidates in another file, as with slates cut to another size."""
    short = write_labels(tmp_path / "short.jsonl", ("s1", ["c2", "c1"]))
    long = write_labels(tmp_path / "long.jsonl", ("s1", ["c3", "c1", "c2"]))
    book = LabelBook.read([short, long])
    assert book.find(make_slate(2)).ranking == ("c2", "c1")  # type: ignore[union-attr]
    assert book.find(make_slate(3)).ranking == ("c3", "c1", "c2")  # type: ignore[union-attr]
    assert book.find(make_slate(3, "s2")) is None
    assert book.teachers == ("t",)


@pytest.mark.parametrize(
    ("ranking", "message"),
    [
        (["c1", "c2"], r"slate 's1': label in a\.jsonl: ranks 2 candidates but the slate has 3; re-run label"),
        (["c1", "c2", "c9"], r"slate 's1': label in a\.jsonl: ranks 'c9', which is not in the slate"),
        (["c1", "c2", "c2"], r"slate 's1': label in a\.jsonl: ranks an item twice"),
    ],
)
def test_a_label_of_other_candidates_is_named_with_its_slate(
    make_slate: MakeSlate, tmp_path: Path, ranking: list[str], message: str
) -> None:
    book = LabelBook.read([write_labels(tmp_path / "a.jsonl", ("s1", ranking))])
    with pytest.raises(SlateError, match=message):
        book.find(make_slate(3))


def test_two_labels_of_one_slate_are_refused(make_slate: MakeSlate, tmp_path: Path) -> None:
    files = [write_labels(tmp_path / name, ("s1", ["c1", "c2"])) for name in ("a.jsonl", "b.jsonl")]
    with pytest.raises(SlateError, match=r"slate 's1': is labelled twice, in a\.jsonl and b\.jsonl; name one of them"):
        LabelBook.read(files).find(make_slate(2))
