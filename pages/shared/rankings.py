"""A ranking result read in other ways: decoded again from the same matrix, as lines of a list, as files to take away."""

from __future__ import annotations

import csv
import dataclasses
import io
import json
from dataclasses import dataclass
from typing import Any

import numpy as np

from spd_core.decoding import find_decoder, to_positions
from spd_core.decoding.margins import matrix_warnings, swap_margins
from spd_core.pipeline import RankingResult
from spd_core.slate import Item, Slate

FORMULA_STARTS = ("=", "+", "-", "@", "\t", "\r", "\n")


@dataclass(frozen=True)
class Line:
    """One candidate of a ranked list."""

    rank: int
    """From 1."""
    shown_at: int
    """Place in the input, from 1."""
    item: Item
    is_relevant: bool
    grade: float | None
    used_tokens: int
    cut_tokens: int

    @property
    def rise(self) -> int:
        """Places gained against the input order; negative if it fell."""
        return self.shown_at - self.rank


def decoded(result: RankingResult, slate: Slate, decoder: str) -> RankingResult:
    """The same score matrix read by another decoder; no forward pass.

    Raises:
        SpdError: unknown decoder, or a score that is not finite.
    """
    if decoder == result.decoder:
        return result
    ranking = find_decoder(decoder)(result.score_matrix.astype(np.float64))
    margins = swap_margins(result.score_matrix, ranking)
    of_matrix = matrix_warnings(result.score_matrix, result.margins, result.decoder)
    others = [warning for warning in result.warnings if warning not in of_matrix]
    return dataclasses.replace(
        result,
        ranking=ranking,
        item_ids=tuple(slate.item_ids[index] for index in ranking),
        margins=margins,
        decoder=decoder,
        provenance=result.provenance | {"decoder": decoder},
        warnings=(*others, *matrix_warnings(result.score_matrix, margins, decoder)),
    )


def lines(slate: Slate, result: RankingResult) -> list[Line]:
    """The slate's candidates, best first."""
    relevant = slate.relevant()
    return [
        Line(
            rank=rank,
            shown_at=int(index) + 1,
            item=slate.candidates[index],
            is_relevant=relevant[index],
            grade=slate.grades[index] if slate.grades is not None else None,
            used_tokens=int(result.used_tokens[index]),
            cut_tokens=int(result.cut_tokens[index]),
        )
        for rank, index in enumerate(result.ranking, start=1)
    ]


def positions(result: RankingResult) -> np.ndarray[Any, np.dtype[np.int64]]:
    """(N,) position of each candidate in input order, 0 first."""
    return to_positions(result.ranking)


def as_json(slate: Slate, result: RankingResult) -> str:
    """The slate with its ranking as one JSON object: what `rank` writes, the score matrix, and a slate to upload again."""
    record = slate.to_json() | result.to_json() | {"score_matrix": result.score_matrix.tolist()}
    return json.dumps(record, allow_nan=False) + "\n"  # ASCII: the file survives any editor, lone surrogates included


def as_csv(slate: Slate, result: RankingResult) -> str:
    """The ranked list as CSV; a text cell that a spreadsheet would run as a formula gets an apostrophe before it."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\r\n")
    writer.writerow(["slate_id", "rank", "shown_at", "item_id", "title", "brand", "category", "relevant", "grade", "decoder"])
    for line in lines(slate, result):
        item = line.item
        texts = [neutral(text) for text in (item.item_id, item.title, item.brand or "", item.category or "")]
        grade = "" if line.grade is None else f"{line.grade:g}"
        tail = [int(line.is_relevant), grade, result.decoder]
        writer.writerow([neutral(slate.slate_id), line.rank, line.shown_at, *texts, *tail])
    return out.getvalue().encode("utf-8", "replace").decode("utf-8")


def neutral(text: str) -> str:
    """`text` as a cell that no spreadsheet takes for a formula."""
    return f"'{text}" if text.startswith(FORMULA_STARTS) or text.lstrip().startswith(FORMULA_STARTS) else text
