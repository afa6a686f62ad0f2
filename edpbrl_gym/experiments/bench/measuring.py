"""What the benchmark measures of an estimate."""

from __future__ import annotations

import functools
import json
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from edpbrl_gym._places import write_atomically
from edpbrl_gym._threads import one_thread
from edpbrl_gym.comparisons import Comparisons
from edpbrl_gym.estimation.metrics import choice_accuracy, cosine_error, preference_error
from edpbrl_gym.experiments.bench.loading import load_world
from edpbrl_gym.experiments.bench.settings import BenchSettings, Regime
from edpbrl_gym.experiments.bench.worlds import World
from edpbrl_gym.features import TextEncoder
from edpbrl_gym.personalize.search import Prompt, best_prompts

__all__ = ["KNOWLEDGE", "METRICS", "Scorer", "ceiling_path", "find_ceiling", "make_scorer"]

# lower is better in all of them
METRICS: dict[str, str] = {
    "cosine_error": "cosine error",
    "preference_error": "preference error",
    "choice_error": "held-out choice error",
    "regret": "regret of the best prompt or item",
}
KNOWLEDGE: tuple[str, ...] = ("cosine_error", "preference_error", "choice_error")

# (width, shortlist): a narrower beam for the many estimates than for the best there is, a fifth of the texts
_NARROW, _WIDE = (6, 8), (16, 16)


@dataclass(frozen=True, eq=False)
class Scorer:
    """Measures estimates of one user's taste.

    Attributes:
        world: With the held-out prompts and questions.
        taste: theta*, (d,).
        ceiling: Best true score that a wide beam search finds with theta*; NaN for pools of items.
    """

    world: World
    taste: NDArray[np.float64]
    ceiling: float = float("nan")

    @functools.cached_property
    def _held_out(self) -> Comparisons:
        """The held-out questions, answered without noise."""
        features = self.world.held_out
        count = np.zeros(len(features), dtype=np.int64)
        choice = np.argmax(features.astype(np.float64) @ self.taste, axis=1)
        return Comparisons.of_choices(features=features, choice=choice, episode=count, step=count)

    def errors(self, theta: NDArray[np.float64]) -> dict[str, float]:
        """Cosine error, preference error on held-out prompts, error on held-out questions (1 - choice accuracy)."""
        return {
            "cosine_error": cosine_error(theta, self.taste),
            "preference_error": preference_error(theta, self.taste, self.world.prompts, self.world.pairs),
            "choice_error": 1.0 - choice_accuracy(self._held_out, theta),
        }

    def regret(self, theta: NDArray[np.float64], encoder: TextEncoder | None) -> float:
        """Regret of what an estimate likes best.

        Of items: see ``item_regret``; 1 (a random item's) for the estimate 0. In prompt MDPs: ``ceiling`` minus the
        true score of the prompt that a beam search finds for the estimate; an estimate of 0 likes every prompt the
        same, and the mean score of the held-out random prompts stands for it.

        Args:
            theta: The estimate, (d,).
            encoder: For the beam search; None leaves it out, and NaN is returned. Items need none.
        """
        if self.world.items:
            return self.item_regret(int(np.argmax(self._items @ theta))) if theta.any() else 1.0
        if encoder is None:
            return float("nan")
        if not theta.any():
            return self.ceiling - float((self.world.prompts.astype(np.float64) @ self.taste).mean())
        prompt = _search(self.world, encoder, theta, *_NARROW)
        return self.ceiling - float(encoder.encode([prompt.text])[0].astype(np.float64) @ self.taste)

    def item_regret(self, item: int) -> float:
        """Utility of the best item minus that of an item, in units of the best minus the mean of the pool."""
        values = self._items @ self.taste
        return float((values.max() - values[item]) / (values.max() - values.mean()))

    @property
    def _items(self) -> NDArray[np.float64]:
        return self.world.tokens.astype(np.float64)


def _search(world: World, encoder: TextEncoder, theta: NDArray[np.float64], width: int, shortlist: int) -> Prompt:
    return best_prompts(world.vocabulary, encoder, theta, count=1, width=width, shortlist=shortlist)[0]


def ceiling_path(folder: Path, vocabulary: str, sentence: str) -> Path:
    """Where the best score of a sentence in a vocabulary is kept."""
    return folder / "ceilings" / f"{vocabulary}-{sentence}.json"


def find_ceiling(settings: BenchSettings, regime: Regime, sentence: str, folder: Path, fingerprint: str) -> None:
    """Search the best prompt of a known taste and write its score."""
    world = load_world(settings, regime, folder, fingerprint)
    taste = world.tastes[sentence]
    with one_thread():
        encoder = world.encoder()
        best = max((_search(world, encoder, taste, *beam) for beam in (_WIDE, _NARROW)), key=lambda one: one.score)
    text = json.dumps({"score": best.score, "prompt": best.text})
    path = ceiling_path(folder, regime.vocabulary, sentence)
    write_atomically(path, lambda name: name.write_text(text, encoding="utf-8"))


def make_scorer(regime: Regime, world: World, user: str, folder: Path) -> Scorer:
    """The scorer of a user, in prompt MDPs with what ``find_ceiling`` wrote."""
    if regime.items:
        return Scorer(world, world.tastes[user])
    path = ceiling_path(folder, regime.vocabulary, user)
    return Scorer(world, world.tastes[user], float(json.loads(path.read_text(encoding="utf-8"))["score"]))
