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
from edpbrl_gym.experiments.query_bench.settings import BenchSettings, Regime
from edpbrl_gym.experiments.query_bench.worlds import World, load_world
from edpbrl_gym.features import TextEncoder
from edpbrl_gym.personalize.search import Prompt, best_prompts

__all__ = ["Scorer", "ceiling_path", "find_ceiling", "load_ceiling"]

# (width, shortlist): a narrower beam for the many estimates than for the best there is, a fifth of the texts
_NARROW, _WIDE = (6, 8), (16, 16)


@dataclass(frozen=True, eq=False)
class Scorer:
    """Measures estimates of one user's taste.

    Attributes:
        world: With the held-out prompts and questions.
        taste: theta*, (d,).
        ceiling: Best true score that a wide beam search finds with theta*; NaN measures no regret.
    """

    world: World
    taste: NDArray[np.float64]
    ceiling: float

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

    def prompt(self, theta: NDArray[np.float64], encoder: TextEncoder) -> dict[str, float]:
        """True score of the prompt that a beam search finds for the estimate, and its regret.

        An estimate of 0 likes every prompt the same: the mean score of the held-out random prompts stands for it.
        """
        if theta.any():
            found = _search(self.world, encoder, theta, *_NARROW)
            score = float(encoder.encode([found.text])[0].astype(np.float64) @ self.taste)
        else:
            score = float((self.world.prompts.astype(np.float64) @ self.taste).mean())
        return {"prompt_score": score, "prompt_regret": self.ceiling - score}


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
        found = [_search(world, encoder, taste, *beam) for beam in (_WIDE, _NARROW)]
    best = max(found, key=lambda prompt: prompt.score)
    text = json.dumps({"score": best.score, "prompt": best.text})
    path = ceiling_path(folder, regime.vocabulary, sentence)
    write_atomically(path, lambda name: name.write_text(text, encoding="utf-8"))


def load_ceiling(folder: Path, vocabulary: str, sentence: str) -> float:
    """Read what ``find_ceiling`` wrote."""
    return float(json.loads(ceiling_path(folder, vocabulary, sentence).read_text(encoding="utf-8"))["score"])
