"""The pages as a visitor meets them: with and without a checkpoint, with hostile slates, odd links and bad uploads."""

from __future__ import annotations

import csv
import dataclasses
import io
import json
import re
import shutil
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from streamlit.testing.v1 import AppTest

from pages.shared import controls, loaders, rankings
from pages.shared.text import WORD_JOINER, escaped, message, ordinal, shown
from spd_core.datasets import load_slates
from spd_core.decoding.health import ONE_SCORE
from spd_core.decoding.margins import matrix_warnings
from spd_core.errors import ScoreMatrixError, SlateError
from spd_core.model import Student
from spd_core.pipeline import RankingResult, rank_slate
from spd_core.slate import Slate

ROOT = Path(__file__).resolve().parent.parent
PAGES = ("pages/rank.py", "pages/score_matrix.py", "pages/latency.py", "pages/about.py")
SLATE_PAGES = PAGES[:2]
TRICKY = load_slates(ROOT / "sample_data" / "slates" / "tricky.jsonl")
SOURCES = [ROOT / "app.py", *sorted((ROOT / "pages").rglob("*.py"))]


@pytest.fixture
def without_checkpoint(ready: None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A machine with a backbone alone."""
    monkeypatch.setenv("SPD_CHECKPOINTS", str(tmp_path))


@pytest.fixture
def bare(without_checkpoint: None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A machine with nothing prepared."""
    monkeypatch.setenv("SPD_HOME", str(tmp_path / "empty"))


def visit(page: str = PAGES[0], **link: str) -> AppTest:
    """A new visitor who comes by a link and turns to a page."""
    app = AppTest.from_file(str(ROOT / "app.py"), default_timeout=120)
    for name, value in link.items():
        app.query_params[name] = value
    app.run()
    return app if page == PAGES[0] else app.switch_page(page).run()


def words(app: AppTest) -> str:
    """All markdown, captions and messages of a page."""
    kinds = ("markdown", "caption", "info", "warning", "error", "title", "header")
    return "\n".join(str(element.value) for kind in kinds for element in app.get(kind))


def linked(app: AppTest, name: str) -> str:
    """Value of a parameter in the address."""
    value = app.query_params[name]
    return value if isinstance(value, str) else value[-1]


def ranked_rows(app: AppTest) -> list[str]:
    """Candidate cells of the ranked list, best first, or of the unranked one."""
    return [str(cell) for table in app.table if "Candidate" in table.value for cell in table.value["Candidate"]]


def is_well(app: AppTest) -> bool:
    """Whether a page ran to its end and shows no error."""
    return not app.exception and not app.error


@pytest.mark.parametrize("page", PAGES)
def test_page_opens_with_a_checkpoint_and_names_it(page: str, ready: None) -> None:
    app = visit(page)
    assert is_well(app)
    assert ":green-badge[:material/check_circle: tiny\\-spd]" in words(app)
    assert "untrained head" not in words(app)


@pytest.mark.parametrize("page", PAGES)
def test_page_opens_without_a_checkpoint_and_says_that_the_head_is_untrained(page: str, without_checkpoint: None) -> None:
    app = visit(page)
    assert is_well(app)
    assert ":orange-badge[:material/warning: no checkpoint: untrained head]" in words(app)


@pytest.mark.parametrize("page", PAGES)
def test_missing_backbone_is_told_with_command_and_button(page: str, bare: None) -> None:
    app = visit(page)
    assert is_well(app)
    assert "`python -m spd_core prepare`" in words(app)
    assert "Prepare the backbone" in [button.label for button in app.button]


def test_prepare_button_makes_the_backbone_and_the_page_goes_on(
    bare: None, monkeypatch: pytest.MonkeyPatch, app_home: Path, tmp_path: Path
) -> None:
    monkeypatch.setattr("pages.shared.errors.prepare_backbone", lambda: shutil.copytree(app_home, tmp_path / "empty"))
    app = visit()
    next(button for button in app.button if button.label == "Prepare the backbone").click().run()
    assert is_well(app)
    assert len(ranked_rows(app)) == 10


def test_broken_checkpoint_is_named_and_the_untrained_head_is_one_click_away(
    ready: None, monkeypatch: pytest.MonkeyPatch, app_checkpoints: Path, tmp_path: Path
) -> None:
    shutil.copytree(app_checkpoints / "tiny-spd", tmp_path / "broken")
    (tmp_path / "broken" / "head.safetensors").write_bytes(b"short")
    monkeypatch.setenv("SPD_CHECKPOINTS", str(tmp_path))
    app = visit(checkpoint="broken")
    assert not app.exception
    assert "head\\.safetensors" in app.error[0].value
    next(button for button in app.button if button.label == "Use the untrained head").click().run()
    assert is_well(app)
    assert "untrained head" in words(app)


def test_first_visit_shows_a_ranked_preset_without_a_click(ready: None) -> None:
    app = visit()
    slate = load_slates(ROOT / "sample_data" / "slates" / "demo.jsonl")[0]
    rows = ranked_rows(app)
    assert sorted(rows, key=str.casefold) != rows
    assert len(rows) == len(slate.candidates)
    assert "Rank this slate" not in [button.label for button in app.button]
    assert "bought next" in "".join(rows)
    assert escaped(slate.extra["story"]) in words(app)
    assert ":violet-badge[:material/science: synthetic]" in words(app)


def test_another_slate_is_shown_as_given_until_it_is_asked_for(ready: None) -> None:
    app = visit()
    slate = loaders.shelf("demo")[3]
    app.selectbox(key="widget slate").set_value(slate.slate_id).run()
    given = ranked_rows(app)
    assert [row.split("**")[1] for row in given] == [escaped(item.title) for item in slate.candidates]
    next(button for button in app.button if button.label == "Rank this slate").click().run()
    assert is_well(app)
    assert any("▲" in str(cell) for table in app.table if "Moved" in table.value for cell in table.value["Moved"])


def test_missing_sample_slates_are_told_with_the_command(
    ready: None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(loaders, "SHELVES", tmp_path / "slates")
    app = visit()
    assert not app.exception
    assert "no slates in slates/; run `python \\-m spd\\_core samples`".replace("\\", "") in app.error[0].value.replace(
        "\\", ""
    )


def test_surprise_me_ranks_another_slate_at_once(ready: None) -> None:
    app = visit()
    before = app.selectbox(key="widget slate").value
    next(button for button in app.button if button.label == "Surprise me").click().run()
    assert is_well(app)
    assert app.selectbox(key="widget slate").value != before
    assert "Rank this slate" not in [button.label for button in app.button]


@pytest.mark.parametrize("page", SLATE_PAGES)
def test_every_tricky_slate_is_shown_whole(page: str, ready: None) -> None:
    app = visit(page, shelf="tricky")
    for slate in TRICKY:
        app.selectbox(key="widget slate").set_value(slate.slate_id).run()
        for button in app.button:
            if button.label == "Rank this slate":
                button.click().run()
        assert is_well(app), slate.slate_id
        if page == "pages/rank.py":
            assert len(ranked_rows(app)) == len(slate.candidates), slate.slate_id
        assert not re.search(r"(?<!\\)\$", words(app)), slate.slate_id  # an unescaped dollar would start a formula


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("tau", "nan"),
        ("tau", "1e9"),
        ("tau", "-1"),
        ("tau", "warm"),
        ("iterations", "0"),
        ("decoder", "magic"),
        ("layer", "onion"),
        ("slate", "no-such-slate"),
        ("shelf", "../../etc/passwd"),
        ("checkpoint", "../../x"),
        ("checkpoint", "![i](http://x/y.png)$1$"),
    ],
)
def test_nonsense_in_a_link_falls_back_with_a_note(name: str, value: str, ready: None) -> None:
    app = visit("pages/score_matrix.py", **{name: value})
    assert is_well(app)
    (note,) = [info.value for info in app.info]
    assert note.startswith("The link")
    assert escaped(value) in note
    assert linked(app, name) != value


def test_unknown_parameter_in_a_link_does_nothing(ready: None) -> None:
    app = visit(page="pages/rank.py", **{"page_": "../x"})
    assert is_well(app)
    assert not app.info


def test_same_link_shows_two_visitors_the_same_numbers(ready: None) -> None:
    link = {"slate": "demo-old-coats", "decoder": "first_column", "tau": "0.37", "layer": "centred"}
    first, second = visit("pages/score_matrix.py", **link), visit("pages/score_matrix.py", **link)
    assert not first.info
    assert first.select_slider(key="widget tau").value == 0.37
    assert [table.value.to_dict() for table in first.table] == [table.value.to_dict() for table in second.table]
    assert {name: linked(first, name) for name in link} == link


def test_choices_survive_a_walk_through_all_pages(ready: None) -> None:
    app = visit("pages/score_matrix.py", shelf="tricky", slate="tricky-markup")
    app.select_slider(key="widget tau").set_value(0.1).run()
    app.selectbox(key="widget decoder").set_value("greedy").run()
    app.selectbox(key="widget cell item").set_value(3).run()
    for page in (*PAGES, "pages/score_matrix.py"):
        app.switch_page(page).run()
        assert is_well(app)
    assert app.selectbox(key="widget slate").value == "tricky-markup"
    assert app.select_slider(key="widget tau").value == 0.1
    assert app.selectbox(key="widget decoder").value == "greedy"
    assert app.selectbox(key="widget cell item").value == 3


def test_temperature_changes_the_residual_and_a_cold_one_is_explained(ready: None) -> None:
    app = visit("pages/score_matrix.py")
    warm = re.search(r"residual \*\*(.*?)\*\*", words(app))
    assert not [warning for warning in app.warning if "Not converged" in warning.value]
    app.select_slider(key="widget tau").set_value(0.01).run()
    app.select_slider(key="widget iterations").set_value(1).run()
    cold = re.search(r"residual \*\*(.*?)\*\*", words(app))
    assert warm
    assert cold
    assert float(cold[1]) > float(warm[1])
    assert [warning for warning in app.warning if "Not converged" in warning.value]


def test_chosen_cell_shows_the_numbers_of_the_matrix(ready: None) -> None:
    app = visit("pages/score_matrix.py")
    app.selectbox(key="widget cell item").set_value(2).run()
    app.selectbox(key="widget cell position").set_value(3).run()
    loaded = loaders.load("tiny-spd")
    result = loaders.ranking(loaded, loaders.shelf("demo")[0])
    numbers = dict(app.table[-1].value.itertuples(index=False))
    assert numbers["Raw score"] == f"{result.score_matrix[2, 3]:.3f}"
    placed = int(rankings.positions(result)[2])
    assert numbers["Placed by the decoder"] == ("here" if placed == 3 else f"{ordinal(placed + 1)} instead")


@pytest.mark.parametrize("page", SLATE_PAGES)
def test_matrix_without_information_is_said_to_have_none(page: str, ready: None, monkeypatch: pytest.MonkeyPatch) -> None:
    def constant(student: Student, slate: Slate) -> RankingResult:
        result = rank_slate(student, slate)
        warning = "no ranking information: the score matrix prefers no order"
        return dataclasses.replace(result, score_matrix=np.ones_like(result.score_matrix), warnings=(warning,))

    monkeypatch.setattr(loaders, "rank_slate", constant)
    loaders._ranking.clear()
    app = visit(page)
    loaders._ranking.clear()
    assert not app.exception
    assert any("No ranking information" in warning.value for warning in app.warning)


def test_matrix_that_only_sorts_is_explained_without_alarm(ready: None, monkeypatch: pytest.MonkeyPatch) -> None:
    def sorting(student: Student, slate: Slate) -> RankingResult:
        return dataclasses.replace(rank_slate(student, slate), warnings=(f"{ONE_SCORE}: the solver only sorts",))

    monkeypatch.setattr(loaders, "rank_slate", sorting)
    loaders._ranking.clear()
    app = visit()
    loaders._ranking.clear()
    assert not app.warning
    assert [caption for caption in app.caption if "the solver only sorts" in caption.value]


@pytest.mark.parametrize("page", SLATE_PAGES)
def test_matrix_of_nan_is_an_error_on_a_page_that_stays_alive(
    page: str, ready: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(student: Student, slate: Slate) -> RankingResult:
        raise ScoreMatrixError("score of item 2 for position 1 is nan; check the checkpoint")

    monkeypatch.setattr(loaders, "rank_slate", broken)
    loaders._student(loaders.load("tiny-spd").key, "tiny-spd")  # loaded and warmed up before, as on a running server
    loaders._ranking.clear()
    app = visit(page)
    assert not app.exception
    assert "item 2 for position 1 is nan" in app.error[0].value
    assert app.selectbox(key="widget slate").options


@pytest.mark.parametrize("page", PAGES[:3])
def test_more_candidates_than_positions_are_refused_with_both_numbers(
    page: str, ready: None, make_slate: Callable[..., Slate]
) -> None:
    app = paste(visit(), json.dumps(make_slate(51).to_json()))
    app.switch_page(page).run()
    if page == "pages/latency.py":
        next(button for button in app.button if button.label == "Measure").click().run()
    assert not app.exception
    assert "51 candidates" in app.error[0].value
    assert "at most 50" in app.error[0].value


def test_latency_is_measured_on_the_spot_with_warm_up_median_and_p95(ready: None) -> None:
    app = visit("pages/latency.py")
    assert "Nothing measured yet" in words(app)
    next(button for button in app.button if button.label == "Measure").click().run()
    assert is_well(app)
    assert [metric.label for metric in app.metric] == ["Median", "p95", "Against bare prefill", "Assignment's share"]
    assert "20 runs after 3 for warm-up" in words(app)
    table = app.table[-1].value
    assert table["Stage"].tolist()[:7] == [
        "Tokenise",
        "Transfer",
        "Prefill",
        "Gather",
        "Head",
        "Copy back",
        "Assignment",
    ]
    assert table["Paper, A100 (other data and hardware), ms"].tolist()[2] == "27.9"


def test_about_shows_measured_quality_with_its_interval_and_never_fetches_a_picture(ready: None) -> None:
    app = visit("pages/about.py")
    quality = next(table.value for table in app.table if "95 % interval" in table.value)
    assert quality.iloc[0].tolist() == ["AUC", "0.712", "0.600 to 0.800"]
    assert "![" not in words(app).replace("!\\[", "")


def paste(app: AppTest, text: str) -> AppTest:
    """The page after a visitor has pasted slates into the menu of their own ones."""
    app.text_area(key="widget own text").set_value(text)
    next(button for button in app.button if button.label == "Use these slates").click()
    return app.run()


def test_pasted_slate_is_ranked_at_once_and_stays_out_of_the_link(ready: None, make_slate: Callable[..., Slate]) -> None:
    app = paste(visit(), json.dumps(make_slate(3, "mine").to_json()))
    assert is_well(app)
    assert len(ranked_rows(app)) == 3
    assert app.selectbox(key="widget shelf").value == "yours"
    assert "slate" not in app.query_params


def test_bad_paste_is_explained_and_what_was_there_stays(ready: None) -> None:
    app = visit()
    before = ranked_rows(app)
    paste(app, '{"slate_id": "s", "candidates": [{"item_id": "a", "title": "t", "price": NaN}]}')
    assert not app.exception
    assert "NaN" in app.error[0].value
    assert ranked_rows(app) == before


@pytest.mark.parametrize(
    ("data", "name", "complaint"),
    [
        (b" \n ", "a.json", "nothing was pasted or uploaded"),
        (b"x" * (5 * 2**20 + 1), "a.jsonl", r"5,242,881 bytes; at most 5,242,880 \(5 MB\)"),
        (b"a\n" * 1_000_000, "a.csv", "1,000,000 lines; at most 20,000"),
        (
            b"[" + b",".join(b'{"slate_id": %d, "candidates": [{"item_id": 1}]}' % k for k in range(2001)) + b"]",
            "a.json",
            "2,001 slates",
        ),
        (b"a\r" * 30_000, "a.csv", "30,000 lines; at most 20,000"),
        (b'{"slate_id": "s", "candidates": [{"item_id": "a", "price": NaN}]}', "a.json", "NaN"),
        (b'{"slate_id": "s", "candidates": []}', "a.json", "has no candidates"),
        (b"[" * 100_000, "a.json", "nested too deeply"),
        (b"\xff\xfe", "a.json", "not UTF-8"),
        (b"title\nsoap\n", "a.csv", "slate_id"),
        (b'{"slate_id": "s", "candidates": [{"item_id": "a", "title": 7}]}', "a.json", "title is 7"),
    ],
)
def test_bad_upload_is_refused_with_its_reason(data: bytes, name: str, complaint: str) -> None:
    with pytest.raises(SlateError, match=complaint):
        controls.read_own(data, name)


@pytest.fixture(scope="module")
def tricky_results(tiny_student: Student) -> list[tuple[Slate, RankingResult]]:
    """Every tricky slate with its ranking."""
    return [(slate, rank_slate(tiny_student, slate)) for slate in TRICKY]


def test_json_download_can_be_uploaded_again_and_loses_nothing(tricky_results: list[tuple[Slate, RankingResult]]) -> None:
    for slate, result in tricky_results:
        text = rankings.as_json(slate, result)
        (again,) = controls.read_own(text.encode(), "ranking.json")
        assert again.candidates == slate.candidates
        assert again.user == slate.user
        assert again.label == slate.label
        assert tuple(again.extra["ranking"]) == result.item_ids
        assert np.array(again.extra["score_matrix"], dtype=np.float32).tolist() == result.score_matrix.tolist()


def test_csv_download_has_a_row_a_candidate_and_no_formula(tricky_results: list[tuple[Slate, RankingResult]]) -> None:
    for slate, result in tricky_results:
        heading, *rows = csv.reader(io.StringIO(rankings.as_csv(slate, result), newline=""))
        assert len(rows) == len(slate.candidates)
        assert [len(row) for row in rows] == [len(heading)] * len(rows)
        assert not [cell for row in rows for cell in row if cell.lstrip().startswith(("=", "+", "-", "@"))]


@pytest.mark.parametrize("text", ["=1+1", "+1", "-1", "@sum", "\t=1", " =1", "\r=1"])
def test_formula_cell_gets_an_apostrophe(text: str) -> None:
    assert rankings.neutral(text) == f"'{text}"


@pytest.mark.parametrize("text", ["soap", "1-2", "a=b", ""])
def test_other_cell_stays_as_it_is(text: str) -> None:
    assert rankings.neutral(text) == text


@pytest.mark.parametrize("decoder", ["greedy", "expected_position", "first_column"])
def test_decoding_the_matrix_again_equals_ranking_with_that_decoder(
    decoder: str, tiny_student: Student, make_slate: Callable[..., Slate]
) -> None:
    slate = make_slate(9)
    again = rankings.decoded(rank_slate(tiny_student, slate), slate, decoder)
    direct = rank_slate(tiny_student, slate, decoder=decoder)
    assert again.item_ids == direct.item_ids
    assert again.warnings == direct.warnings
    assert again.provenance == direct.provenance
    assert again.margins == pytest.approx(direct.margins, nan_ok=True)


def test_decoding_again_replaces_what_was_said_of_the_matrix(tiny_student: Student, make_slate: Callable[..., Slate]) -> None:
    slate = make_slate(4)
    flat = dataclasses.replace(rank_slate(tiny_student, slate), score_matrix=np.ones((4, 50), dtype=np.float32))
    of_matrix = matrix_warnings(flat.score_matrix, flat.margins, flat.decoder)
    again = rankings.decoded(dataclasses.replace(flat, warnings=("kept", *of_matrix)), slate, "greedy")
    assert again.warnings[0] == "kept"
    assert sum("no ranking information" in warning for warning in again.warnings) == 1


def test_movement_counts_places_gained(tiny_student: Student, make_slate: Callable[..., Slate]) -> None:
    slate = make_slate(3)
    result = dataclasses.replace(rank_slate(tiny_student, slate), ranking=np.array([2, 0, 1]))
    assert [(line.rank, line.shown_at, line.rise) for line in rankings.lines(slate, result)] == [
        (1, 3, 2),
        (2, 1, -1),
        (3, 2, -1),
    ]


@pytest.mark.parametrize(
    "text", ["$x$", ":red[x]", "![i](http://x/y.png)", "[a](b)", "<b>", "**b**", "`c`", "# h", "a | b", "&amp;", "\\"]
)
def test_every_mark_of_user_text_is_escaped(text: str) -> None:
    safe = escaped(text).replace(WORD_JOINER, "")
    assert re.sub(r"\\(.)", r"\1", safe) == text
    assert not re.search(r"(?<!\\)(?:\\\\)*[$:!\[\]()<>*`#|&]", safe)


@pytest.mark.parametrize(
    "text", [":smile:", ":material/home:", "www.x.com", "https://x.com", "a@b.co", "->", "<-", "--", ">=", "~="]
)
def test_patterns_that_streamlit_replaces_late_are_broken_up(text: str) -> None:
    assert WORD_JOINER in escaped(text)


def test_shown_text_is_one_short_clean_line() -> None:
    assert shown("a\n b\t\x00\u202ec") == "a b c"
    assert shown("\ud800") == "\ufffd"
    assert shown("  ") == "(no title)"
    assert len(shown("x" * 500)) == 120
    assert escaped("\u05e9\u05dc") == "\u2068\u05e9\u05dc\u2069"


def test_command_in_a_message_stays_code_and_the_rest_is_escaped() -> None:
    assert message("$5: run `python -m x`") == "\\$5\\: run `python -m x`"


@pytest.mark.parametrize(
    ("place", "word"), [(1, "1st"), (2, "2nd"), (3, "3rd"), (4, "4th"), (11, "11th"), (22, "22nd"), (112, "112th")]
)
def test_ordinals_read_as_spoken(place: int, word: str) -> None:
    assert ordinal(place) == word


def test_ten_cold_visitors_cause_one_model_load(ready: None, monkeypatch: pytest.MonkeyPatch) -> None:
    loads: list[str] = []
    real = loaders.load_student

    def slow(checkpoint_id: str) -> Student:
        loads.append(checkpoint_id)
        time.sleep(0.2)
        return real(checkpoint_id)

    monkeypatch.setattr(loaders, "load_student", slow)
    loaders._student.clear()
    with ThreadPoolExecutor(10) as pool:
        students = list(pool.map(lambda _: loaders.load("tiny-spd").student, range(10)))
    assert loads == ["tiny-spd"]
    assert len({id(student) for student in students}) == 1


def test_one_pass_runs_at_a_time_and_no_visitor_gets_anothers_ranking(
    ready: None, monkeypatch: pytest.MonkeyPatch, make_slate: Callable[..., Slate]
) -> None:
    running, most = 0, 0
    lock = threading.Lock()

    def watched(student: Student, slate: Slate) -> RankingResult:
        nonlocal running, most
        with lock:
            running += 1
            most = max(most, running)
        time.sleep(0.02)
        with lock:
            running -= 1
        return rank_slate(student, slate)

    loaded = loaders.load("tiny-spd")
    monkeypatch.setattr(loaders, "rank_slate", watched)
    slates = [make_slate(n, f"gate-{n}") for n in range(2, 10)]
    with ThreadPoolExecutor(8) as pool:
        results = list(pool.map(lambda slate: loaders.ranking(loaded, slate), slates))
    assert most == 1
    assert [result.slate_id for result in results] == [slate.slate_id for slate in slates]


def test_ranking_is_kept_until_slate_or_checkpoint_changes(
    ready: None, monkeypatch: pytest.MonkeyPatch, make_slate: Callable[..., Slate]
) -> None:
    calls: list[str] = []
    monkeypatch.setattr(
        loaders, "rank_slate", lambda student, slate: calls.append(slate.slate_id) or rank_slate(student, slate)
    )
    loaded, slate = loaders.load("tiny-spd"), make_slate(4, "kept")
    for student, asked in ((loaded, slate), (loaded, slate), (dataclasses.replace(loaded, key="new"), slate)):
        loaders.ranking(student, asked)
    loaders.ranking(loaded, dataclasses.replace(slate, label=("c1",)))
    assert calls == ["kept"] * 3


def code_lines(pattern: str) -> Iterator[tuple[str, str]]:
    """File and line of every match in the sources of the app."""
    for source in SOURCES:
        for line in source.read_text("utf-8").splitlines():
            if re.search(pattern, line):
                yield source.relative_to(ROOT).as_posix(), line


def test_session_keys_and_query_parameters_are_spelled_in_state_alone() -> None:
    assert {file for file, _ in code_lines(r"st\.(session_state|query_params)")} == {"pages/shared/state.py"}


def test_caches_live_in_loaders_alone_and_are_bounded() -> None:
    caches = list(code_lines(r"@st\.cache_"))
    assert {file for file, _ in caches} == {"pages/shared/loaders.py"}
    assert all("max_entries=" in line for _, line in caches)


def test_no_page_writes_raw_html() -> None:
    assert not list(code_lines(r"unsafe_allow|st\.html|components\.v1"))


def test_app_and_pages_stay_short() -> None:
    sizes = {source.relative_to(ROOT).as_posix(): len(source.read_text("utf-8").splitlines()) for source in SOURCES}
    limits: dict[str, Any] = {name: 80 if name.count("/") == 1 else 250 for name in sizes} | {"app.py": 60}
    assert {name: size for name, size in sizes.items() if size > limits[name]} == {}
