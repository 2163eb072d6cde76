"""Results of an ablation: values survive the file, effects add up or not, and no figure comes without n and source."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from itertools import product
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from spd_core.ablation import (
    CONTRASTS,
    FACTORS,
    NOT_RUN,
    CellResult,
    Factors,
    Point,
    SeedRun,
    Source,
    Stage,
    cell_name,
    cube_frame,
    curve_frame,
    decoder_effects,
    decoder_sentence,
    effect_sentence,
    interaction_sentence,
    interactions,
    main_effects,
    measured_values,
    pack_values,
    paper_frame,
    point_frame,
    read_cell,
    read_cells,
    shared_seeds,
    sourced,
    unpack_values,
    write_cell,
)
from spd_core.ablation.effects import Contrast, Effect, Interaction
from spd_core.errors import SpdError
from spd_core.figures.ablation import interval_chart, shared_domain
from spd_core.heads import HEADS
from spd_core.metrics import METRICS, Difference, mean_interval

KEYS = list(product(*FACTORS.values()))
N = 40


def make_result(
    key: Sequence[str],
    values: Sequence[float],
    *,
    name: str | None = None,
    seeds: Sequence[int] = (0,),
    slates_sha256: str = "same",
) -> CellResult:
    """A result in which every metric and decoder has these values a slate."""
    source = Source(file="beauty/valid.jsonl.gz", sha256="0" * 64, n=len(values), slates_sha256=slates_sha256, excluded={})
    row = dict.fromkeys(METRICS, pack_values(values))
    decoders = ("hungarian", "expected_position", "first_column")
    stages = (Stage(name="head", slates=8, seen=16, steps=4, minutes=0.5),)
    curve = ({"stage": "head", "seen": 8, "n": 5, "auc": 0.6, "loss_nats": 1.5},)
    runs = [
        SeedRun.model_validate({"seed": seed, "stages": stages, "curve": curve, "values": dict.fromkeys(decoders, row)})
        for seed in seeds
    ]
    interval = dict(mean_interval(values)._asdict())
    return CellResult(
        plan="test",
        cell=name or cell_name(*key),
        factors=Factors.model_validate(dict(zip(FACTORS, key, strict=True))),
        changes={},
        settings={"preset": {"teacher": "reference"}},
        data={},
        source=source,
        runs=tuple(runs),
        metrics={decoder: dict.fromkeys(METRICS, interval) for decoder in decoders},
        date="2026-11-30",
        machine={"cpu": "test"},
    )


def cube_values(bonus: Mapping[frozenset[str], float] | None = None) -> dict[tuple[str, str, str], np.ndarray]:
    """Values of 12 cells whose effects add up, but for a bonus where all levels of a set meet."""
    slates = np.random.default_rng(0).normal(0.5, 0.1, N)
    add = {"lora": 0.06, "teacher": 0.03, "self_attention": 0.02, "slot_query": -0.01}
    extra = bonus or {}
    return {
        key: slates
        + sum(add.get(level, 0.0) for level in key)
        + sum(value for levels, value in extra.items() if levels <= set(key))
        for key in KEYS
    }


# --- files


def test_the_cube_has_the_heads_that_there_are() -> None:
    assert set(FACTORS["head"]) == set(HEADS)
    assert len(KEYS) == 12


def test_values_survive_packing_and_a_result_its_file(tmp_path: Path) -> None:
    values = np.random.default_rng(1).random(N)
    assert unpack_values(pack_values(values), N, "x") == pytest.approx(values, abs=1e-6)
    result = make_result(KEYS[0], values.tolist(), seeds=(0, 7))
    assert write_cell(tmp_path, result) == tmp_path / "linear_probe-clicks-frozen.json"
    assert read_cells(tmp_path) == {"linear_probe-clicks-frozen": result}
    assert result.by_seed("hungarian", "AUC").shape == (2, N)
    assert result.values("hungarian", "AUC").mean() == pytest.approx(values.mean())


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("%%%", "values a slate are damaged"),
        (pack_values([0.5]), "holds 1 values for 2 slates"),
        (pack_values([0.5, np.nan]), "one is not finite"),
    ],
)
def test_damaged_values_are_refused(text: str, message: str) -> None:
    with pytest.raises(SpdError, match=message):
        unpack_values(text, 2, "cell")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"source": {"file": "", "sha256": "", "n": 1, "slates_sha256": "", "excluded": {}}}, "source.file"),
        ({"source": {"file": "f", "sha256": "", "n": 0, "slates_sha256": "", "excluded": {}}}, "source.n"),
        ({"source": None}, "source"),
        ({"runs": []}, "runs"),
    ],
)
def test_result_without_n_or_source_cannot_be_read(change: dict[str, object], message: str, tmp_path: Path) -> None:
    file = write_cell(tmp_path, make_result(KEYS[0], [0.5, 0.7]))
    file.write_text(json.dumps(json.loads(file.read_text()) | change))
    with pytest.raises(SpdError, match=rf"linear_probe-clicks-frozen\.json: {message}"):
        read_cell(file)


def test_misplaced_and_missing_files_are_named(tmp_path: Path) -> None:
    assert read_cells(tmp_path / "none") == {}
    with pytest.raises(SpdError, match=r"gone\.json: cannot be read"):
        read_cell(tmp_path / "gone.json")
    write_cell(tmp_path, make_result(KEYS[0], [0.5])).rename(tmp_path / "other.json")
    with pytest.raises(SpdError, match="holds cell 'linear_probe-clicks-frozen'; rename it"):
        read_cells(tmp_path)


def test_unknown_decoder_and_metric_are_named() -> None:
    result = make_result(KEYS[0], [0.5, 0.6])
    with pytest.raises(SpdError, match="unknown decoder 'beam'; choose from expected_position"):
        result.interval("beam", "AUC")
    with pytest.raises(SpdError, match="unknown metric 'F1'; choose from AUC"):
        result.values("hungarian", "F1")


# --- effects


def test_effects_that_add_up_are_found_and_do_not_interact() -> None:
    values = cube_values()
    found = {effect.contrast: effect for effect in main_effects(values)}
    assert list(found) == list(CONTRASTS)
    expected = {"lora": 0.06, "teacher": 0.03, "self_attention": 0.02, "slot_query": -0.01}
    for contrast, effect in found.items():
        assert effect.difference.mean == pytest.approx(expected[contrast.high])
        assert effect.pairs == effect.possible == (4 if contrast.factor == "head" else 6)
    crossed = interactions(values)
    assert len(crossed) == 5
    for entry in crossed:
        assert entry.difference[:3] == pytest.approx((0, 0, 0), abs=1e-12)
        assert "No interaction: the two effects add up, n = 40." in interaction_sentence(entry, "AUC")


def test_bonus_of_two_levels_is_found_where_it_is_and_nowhere_else() -> None:
    values = cube_values({frozenset(("teacher", "lora")): 0.05})
    for entry in interactions(values):
        is_pair = {entry.first.factor, entry.second.factor} == {"signal", "backbone"}
        assert entry.difference.mean == pytest.approx(0.05 if is_pair else 0.0, abs=1e-12)
        assert entry.with_high.mean - entry.with_low.mean == pytest.approx(entry.difference.mean, abs=1e-12)
    lora = main_effects(values)[0]
    assert lora.difference.mean == pytest.approx(0.06 + 0.05 / 2)  # half of the pairs get the bonus


def test_interaction_of_one_head_alone_is_averaged_over_the_signals() -> None:
    found = interactions(cube_values({frozenset(("slot_query", "lora", "teacher")): 0.04}))
    entry = next(one for one in found if one.first.factor == "backbone" and one.second.high == "slot_query")
    assert entry.difference.mean == pytest.approx(0.02)


def test_missing_cells_are_left_out_of_effects_and_counted() -> None:
    values = cube_values()
    del values["linear_probe", "clicks", "lora"]
    lora = main_effects(values)[0]
    assert (lora.pairs, lora.possible) == (5, 6)
    assert "mean of 5 of 6 pairs of cells" in effect_sentence(lora, "AUC")
    first = interactions(values)[0]
    assert (first.squares, first.possible) == (2, 3)
    assert "(2 of 3 levels run)" in interaction_sentence(first, "AUC")
    assert main_effects({KEYS[0]: values[KEYS[0]]}) == []
    assert interactions({KEYS[0]: values[KEYS[0]]}) == []


def test_effects_of_cells_with_different_numbers_of_slates_are_refused() -> None:
    values = cube_values() | {KEYS[0]: np.zeros(3)}
    with pytest.raises(SpdError, match=r"cells hold \[3, 40\] slates"):
        main_effects(values)


def test_decoders_are_compared_signal_by_signal() -> None:
    plain = cube_values()
    shifted = {key: numbers + (0.1 if key[1] == "clicks" else 0.0) for key, numbers in plain.items()}
    found = decoder_effects({"hungarian": plain, "first_column": shifted})
    assert found["clicks"].mean == pytest.approx(0.1)
    assert found["teacher"].mean == pytest.approx(0.0)
    assert "with clicks: sorting the first column instead of the assignment adds 0.100" in decoder_sentence(
        "clicks", found["clicks"], "AUC"
    )
    assert "makes no clear difference" in decoder_sentence("teacher", found["teacher"], "AUC")


# --- words

LORA, SIGNAL = CONTRASTS[0], CONTRASTS[1]


def crossed(high: Difference, low: Difference, difference: Difference) -> Interaction:
    return Interaction(LORA, SIGNAL, high, low, difference, 3, 3)


def test_interaction_is_told_with_both_effects_and_a_verdict() -> None:
    high, low = Difference(0.06, 0.04, 0.08, 1000, 0.001), Difference(0.01, -0.01, 0.03, 1000, 0.3)
    text = interaction_sentence(crossed(high, low, Difference(0.05, 0.02, 0.08, 1000, 0.001)), "AUC")
    assert text == (
        "LoRA adds 0.060 (0.040 to 0.080) AUC with teacher rankings and 0.010 (-0.010 to 0.030) with clicks. They interact: "
        "the effect is higher with teacher rankings than with clicks by 0.050 (0.020 to 0.080), n = 1,000."
    )


@pytest.mark.parametrize(
    ("high", "low", "difference", "words"),
    [
        ((-0.02, -0.04, -0.01), (-0.01, -0.03, 0.01), (-0.01, -0.04, 0.02), "costs 0.020 (0.010 to 0.040) AUC with teacher"),
        (
            (-0.02, -0.04, -0.01),
            (-0.01, -0.03, 0.01),
            (-0.01, -0.04, 0.02),
            "and 0.010 (-0.010 to 0.030) with clicks. No",
        ),
        ((-0.02, -0.03, 0.0), (0.01, 0.0, 0.02), (-0.03, -0.05, -0.01), "by -0.020 (-0.030 to 0.000) with teacher"),
        (
            (-0.02, -0.03, 0.0),
            (0.01, 0.0, 0.02),
            (-0.03, -0.05, -0.01),
            "higher with clicks than with teacher",
        ),
    ],
)
def test_interaction_is_told_whatever_its_sign(
    high: tuple[float, ...], low: tuple[float, ...], difference: tuple[float, ...], words: str
) -> None:
    entry = crossed(*(Difference(*numbers, 9, 0.5) for numbers in (high, low, difference)))
    assert words in interaction_sentence(entry, "AUC")


@pytest.mark.parametrize(
    ("numbers", "words"),
    [
        ((0.06, 0.04, 0.08), "LoRA adds 0.060 (0.040 to 0.080) AUC, mean of 6 pairs of cells, n = 9."),
        ((-0.06, -0.08, -0.04), "LoRA costs 0.060 (0.040 to 0.080) AUC, mean"),
        ((0.01, -0.01, 0.03), "LoRA makes no clear difference: AUC +0.010 (-0.010 to +0.030), mean"),
    ],
)
def test_main_effect_is_told_whatever_it_is(numbers: tuple[float, ...], words: str) -> None:
    assert words in effect_sentence(Effect(LORA, Difference(*numbers, 9, 0.1), 6, 6), "AUC")


@pytest.mark.parametrize("contrast", CONTRASTS)
def test_every_contrast_has_words(contrast: Contrast) -> None:
    effect = Effect(contrast, Difference(0.1, 0.0, 0.2, 9, 0.1), 1, 1)
    assert "n = 9." in effect_sentence(effect, "MRR")


# --- frames


def test_every_cell_of_the_cube_has_a_row_run_or_not() -> None:
    results = {result.cell: result for result in [make_result(KEYS[3], [0.5, 0.7, 0.9], seeds=(0, 1))]}
    table = cube_frame(results, decoder="hungarian", metric="AUC")
    assert len(table) == 12
    run = table[table["state"] != NOT_RUN]
    assert run["cell"].tolist() == ["linear_probe-teacher-lora"]
    assert run["mean"].iloc[0] == pytest.approx(0.7)
    assert (run["n"].iloc[0], run["source"].iloc[0], run["seeds"].iloc[0]) == (3, "beauty/valid.jsonl.gz", 2)
    gaps = table[table["state"] == NOT_RUN]
    assert len(gaps) == 11
    assert gaps["mean"].isna().all()
    assert all(f"ablate --cell {cell}" in command for cell, command in zip(gaps["cell"], gaps["command"], strict=True))


GOOD = {"cell": "a", "mean": 0.5, "n": 3, "source": "valid", "state": "measured"}


@pytest.mark.parametrize(
    "change",
    [{"n": 0}, {"n": None}, {"n": True}, {"n": "many"}, {"n": 2.5}, {"n": "not given"}, {"source": ""}, {"source": None}],
)
def test_no_figure_comes_without_its_n_and_source(change: dict[str, object]) -> None:
    assert len(sourced(pd.DataFrame([GOOD]))) == 1
    with pytest.raises(SpdError, match=r"cell 'a': 0\.5000 has n .* a figure without both must not be shown"):
        sourced(pd.DataFrame([GOOD | change]).astype(object))


def test_gap_must_say_why_and_columns_must_be_there() -> None:
    with pytest.raises(SpdError, match="neither a figure nor a reason"):
        sourced(pd.DataFrame([GOOD | {"mean": np.nan, "state": ""}]))
    with pytest.raises(SpdError, match="lacks the columns n, source"):
        sourced(pd.DataFrame([GOOD])[["cell", "mean", "state"]])


def test_every_frame_refuses_a_result_that_lost_its_n_or_source() -> None:
    result = make_result(KEYS[0], [0.5, 0.7])
    bare = result.model_copy(update={"source": result.source.model_copy(update={"file": " "})})
    point = Point("x", result.cell)
    with pytest.raises(SpdError, match="must not be shown"):
        point_frame([point], {result.cell: bare}, decoder="hungarian", metric="AUC")
    metrics = {"hungarian": {"AUC": {"mean": 0.5, "low": 0.4, "high": 0.6, "n": 0}}}
    with pytest.raises(SpdError, match="must not be shown"):
        cube_frame({result.cell: result.model_copy(update={"metrics": metrics})}, decoder="hungarian", metric="AUC")
    step = result.runs[0].curve[0].model_copy(update={"n": 0})
    run = result.runs[0].model_copy(update={"curve": (step,)})
    with pytest.raises(SpdError, match="must not be shown"):
        curve_frame([point], {result.cell: result.model_copy(update={"runs": (run,)})})


def test_cells_of_different_slates_are_not_shown_side_by_side() -> None:
    cells = [make_result(KEYS[0], [0.5, 0.7]), make_result(KEYS[1], [0.5, 0.7], slates_sha256="other")]
    results = {result.cell: result for result in cells}
    for build in (cube_frame, measured_values):
        with pytest.raises(SpdError, match="were measured on different slates"):
            build(results, decoder="hungarian", metric="AUC")


def test_cells_are_compared_by_the_seeds_that_all_of_them_have() -> None:
    many, few = make_result(KEYS[0], [0.5, 0.7], seeds=(0, 1)), make_result(KEYS[1], [0.5, 0.7], seeds=(1, 0))
    lucky = make_result(KEYS[0], [1.0, 1.0], seeds=(2,)).runs
    results = {cell.cell: cell for cell in (many.model_copy(update={"runs": (*lucky, *many.runs)}), few)}
    values = measured_values(results, decoder="hungarian", metric="AUC")
    assert values[KEYS[0]] == pytest.approx(values[KEYS[1]])
    assert results[many.cell].values("hungarian", "AUC") == pytest.approx([2 / 3, 0.8])
    assert shared_seeds(list(results.values())) == {0, 1}


def test_cells_that_share_no_seed_are_compared_by_all_they_have() -> None:
    results = {cell.cell: cell for cell in (make_result(KEYS[0], [0.2]), make_result(KEYS[1], [0.4], seeds=(3, 4)))}
    values = measured_values(results, decoder="hungarian", metric="AUC")
    assert {key: value.tolist() for key, value in values.items()} == {
        KEYS[0]: [pytest.approx(0.2)],
        KEYS[1]: [pytest.approx(0.4)],
    }
    assert measured_values({}, decoder="hungarian", metric="AUC") == {}


def test_papers_figures_come_with_their_source_and_its_missing_cell_is_named() -> None:
    table = paper_frame().set_index("cell")
    assert table.loc["teacher, lora", "mean"] == 0.5842
    assert table.loc["self_attention", "mean"] == 0.5911
    assert pd.isna(table.loc["clicks, lora", "mean"])
    assert table.loc["clicks, lora", "state"] == "not reported"
    assert table["source"].str.contains("2609.01807").all()


def test_chart_keeps_a_row_for_a_cell_that_was_not_run() -> None:
    table = cube_frame({}, decoder="hungarian", metric="AUC").head(2).assign(kind="frozen")
    table.loc[0, ["mean", "low", "high"]] = (0.7, 0.6, 0.8)
    domain = shared_domain([table])
    assert domain == pytest.approx((0.6 - 0.012, 0.8 + 0.012))
    spec = interval_chart(table, title="AUC", domain=domain).to_dict()
    assert spec["layer"][2]["encoding"]["text"]["field"] == "state"
    assert [row["label"] for row in spec["datasets"][spec["layer"][2]["data"]["name"]]] == [table["label"][1]]
    assert shared_domain([cube_frame({}, decoder="hungarian", metric="AUC")]) == (0.0, 1.0)
    with pytest.raises(SpdError, match="row labels must differ"):
        interval_chart(table.assign(label="x"), title="AUC", domain=domain)
