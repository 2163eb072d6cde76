"""The linear read of a ranking: it finds what was put in, nothing where there is nothing, and never sees its own slate."""

from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from spd_core.__main__ import main
from spd_core.checkpoints import load_student
from spd_core.datasets import load_slates
from spd_core.errors import SpdError
from spd_core.inside import mean_cosines, mean_norms
from spd_core.layer_probe import first_to_know, probe_layers
from spd_core.layer_states import hidden_by_layer, readouts_by_layer
from spd_core.model import Student
from spd_core.pipeline import rank_slate
from spd_core.slate import Slate

ROOT = Path(__file__).resolve().parent.parent
SHOPPERS = ROOT / "sample_data" / "slates" / "demo.jsonl"


def made_up(
    slates: int = 30, *, seed: int = 5, strength: float = 3.0
) -> tuple[list[NDArray[np.float64]], list[NDArray[np.int64]]]:
    """Readouts of three layers: noise, noise with the rank along one direction, and the embeddings all alike."""
    generator = np.random.default_rng(seed)
    direction = generator.normal(size=12)
    readouts, positions = [], []
    for _ in range(slates):
        count = int(generator.integers(4, 9))
        places = generator.permutation(count)
        noise = generator.normal(size=(2, count, 12))
        told = noise[1] + strength * np.outer(-places / count, direction) + 5 * generator.normal(size=12)
        readouts.append(np.stack([np.ones((count, 12)), noise[0], told]))
        positions.append(places)
    return readouts, positions


def test_rank_is_read_where_it_is_and_nowhere_else() -> None:
    alike, noise, told = probe_layers(*made_up())
    assert (alike.layer, noise.layer, told.layer) == (0, 1, 2)
    assert (alike.kendall_tau.mean, alike.spearman.mean) == (0.0, 0.0)
    assert told.kendall_tau.low > 0.7
    assert told.spearman.mean > told.kendall_tau.mean
    assert noise.kendall_tau.low < 0 < noise.kendall_tau.high
    assert {score.kendall_tau.n for score in (alike, noise, told)} == {30}


def test_a_rank_without_noise_is_read_perfectly() -> None:
    generator = np.random.default_rng(1)
    positions = [generator.permutation(6) for _ in range(10)]
    readouts = [np.stack([np.outer(places, np.arange(1, 4)) + 7.0]) for places in positions]
    (score,) = probe_layers(readouts, positions)
    assert score.kendall_tau.mean == pytest.approx(1)
    assert score.kendall_tau.low == pytest.approx(1)


def test_a_slate_is_not_judged_by_a_fit_that_has_seen_it() -> None:
    # As many features as rows: any fit that had seen a slate would read it perfectly, noise or not.
    generator = np.random.default_rng(2)
    positions = [generator.permutation(5) for _ in range(12)]
    readouts = [generator.normal(size=(1, 5, 200)) for _ in positions]
    (score,) = probe_layers(readouts, positions, folds=4)
    assert abs(score.kendall_tau.mean) < 0.35


def test_what_slates_share_and_the_scale_of_a_feature_do_not_matter() -> None:
    readouts, positions = made_up()
    moved = [one * np.logspace(-3, 3, 12) + 100 * np.logspace(-3, 3, 12) for one in readouts]
    for plain, other in zip(probe_layers(readouts, positions), probe_layers(moved, positions), strict=True):
        assert other.kendall_tau.mean == pytest.approx(plain.kendall_tau.mean, abs=1e-6)


@pytest.mark.parametrize("folds", [1, 31])
def test_folds_that_do_not_fit_the_slates_are_refused(folds: int) -> None:
    with pytest.raises(SpdError, match=f"30 slates and {folds} folds; give at least 2 folds and a slate for each"):
        probe_layers(*made_up(), folds=folds)


def test_a_slate_of_one_candidate_is_refused() -> None:
    with pytest.raises(SpdError, match="a slate has one candidate and so no order to read"):
        probe_layers([np.ones((1, 2, 3)), np.ones((1, 1, 3))], [np.arange(2), np.arange(1)], folds=2)


@pytest.mark.parametrize(
    ("taus", "layer"), [([0.0, 0.5, 0.91, 1.0], 2), ([0.2], 0), ([-0.1, 0.0], -1), ([], -1), ([0.6, 0.1, 0.5], 0)]
)
def test_first_layer_to_know_reaches_nine_tenths_of_the_best(taus: list[float], layer: int) -> None:
    assert first_to_know(taus) == layer


def test_states_of_the_last_layer_are_those_of_a_prefill(tiny_student: Student) -> None:
    from spd_core.backbone import prefill
    from spd_core.latency import encode_slate
    from spd_core.tokenization import collate_prompts

    batch = collate_prompts([encode_slate(tiny_student, load_slates(SHOPPERS)[0])], pad_id=2)
    hidden = hidden_by_layer(tiny_student.model, batch)
    assert len(hidden) == 3
    assert np.allclose(hidden[-1].numpy(), prefill(tiny_student.model, batch).detach().numpy(), atol=1e-5)
    assert readouts_by_layer(hidden, batch, "last").shape == (3, len(load_slates(SHOPPERS)[0].candidates), 64)


# --- the command


def test_command_writes_a_figure_for_every_layer(
    ready: None, tmp_path: Path, capsys: pytest.CaptureFixture[str], app_checkpoints: Path
) -> None:
    out = tmp_path / "layers.json"
    code = main(["layers", str(SHOPPERS), "--checkpoint", "tiny-spd", "--limit", "7", "--out", str(out), "--device", "cpu"])
    assert code == 0
    report = json.loads(out.read_text("utf-8"))
    assert (report["n"], report["skipped"], report["checkpoint"], report["file"]) == (7, 0, "tiny-spd", "demo.jsonl")
    assert [row["layer"] for row in report["layers"]] == [0, 1, 2]
    student = load_student("tiny-spd", device="cpu")
    assert report["provenance"]["template_hash"] == student.template.hash
    assert report["provenance"]["depth"] == 2
    table = capsys.readouterr().out
    assert re.search(r"tiny-spd on demo.jsonl: n = 7 slates, 5 folds", table)
    assert len(table.splitlines()) == 3 + 3


def test_report_reads_the_students_own_ranking(ready: None, monkeypatch: pytest.MonkeyPatch) -> None:
    from spd_core.recipes import layers

    seen: dict[str, list[NDArray[np.int64]]] = {}

    def keep(readouts: list[NDArray[np.float32]], positions: list[NDArray[np.int64]]) -> tuple[object, ...]:
        seen["readouts"], seen["positions"] = readouts, positions
        return probe_layers(readouts, positions)

    monkeypatch.setattr(layers, "probe_layers", keep)
    report = layers.layers_report(str(SHOPPERS), checkpoint="tiny-spd", limit=5, device="cpu", dtype="float32")
    student = load_student("tiny-spd", device="cpu", dtype="float32")
    for slate, places in zip(load_slates(SHOPPERS), seen["positions"], strict=False):
        assert np.argsort(places).tolist() == rank_slate(student, slate).ranking.tolist()
    norms = np.mean([mean_norms(one) for one in seen["readouts"]], axis=0)
    cosines = np.mean([mean_cosines(one) for one in seen["readouts"]], axis=0)
    assert [row["norm"] for row in report["layers"]] == pytest.approx(norms.tolist())
    assert [row["cosine"] for row in report["layers"]] == pytest.approx(cosines.tolist())


def test_slates_of_one_candidate_are_skipped_and_counted(ready: None, tmp_path: Path) -> None:
    from spd_core.datasets import write_jsonl
    from spd_core.recipes.layers import layers_report

    slates = load_slates(SHOPPERS)[:6]
    first = slates[0]
    one = Slate("one", first.user, first.candidates[:1])
    write_jsonl(tmp_path / "slates.jsonl", (slate.to_json() for slate in [one, *slates]))
    report = layers_report(str(tmp_path / "slates.jsonl"), checkpoint="tiny-spd", device="cpu")
    assert (report["n"], report["skipped"]) == (6, 1)


def test_too_few_slates_are_refused_with_both_numbers(ready: None, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["layers", str(SHOPPERS), "--checkpoint", "tiny-spd", "--limit", "4"]) == 2
    assert "limit is 4; it must be at least 5, a slate for each fold" in capsys.readouterr().err


def test_file_without_enough_usable_slates_is_refused(ready: None, tmp_path: Path) -> None:
    from spd_core.datasets import write_jsonl
    from spd_core.recipes.layers import layers_report

    write_jsonl(tmp_path / "few.jsonl", (slate.to_json() for slate in load_slates(SHOPPERS)[:2]))
    with pytest.raises(SpdError, match=r"few.jsonl: 2 slates of 2 to 50 candidates; at least 5 are needed"):
        layers_report(str(tmp_path / "few.jsonl"), checkpoint="tiny-spd", device="cpu")
