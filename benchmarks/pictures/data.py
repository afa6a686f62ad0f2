"""Ratings of pictures and texts by real people, the features of what they rated, and who is asked what.

A folder holds, for a set NAME, ``NAME-ratings.parquet`` (person, item, rating and, where measured, seconds; a person
may rate an item several times), ``NAME-items.parquet`` (item, and ``text`` where there is one), and
``NAME-efficientnet.npz`` (``item``, and ``features`` of the pictures), where there are pictures.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from edpbrl_gym._arrays import Floats, Indices
from edpbrl_gym._seeds import generator
from edpbrl_gym._validation import check_choice_of
from edpbrl_gym.features import load_encoder

Shown = Literal["picture", "text", "both"]
Group = Literal["development", "reported", "all"]

LEVELS = 7  # of a rating as an answer
_RATINGS = "-ratings.parquet"
_FEWEST = 30  # items of a person


@dataclass(frozen=True, eq=False)
class Rater:
    """What one person rated: n items, of which some may be asked about and the others are held out."""

    place: int  # of the person in the data
    items: Indices  # their rows among all items of the set, (n,)
    ratings: Floats  # the person's mean rating of each, (n,)
    levels: Indices  # the same on the scale of answers, 0..LEVELS - 1, (n,)
    seconds: float  # the median time that a rating took; NaN: not measured
    askable: Indices  # places in ``items``
    held_out: Indices

    @cached_property
    def pairs(self) -> tuple[Indices, Indices]:
        """Pairs of held-out items with different ratings, places in ``items``, the better ones first: (p,) and (p,)."""
        one, other = (self.held_out[part] for part in np.triu_indices(len(self.held_out), 1))
        lead = self.ratings[one] - self.ratings[other]
        one, other, lead = one[lead != 0], other[lead != 0], lead[lead != 0]
        return np.where(lead > 0, one, other), np.where(lead > 0, other, one)


@dataclass(frozen=True, eq=False)
class Ratings:
    """One set: all its people, and the features of all its items."""

    name: str
    features: Floats  # centred, mean squared length 1, (N, d)
    raters: tuple[Rater, ...]

    def group(self, which: Group) -> frozenset[int]:
        """The places of the people on whom the library may be developed, on whom it is reported, or of all."""
        order = np.random.default_rng(0).permutation(len(self.raters)).tolist()
        cut = round(0.4 * len(order))
        return frozenset({"development": order[:cut], "reported": order[cut:], "all": order}[which])

    def fold(self, number: int, *, folds: int, group: Group, most: int) -> tuple[list[Rater], list[Rater]]:
        """New people of a fold, at most ``most`` of a group, and all people of the other folds."""
        members = np.array_split(np.random.default_rng(1).permutation(len(self.raters)), folds)[number].tolist()
        chosen, inside = self.group(group), set(members)
        new = [self.raters[place] for place in members if place in chosen][:most]
        return new, [one for one in self.raters if one.place not in inside]


class Source(NamedTuple):
    """Where a set is."""

    name: str
    folder: Path

    def path(self, end: str) -> Path:
        """One of its files: ratings.parquet, items.parquet or efficientnet.npz."""
        return self.folder / f"{self.name}-{end}"

    @property
    def shown(self) -> tuple[Shown, ...]:
        """The features that it has."""
        import pyarrow.parquet

        has_text = "text" in pyarrow.parquet.read_schema(self.path("items.parquet")).names
        if not self.path("efficientnet.npz").is_file():
            return ("text",) if has_text else ()
        return ("picture", "text", "both") if has_text else ("picture",)

    @property
    def fingerprint(self) -> str:
        """Sha256 of its files, so that a resumed run is known to have the same data."""
        digest = hashlib.sha256()
        for path in map(self.path, ("ratings.parquet", "items.parquet", "efficientnet.npz")):
            digest.update(path.read_bytes() if path.is_file() else b"")
        return digest.hexdigest()


def find_sets(places: Sequence[str]) -> list[Source]:
    """The sets of folders, or of single ``NAME-ratings.parquet``, in the order of their names.

    Raises:
        FileNotFoundError: A folder or file is not there, or a folder holds no set.
        ValueError: No place is given, or two sets have the same name.
    """
    if not places:
        raise ValueError(f"Expected folders with NAME{_RATINGS}, got none")
    found: list[Source] = []
    for place in map(Path, places):
        files = [place] if place.name.endswith(_RATINGS) and place.is_file() else sorted(place.glob(f"*{_RATINGS}"))
        if not files:
            raise FileNotFoundError(f"Expected NAME{_RATINGS} in {place}, found none")
        found += [Source(file.name.removesuffix(_RATINGS), file.parent) for file in files]
    names = [one.name for one in found]
    if len(set(names)) < len(names):
        raise ValueError(f"Expected sets with different names, got {sorted(names)}")
    return found


def load_ratings(source: Source, shown: Shown = "picture", *, components: int = 20) -> Ratings:
    """The people of a set with at least 30 items whose ratings differ, and the features of its items.

    Args:
        source: Where it is.
        shown: Features of the "picture", of the "text" (MiniLM), or of "both", a block of equal size each.
        components: How many principal components of all items are kept. Their variances stay as they are to each
            other, and all are scaled together to the mean squared length 1, as embeddings have it.

    Raises:
        ValueError: The set has no such features, or damaged files.
    """
    import pandas

    check_choice_of(shown, f"features of {source.name}", source.shown)
    table = pandas.read_parquet(source.path("items.parquet"))
    frame = pandas.read_parquet(source.path("ratings.parquet"))
    ids = table["item"].to_numpy()
    blocks: list[NDArray[np.floating]] = []
    if shown != "text":
        blocks.append(_picture_features(source, ids))
    if shown != "picture":
        blocks.append(load_encoder("minilm").encode(table["text"].astype(str).tolist()))
    rows = np.concatenate([_scaled(np.asarray(block, dtype=np.float64)) for block in blocks], axis=1)
    left, values, _ = np.linalg.svd(_scaled(rows), full_matrices=False)
    features = _scaled(left[:, :components] * values[:components])
    place_of = {item: place for place, item in enumerate(ids.tolist())}
    low, high = float(frame["rating"].min()), float(frame["rating"].max())
    raters: list[Rater] = []
    for _, own in frame.groupby("person", sort=True):
        means = own.groupby("item", sort=True)["rating"].mean()
        if len(means) < _FEWEST or means.nunique() < 2:
            continue
        items = np.array([place_of[item] for item in means.index])
        ratings = means.to_numpy(dtype=np.float64)
        if np.issubdtype(frame["rating"].dtype, np.integer) and high - low == LEVELS - 1:
            levels = np.floor(ratings - low + 0.5)
        else:  # other scales are cut into equal parts
            levels = np.floor((ratings - low) / (high - low) * LEVELS)
        seconds = float(own["seconds"].median()) if "seconds" in own else float("nan")
        order = generator(0, "pictures", "held out", len(raters)).permutation(len(items))
        cut = round(0.3 * len(items))
        whole = np.clip(levels, 0, LEVELS - 1).astype(np.int64)
        raters.append(Rater(len(raters), items, ratings, whole, seconds, np.sort(order[cut:]), np.sort(order[:cut])))
    return Ratings(source.name, features, tuple(raters))


def _picture_features(source: Source, ids: NDArray[np.generic]) -> Floats:
    with np.load(source.path("efficientnet.npz"), allow_pickle=False) as stored:
        rows = dict(zip(stored["item"].tolist(), stored["features"].astype(np.float64), strict=True))
    return np.stack([rows[item] for item in ids.tolist()])


def _scaled(rows: Floats) -> Floats:
    """Centred, with the mean squared length 1."""
    centred = rows - rows.mean(axis=0)
    return np.asarray(centred / np.sqrt(np.square(centred).sum(axis=1).mean()))
