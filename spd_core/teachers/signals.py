"""What can be told about a slate without a language model: similar titles, what histories hold together, popularity.

Each signal gives one number a candidate and is a ranker of its own, a floor to measure against. Nothing here reads a
label: counts come from histories alone, and those of the slate's own user are left out when it is scored (a later
history of theirs may hold what this slate asks for). So the slates a signal was fitted on are ranked like any others.

Choices made on the beauty `valid` split (1,000 slates, N = 20; AUC / Recall@1) after fitting on `train`, equal weights:
log-lift of the pairs of brands and of categories .783/.306, plain overlap of equal brands and category paths .758/.287;
titles alone by character n-grams .722/.285, by words .704/.266; without recency weights .720/.275.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Self

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from sklearn.feature_extraction.text import TfidfVectorizer

from spd_core.slate import Item, Ranking, Slate
from spd_core.teachers.base import rank_by_scores

Vector = NDArray[np.float64]
UserKey = tuple[str, str]

RECENCY = 0.8
"""Weight of a history entry relative to the next newer one; best of .6, .8, .9, 1 on beauty `valid`."""

PRIOR_PAIRS = 1.0
"""Pairs added to observed and expected counts, so that rare pairs stay near 0; .3 to 3 differ by less than .002 AUC."""


@dataclass(frozen=True)
class Observations:
    """What the signals are fitted on: the histories of all users and a record of each item seen."""

    histories: Mapping[UserKey, tuple[str, ...]]
    """Distinct item ids of each user, over all of that user's slates."""
    catalogue: Mapping[str, Item]
    """Item of each id; brand and category filled in from wherever they were told first."""

    @classmethod
    def collect(cls, slates: Iterable[Slate], items: Iterable[Item] = ()) -> Self:
        """Observations of slates (read once, labels ignored) and of a catalogue.

        Args:
            slates: any iterable; a user's slates are merged by `user_id`, a slate without one is a user of its own.
            items: further records, e.g. of items that occur only in histories and carry no brand there.
        """
        catalogue: dict[str, Item] = {}
        histories: dict[UserKey, dict[str, None]] = {}
        for item in items:
            _remember(catalogue, item)
        for slate in slates:
            for item in (*slate.user.history, *slate.candidates):
                _remember(catalogue, item)
            bought = histories.setdefault(user_key(slate), {})
            bought.update(dict.fromkeys(item.item_id for item in slate.user.history))
        return cls({user: tuple(bought) for user, bought in histories.items()}, catalogue)

    def own(self, slate: Slate) -> tuple[str, ...]:
        """Distinct item ids of the slate's own user as observed; empty for a user never seen."""
        return self.histories.get(user_key(slate), ())


def user_key(slate: Slate) -> UserKey:
    """What tells the slate's user from others: the user id, else the slate's id."""
    return ("slate", slate.slate_id) if slate.user.user_id is None else ("user", slate.user.user_id)


def _remember(catalogue: dict[str, Item], item: Item) -> None:
    known = catalogue.setdefault(item.item_id, item)
    if (known.brand is None and item.brand is not None) or (known.category is None and item.category is not None):
        brand = item.brand if known.brand is None else known.brand
        category = item.category if known.category is None else known.category
        catalogue[item.item_id] = replace(known, brand=brand, category=category)


@dataclass(frozen=True)
class TitleSimilarity:
    """TF-IDF similarity of the candidate's title to the titles of the user's history, and to a query if there is one.

    Character n-grams of 3 to 5 within words: brand names, sizes and word forms match in part. The similarities to the
    history's entries are combined by their root mean square, weighted by recency: a mean that leans to the best match.
    """

    vectorizer: TfidfVectorizer | None
    rows: Mapping[str, int]
    matrix: Any
    name: str = "tfidf"

    @classmethod
    def fit(cls, seen: Observations) -> Self:
        """Signal whose n-gram weights come from the catalogue's titles."""
        titles = sorted({item.title for item in seen.catalogue.values()})
        vectorizer = TfidfVectorizer(analyzer="char_wb", ngram_range=(3, 5), sublinear_tf=True, min_df=2)
        try:
            matrix = vectorizer.fit_transform(titles)
        except ValueError:  # no n-gram is shared by two titles: titles tell nothing
            return cls(None, {}, None)
        return cls(vectorizer, {title: row for row, title in enumerate(titles)}, matrix)

    def scores(self, slate: Slate) -> Vector:
        """(N,) similarities in 0..1, zero where user and candidate share nothing or the user is unknown."""
        texts = [item.title for item in slate.user.history] + ([slate.user.query] if slate.user.query else [])
        if self.vectorizer is None:
            return np.zeros(len(slate.candidates))
        candidates = self._vectors([candidate.title for candidate in slate.candidates])
        similarity = (candidates @ self._vectors(texts).T).toarray()  # (N, H)
        return np.sqrt(_by_recency(np.square(similarity)))

    def rank(self, slate: Slate) -> Ranking:
        """Ranking by `scores`."""
        return rank_by_scores(self.scores(slate), slate, self.name)

    def _vectors(self, texts: list[str]) -> Any:
        assert self.vectorizer is not None
        if all(text in self.rows for text in texts):
            return self.matrix[[self.rows[text] for text in texts]]
        return self.vectorizer.transform(texts)


@dataclass(frozen=True)
class Affinity:
    """How much more often than by chance others hold the candidate's item, brand or category along with the history's.

    A group is an item, a brand or a category. For groups a, b: log((pairs(a, b) + 1) / (expected(a, b) + 1)), where a
    pair is two different items of one user's history and expected = pairs(a) pairs(b) / pairs. 0 says nothing is known.
    An item whose brand is "" belongs to the unbranded ones; one whose brand was never told belongs to no group.
    """

    name: str
    attribute: str
    groups: Mapping[str, int]
    pairs: Any
    totals: Vector
    seen: Observations = field(repr=False)

    @classmethod
    def fit(cls, seen: Observations, name: str, attribute: str) -> Self:
        """Affinity of the groups named by an item's `attribute`: item_id, brand or category."""
        item_rows = {item_id: row for row, item_id in enumerate(seen.catalogue)}
        values = [getattr(item, attribute) for item in seen.catalogue.values()]
        groups = {value: column for column, value in enumerate(sorted({value for value in values if value is not None}))}
        told = [(row, groups[value]) for row, value in enumerate(values) if value is not None]
        member = _incidence(told, (len(values), len(groups) + 1))  # the last group is "unknown" and has no members
        histories = seen.histories.values()
        bought = [(user, item_rows[item_id]) for user, history in enumerate(histories) for item_id in history]
        user_groups = _incidence(bought, (len(histories), len(values))) @ member  # (users, groups)
        with_itself = sp.diags_array(user_groups.sum(axis=0))  # an item makes no pair with itself
        pairs = user_groups.T @ user_groups - with_itself
        totals = np.asarray(pairs.sum(axis=1), dtype=np.float64).ravel()
        return cls(name, attribute, groups, sp.csr_array(pairs), totals, seen)

    def scores(self, slate: Slate) -> Vector:
        """(N,) recency-weighted mean log-lift to the history's entries; zeros for an empty history."""
        rows, columns = self._groups(slate.candidates), self._groups(slate.user.history)
        own = self._own_groups(slate)
        in_rows, in_columns, in_all = own[rows], own[columns], own.sum()
        same = np.equal.outer(rows, columns)
        observed = self.pairs[rows][:, columns].toarray()  # (N, H)
        observed = observed - np.outer(in_rows, in_columns) + same * in_rows[:, None]
        row_pairs = self.totals[rows] - in_rows * (in_all - 1)
        column_pairs = self.totals[columns] - in_columns * (in_all - 1)
        all_pairs = self.totals.sum() - in_all * (in_all - 1)
        expected = np.outer(row_pairs, column_pairs) / max(all_pairs, 1.0)
        return _by_recency(np.log((observed + PRIOR_PAIRS) / (expected + PRIOR_PAIRS)))

    def rank(self, slate: Slate) -> Ranking:
        """Ranking by `scores`."""
        return rank_by_scores(self.scores(slate), slate, self.name)

    def _own_groups(self, slate: Slate) -> Vector:
        """(groups + 1,) number of items of each group in the observed history of the slate's own user."""
        own = [self.seen.catalogue[item_id] for item_id in self.seen.own(slate)]
        counts = np.bincount(self._groups(own), minlength=len(self.groups) + 1).astype(np.float64)
        counts[-1] = 0.0  # items of no group make no pairs
        return counts

    def _groups(self, items: Iterable[Item]) -> NDArray[np.int64]:
        return np.array([self._group(item) for item in items], dtype=np.int64)

    def _group(self, item: Item) -> int:
        value = getattr(item, self.attribute)
        if value is None:
            value = getattr(self.seen.catalogue.get(item.item_id), self.attribute, None)
        return len(self.groups) if value is None else self.groups.get(value, len(self.groups))


@dataclass(frozen=True)
class Popularity:
    """How many other users have the candidate in their history."""

    counts: Mapping[str, int]
    seen: Observations = field(repr=False)
    name: str = "popularity"

    @classmethod
    def fit(cls, seen: Observations) -> Self:
        """Signal that counts each user once per item."""
        return cls(Counter(item_id for history in seen.histories.values() for item_id in history), seen)

    def scores(self, slate: Slate) -> Vector:
        """(N,) numbers of users, 0 for an item nobody had."""
        own = set(self.seen.own(slate))
        return np.array([float(self.counts.get(item_id, 0) - (item_id in own)) for item_id in slate.item_ids])

    def rank(self, slate: Slate) -> Ranking:
        """Ranking by `scores`."""
        return rank_by_scores(self.scores(slate), slate, self.name)


def recency_weights(length: int) -> Vector:
    """(length,) weights that sum to 1, oldest first, each `RECENCY` times the next."""
    weights = RECENCY ** np.arange(length - 1, -1, -1, dtype=np.float64)
    return np.asarray(weights / weights.sum())


def _by_recency(values: Vector) -> Vector:
    """(N,) recency-weighted means of (N, H) values; row by row, so that equal rows give equal last bits."""
    return np.asarray(np.sum(values * recency_weights(values.shape[1]), axis=1))


def _incidence(entries: list[tuple[int, int]], shape: tuple[int, int]) -> Any:
    rows, columns = np.array(entries, dtype=np.int64).reshape(-1, 2).T
    return sp.csr_array((np.ones(len(entries)), (rows, columns)), shape=shape)
