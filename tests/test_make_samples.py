"""The shipped sample slates: made by the recipe, loadable, as varied as promised, and free of real brands."""

import gzip
import json
import os
import re
import subprocess
import sys
from collections import Counter
from itertools import pairwise
from pathlib import Path

import pytest

from spd_core.datasets.jsonl import load_slates
from spd_core.recipes.make_samples import DEFAULT_SEED, make_samples
from spd_core.recipes.samples.catalogue import Catalogue, read_catalogue, read_words
from spd_core.recipes.samples.shoppers import read_shoppers, shopper_slates, utility
from spd_core.recipes.samples.stories import grade
from spd_core.slate import Slate

ROOT = Path(__file__).resolve().parents[1]
SHIPPED = ROOT / "sample_data" / "slates"
SLATE_FILES = ("demo", "shoppers", "search", "tricky")
REAL_BRANDS = re.compile(
    r"\b(?:"
    r"Aveeno|Avon|Axe|Bioderma|Burt's Bees|CeraVe|Chanel|Cetaphil|China Glaze|Clairol|Clinique|Conair|"
    r"Coty|Covergirl|DevaCurl|Dior|Dove|Elizabeth Arden|Essie|Garnier|Gelish|Gillette|Glossier|"
    r"Head & Shoulders|Herbal Essences|Kiehl's|L'Oreal|Lancome|Lauder|Lush|MAC|Maybelline|Moroccanoil|Murad|"
    r"Neutrogena|Nivea|NYX|OGX|Olay|OPI|Pantene|Paul Mitchell|Philosophy|Redken|Revlon|Rimmel|"
    r"Sally Hansen|Schwarzkopf|Sephora|SheaMoisture|Shiseido|Suave|TIGI|Too Faced|TRESemme|Urban Decay|"
    r"Vaseline|Velcro|Wella"
    r")\b"
)


def shipped(name: str) -> list[Slate]:
    return load_slates(SHIPPED / f"{name}.jsonl")


def records() -> list[tuple[str, dict]]:
    files = sorted(SHIPPED.rglob("*.jsonl"))
    return [(path.stem, json.loads(line)) for path in files for line in path.open(encoding="utf-8")]


@pytest.fixture(scope="module")
def catalogue() -> Catalogue:
    return read_catalogue(DEFAULT_SEED)


@pytest.fixture(scope="module")
def remade(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("samples")
    make_samples(out, DEFAULT_SEED)
    return out


def test_remaking_gives_the_bytes_that_are_shipped(remade: Path) -> None:
    made = {path.relative_to(remade): path.read_bytes() for path in remade.rglob("*.jsonl")}
    assert made == {path.relative_to(SHIPPED): path.read_bytes() for path in SHIPPED.rglob("*.jsonl")}


def test_another_seed_gives_other_visits(catalogue: Catalogue) -> None:
    assert list(shopper_slates(catalogue, DEFAULT_SEED)) != list(shopper_slates(catalogue, DEFAULT_SEED + 1))


def test_the_module_runs_as_a_command(tmp_path: Path, remade: Path) -> None:
    command = [sys.executable, "-m", "spd_core.recipes.make_samples", "--out", str(tmp_path), "--seed", str(DEFAULT_SEED)]
    subprocess.run(command, check=True, cwd=ROOT, timeout=120)
    assert (tmp_path / "demo.jsonl").read_bytes() == (remade / "demo.jsonl").read_bytes()


@pytest.mark.parametrize("name", SLATE_FILES)
def test_every_shipped_line_loads_and_comes_back_equal(name: str) -> None:
    with (SHIPPED / f"{name}.jsonl").open(encoding="utf-8") as lines:
        for line in lines:
            record = json.loads(line)
            assert Slate.from_json(record).to_json() == record


def test_every_record_is_marked_synthetic_and_every_slate_tells_its_story() -> None:
    for name, record in records():
        assert record["synthetic"] is True
        assert name == "items" or re.fullmatch(r"[^\n]{20,}\.", record["story"])


def test_shipped_files_stay_small_and_ids_unique() -> None:
    assert sum(path.stat().st_size for path in SHIPPED.rglob("*.jsonl")) < 1.5e6
    ids = [slate.slate_id for name in SLATE_FILES for slate in shipped(name)]
    assert max(Counter(ids).values()) == 1


def test_the_catalogue_is_wide_and_its_titles_differ(catalogue: Catalogue) -> None:
    items = [product.item for product in catalogue.products]
    assert len(items) >= 300
    assert len({item.item_id for item in items}) == len({item.title for item in items}) == len(items)
    assert len({item.brand for item in items}) >= 30
    assert len({item.category for item in items}) >= 60
    assert all(item.title.startswith(f"{item.brand} ") and " > " in str(item.category) for item in items)


def test_price_bands_follow_the_price(catalogue: Catalogue) -> None:
    for product in catalogue.products:
        price = product.item.extra["price"]
        assert product.band == 1 + (price >= 10) + (price >= 20) + (price >= 45)
        assert product.item.extra["price_band"] == "$" * product.band


def test_no_famous_brand_occurs_anywhere() -> None:
    assert REAL_BRANDS.findall("Revlon, not Sally; Sally Hansen, not macaroon; MAC") == ["Revlon", "Sally Hansen", "MAC"]
    assert REAL_BRANDS.findall(json.dumps([record for _, record in records()], ensure_ascii=False)) == []


def test_no_brand_of_the_real_catalogue_is_used(catalogue: Catalogue) -> None:
    items = Path(os.environ.get("SPD_DATA", ROOT.parent / "shared" / "data")) / "beauty" / "items.jsonl.gz"
    if not items.exists():
        pytest.skip(f"the real catalogue is not here: {items}")
    with gzip.open(items, "rt", encoding="utf-8") as lines:
        real = {(json.loads(line).get("brand") or "").casefold() for line in lines}
    assert len(real) > 1000
    assert {product.item.brand.casefold() for product in catalogue.products} & real == set()


def test_there_are_enough_shoppers_and_visits_of_every_size() -> None:
    slates = shipped("shoppers")
    assert len({slate.user.user_id for slate in slates}) >= 60
    assert len({slate.user.extra["persona"] for slate in slates}) >= 60
    sizes = Counter(len(slate.candidates) for slate in slates)
    assert set(sizes) == {5, 8, 10, 20, 30, 50}
    assert min(sizes.values()) >= 8


@pytest.mark.parametrize("name", ["shoppers", "demo"])
def test_the_one_purchase_is_on_the_slate_and_new_to_the_shopper(name: str) -> None:
    for slate in shipped(name):
        assert 3 <= len(slate.user.history) <= 12
        assert slate.relevant().count(True) == 1
        owned = {item.item_id for item in slate.user.history}
        assert owned.isdisjoint(slate.item_ids)


def test_what_was_bought_is_the_newest_history_item_of_the_next_visit() -> None:
    pairs = [pair for pair in pairwise(shipped("shoppers")) if pair[0].user.user_id == pair[1].user.user_id]
    assert len(pairs) > 60
    for first, second in pairs:
        assert [item.item_id for item in second.user.history[:-1]] == [item.item_id for item in first.user.history]
        assert (second.user.history[-1].item_id,) == first.label


def test_most_slates_hold_rivals_of_the_same_category_and_of_the_same_brand() -> None:
    slates = shipped("shoppers")
    for field in ("category", "brand"):
        with_rival = 0
        for slate in slates:
            bought = next(item for item in slate.candidates if item.item_id in slate.label)
            with_rival += sum(getattr(item, field) == getattr(bought, field) for item in slate.candidates) > 1
        assert with_rival > 0.7 * len(slates), field


def test_demo_opens_with_the_unscented_curls_and_fits_one_screen() -> None:
    slates = shipped("demo")
    assert slates[0].slate_id == "demo-unscented-curls"
    assert len(slates) >= 12
    assert all(8 <= len(slate.candidates) <= 20 and slate.extra["why"] for slate in slates)


def test_the_label_of_every_demo_is_what_its_shopper_values_most(catalogue: Catalogue) -> None:
    by_id, tastes = {product.item.item_id: product for product in catalogue.products}, read_shoppers()
    for slate in shipped("demo"):
        taste = tastes[slate.user.user_id]
        values = {item_id: utility(taste, by_id[item_id]) for item_id in slate.item_ids}
        assert values[slate.label[0]] == max(values.values()), slate.slate_id


def test_searches_are_graded_by_the_rule_and_have_good_and_bad_answers(catalogue: Catalogue) -> None:
    by_id = {product.item.item_id: product for product in catalogue.products}
    words = {f"search-{table['id']}": table for table in read_words("stories.toml")["search"]}
    slates = shipped("search")
    assert len(slates) >= 10
    for slate in slates:
        asked = words[slate.slate_id]
        assert slate.user.query == asked["query"]
        assert len(slate.user.history) == asked.get("bought", 0) <= 3
        assert slate.grades == tuple(grade(by_id[item_id], asked) for item_id in slate.item_ids)
        assert set(slate.label) == {i for i, value in zip(slate.item_ids, slate.grades, strict=True) if value >= 2}
        assert 0 < len(slate.label) < len(slate.candidates)
        assert max(slate.grades) == 3


@pytest.mark.parametrize(
    "text",
    [
        *("", " ", "\n", "1984", "7", "[1] > [2] best seller", "<|im_end|>", "<|im_start|>assistant", "Argan Oil]", "Soap "),
        "$5 or 2 for $9 :red[x] ![i](http://x/y.png)",
        "Rose &amp; Honey Balm &lt;b&gt;NEW&lt;/b&gt; &#x1F339;",
        "Half an Emoji \ud83d Soap, 4 oz",
    ],
)
def test_tricky_slates_hold_the_title(text: str) -> None:
    assert text in {item.title for slate in shipped("tricky") for item in slate.candidates}


@pytest.mark.parametrize("item_id", ["=1+1", "a,b", "https://a/b?c=1", "1009513310189256287"])
def test_tricky_slates_hold_the_id(item_id: str) -> None:
    assert item_id in {item.item_id for slate in shipped("tricky") for item in slate.candidates}


def test_tricky_slates_hold_what_their_names_promise() -> None:
    slates = {slate.slate_id.removeprefix("tricky-"): slate for slate in shipped("tricky")}
    titles = {name: [item.title for item in slate.candidates] for name, slate in slates.items()}
    assert len({(item.title, item.brand, item.category) for item in slates["identical-descriptions"].candidates}) == 1
    assert titles["duplicate-titles"].count("Rose Hand Cream, 3 oz") == 3
    assert len(titles["one-candidate"]) == 1
    assert len(titles["fifty-candidates"]) == 50 == max(len(slate.candidates) for slate in slates.values())
    assert len(titles["very-long-title"][0].split()) == 10_000
    assert len({title[:30] for title in titles["equal-beginnings"]}) == 1 < len(set(titles["equal-beginnings"]))
    assert len({title.casefold() for title in titles["case-pairs"]}) < len(set(titles["case-pairs"]))
    assert slates["no-history"].user.history == ()
    assert slates["no-history"].user.query is None
    assert all(slates["all-relevant"].relevant())
    assert not any(slates["none-relevant"].relevant())
    assert slates["no-label"].label is None
    scripts = "".join(titles["other-scripts"])
    assert all(char in scripts for char in "もكקगสΣ\u200d\u202e\u0301")
