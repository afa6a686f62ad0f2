"""What the contenders ask about: pools of items as prompt MDPs with one step, and the benchmark's prompt MDPs."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from edpbrl_gym._places import write_atomically
from edpbrl_gym._seeds import generator
from edpbrl_gym.experiments.query_bench.measuring import Scorer
from edpbrl_gym.experiments.query_bench.settings import SENTENCES
from edpbrl_gym.experiments.query_bench.worlds import (
    World,
    bench_vocabulary,
    prepare_world,
    vocabulary_folder,
    write_vocabulary,
)
from edpbrl_gym.experiments.query_bench.worlds import load_world as load_prompt_world
from edpbrl_gym.experiments.race.settings import RaceRegime, RaceSettings
from edpbrl_gym.features import PrecomputedEncoder, TextEncoder
from edpbrl_gym.features.memo import MemoEncoder
from edpbrl_gym.vocabulary import Vocabulary

__all__ = ["PoolScorer", "ItemWorld", "draw_items", "item_vocabulary", "load_world", "prepare"]

Floats = NDArray[np.float64]

_CENTRES = 20  # of "clustered"
_SPREAD = 0.5  # length of an item's difference from its centre, in units of the centre's length


@dataclass(frozen=True, eq=False)
class ItemWorld(World):
    """A pool of items: a vocabulary of one step whose tokens are the items' names, "state" feedback."""

    def encoder(self) -> MemoEncoder:
        """Knows the items and nothing else."""
        inner = PrecomputedEncoder.from_arrays(self.vocabulary.all_tokens, self.tokens, name=self.name)
        return MemoEncoder(inner, texts=self.vocabulary.all_tokens, rows=self.tokens)


@dataclass(frozen=True, eq=False)
class PoolScorer(Scorer):
    """Measures estimates of a taste, and the item that an estimate likes best."""

    def regret_of(self, item: int) -> float:
        """Utility of the best item minus that of an item, in units of the best minus the mean of the pool."""
        values = self.world.tokens.astype(np.float64) @ self.taste
        return float((values.max() - values[item]) / (values.max() - values.mean()))

    def regret(self, theta: Floats) -> float:
        """Regret of the item that an estimate likes best; 1 (a random item's) for the estimate 0."""
        if not theta.any():
            return 1.0
        return self.regret_of(int(np.argmax(self.world.tokens.astype(np.float64) @ theta)))


def item_vocabulary(count: int) -> Vocabulary:
    """Names of so many items, as the one step of a prompt."""
    return Vocabulary(("item",), (tuple(f"item {number}" for number in range(count)),))


def draw_items(source: str, count: int, dimension: int, rng: np.random.Generator, centres: Floats) -> Floats:
    """Unit vectors, (n, d).

    Args:
        source: "sphere" (uniform), or "clustered": a random centre plus a random vector half as long, normalised.
        count: n.
        dimension: d.
        rng: Of the draws.
        centres: Unit vectors, (c, d), for "clustered".
    """
    rows = _unit(rng.normal(size=(count, dimension)))
    if source == "clustered":
        rows = _unit(centres[rng.integers(len(centres), size=count)] + _SPREAD * rows)
    return rows


def _unit(rows: Floats) -> Floats:
    return np.asarray(rows / np.linalg.norm(rows, axis=-1, keepdims=True))


# -- worlds ----------------------------------------------------------------------------------------------------------


def prepare(
    settings: RaceSettings, regime: RaceRegime, encoder: TextEncoder, folder: Path, *, progress: bool = False
) -> None:
    """Write what the units of a regime read, unless it is there: token files, and embeddings where there are prompts.

    Args:
        settings: Of the race.
        regime: Whose world.
        encoder: With the cache on disk.
        folder: The run folder.
        progress: Show progress bars while texts are encoded.
    """
    if not regime.items:
        prepare_world(settings.bench, regime, encoder, folder, progress=progress)
        return
    place = vocabulary_folder(folder, regime.vocabulary)
    if not place.is_dir():
        write_vocabulary(place, item_vocabulary(regime.num_items))
    path = _material(folder, regime)
    if regime.drawn or path.is_file():
        return
    train, test = (bench_vocabulary(settings.bench, name) for name in ("train", "test"))
    rng = generator(settings.split_seed, "race", regime.vocabulary)
    texts = _random_prompts(train, regime.num_items, rng)
    held_out = _random_prompts(test, settings.prompts, rng)
    shown = _random_prompts(test, settings.held_out_questions * regime.num_options, rng, distinct=False)
    arrays = {
        "tokens": encoder.encode(texts, progress=progress),
        "prompts": encoder.encode(held_out, progress=progress),
        "held_out": encoder.encode(shown, progress=progress),
        "tastes": encoder.encode(list(SENTENCES.values())),
    }

    def save(name: Path) -> None:
        with open(name, "wb") as file:
            np.savez(file, allow_pickle=False, **arrays)

    write_atomically(path, save)


def _material(folder: Path, regime: RaceRegime) -> Path:
    return folder / "worlds" / f"{regime.vocabulary}-K{regime.num_options}.npz"


def _random_prompts(
    vocabulary: Vocabulary, count: int, rng: np.random.Generator, *, distinct: bool = True
) -> list[str]:
    """Partial prompts of a random length, as a person sees them while a prompt grows.

    Raises:
        ValueError: A vocabulary that has not so many distinct ones.
    """
    found: dict[str, None] = {}
    drawn: list[str] = []
    possible = float(np.cumprod(np.array(vocabulary.sizes, dtype=np.float64)).sum())
    if distinct and possible < 2 * count:
        raise ValueError(
            f"Expected a vocabulary with at least {2 * count} partial prompts to draw {count} of them, got "
            f"{possible:.0f}; use a larger one, or leave out the regimes whose items are prompts"
        )
    while len(drawn) < count:
        length = int(rng.integers(vocabulary.horizon)) + 1
        text = vocabulary.prompt([int(rng.integers(size)) for size in vocabulary.sizes[:length]])
        if not distinct or text not in found:
            found[text] = None
            drawn.append(text)
    return drawn


def load_world(settings: RaceSettings, regime: RaceRegime, folder: Path, fingerprint: str, *, seed: int = 0) -> World:
    """The world of a unit; each process keeps the last ones in memory.

    Args:
        settings: Of the race.
        regime: Which one.
        folder: The run folder, in which ``prepare`` has written.
        fingerprint: Of the encoder.
        seed: Of the unit; it draws the items and the taste of "sphere" and "clustered".
    """
    if not regime.items:
        return load_prompt_world(settings.bench, regime, folder, fingerprint)
    return _load(settings, regime, seed if regime.drawn else 0, folder, fingerprint)


@functools.lru_cache(maxsize=4)
def _load(settings: RaceSettings, regime: RaceRegime, seed: int, folder: Path, fingerprint: str) -> ItemWorld:
    if regime.drawn:
        arrays = _drawn_arrays(settings, regime, seed)
        tastes = {"drawn": arrays.pop("taste")}
    else:
        with np.load(_material(folder, regime)) as data:
            arrays = {key: data[key] for key in data.files}
        tastes = dict(zip(SENTENCES, _unit(arrays.pop("tastes").astype(np.float64)), strict=True))
    rng = generator(settings.split_seed, "race", regime.vocabulary, "pairs")
    return ItemWorld(
        name=f"{regime.vocabulary}-K{regime.num_options}",
        vocabulary=item_vocabulary(regime.num_items),
        pairs=_pairs(len(arrays["prompts"]), settings.pairs, rng),
        tastes=tastes,
        encoder_spec=settings.encoder,
        fingerprint=fingerprint,
        feedback="state",
        tokens=arrays["tokens"],
        prompts=arrays["prompts"],
        held_out=arrays["held_out"].reshape(-1, regime.num_options, arrays["tokens"].shape[1]),
    )


def _drawn_arrays(settings: RaceSettings, regime: RaceRegime, seed: int) -> dict[str, Any]:
    """Items, held-out items, held-out questions and the taste of a seed, one after the other from one stream."""
    rng = generator(seed, "race", regime.vocabulary)
    dimension = regime.dimension
    centres = _unit(rng.normal(size=(_CENTRES, dimension)))
    found: dict[str, Any] = {"taste": _unit(rng.normal(size=dimension))}
    # four options each, whatever K: then K = 2 and K = 4 have the same items
    sizes = {"tokens": regime.num_items, "prompts": settings.prompts, "held_out": 4 * settings.held_out_questions}
    for name, count in sizes.items():
        found[name] = draw_items(regime.source, count, dimension, rng, centres).astype(np.float32)
    found["held_out"] = found["held_out"][: settings.held_out_questions * regime.num_options]
    return found


def _pairs(count: int, pairs: int, rng: np.random.Generator) -> NDArray[np.int64]:
    """Different unordered pairs of so many prompts, (p, 2)."""
    left, right = np.triu_indices(count, k=1)
    numbers = rng.choice(len(left), size=min(pairs, len(left)), replace=False)
    return np.stack([left[numbers], right[numbers]], axis=1).astype(np.int64)
