"""Reports of `diagnose` as the pages show them: the answer, missing and broken reports, order figures of a file."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from streamlit.testing.v1 import AppTest

from pages.shared import diagnosed, report_frames
from pages.shared.text import escaped
from spd_core.diagnosis import RANKERS, MatrixFigures, build_report, does_it_matter
from spd_core.diagnosis.orders import measure_copies, summarise_copies, summarise_orders
from spd_core.order_sensitivity import measure_orders
from spd_core.prompts import TEMPLATES
from spd_core.slate import Slate

ROOT = Path(__file__).resolve().parent.parent
LAB, ORDER = "pages/decoder_lab.py", "pages/order_sensitivity.py"


def visit(page: str) -> AppTest:
    """A new visitor who turns to a page."""
    return AppTest.from_file(str(ROOT / "app.py"), default_timeout=120).run().switch_page(page).run()


def whole_file(app: AppTest) -> AppTest:
    """The lab turned from one slate to a whole file."""
    return app.segmented_control(key="widget lab view").set_value("file").run()


def words(app: AppTest) -> str:
    kinds = ("markdown", "caption", "info", "warning", "error", "title", "code")
    return "\n".join(str(element.value) for kind in kinds for element in app.get(kind))


@pytest.fixture(scope="module")
def report(make_slate: Callable[..., Slate]) -> dict:
    """Report over random matrices that says to be of the checkpoint of the app's tests."""
    rng = np.random.default_rng(0)
    slates = [make_slate(8, f"s{k}", label=(f"c{k + 1}",)) for k in range(6)]
    scorer = lambda some: ((slate, rng.normal(size=(len(slate.candidates), 12))) for slate in some)  # noqa: E731
    figures = MatrixFigures(tau=1.0)
    for slate, matrix in scorer(slates):
        figures.add(slate, matrix)
    orders = {"shuffles": 3} | summarise_orders(list(measure_orders(slates, scorer, TEMPLATES["shop"], shuffles=3)))
    orders["copies"] = summarise_copies(list(measure_copies(slates, scorer, most=12)))
    about = {"file": "$f.jsonl", "checkpoint": "tiny-spd", "tau": 1.0, "provenance": {"device": "cpu", "dtype": "float32"}}
    return build_report(figures, orders=orders, about=about)


@pytest.fixture
def shelf(ready: None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """An empty folder of results."""
    monkeypatch.setattr(diagnosed, "RESULTS", tmp_path)
    return tmp_path


def test_report_of_the_chosen_checkpoint_answers_whether_the_assignment_matters(shelf: Path, report: dict) -> None:
    (shelf / "diagnose-a.json").write_text(json.dumps(report | {"checkpoint": "another"}))
    (shelf / "diagnose-b.json").write_text(json.dumps(report))
    (shelf / "beauty-valid.json").write_text("{}")  # of another command
    app = whole_file(visit(LAB))
    assert not app.exception
    assert not app.error
    assert not app.info
    assert app.selectbox(key="widget report").value == "diagnose-b.json"
    answer = does_it_matter(report).split(".")[0].split("%")[0]
    assert answer in words(app)
    assert "6 slates of \\$f\\.jsonl" in words(app)
    (decoders,) = [table.value for table in app.table if "Ranker" in table.value]
    assert len(decoders) == len(RANKERS)
    assert float(decoders["Regret, mean"][0]) == 0
    app.segmented_control(key="widget worth").set_value("Recall@1").run()
    assert not app.exception


def test_report_says_when_on_what_and_with_which_commit_it_was_made(shelf: Path, report: dict) -> None:
    (shelf / "diagnose-old.json").write_text(json.dumps(report))
    assert "made by `diagnose`." in words(whole_file(visit(LAB)))
    made = {"date": "2026-01-02", "machine": {"cpu": "A *CPU*"}, "commit": "abc123+"}
    (shelf / "diagnose-old.json").write_text(json.dumps(report | made))
    assert f"made by `diagnose` on {escaped('2026-01-02')}, A \\*CPU\\*, commit {escaped('abc123+')}." in words(
        whole_file(visit(LAB))
    )


def test_missing_report_names_the_command_and_others_can_be_looked_at(shelf: Path, report: dict) -> None:
    app = whole_file(visit(LAB))
    assert not app.exception
    assert "No file has been diagnosed with tiny\\-spd yet" in words(app)
    assert (
        "python -m spd_core diagnose SLATES.jsonl --checkpoint tiny-spd --out sample_data/results/diagnose-tiny-spd.json"
        in words(app)
    )
    assert not app.get("vega_lite_chart")
    (shelf / "diagnose-other.json").write_text(json.dumps(report | {"checkpoint": "other"}))
    app.run()
    assert "No file has been diagnosed with tiny\\-spd yet" in words(app)
    assert app.selectbox(key="widget report").value == "diagnose-other.json"
    assert any("Ranker" in table.value for table in app.table)


def test_broken_report_is_named_and_the_others_are_shown(shelf: Path, report: dict) -> None:
    (shelf / "diagnose-broken.json").write_text("{")
    (shelf / "diagnose-good.json").write_text(json.dumps(report))
    app = whole_file(visit(LAB))
    assert not app.exception
    assert "diagnose\\-broken\\.json" in app.error[0].value
    assert any("Ranker" in table.value for table in app.table)


def test_order_figures_of_a_file_stand_on_the_order_page(shelf: Path, report: dict) -> None:
    (shelf / "diagnose-b.json").write_text(json.dumps(report))
    app = visit(ORDER)
    assert not app.exception
    assert "each in 3 random orders" in words(app)
    assert "put in a second time: side by side on" in words(app)
    assert "(by chance 20% each)" in words(app)
    (table,) = [table.value for table in app.table if "Mean over slates" in table.value]
    assert len(table) == len(report_frames.ORDER_TITLES)
    (shelf / "diagnose-b.json").write_text(json.dumps(report | {"orders": None}))
    assert "made without shuffles" in words(app.run())


def test_tables_hold_the_numbers_of_the_report(report: dict) -> None:
    health = report_frames.health_frame(report)
    assert health["Median"].tolist()[0] == f"{report['health']['figures']['raw_share']['p50']:.2f}"
    firm = report_frames.firmness_frame(report)
    assert firm["What"].tolist() == ["Single ranks", "First place", "First 3", "First 5"]
    quality = report_frames.quality_frame(report)
    assert quality["AUC"].tolist() == [f"{row['metrics']['AUC']['mean']:.3f}" for row in report["rankers"].values()]
    assert quality["Hungarian less this, AUC"][0] == ""


def test_file_without_labels_has_no_quality_to_show(report: dict) -> None:
    bare = {name: row | {"metrics": None, "hungarian_less_this": None} for name, row in report["rankers"].items()}
    assert report_frames.quality_frame(report | {"rankers": bare}).empty
