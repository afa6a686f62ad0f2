"""What questions are made of and estimates are judged on: prompt MDPs and pools of items, kept in the run folder."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.kit.sentences import SENTENCES, SMALL, VOCABULARIES
from benchmarks.kit.worlds import random_prompts, read_arrays, unit_rows, world_file, write_arrays
from benchmarks.planners.regimes import Regime
from benchmarks.planners.settings import PlannerSettings
from benchmarks.planners.tastes import composed_sentences, make_directions
from edpbrl_gym._arrays import Floats, Floats32
from edpbrl_gym._places import write_atomically
from edpbrl_gym._seeds import generator
from edpbrl_gym.estimation.metrics import sample_pairs
from edpbrl_gym.features import PrecomputedEncoder, TextEncoder
from edpbrl_gym.features.memo import MemoEncoder, raw_encoder
from edpbrl_gym.vocabulary import SEPARATOR, Vocabulary, load_vocabulary

_CENTRES = 20  # of "clustered"
_SPREAD = 0.5  # length of an item's difference from its centre, in units of the centre's length


@dataclass(frozen=True, eq=False)
class World:
    """A prompt MDP with one kind of question, or a pool of items: one step whose tokens are the items' names."""

    name: str  # such as "train-truncated-K4"
    vocabulary: Vocabulary  # from which questions and prompts are made
    tokens: Floats32  # embeddings of ``vocabulary.all_tokens``, (N, d)
    prompts: Floats32  # embeddings of held-out prompts or items, (n, d)
    pairs: NDArray[np.int64]  # of them, (p, 2)
    held_out: Floats32  # held-out questions, (m, K, d); of first answers none
    tastes: dict[str, Floats]  # theta* of each user, (1, d), or (2, d) for two styles, see `tastes.utilities`
    encoder_spec: str  # what makes the embeddings
    fingerprint: str  # of that encoder
    feedback: str  # "truncated", "state" or "prompt"
    items: bool = False  # whether it is a pool of items
    sentences: Floats32 | None = None  # embeddings of sentences composed as the tastes "composed" are, (m, d)
    pool: Floats32 | None = None  # embeddings of held-out prompts, (m, d), from which estimates of first answers choose

    @property
    def question_steps(self) -> tuple[int, ...]:
        """The steps at which a user is asked: all, or the last one of complete prompts."""
        return tuple(range(self.vocabulary.horizon))[-1 if self.feedback == "prompt" else 0 :]

    def encoder(self, texts: Sequence[str] = (), rows: Floats32 | None = None) -> MemoEncoder:
        """A new encoder with a memory of its own that knows the tokens, and more texts by their embeddings (n, d)."""
        names = self.vocabulary.all_tokens
        inner: TextEncoder
        if self.items:
            inner = PrecomputedEncoder.from_arrays(names, self.tokens, name=self.name)
        else:
            inner = raw_encoder(self.encoder_spec, self.fingerprint)
        known = self.tokens if rows is None else np.concatenate([self.tokens, rows])
        return MemoEncoder(inner, texts=[*names, *texts], rows=known)


def option_texts(vocabulary: Vocabulary, feedback: str, tokens: NDArray[np.int64], step: int) -> list[str]:
    """The texts of a step's options, for tokens (n, >= step + 1)."""
    if feedback == "state":
        return [vocabulary.tokens[step][index] for index in tokens[:, step].tolist()]
    steps = vocabulary.tokens[: step + 1]
    return [SEPARATOR.join(words[index] for words, index in zip(steps, row, strict=False)) for row in tokens.tolist()]


# -- vocabularies ----------------------------------------------------------------------------------------------------


def world_vocabulary(settings: PlannerSettings, name: str) -> Vocabulary:
    """Return a vocabulary, the same whenever it is called.

    Its name is "train" or "test" of the settings' vocabulary; or one of first answers such as "interiors", its train
    split by head word, and "interiors-test".
    """
    words, _, part = name.partition("-")
    if words in (*VOCABULARIES, *SMALL):
        return load_vocabulary(SMALL.get(words, words)).split(settings.split_seed, by="head")[part == "test"]
    train, test = load_vocabulary(settings.vocabulary).split(settings.split_seed)
    return test if name == "test" else train


def vocabulary_folder(folder: Path, name: str) -> Path:
    """Where a vocabulary is kept as token files, for environments."""
    return folder / "vocabularies" / name


def _write_vocabulary(folder: Path, vocabulary: Vocabulary) -> None:
    for number, (name, words) in enumerate(zip(vocabulary.names, vocabulary.tokens, strict=True)):
        write = functools.partial(Path.write_text, data="\n".join(words) + "\n", encoding="utf-8")
        write_atomically(folder / f"{number}-{name}.txt", write)


# -- preparing: what is encoded once for all units of a run ------------------------------------------------------------


def prepare_world(
    settings: PlannerSettings, regime: Regime, encoder: TextEncoder, folder: Path, *, progress: bool = False
) -> None:
    """Write what the units of a regime read, unless it is there: token files and embeddings."""
    path = world_file(folder, regime.world)

    def encode(texts: Sequence[str]) -> Floats32:
        return encoder.encode(texts, progress=progress)

    if regime.items:
        place = vocabulary_folder(folder, regime.vocabulary)
        if not place.is_dir():
            _write_vocabulary(place, item_vocabulary(regime.num_items))
        if not (regime.drawn or path.is_file()):
            train, test = (world_vocabulary(settings, name) for name in ("train", "test"))
            rng = generator(settings.split_seed, "items", regime.vocabulary)
            texts = partial_prompts(train, regime.num_items, rng)
            held_out = partial_prompts(test, settings.prompts, rng)
            shown = partial_prompts(test, settings.held_out_questions * regime.num_options, rng, distinct=False)
            write_arrays(
                path, tokens=encode(texts), prompts=encode(held_out), held_out=encode(shown), tastes=_sentences(encode)
            )
        return
    vocabulary = world_vocabulary(settings, regime.vocabulary)
    tastes = _taste_file(folder, regime)
    if regime.first and not tastes.is_file():
        made = make_directions(regime.taste, regime.vocabulary, vocabulary, encoder, development=settings.development)
        more = {}
        if regime.taste == "composed":
            more["sentences"] = encode(composed_sentences(vocabulary, 3000, "others"))
        write_arrays(tastes, users=np.array(list(made)), directions=np.stack(list(made.values())), **more)
    if not path.is_file():
        _write_vocabulary(vocabulary_folder(folder, regime.vocabulary), vocabulary)
        write_arrays(path, **_prompt_arrays(settings, regime, vocabulary, encode))


def _sentences(encode: Any) -> Floats:
    return np.asarray(encode(list(SENTENCES.values())).astype(np.float64))


def _taste_file(folder: Path, regime: Regime) -> Path:
    return folder / "tastes" / f"{regime.vocabulary}-{regime.taste}.npz"


def _prompt_arrays(
    settings: PlannerSettings, regime: Regime, vocabulary: Vocabulary, encode: Any
) -> dict[str, NDArray[Any]]:
    """Embeddings of tokens and held-out prompts; of first answers a pool of prompts, else held-out questions."""
    test = world_vocabulary(settings, f"{regime.vocabulary}-test" if regime.first else "test")
    rng = generator(settings.split_seed, "evaluation")
    sample = sample_pairs(test.sizes, prompts=settings.prompts, pairs=settings.pairs, rng=rng)
    prompts = encode([test.prompt(row) for row in sample.tokens])
    shared = {"tokens": encode(vocabulary.all_tokens), "prompts": prompts, "pairs": sample.pairs}
    if regime.first:
        rng = generator(settings.split_seed, "pool")
        more = encode(random_prompts(test, max(0, settings.pool - len(prompts)), rng))
        return {**shared, "pool": np.concatenate([prompts, more])[: settings.pool]}
    tastes = _sentences(encode)
    rng = generator(settings.split_seed, "held-out questions", regime.num_options)
    lanes = max(1, settings.held_out_questions // test.horizon) * regime.num_options
    tokens = np.stack([rng.integers(size, size=lanes) for size in test.sizes], axis=1)
    rows = encode([text for step in range(test.horizon) for text in option_texts(test, regime.feedback, tokens, step)])
    return {**shared, "tastes": tastes, "held_out": rows}


# -- pools of items: prompt MDPs with one step -------------------------------------------------------------------------


def item_vocabulary(count: int) -> Vocabulary:
    """Names of so many items, as the one step of a prompt."""
    return Vocabulary(("item",), (tuple(f"item {number}" for number in range(count)),))


def draw_items(settings: PlannerSettings, regime: Regime, seed: int) -> dict[str, NDArray[Any]]:
    """Items, held-out items, held-out questions and the taste of a seed, one after the other from one stream.

    All are unit vectors: uniform on the sphere, or for "clustered" a random centre plus a random vector half as long,
    normalised.
    """
    rng = generator(seed, "items", regime.vocabulary)
    centres = unit_rows(rng.normal(size=(_CENTRES, regime.dimension)))
    taste = unit_rows(rng.normal(size=regime.dimension))

    def draw(count: int) -> Floats:
        rows = unit_rows(rng.normal(size=(count, regime.dimension)))
        if regime.source == "clustered":
            rows = unit_rows(centres[rng.integers(_CENTRES, size=count)] + _SPREAD * rows)
        return rows.astype(np.float32)

    arrays = {"taste": taste, "tokens": draw(regime.num_items), "prompts": draw(settings.prompts)}
    # four options each, whatever K: then K = 2 and K = 4 have the same items
    shown = draw(4 * settings.held_out_questions)
    return {**arrays, "held_out": shown[: settings.held_out_questions * regime.num_options]}


def partial_prompts(
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


# -- loading ---------------------------------------------------------------------------------------------------------


def load_world(settings: PlannerSettings, regime: Regime, folder: Path, fingerprint: str, *, seed: int = 0) -> World:
    """The world of a unit as ``prepare_world`` wrote it, or drawn by the unit's seed; a process keeps the last ones."""
    # regimes that differ in how users answer have the same world
    same = replace(regime, name="", title="", mode="", scale=0.0)
    return _load(settings, same, folder, fingerprint, seed if regime.drawn else 0)


@functools.lru_cache(maxsize=8)
def _load(settings: PlannerSettings, regime: Regime, folder: Path, fingerprint: str, seed: int) -> World:
    if regime.drawn:
        arrays = draw_items(settings, regime, seed)
    else:
        arrays = read_arrays(world_file(folder, regime.world))
    if regime.items:
        rng = generator(settings.split_seed, "items", regime.vocabulary, "pairs")
        arrays["pairs"] = _pairs(len(arrays["prompts"]), settings.pairs, rng)
    width = arrays["tokens"].shape[1]
    held_out = arrays.get("held_out", arrays["prompts"][:0])
    vocabulary = item_vocabulary(regime.num_items) if regime.items else world_vocabulary(settings, regime.vocabulary)
    return World(
        name=regime.world,
        vocabulary=vocabulary,
        tokens=arrays["tokens"],
        prompts=arrays["prompts"],
        pairs=arrays["pairs"],
        held_out=held_out.reshape(-1, regime.num_options, width),
        tastes=_tastes(regime, arrays, folder),
        encoder_spec=settings.encoder,
        fingerprint=fingerprint,
        feedback=regime.feedback,
        items=regime.items,
        pool=arrays.get("pool"),
        sentences=read_arrays(_taste_file(folder, regime)).get("sentences") if regime.first else None,
    )


def _tastes(regime: Regime, arrays: dict[str, NDArray[Any]], folder: Path) -> dict[str, Floats]:
    if regime.drawn:
        return {"drawn": arrays["taste"][None]}
    if regime.first:
        made = read_arrays(_taste_file(folder, regime))
        return dict(zip(made["users"].tolist(), made["directions"], strict=True))
    return {name: row[None] for name, row in zip(SENTENCES, unit_rows(arrays["tastes"]), strict=True)}


def _pairs(count: int, pairs: int, rng: np.random.Generator) -> NDArray[np.int64]:
    """Different unordered pairs of so many prompts, (p, 2)."""
    left, right = np.triu_indices(count, k=1)
    numbers = rng.choice(len(left), size=min(pairs, len(left)), replace=False)
    return np.stack([left[numbers], right[numbers]], axis=1).astype(np.int64)
