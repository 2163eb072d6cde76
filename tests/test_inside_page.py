"""The page that looks inside the model, as a visitor meets it: every view, every tricky slate, any head; and its figures."""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from streamlit.testing.v1 import AppTest

from pages.shared import inside_view, loaders, rollout_view
from pages.shared.inside_view import Opened
from pages.shared.loaders import Loaded
from spd_core.attention_rollout import FIRST, roll_out
from spd_core.checkpoints import random_student
from spd_core.datasets import load_slates
from spd_core.figures.layer_curves import layer_curve, layer_frame
from spd_core.figures.readout_points import readout_points
from spd_core.figures.share_heatmap import share_frame, share_heatmap
from spd_core.inside import look_inside
from spd_core.model import Student, StudentConfig
from spd_core.pipeline import rank_slate
from spd_core.slate import Slate

ROOT = Path(__file__).resolve().parent.parent
PAGE = "pages/inside.py"
TRICKY = load_slates(ROOT / "sample_data" / "slates" / "tricky.jsonl")


def visit(**link: str) -> AppTest:
    app = AppTest.from_file(str(ROOT / "app.py"), default_timeout=120)
    for name, value in link.items():
        app.query_params[name] = value
    return app.run().switch_page(PAGE).run()


def turn_to(app: AppTest, view: str) -> AppTest:
    return app.segmented_control(key="widget inside view").set_value(view).run()


def words(app: AppTest) -> str:
    kinds = ("markdown", "caption", "info", "warning", "error", "title", "header")
    return "\n".join(str(element.value) for kind in kinds for element in app.get(kind))


def is_well(app: AppTest) -> bool:
    return not app.exception and not app.error


def follow(app: AppTest) -> AppTest:
    next(button for button in app.button if button.label == "Follow the attention").click()
    return app.run()


def opened_of(student: Student, slate: Slate) -> Opened:
    return Opened(Loaded(student, "key", None), slate, rank_slate(student, slate), look_inside(student, slate))


# --- the page


def test_first_view_says_who_is_looked_at(ready: None) -> None:
    app = visit()
    assert is_well(app)
    slate, loaded = loaders.shelf("demo")[0], loaders.load("tiny-spd")
    inside, result = look_inside(loaded.student, slate), rank_slate(loaded.student, slate)
    most = int(inside.head_maps[0].mean(axis=(0, 1)).argmax())
    rank = result.ranking.tolist().index(most) + 1
    assert f"(ranked {inside_view.ordinal(rank)})" in words(app)
    assert "Attention is not explanation" in words(app)
    assert app.dataframe[0].value.shape == (len(slate.candidates), len(slate.candidates) + 1)
    before = app.dataframe[0].value.to_dict()
    app.segmented_control(key="widget head layer").set_value("2").run()
    assert app.dataframe[0].value.to_dict() != before


def test_rollout_waits_for_its_button_and_is_kept(ready: None, monkeypatch: pytest.MonkeyPatch) -> None:
    app = turn_to(visit(), "rollout")
    assert is_well(app)
    assert "Not followed yet" in words(app)
    follow(app)
    assert is_well(app)
    slate, loaded = loaders.shelf("demo")[0], loaders.load("tiny-spd")
    *_, rollout = roll_out(loaded.student, slate)
    numbers = {metric.label: metric.value for metric in app.metric}
    assert numbers["First token"] == f"{rollout.share_of(FIRST):.1%}"
    assert numbers["Own text"] == f"{rollout.own_share:.1%}"
    assert "Query" not in numbers
    assert "*attention sink*" in words(app)
    assert "2 of 2 layers followed" in words(app)
    monkeypatch.setattr(rollout_view, "roll_out", None)  # whatever follows rolls nothing out again
    turn_to(app, "layers")
    turn_to(app, "rollout")
    assert is_well(app)
    assert app.metric


def test_readouts_of_every_layer_can_be_seen(ready: None) -> None:
    app = turn_to(visit(), "readouts")
    assert is_well(app)
    before = app.dataframe[0].value.to_dict()
    assert "of what tells the" in words(app)
    app.select_slider(key="widget readout layer").set_value(0).run()
    assert is_well(app)
    assert app.dataframe[0].value.to_dict() != before


def test_missing_layer_figures_are_told_with_the_command(ready: None) -> None:
    app = turn_to(visit(), "layers")
    assert is_well(app)
    assert "`python -m spd_core layers sample_data/slates/shoppers.jsonl --checkpoint tiny-spd" in words(app)
    assert app.dataframe[0].value["Layer"].tolist() == [0, 1, 2]


def stored_report(student: Student) -> dict[str, Any]:
    interval = {"mean": 0.5, "low": 0.4, "high": 0.6, "n": 12}
    row = {"kendall_tau": interval, "spearman": interval, "norm": 1.0, "cosine": 0.5}
    layers = [row | {"layer": layer} for layer in range(3)]
    layers[2] = layers[2] | {"kendall_tau": interval | {"mean": 0.8}}
    made_for = {
        "depth": 2,
        "template_hash": student.template.hash,
        "backbone_fingerprint": student.backbone.fingerprint,
    }
    common = {"file": "some.jsonl", "n": 12, "folds": 5, "mean_candidates": 20.0}
    return common | {"layers": layers, "provenance": made_for}


def test_stored_layer_figures_are_shown_with_their_n(ready: None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "results").mkdir()
    (tmp_path / "slates").symlink_to(loaders.SHELVES)
    monkeypatch.setattr(loaders, "SHELVES", tmp_path / "slates")
    path = tmp_path / "results" / "layers-tiny-spd.json"
    loaded = loaders.load("tiny-spd")
    path.write_text(json.dumps(stored_report(loaded.student)), "utf-8")
    app = turn_to(visit(), "layers")
    assert is_well(app)
    assert "No layer before the last knows the ranking as well: a linear read of **layer 2** reaches" in words(app)
    assert "The largest step is into **layer 2**: 0.50 to 0.80" in words(app)
    assert "n = 12 slates, 5 folds, 20 candidates on average" in words(app)
    assert app.dataframe[0].value["Kendall tau"].tolist()[2] == "0.800 (0.400 to 0.600)"
    for spoil in ({"layers": []}, {"provenance": {"depth": 9}}, {"provenance": None}):
        path.write_text(json.dumps(stored_report(loaded.student) | spoil), "utf-8")
        assert inside_view.stored_probe(loaded) is None
    path.write_text("{", "utf-8")
    assert inside_view.stored_probe(loaded) is None


@pytest.mark.parametrize("view", list(inside_view.VIEWS))
def test_every_tricky_slate_is_shown_in_every_view(view: str, ready: None) -> None:
    app = turn_to(visit(shelf="tricky"), view)
    for slate in TRICKY:
        app.selectbox(key="widget slate").set_value(slate.slate_id).run()
        if view == "rollout" and len(slate.candidates) < 10:
            follow(app)
            assert app.metric, slate.slate_id
        assert is_well(app), slate.slate_id
        assert not re.search(r"(?<!\\)\$", words(app)), slate.slate_id


@pytest.mark.parametrize(("head", "user_token"), [("linear_probe", False), ("slot_query", False), ("self_attention", True)])
def test_maps_of_any_head_are_in_rank_order(
    head: str, user_token: bool, tiny_backbone_dir: Path, make_slate: Callable[..., Slate]
) -> None:
    config = StudentConfig(head=head, head_width=64, user_token=user_token)
    student = random_student(str(tiny_backbone_dir), config=config, device="cpu", dtype="float32")
    opened = opened_of(student, make_slate(6))
    if head == "linear_probe":
        assert opened.inside.head_maps == ()
        return
    weights = opened.inside.head_maps[0][0]
    map_ = inside_view.head_map(opened, weights)
    order = opened.order
    assert map_.sources[:6] == [opened.titles[index] for index in order]
    if head == "slot_query":
        assert map_.readers == [
            "1st position",
            "2nd position",
            "3rd position",
            "4th position",
            "5th position",
            "6th position",
        ]
        assert np.allclose(map_.shares, weights[:6][:, order])
    else:
        assert map_.shares.shape == (6, 7)
        assert np.allclose(map_.shares[:, :6], weights[np.ix_(order, order)])
        assert np.allclose(map_.shares[:, 6], weights[order, 6])
        assert "The shopper's token gets" in inside_view.head_sentence(opened, map_)
    assert np.allclose(map_.shares.sum(axis=1), 1, atol=1e-5)


@pytest.mark.parametrize("page", [PAGE, "pages/sinkhorn.py"])
def test_without_a_checkpoint_the_untrained_head_is_looked_into(
    page: str, ready: None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("SPD_CHECKPOINTS", str(tmp_path))
    app = AppTest.from_file(str(ROOT / "app.py"), default_timeout=120).run().switch_page(page).run()
    assert is_well(app)
    assert "untrained head" in words(app)
    if page == PAGE:
        turn_to(app, "layers")
        assert is_well(app)
        assert "--checkpoint CHECKPOINT" in words(app)


def test_linear_probe_says_it_has_no_attention(ready: None, monkeypatch: pytest.MonkeyPatch) -> None:
    real = loaders.inside
    monkeypatch.setattr(loaders, "inside", lambda *args: dataclasses.replace(real(*args), head_maps=()))
    app = visit()
    assert is_well(app)
    assert "This head is a linear probe" in words(app)


# --- its figures


def test_cells_of_equal_names_stay_apart() -> None:
    frame = share_frame(np.array([[0.1, 0.9], [0.4, 0.6]]), ["a", "a"], ["x", "x"])
    assert frame[["item", "column"]].drop_duplicates().shape == (4, 2)
    assert frame["share"].tolist() == [0.1, 0.9, 0.4, 0.6]


@pytest.mark.parametrize("dark", [False, True])
def test_pictures_take_hostile_titles(dark: bool) -> None:
    titles = ['</script>"];x', "1984"]
    charts = [
        share_heatmap(np.eye(2), readers=titles, sources=titles, ticks=["1", "2"], source_title="looks at", dark=dark),
        readout_points(
            np.eye(2), titles, positions=np.array([1, 0]), shares=np.array([0.7, 0.3]), marked=[True, False], dark=dark
        ),
        layer_curve(layer_frame([0.1, 0.5], [0, 0.4], [0.2, 0.6]), title="Kendall tau", marked=1, note="here", dark=dark),
    ]
    expressions = re.findall(r'"(?:labelExpr|expr)": "((?:[^"\\]|\\.)*)"', "".join(chart.to_json() for chart in charts))
    assert expressions
    assert not any("</script>" in expression for expression in expressions)
    assert '"here"' in charts[2].to_json()


def test_curve_without_interval_is_its_own_band() -> None:
    frame = layer_frame([1.0, 2.0])
    assert frame["low"].tolist() == frame["high"].tolist() == [1.0, 2.0]
    assert frame["layer"].tolist() == [0, 1]
