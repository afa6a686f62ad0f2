"""Pools of items, as prompt MDPs with one step."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from edpbrl_gym._arrays import Floats
from edpbrl_gym._seeds import generator
from edpbrl_gym._validation import check_choice_of
from edpbrl_gym.experiments.bench.prompt_worlds import bench_vocabulary
from edpbrl_gym.experiments.bench.regime import Regime
from edpbrl_gym.experiments.bench.settings import SENTENCES, BenchSettings
from edpbrl_gym.experiments.bench.worlds import (
    World,
    unit_rows,
    vocabulary_folder,
    world_file,
    write_arrays,
    write_vocabulary,
)
from edpbrl_gym.features import TextEncoder
from edpbrl_gym.vocabulary import Vocabulary

__all__ = ["draw_items", "item_vocabulary", "load_items", "prepare_items"]

_CENTRES = 20  # of "clustered"
_SPREAD = 0.5  # length of an item's difference from its centre, in units of the centre's length


def item_vocabulary(count: int) -> Vocabulary:
    """Names of so many items, as the one step of a prompt."""
    return Vocabulary(("item",), (tuple(f"item {number}" for number in range(count)),))


def draw_items(source: str, count: int, dimension: int, rng: np.random.Generator, centres: Floats) -> Floats:
    """Unit vectors, (n, d).

    Args:
        source: "sphere" (uniform), or "clustered": a random centre plus a random vector half as long, normalised.
        count: n.
        dimension: d.
        rng: Draws the items.
        centres: Unit vectors, (c, d), for "clustered".

    Raises:
        ValueError: An unknown source.
    """
    check_choice_of(source, "source", ("sphere", "clustered"))
    rows = unit_rows(rng.normal(size=(count, dimension)))
    if source == "clustered":
        rows = unit_rows(centres[rng.integers(len(centres), size=count)] + _SPREAD * rows)
    return rows


def _file(folder: Path, regime: Regime) -> Path:
    return world_file(folder, f"{regime.vocabulary}-K{regime.num_options}")


def prepare_items(
    settings: BenchSettings, regime: Regime, encoder: TextEncoder, folder: Path, *, progress: bool = False
) -> None:
    """Write the names of the items, and where items are prompts their embeddings, unless they are there."""
    place = vocabulary_folder(folder, regime.vocabulary)
    if not place.is_dir():
        write_vocabulary(place, item_vocabulary(regime.num_items))
    path = _file(folder, regime)
    if regime.drawn or path.is_file():
        return
    train, test = (bench_vocabulary(settings, name) for name in ("train", "test"))
    rng = generator(settings.split_seed, "items", regime.vocabulary)
    texts = _random_prompts(train, regime.num_items, rng)
    held_out = _random_prompts(test, settings.prompts, rng)
    shown = _random_prompts(test, settings.held_out_questions * regime.num_options, rng, distinct=False)
    write_arrays(
        path,
        tokens=encoder.encode(texts, progress=progress),
        prompts=encoder.encode(held_out, progress=progress),
        held_out=encoder.encode(shown, progress=progress),
        tastes=encoder.encode(list(SENTENCES.values())),
    )


def _random_prompts(
    vocabulary: Vocabulary, count: int, rng: np.random.Generator, *, distinct: bool = True
) -> list[str]:
    """Partial prompts of a random length, as a person sees them while a prompt grows.

    Raises:
        ValueError: A vocabulary that has not so many distinct ones.
    """
    prompts: list[str] = []
    drawn: set[str] = set()
    possible = float(np.cumprod(np.array(vocabulary.sizes, dtype=np.float64)).sum())
    if distinct and possible < 2 * count:
        raise ValueError(
            f"Expected a vocabulary with at least {2 * count} partial prompts to draw {count} of them, got "
            f"{possible:.0f}; use a larger one, or leave out the regimes whose items are prompts"
        )
    while len(prompts) < count:
        length = int(rng.integers(vocabulary.horizon)) + 1
        text = vocabulary.prompt([int(rng.integers(size)) for size in vocabulary.sizes[:length]])
        if not distinct or text not in drawn:
            drawn.add(text)
            prompts.append(text)
    return prompts


def load_items(settings: BenchSettings, regime: Regime, folder: Path, fingerprint: str, seed: int) -> World:
    """Draw the items and the taste of a seed, or read what ``prepare_items`` has written."""
    return _load(settings, regime, seed if regime.drawn else 0, folder, fingerprint)


@functools.lru_cache(maxsize=4)
def _load(settings: BenchSettings, regime: Regime, seed: int, folder: Path, fingerprint: str) -> World:
    if regime.drawn:
        arrays = _drawn_arrays(settings, regime, seed)
        second = generator(seed, "second style", regime.vocabulary).normal(size=regime.dimension)
        tastes = {"drawn": arrays.pop("taste"), "second": unit_rows(second)}
    else:
        with np.load(_file(folder, regime), allow_pickle=False) as data:
            arrays = {key: data[key] for key in data.files}
        tastes = dict(zip(SENTENCES, unit_rows(arrays.pop("tastes").astype(np.float64)), strict=True))
    rng = generator(settings.split_seed, "items", regime.vocabulary, "pairs")
    return World(
        name=f"{regime.vocabulary}-K{regime.num_options}",
        vocabulary=item_vocabulary(regime.num_items),
        tokens=arrays["tokens"],
        prompts=arrays["prompts"],
        pairs=_pairs(len(arrays["prompts"]), settings.pairs, rng),
        held_out=arrays["held_out"].reshape(-1, regime.num_options, arrays["tokens"].shape[1]),
        tastes=tastes,
        encoder_spec=settings.encoder,
        fingerprint=fingerprint,
        feedback="state",
        items=True,
    )


def _drawn_arrays(settings: BenchSettings, regime: Regime, seed: int) -> dict[str, Any]:
    """Items, held-out items, held-out questions and the taste of a seed, one after the other from one stream."""
    rng = generator(seed, "items", regime.vocabulary)
    dimension = regime.dimension
    centres = unit_rows(rng.normal(size=(_CENTRES, dimension)))
    arrays: dict[str, Any] = {"taste": unit_rows(rng.normal(size=dimension))}
    # four options each, whatever K: then K = 2 and K = 4 have the same items
    sizes = {"tokens": regime.num_items, "prompts": settings.prompts, "held_out": 4 * settings.held_out_questions}
    for name, count in sizes.items():
        arrays[name] = draw_items(regime.source, count, dimension, rng, centres).astype(np.float32)
    arrays["held_out"] = arrays["held_out"][: settings.held_out_questions * regime.num_options]
    return arrays


def _pairs(count: int, pairs: int, rng: np.random.Generator) -> NDArray[np.int64]:
    """Different unordered pairs of so many prompts, (p, 2)."""
    left, right = np.triu_indices(count, k=1)
    numbers = rng.choice(len(left), size=min(pairs, len(left)), replace=False)
    return np.stack([left[numbers], right[numbers]], axis=1).astype(np.int64)
