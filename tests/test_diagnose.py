"""`diagnose`: verdicts and agreement over files of known matrices, copies and shuffles by law, and a report in plain JSON."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from datetime import UTC, date, datetime
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from spd_core.checkpoints import save_student
from spd_core.datasets import write_jsonl
from spd_core.decoding.health import BROKEN, HEALTHY, NO_INFORMATION, ONE_SCORE
from spd_core.decoding.plain_sort import LEADING
from spd_core.diagnosis import RANKERS, REFERENCES, MatrixFigures, build_report, does_it_matter, read_report
from spd_core.diagnosis.orders import (
    CopyGap,
    measure_copies,
    most_frequent_winner,
    summarise_copies,
    summarise_orders,
    winner_fifths,
    with_copy,
)
from spd_core.diagnosis.report import quantiles
from spd_core.errors import SpdError
from spd_core.figures.file_view import differences_chart, differences_frame, rank_shares_chart, rank_shares_frame
from spd_core.metrics import METRICS
from spd_core.model import Student
from spd_core.order_sensitivity import Scorer, measure_orders
from spd_core.prompts import TEMPLATES
from spd_core.recipes.diagnose import diagnose_file, format_report, gather
from spd_core.recipes.shards import Shard
from spd_core.slate import Slate

MakeSlate = Callable[..., Slate]
Matrix = NDArray[np.float64]
N = 12
ABOUT = {"file": "f.jsonl", "checkpoint": "fake", "tau": 1.0, "provenance": {}}


def diagnosed(make_slate: MakeSlate, matrices: Iterable[Matrix], **fields: object) -> dict:
    """Report over slates that have these matrices."""
    figures = MatrixFigures(tau=1.0)
    for number, matrix in enumerate(matrices):
        figures.add(make_slate(len(matrix), f"s{number}", **fields), matrix)
    return build_report(figures, orders=None, about=ABOUT)


def rounded(value: object) -> object:
    """A report without the last digits, which depend on the order of a sum."""
    if isinstance(value, dict):
        return {key: rounded(entry) for key, entry in value.items()}
    if isinstance(value, list):
        return [rounded(entry) for entry in value]
    return round(value, 9) if isinstance(value, float) else value


def falling(rng: np.random.Generator) -> Matrix:
    """u v^T with v positive and falling: one score per candidate, and the assignment sorts by it."""
    return np.outer(rng.permutation(N) + rng.random(N) / 2, np.linspace(1.0, 0.1, N))


def additive(rng: np.random.Generator) -> Matrix:
    return np.add.outer(rng.normal(size=N), rng.normal(size=N))


def permutation_like(rng: np.random.Generator) -> Matrix:
    return 10 * np.eye(N)[rng.permutation(N)] + rng.normal(size=(N, N))


KNOWN = {
    "constant": (lambda rng: np.full((N, N), rng.normal()), NO_INFORMATION),
    "additive": (additive, NO_INFORMATION),
    "rank one": (falling, ONE_SCORE),
    "random": (lambda rng: rng.normal(size=(N, N)), HEALTHY),
    "permutation-like": (permutation_like, HEALTHY),
}


@pytest.mark.parametrize("kind", KNOWN)
def test_verdicts_over_a_file_are_those_of_its_matrices(kind: str, make_slate: MakeSlate) -> None:
    draw, verdict = KNOWN[kind]
    rng = np.random.default_rng(0)
    report = diagnosed(make_slate, [draw(rng) for _ in range(5)])
    assert report["health"]["verdicts"][verdict] == 5
    assert sum(report["health"]["verdicts"].values()) == report["slates"] == 5


def test_hungarian_has_no_regret_and_nobody_less(make_slate: MakeSlate) -> None:
    rng = np.random.default_rng(1)
    report = diagnosed(make_slate, [rng.normal(size=(N, N)) for _ in range(6)])
    regrets = {name: row["regret"] for name, row in report["rankers"].items()}
    assert regrets["hungarian"] == {"mean": 0, "max": 0, "share_of_gain": 0}
    assert all(0 < row["mean"] <= row["max"] for name, row in regrets.items() if name != "hungarian")
    assert all(0 < row["share_of_gain"] < 2 for name, row in regrets.items() if name != "hungarian")


def test_on_one_score_per_candidate_every_sort_gives_the_order_of_the_assignment(make_slate: MakeSlate) -> None:
    rng = np.random.default_rng(2)
    report = diagnosed(make_slate, [falling(rng) for _ in range(4)], label=("c3",))
    for name in REFERENCES[1:]:
        against = report["rankers"][name]["against"]["hungarian"]
        assert (against["other_order"], against["other_top"], against["mean_kendall_tau"]) == pytest.approx((0, 0, 1))
        assert against["first_difference"] is None
        assert against["other_at_rank"] == [0] * N
        assert report["rankers"][name]["hungarian_less_this"]["AUC"]["mean"] == 0
    assert report["rankers"]["hungarian"]["same_as_a_sort"] == 1
    assert does_it_matter(report) == (
        "The assignment gives another order than a sort by expected position on 0% of 4 slates, and another first candidate "
        "on 0%. None of 6 paired differences in quality to a sort by expected position or first column is beyond chance."
    )


def test_where_two_orders_differ_can_be_checked_by_hand(make_slate: MakeSlate) -> None:
    # Greedy takes 9 first and is left with 0 at the end; the assignment takes 8 + 8. The third candidate is out of it.
    matrix = np.array([[9.0, 8.0, 0.0], [8.0, 0.0, 0.0], [0.0, 0.0, 9.0]])
    against = diagnosed(make_slate, [matrix, 20 * np.eye(3)])["rankers"]["greedy"]
    compared = against["against"]["hungarian"]
    assert (compared["slates"], compared["other_order"], compared["other_top"]) == (2, 0.5, 0.5)
    assert compared["other_at_rank"] == [0.5, 0.5, 0]
    assert compared["first_difference"]["p50"] == 1
    assert compared["mean_kendall_tau"] == pytest.approx((1 / 3 + 1) / 2)
    assert against["regret"]["mean"] == pytest.approx((25 - 18) / 2)
    assert against["regret"]["max"] == pytest.approx(7)


def test_shares_at_a_rank_count_only_slates_that_reach_it(make_slate: MakeSlate) -> None:
    # Greedy keeps two candidates as the assignment does; of three it takes the 9 and so differs at the last two ranks.
    two, three = 20 * np.eye(2), np.array([[20.0, 0.0, 0.0], [0.0, 9.0, 8.0], [0.0, 8.0, 0.0]])
    compared = diagnosed(make_slate, [two, three])["rankers"]["greedy"]["against"]["hungarian"]
    assert compared["other_at_rank"] == [0.0, 0.5, 1.0]


def test_better_decoder_is_said_to_be_better_and_by_how_much(make_slate: MakeSlate) -> None:
    # The bought one has the highest score at rank 1 in the assignment's eyes alone: another one has a higher first column.
    matrix = np.array([[5.0, 0.0, 0.0], [6.0, 5.9, 0.0], [0.0, 0.0, 3.0]])
    report = diagnosed(make_slate, [matrix] * 30, label=("c1",))
    less = report["rankers"]["first_column"]["hungarian_less_this"]["Recall@1"]
    assert (less["mean"], less["low"]) == (1, 1)
    text = does_it_matter(report)
    assert "Of 6 paired differences" in text
    assert "Recall@1 better by 1.000 than first column" in text
    wrong = diagnosed(make_slate, [matrix] * 30, label=("c2",))
    assert "Recall@1 worse by 1.000 than first column" in does_it_matter(wrong)


def test_without_labels_there_is_no_quality_and_the_answer_says_so(make_slate: MakeSlate) -> None:
    report = diagnosed(make_slate, [np.eye(4)] * 3)
    assert all(row["metrics"] is None and row["hungarian_less_this"] is None for row in report["rankers"].values())
    assert does_it_matter(report).endswith("No slate has a label that could tell which is better.")
    assert "no slate has a label" in format_report(report)


def test_matrix_that_is_not_finite_is_counted_and_left_at_that(make_slate: MakeSlate) -> None:
    broken = np.full((4, 4), np.nan)
    report = diagnosed(make_slate, [broken, 9 * np.eye(4)])
    assert report["health"]["verdicts"][BROKEN] == 1
    assert report["slates"] == 2
    assert report["rankers"]["hungarian"]["regret"]["max"] == 0
    assert report["rankers"]["greedy"]["against"]["hungarian"]["slates"] == 1
    alone = diagnosed(make_slate, [broken])
    assert does_it_matter(alone) == "No matrix of the file can be decoded."
    assert format_report(alone)


def test_firmness_counts_ranks_and_tops_by_their_odds(make_slate: MakeSlate) -> None:
    # The first is firm. The second and third could change places at odds of e^0.2, so the first two are a coin-toss.
    matrix = np.array([[50.0, 0.0, 0.0], [0.0, 0.1, 0.0], [0.0, 0.0, 0.1]])
    firmness = diagnosed(make_slate, [matrix])["firmness"]
    assert firmness["ranks"] == pytest.approx({"firm": 1 / 3, "leaning": 0, "coin-toss": 2 / 3})
    assert firmness["top"]["1"]["firm"] == 1
    assert firmness["top"]["1"]["loss"]["p50"] == pytest.approx(50.1)
    assert firmness["top"]["3"]["loss"] is None  # three of three candidates always are the first three


def test_single_candidates_make_a_report(make_slate: MakeSlate) -> None:
    report = diagnosed(make_slate, [np.array([[1.0]])] * 2)
    assert report["rankers"]["greedy"]["against"]["hungarian"]["mean_kendall_tau"] is None
    assert report["health"]["figures"]["second_best_gap"] is None
    assert format_report(report)


def test_quantiles_pass_over_what_is_not_finite() -> None:
    assert quantiles([1.0, 2.0, 3.0, float("inf"), float("nan")]) == pytest.approx(
        {"mean": 2, "p5": 1.1, "p25": 1.5, "p50": 2, "p75": 2.5, "p95": 2.9, "n": 3}
    )
    assert quantiles([float("nan")]) is None


def test_empty_input_is_refused() -> None:
    with pytest.raises(SpdError, match="no slates to diagnose"):
        build_report(MatrixFigures(tau=1.0), orders=None, about=ABOUT)


def test_processes_together_report_what_one_does(make_slate: MakeSlate, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(3)
    work = [(make_slate(4 + k % 3, f"s{k}", label=("c1",)), rng.normal(size=(4 + k % 3, 8))) for k in range(9)]
    shares = [MatrixFigures(tau=1.0) for _ in range(2)]
    whole = MatrixFigures(tau=1.0)
    for k, (slate, matrix) in enumerate(work):
        shares[k % 2].add(slate, matrix)
        whole.add(slate, matrix)
    monkeypatch.setattr("accelerate.utils.gather_object", lambda mine: shares)
    gather(shares[0], Shard(0, 2, "cpu"))
    joined, alone = (build_report(figures, orders=None, about=ABOUT) for figures in (shares[0], whole))
    assert rounded(joined) == rounded(alone)
    assert joined["slates"] == 9


# --- shuffles and copies


def scorer_of(score: Callable[[Slate], Matrix]) -> Scorer:
    """A scorer that gives each slate u v^T for the scores u of its candidates as shown."""

    def scored(slates: Iterable[Slate]) -> Iterator[tuple[Slate, Matrix]]:
        for slate in slates:
            yield slate, np.outer(score(slate), np.linspace(1.0, 0.1, len(slate.candidates)))

    return scored


def by_text(slate: Slate) -> Matrix:
    """Sees the titles alone."""
    return np.array([float(item.title.split()[-1]) for item in slate.candidates])


def by_place(slate: Slate) -> Matrix:
    """Sees the order alone: what is shown first is best."""
    return np.arange(len(slate.candidates), 0, -1.0)


def test_orders_of_a_model_that_does_not_see_them_keep_everything(make_slate: MakeSlate) -> None:
    slates = [make_slate(10, f"s{k}") for k in range(4)]
    found = summarise_orders(list(measure_orders(slates, scorer_of(by_text), TEMPLATES["shop"], shuffles=3)))
    assert (found["slates"], found["rankings"]) == (4, 12)
    means = {name: found[name]["mean"] for name in ("mean_kendall_tau", "rank_range", "top_stays", "top_most_frequent")}
    assert means == {"mean_kendall_tau": 1, "rank_range": 0, "top_stays": 1, "top_most_frequent": 1}
    assert (found["position_slope"]["mean"], found["position_correlation"]["mean"]) == (0, 0)


def test_orders_of_a_model_that_sees_nothing_else_give_the_input_back(make_slate: MakeSlate) -> None:
    slates = [make_slate(10, f"s{k}") for k in range(4)]
    results = list(measure_orders(slates, scorer_of(by_place), TEMPLATES["shop"], shuffles=6))
    found = summarise_orders(results)
    assert found["position_slope"]["mean"] == pytest.approx(1)
    assert found["position_correlation"]["mean"] == pytest.approx(1)
    assert found["winner_shown_in_fifth"] == [1, 0, 0, 0, 0]
    assert found["top_stays"]["mean"] < 0.5
    last = list(measure_orders(slates, scorer_of(lambda slate: -by_place(slate)), TEMPLATES["shop"], shuffles=2))
    assert winner_fifths(last[0]).tolist() == [4, 4]


def test_most_frequent_winner_is_counted_over_shuffles(make_slate: MakeSlate) -> None:
    (result,) = measure_orders([make_slate(3)], scorer_of(by_place), TEMPLATES["shop"], shuffles=40)
    wins = np.bincount(result.orders[:, 0], minlength=3)
    assert most_frequent_winner(result) == wins.max() / 40


def test_short_slates_have_no_fifths_and_single_ones_no_tau(make_slate: MakeSlate) -> None:
    found = summarise_orders(list(measure_orders([make_slate(1)], scorer_of(by_text), TEMPLATES["shop"], shuffles=2)))
    assert found["winner_shown_in_fifth"] is None
    assert found["mean_kendall_tau"] is None
    assert found["duplicates"] is None


def test_equal_candidates_of_the_file_are_told_apart_by_what_stands_between(make_slate: MakeSlate) -> None:
    slate = make_slate(5, titles=["Soap 1", "Oil 2", "Soap 1", "Gel 3", "Balm 4"])
    beside = summarise_orders(list(measure_orders([slate], scorer_of(by_text), TEMPLATES["shop"], shuffles=4)))
    assert beside["duplicates"] == {"groups": 1, "adjacent": 1, "between": 0, "largest": 0}
    apart = summarise_orders(list(measure_orders([slate], scorer_of(by_place), TEMPLATES["shop"], shuffles=30)))
    assert apart["duplicates"]["adjacent"] < 1
    assert apart["duplicates"]["between"] == pytest.approx((5 - 2) / 3, abs=0.4)


def test_copy_reads_the_same_under_another_id_and_both_places_are_known(make_slate: MakeSlate) -> None:
    for number in range(30):
        slate = make_slate(4, f"s{number}", label=("c1",), grades=(1.0, 0.0, 0.0, 0.0))
        doubled, one, other = with_copy(slate)
        assert len(doubled.candidates) == 5
        assert one != other
        assert doubled.candidates[one].title == doubled.candidates[other].title
        assert doubled.candidates[one].item_id in slate.item_ids
        rest = tuple(item for place, item in enumerate(doubled.candidates) if place != other)
        assert rest == slate.candidates
    assert with_copy(slate) == with_copy(slate)


def test_copy_of_a_copy_gets_an_id_of_its_own(make_slate: MakeSlate) -> None:
    twice, _, _ = with_copy(with_copy(make_slate(1))[0])
    assert sorted(twice.item_ids) == ["c1", "c1 copy", "c1 copy copy"]


def test_copies_come_out_side_by_side_for_a_model_that_reads_texts_and_by_chance_for_one_that_does_not(
    make_slate: MakeSlate,
) -> None:
    slates = [make_slate(9, f"s{k}") for k in range(60)]
    beside = summarise_copies(list(measure_copies(slates, scorer_of(by_text), most=50)))
    assert beside is not None
    assert (beside["slates"], beside["adjacent"], beside["largest"]) == (60, 1, 0)
    apart = summarise_copies(list(measure_copies(slates, scorer_of(by_place), most=50)))
    assert apart is not None
    assert apart["chance_between"] == pytest.approx(8 / 3)
    assert apart["between"]["mean"] == pytest.approx(8 / 3, abs=0.8)


def test_slates_without_room_for_a_copy_are_passed_over(make_slate: MakeSlate) -> None:
    slates = [make_slate(3, "full"), make_slate(2, "room")]
    gaps = list(measure_copies(slates, scorer_of(by_text), most=3))
    assert gaps == [CopyGap("room", 0, 1 / 3)]
    assert summarise_copies([]) is None


# --- the command


@pytest.fixture(scope="module")
def checkpoint(tiny_student: Student, tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(save_student(tiny_student, tmp_path_factory.mktemp("c") / "tiny", facts=None, model_card="# tiny"))


@pytest.fixture(scope="module")
def slate_file(make_slate: MakeSlate, tmp_path_factory: pytest.TempPathFactory) -> str:
    slates = [make_slate(5 + k % 2, f"s{k}", label=(f"c{k % 5 + 1}",)) for k in range(6)]
    file = tmp_path_factory.mktemp("slates") / "slates.jsonl"
    write_jsonl(file, slates)
    return str(file)


@pytest.fixture(scope="module")
def report(checkpoint: str, slate_file: str, tiny_backbone_dir: Path) -> dict:
    return diagnose_file(
        slate_file,
        checkpoint=checkpoint,
        shuffles=2,
        shuffled_slates=3,
        backbone=str(tiny_backbone_dir),
        device="cpu",
        dtype="float32",
    )


def test_report_of_a_file_holds_health_decoders_and_orders(report: dict) -> None:
    assert (report["slates"], report["file"], report["checkpoint"]) == (6, "slates.jsonl", "tiny")
    assert date.fromisoformat(report["date"]) <= datetime.now(UTC).date()
    assert report["machine"]["device"] == report["provenance"]["device"] == "cpu"
    assert "commit" in report
    assert set(report["rankers"]) == set(RANKERS)
    assert set(report["rankers"]["hungarian"]["metrics"]) == set(METRICS)
    assert (report["orders"]["slates"], report["orders"]["rankings"], report["orders"]["copies"]["slates"]) == (3, 6, 3)
    text = format_report(report)
    assert all(name in text for name in (*RANKERS, "verdicts", "first  1 stay", "position_slope", "copies: "))


def test_report_survives_its_file_and_others_are_refused(report: dict, tmp_path: Path) -> None:
    file = tmp_path / "diagnose-x.json"
    file.write_text(json.dumps(report))
    assert read_report(file) == report
    for content, word in [
        ("{", "cannot be read as JSON"),
        ("[]", "is no report"),
        ('{"kind": "spd diagnosis"}', "is no report"),
    ]:
        file.write_text(content)
        with pytest.raises(SpdError, match=f"diagnose-x.json: {word}"):
            read_report(file)
    with pytest.raises(SpdError, match="cannot be read"):
        read_report(tmp_path / "missing.json")


def test_limit_reads_no_further_and_no_shuffles_leave_that_part_out(
    checkpoint: str, slate_file: str, tiny_backbone_dir: Path
) -> None:
    options = {"checkpoint": checkpoint, "backbone": str(tiny_backbone_dir), "device": "cpu", "dtype": "float32"}
    report = diagnose_file(slate_file, limit=2, shuffled_slates=0, **options)
    assert (report["slates"], report["orders"]) == (2, None)
    assert "random orders" not in format_report(report)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"limit": 0}, "limit is 0; it must be at least 1"),
        ({"shuffled_slates": -1}, "shuffle-slates is -1; it must be 0 or more"),
        ({"shuffles": 1}, "shuffles is 1; it must be at least 2"),
    ],
)
def test_bad_options_are_refused_before_anything_is_loaded(options: dict, words: str) -> None:
    with pytest.raises(SpdError, match=words):
        diagnose_file("missing.jsonl", checkpoint="missing", **options)


# --- the pictures


def test_pictures_of_a_file_hold_every_number() -> None:
    shares = {"Greedy": [0.5, 1.0], "First column": [0.0]}
    assert rank_shares_frame(shares).to_numpy().tolist() == [["Greedy", 1, 0.5], ["Greedy", 2, 1.0], ["First column", 1, 0.0]]
    assert rank_shares_chart(shares, title="share").to_dict()["layer"][0]["encoding"]["y"]["sort"] == list(shares)
    differences = {"Greedy": (0.1, 0.05, 0.2), "First column": (0.0, -0.1, 0.1), "Worse": (-0.1, -0.2, -0.05)}
    frame = differences_frame(differences)
    assert frame["beyond"].tolist() == [True, False, True]
    assert frame["low"].tolist() == [0.05, -0.1, -0.2]
    assert len(differences_chart(differences, title="AUC").to_dict()["layer"]) == 3


def test_every_ranker_is_held_against_every_other_reference(report: dict) -> None:
    for name, row in report["rankers"].items():
        assert set(row["against"]) == set(REFERENCES) - {name}
    assert report["rankers"][LEADING]["same_as_a_sort"] == 1
