"""Writes the invented beauty shop that the project ships: its catalogue and four files of slates, all synthetic.

The same seed gives the same bytes. The words are in `samples/*.toml`, the rules in the modules beside them; this module
knows only which file holds what.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from spd_core.datasets.jsonl import write_jsonl
from spd_core.recipes.samples.catalogue import read_catalogue
from spd_core.recipes.samples.shoppers import shopper_slates
from spd_core.recipes.samples.stories import demo_slates, search_slates
from spd_core.recipes.samples.tricky import tricky_slates

CATALOGUE_FILE = Path("catalogue", "items.jsonl")
"""In a folder of its own, so that every `*.jsonl` directly in the output folder is a slate file."""
DEFAULT_SEED = 7
"""Seed of the files in `sample_data/slates`."""


def make_samples(out: Path, seed: int = DEFAULT_SEED) -> None:
    """Catalogue and slate files of the invented shop under `out`; files of these names are replaced.

    Args:
        out: folder for ``demo.jsonl``, ``shoppers.jsonl``, ``search.jsonl``, ``tricky.jsonl`` and
            ``catalogue/items.jsonl``; made if missing.
        seed: draws prices, histories, slates and labels; the tricky slates do not depend on it.
    """
    catalogue = read_catalogue(seed)
    (out / CATALOGUE_FILE).parent.mkdir(parents=True, exist_ok=True)
    write_jsonl(out / CATALOGUE_FILE, (product.item for product in catalogue.products))
    write_jsonl(out / "demo.jsonl", demo_slates(catalogue, seed))
    write_jsonl(out / "shoppers.jsonl", shopper_slates(catalogue, seed))
    write_jsonl(out / "search.jsonl", search_slates(catalogue, seed))
    write_jsonl(out / "tricky.jsonl", tricky_slates(catalogue))


def main(
    out: Annotated[Path, typer.Option(help="Folder to write to.")] = Path("sample_data/slates"),
    seed: Annotated[int, typer.Option(help="Seed of prices, histories, slates and labels.")] = DEFAULT_SEED,
) -> None:
    """Make the synthetic sample slates; the same seed gives the same bytes."""
    make_samples(out, seed)


if __name__ == "__main__":
    typer.run(main)
