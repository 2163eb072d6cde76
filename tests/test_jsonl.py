"""Reading and writing slates: nothing is lost on the way, nothing broken gets through, no file is left half-written."""

from __future__ import annotations

import gzip
import io
import json
import os
import stat
import sys
import tracemalloc
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spd_core.datasets import DATASETS, dataset_of, iter_slates, load_slates, parse_upload, write_jsonl
from spd_core.datasets import jsonl as jsonl_module
from spd_core.datasets.jsonl import parse_lines, parse_text
from spd_core.errors import SlateError
from spd_core.slate import Item, Ranking, Slate, UserContext


def record(slate_id: str = "s1", **more: Any) -> dict[str, Any]:
    return {"slate_id": slate_id, "user": {"history": []}, "candidates": [{"item_id": "a", "title": "Serum"}]} | more


def line(slate_id: str = "s1", **more: Any) -> bytes:
    return json.dumps(record(slate_id, **more)).encode() + b"\n"


def save(folder: Path, content: bytes, name: str = "slates.jsonl") -> Path:
    path = folder / name
    path.write_bytes(gzip.compress(content) if name.endswith(".gz") else content)
    return path


FULL = Slate.from_json(
    {
        "slate_id": "full",
        "user": {"user_id": "u", "history": [{"item_id": "h", "title": "Öl", "rating": 4.5}], "query": "q", "age": 7},
        "candidates": [
            {"item_id": "a", "title": "Serum 👩‍👩‍👧 שלום", "brand": "", "category": "Skin > Face", "price": [9.5, None]},
            {"item_id": "=1+1", "title": '"quoted"\n\u2028new line \ud800', "rating": 3},
        ],
        "label": ["a", "elsewhere"],
        "grades": [1, 0.5],
        "teacher": {"name": "t", "permutation": ["=1+1", "a"], "cost": 3},
        "timestamp": 1009513310189256287,
    }
)


class TestRoundTrip:
    @pytest.mark.parametrize("name", ["slates.jsonl", "slates.jsonl.gz"])
    def test_slates_come_back_equal(self, tmp_path: Path, name: str) -> None:
        slates = [FULL, Slate.from_json(record("s1"))]
        assert write_jsonl(tmp_path / name, slates) == 2
        assert load_slates(tmp_path / name) == slates

    @given(title=st.text(), number=st.integers(), fraction=st.floats(allow_nan=False, allow_infinity=False))
    def test_any_text_and_any_finite_number_survive(self, title: str, number: int, fraction: float) -> None:
        extra = {"n": number, "f": fraction, "t": title}
        slate = Slate("s", UserContext(query=title), (Item("a", title, extra=extra),), extra=extra)
        encoded = jsonl_module._encode(slate.to_json(), "here")
        assert encoded.count(b"\n") == 1
        assert list(parse_lines([encoded], "here")) == [slate]

    def test_text_of_other_scripts_is_written_readably(self, tmp_path: Path) -> None:
        write_jsonl(tmp_path / "out.jsonl", [{"title": "שלום Öl"}])
        assert (tmp_path / "out.jsonl").read_text(encoding="utf-8") == '{"title": "שלום Öl"}\n'

    def test_packed_files_of_the_same_records_are_the_same_bytes(self, tmp_path: Path) -> None:
        for name in ("one.jsonl.gz", "two.jsonl.gz"):
            write_jsonl(tmp_path / name, [FULL])
        assert (tmp_path / "one.jsonl.gz").read_bytes() == (tmp_path / "two.jsonl.gz").read_bytes()

    def test_rankings_and_plain_mappings_can_be_written(self, tmp_path: Path) -> None:
        write_jsonl(tmp_path / "out.jsonl", [Ranking("r", ("b", "a")), {"x": 1}])
        lines = (tmp_path / "out.jsonl").read_text().splitlines()
        assert [json.loads(text) for text in lines] == [{"name": "r", "permutation": ["b", "a"]}, {"x": 1}]


class TestReading:
    def test_blank_lines_bom_and_windows_line_ends_are_tolerated(self, tmp_path: Path) -> None:
        content = b"\xef\xbb\xbf" + line("1").replace(b"\n", b"\r\n") + b"\n  \r\n\n" + line("2").rstrip()
        assert [slate.slate_id for slate in iter_slates(save(tmp_path, content))] == ["1", "2"]

    def test_standard_input_is_read_for_a_dash(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(line("1") + b"{")))
        slates = iter_slates("-")
        assert next(slates).slate_id == "1"
        with pytest.raises(SlateError, match="standard input line 2: not JSON"):
            next(slates)

    def test_slates_before_a_broken_line_are_delivered(self, tmp_path: Path) -> None:
        slates = iter_slates(save(tmp_path, line("1") + b"oops\n"))
        assert next(slates).slate_id == "1"

    def test_memory_stays_flat_however_long_the_file(self) -> None:
        title = "x" * 10_000

        def lines() -> Iterator[bytes]:
            for number in range(2_000):  # 20 MB in all
                yield line(str(number), note=title)

        tracemalloc.start()
        try:
            assert sum(1 for _ in parse_lines(lines(), "long")) == 2_000
            peak_bytes = tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()
        assert peak_bytes < 2_000_000

    def test_ids_that_are_whole_numbers_become_exact_strings(self, tmp_path: Path) -> None:
        content = line(1009513310189256287)  # type: ignore[arg-type]
        assert load_slates(save(tmp_path, content))[0].slate_id == "1009513310189256287"


BROKEN = {
    "{": r"slates.jsonl line 3: not JSON: Expecting property name .* at column 2",
    '{"slate_id": NaN}': r"slates.jsonl line 3: not JSON: NaN is not a JSON number; use null or leave the key out",
    '{"x": -Infinity}': r"slates.jsonl line 3: not JSON: -Infinity is not a JSON number",
    '{"x": 1e999}': r"slates.jsonl line 3: not JSON: 1e999 is too large for a number",
    '{"x": ' + "9" * 5000 + "}": r"slates.jsonl line 3: not JSON: Exceeds the limit",
    "[" * 100_000: r"slates.jsonl line 3: not JSON: nested too deeply",
    "[1]": r"slates.jsonl line 3: slate: expected a JSON object, got list",
    "{}": r"slates.jsonl line 3: slate: slate_id is None; it must be a non-empty string",
    '{"slate_id": "s9", "candidates": []}': r"slates.jsonl line 3: slate 's9': has no candidates",
    json.dumps(record("first")): r"slates.jsonl line 3: slate_id 'first' was there before; ids must be unique",
    b"\xff\xfe".decode("latin-1"): r"slates.jsonl line 3: not UTF-8 \(byte 1\); save the file as UTF-8",
}


class TestRefusals:
    @pytest.mark.parametrize(("broken", "message"), BROKEN.items(), ids=range(len(BROKEN)))
    def test_a_broken_line_is_refused_with_file_and_line(self, tmp_path: Path, broken: str, message: str) -> None:
        path = save(tmp_path, line("first") + b"\n" + broken.encode("latin-1") + b"\n" + line("last"))
        with pytest.raises(SlateError, match=message):
            load_slates(path)

    @pytest.mark.parametrize("content", [b"", b"\n \n", b"\xef\xbb\xbf"])
    def test_a_file_without_slates_is_refused(self, tmp_path: Path, content: bytes) -> None:
        with pytest.raises(SlateError, match=r"slates.jsonl: holds no slates; give one JSON object a line"):
            load_slates(save(tmp_path, content))

    @pytest.mark.parametrize("name", sorted(DATASETS))
    def test_a_missing_file_or_a_folder_is_refused(self, tmp_path: Path, name: str) -> None:
        with pytest.raises(SlateError, match=r"nowhere: no such file; check the path"):
            list(DATASETS[name](tmp_path / "nowhere"))
        with pytest.raises(SlateError, match=r"cannot be read: Is a directory"):
            list(DATASETS[name](tmp_path))

    def test_a_cut_off_or_damaged_gzip_stream_is_refused(self, tmp_path: Path) -> None:
        whole = gzip.compress(b"".join(line(str(number)) for number in range(500)))
        for number, damaged in enumerate((whole[:-200], whole[:-8] + b"\0" * 8, line("1"))):
            path = tmp_path / f"{number}.jsonl.gz"
            path.write_bytes(damaged)
            with pytest.raises(SlateError, match=rf"{number}.jsonl.gz: gzip stream is damaged after line \d+ \(.+\)"):
                load_slates(path)
        assert next(iter_slates(tmp_path / "0.jsonl.gz")).slate_id == "0"  # what came before is delivered


class TestWriting:
    def test_an_error_half_way_leaves_the_old_file_and_nothing_else(self, tmp_path: Path) -> None:
        path = save(tmp_path, b"old\n")

        def records() -> Iterator[Mapping[str, Any]]:
            yield {"n": 1}
            raise RuntimeError("stopped")

        with pytest.raises(RuntimeError, match="stopped"):
            write_jsonl(path, records())
        assert path.read_bytes() == b"old\n"
        assert os.listdir(tmp_path) == ["slates.jsonl"]

    def test_nothing_appears_under_the_name_before_the_end(self, tmp_path: Path) -> None:
        path = tmp_path / "out.jsonl"
        seen = []

        def records() -> Iterator[Mapping[str, Any]]:
            for number in range(3):
                seen.append(path.exists())
                yield {"n": number}

        assert write_jsonl(path, records()) == 3
        assert seen == [False] * 3
        assert path.exists()

    def test_nan_is_refused_with_the_number_of_the_record(self, tmp_path: Path) -> None:
        with pytest.raises(SlateError, match=r"out.jsonl record 2: cannot be written as JSON: Out of range float"):
            write_jsonl(tmp_path / "out.jsonl", [{"n": 1.0}, {"n": float("nan")}])
        assert os.listdir(tmp_path) == []

    def test_a_missing_folder_or_a_folder_as_target_is_refused(self, tmp_path: Path) -> None:
        with pytest.raises(SlateError, match=r"cannot be written: No such file or directory"):
            write_jsonl(tmp_path / "nowhere" / "out.jsonl", [])
        with pytest.raises(SlateError, match=r"cannot be written: Is a directory"):
            write_jsonl(tmp_path, [])
        assert os.listdir(tmp_path) == []

    @pytest.mark.skipif(not os.path.exists("/dev/full"), reason="no /dev/full on this system")
    @pytest.mark.parametrize("text", ["short", "long" * 100_000])
    def test_a_full_disk_is_reported(self, text: str) -> None:
        with pytest.raises(SlateError, match=r"/dev/full: cannot be written: No space left on device"):
            write_jsonl("/dev/full", [{"n": 1}, {"text": text}])
        assert stat.S_ISCHR(os.stat("/dev/full").st_mode)

    def test_a_pipe_is_written_into_not_replaced(self, tmp_path: Path) -> None:
        pipe = tmp_path / "pipe"
        os.mkfifo(pipe)
        reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
        try:
            write_jsonl(pipe, [{"n": 1}])
            assert os.read(reader, 100) == b'{"n": 1}\n'
        finally:
            os.close(reader)
        assert stat.S_ISFIFO(pipe.stat().st_mode)

    def test_a_write_error_of_the_records_source_is_not_taken_for_ours(self, tmp_path: Path) -> None:
        def records() -> Iterator[Mapping[str, Any]]:
            raise FileNotFoundError("weights are gone")
            yield {}

        with pytest.raises(FileNotFoundError, match="weights are gone"):
            write_jsonl(tmp_path / "out.jsonl", records())


class TestPastedText:
    def test_lines_one_object_and_an_array_are_understood(self) -> None:
        expected = [Slate.from_json(record("1")), Slate.from_json(record("2"))]
        assert parse_text(line("1") + line("2"), "paste") == expected
        assert parse_text(json.dumps([record("1"), record("2")], indent=2).encode(), "paste") == expected
        assert parse_text(b"\n " + json.dumps(record("1"), indent=2).encode(), "paste") == expected[:1]

    @pytest.mark.parametrize(
        ("text", "message"),
        [
            ("", "paste: holds no slates; give one JSON object a line"),
            ("[]", "paste: holds no slates; give one JSON object a slate"),
            ("[{}]", r"paste entry 1: slate: slate_id is None"),
            ('{\n"slate_id": oops}', r"paste: not JSON: Expecting value at line 2 column 13"),
            ("hello", r"paste: not JSON: Expecting value at column 1"),
            ("{}\n{}", r"paste line 1: slate: slate_id is None"),
            (json.dumps([record("1"), record("1")]), r"paste entry 2: slate_id '1' was there before"),
            ("\xff", r"paste: not UTF-8 \(byte 1\)"),
        ],
    )
    def test_what_is_no_slate_is_refused(self, text: str, message: str) -> None:
        with pytest.raises(SlateError, match=message):
            parse_text(text.encode("latin-1"), "paste")


TABLE = """\ufeffslate_id;item_id;Title;brand;rating;label;grade;price;user_id;query;role;;
s1;a;"Serum; 30 ml
with dropper";Lumen;4.5;1;2;9.90;u7;gentle serum;;;
s2;a;Soap;;;;;;;;;;
s1;b;=1+1;;;0;0;;;;candidate;;
s1;h1;Balm;Orris;3;;;;;;history;;
"""


class TestTable:
    def test_one_row_is_one_candidate(self) -> None:
        first, second = parse_upload(TABLE.encode(), "table.csv")
        serum = Item("a", "Serum; 30 ml\nwith dropper", brand="Lumen", rating=4.5, extra={"price": "9.90"})
        assert first == Slate(
            "s1",
            UserContext((Item("h1", "Balm", brand="Orris", rating=3),), "u7", "gentle serum"),
            (serum, Item("b", "=1+1")),
            label=("a",),
            grades=(2, 0),
        )
        assert repr(first.grades) == "(2, 0)"  # whole numbers stay whole
        assert second == Slate("s2", UserContext(), (Item("a", "Soap"),))

    @pytest.mark.parametrize("delimiter", [",", ";", "\t"])
    def test_history_column_lists_titles_oldest_first(self, delimiter: str) -> None:
        rows = (("slate_id", "item_id", "title", "history"), ("s", "a", "A", "Old | New"), ("s", "b", "B", ""))
        text = "\r\n".join(delimiter.join(row) for row in rows)
        (slate,) = parse_upload(text.encode(), "table.tsv")
        assert slate.user.history == (Item("history-1", "Old"), Item("history-2", "New"))
        assert slate.label is None
        assert slate.grades is None

    def test_reads_from_a_packed_file_and_keeps_long_ids_exact(self, tmp_path: Path) -> None:
        path = save(tmp_path, b"slate_id,item_id,title\n1009513310189256287,007,7\n", "t.csv.gz")
        (slate,) = DATASETS[dataset_of(path)](path)
        assert (slate.slate_id, slate.item_ids) == ("1009513310189256287", ("007",))

    @pytest.mark.parametrize(
        ("text", "message"),
        [
            ("", r"t.csv: holds no rows below the heading"),
            ("slate_id,item_id,title\n", r"t.csv: holds no rows below the heading"),
            ("slate_id,item_id\ns,a", r"t.csv line 1: no column 'title'; needed: slate_id, item_id, title; found: sl"),
            ("slate_id,item_id,title,title\n", r"t.csv line 1: column 'title' is there twice; rename one"),
            ("slate_id,item_id,title\ns,a,A,B", r"t.csv line 2: 4 cells in a table of 3 columns; quote cells"),
            ('slate_id,item_id,title\ns,a,"A', r"t.csv line 2: not a table: unexpected end of data"),
            ("slate_id,item_id,title\n,a,A", r"t.csv line 2, column 'slate_id': is empty; each row names its slate"),
            ("slate_id,item_id,title\n\ns,,A", r"t.csv line 3, column 'item_id': is empty; each row names its item"),
            ("slate_id,item_id,title\ns,a,A\ns,a,B", r"t.csv line 2: slate 's': item_id 'a' appears twice"),
            ("slate_id,item_id,title,rating\ns,a,A,good", r"line 2, column 'rating': is 'good'; it must be a number"),
            ("slate_id,item_id,title,rating\ns,a,A,inf", r"line 2, column 'rating': is 'inf'; it must be a number"),
            (
                'slate_id,item_id,title,grade\ns,a,"A\nA",1\ns,b,B,',
                r"line 4, column 'grade': is ''; it must be a number such as 4.5, in each candidate row of the slate",
            ),
            ("slate_id,item_id,title,label\ns,a,A,maybe", r"column 'label': is 'maybe'; write 1 for a right item"),
            ("slate_id,item_id,title,role\ns,a,A,boss", r"column 'role': is 'boss'; choose from candidate, history"),
            ("slate_id,item_id,title,role\ns,a,A,history", r"t.csv line 2: slate 's': has no candidates"),
            (
                "slate_id,item_id,title,query\ns,a,A,x\ns,b,B,y",
                r"line 3, column 'query': is 'y' but was 'x' in an earlier row of the same slate; give it once",
            ),
            (
                "slate_id,item_id,title,role,history\ns,a,A,,Balm\ns,b,B,history,",
                r"line 2, column 'history': slate 's' also has rows with role 'history'; use one of the two",
            ),
            ("\xff", r"t.csv: not UTF-8"),
        ],
    )
    def test_a_broken_table_is_refused_with_line_and_column(self, text: str, message: str) -> None:
        with pytest.raises(SlateError, match=message):
            parse_upload(text.encode("latin-1"), "t.csv")


@pytest.mark.parametrize(
    ("name", "kind"),
    [("a.jsonl", "jsonl"), ("a.json", "jsonl"), ("A.CSV", "csv"), ("a.tsv.gz", "csv"), ("-", "jsonl")],
)
def test_the_files_name_tells_its_format(name: str, kind: str) -> None:
    assert dataset_of(name) == kind
    assert kind in DATASETS


@pytest.mark.parametrize("name", sorted(DATASETS))
def test_every_format_names_the_file_in_its_errors(tmp_path: Path, name: str) -> None:
    with pytest.raises(SlateError, match=r"broken\.file"):
        list(DATASETS[name](save(tmp_path, b"slate_id\n{\n", "broken.file")))
