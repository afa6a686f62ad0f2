"""What the benchmark measures of an estimate."""

from __future__ import annotations

import functools
import json
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from edpbrl_gym._places import write_atomically
from edpbrl_gym._threads import one_thread
from edpbrl_gym.comparisons import Comparisons
from edpbrl_gym.estimation.metrics import choice_accuracy, cosine_error, preference_error
from edpbrl_gym.estimation.neighbourhood import TasteFit
from edpbrl_gym.experiments.bench.first_metrics import centred_cosine_error, regret_of_the_best
from edpbrl_gym.experiments.bench.loading import load_world
from edpbrl_gym.experiments.bench.regime import Regime
from edpbrl_gym.experiments.bench.settings import SENTENCES, BenchSettings
from edpbrl_gym.experiments.bench.tastes import load_directions
from edpbrl_gym.experiments.bench.worlds import World
from edpbrl_gym.features import FeatureMap, TextEncoder
from edpbrl_gym.features.maps import MappedEncoder, map_rows
from edpbrl_gym.oracles import TwoStyles
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
_LEADS = 1000  # pairs of prompts on which a posterior is judged


@dataclass(frozen=True, eq=False)
class Scorer:
    """Measures estimates of one user's taste.

    Attributes:
        world: With the held-out prompts and questions.
        taste: theta*, (d,).
        ceiling: Best true score that a wide beam search finds with theta*; NaN for pools of items.
        utility: Of a user whose taste is not linear, in place of ``taste``.
        scale: Of the user's answers, by which utilities are multiplied; NaN for one who answers without noise.
    """

    world: World
    taste: NDArray[np.float64]
    ceiling: float = float("nan")
    utility: FeatureMap | None = None
    scale: float = float("nan")

    def values(self, rows: NDArray[np.floating]) -> NDArray[np.float64]:
        """True utilities (...) of rows (..., d)."""
        if self.utility is not None:
            return np.asarray(map_rows(self.utility, rows)[..., 0])
        return np.asarray(rows.astype(np.float64) @ self.taste)

    @functools.cached_property
    def _held_out(self) -> Comparisons:
        """The held-out questions, answered without noise."""
        features = self.world.held_out
        count = np.zeros(len(features), dtype=np.int64)
        choice = np.argmax(self.values(features), axis=1)
        return Comparisons.of_choices(features=features, choice=choice, episode=count, step=count)

    def errors(self, theta: NDArray[np.float64], feature_map: FeatureMap | None = None) -> dict[str, float]:
        """Cosine error, preference error on held-out prompts, error on held-out questions (1 - choice accuracy).

        Args:
            theta: The estimate, (d,), or (D,) of mapped features.
            feature_map: The map of its features; None: none. There is a cosine error only where the estimate and the
                true taste are linear in the same features, otherwise it is NaN.
        """
        if self.utility is None and feature_map is None:
            return {
                "cosine_error": cosine_error(theta, self.taste),
                "preference_error": preference_error(theta, self.taste, self.world.prompts, self.world.pairs),
                "choice_error": 1.0 - choice_accuracy(self._held_out, theta),
            }
        shown = _mapped(self.world.held_out, feature_map) @ theta
        estimated = replace(self._held_out, features=shown[:, :, None].astype(np.float32))
        return {
            "cosine_error": float("nan"),
            "preference_error": self._preference_error(theta, feature_map),
            "choice_error": 1.0 - choice_accuracy(estimated, [1.0]),
        }

    def _preference_error(self, theta: NDArray[np.float64], feature_map: FeatureMap | None) -> float:
        """On held-out prompts, by any utility."""
        prompts = _mapped(self.world.prompts, feature_map) @ theta
        both = np.stack([prompts, self.values(self.world.prompts)], axis=1)  # utilities: two features of a prompt
        return preference_error([1.0, 0.0], [0.0, 1.0], both, self.world.pairs)

    def first_errors(self, theta: NDArray[np.float64]) -> dict[str, float]:
        """What is measured of an estimate from the first answers, (d,): see ``first_metrics``.

        The cosine errors are NaN where the true taste is not linear.
        """
        pool = self.world.pool
        assert pool is not None, "the worlds of first answers have a pool"
        linear = self.utility is None
        return {
            "cosine_error": cosine_error(theta, self.taste) if linear else float("nan"),
            "preference_error": self._preference_error(theta, None),
            "regret_ten": regret_of_the_best(pool @ theta, self.values(pool)),
            "cosine_centred": centred_cosine_error(theta, self.taste, self.world.tokens) if linear else float("nan"),
        }

    def calibration(self, fit: TasteFit) -> dict[str, float]:
        """Share of leads inside their 90% intervals, and predicted minus true accuracy on pairs of held-out prompts.

        The lead of a prompt over another is the difference of their utilities, in the units of the answers' noise, so
        there is no true one for a user who answers without noise: the share is NaN.
        """
        pairs = self.world.pairs[:_LEADS]
        leads = self.world.prompts[pairs[:, 0]].astype(np.float64) - self.world.prompts[pairs[:, 1]]
        values = self.values(self.world.prompts)
        truth = values[pairs[:, 0]] - values[pairs[:, 1]]
        low, high = fit.posterior.interval(leads, 0.9)
        right = np.mean(np.sign(leads @ fit.theta) == np.sign(truth))
        inside = np.mean((low <= self.scale * truth) & (self.scale * truth <= high))
        return {
            "covered": float(inside) if np.isfinite(self.scale) else float("nan"),
            "accuracy_gap": fit.posterior.expected_accuracy(leads) - float(right),
        }

    def regret(
        self, theta: NDArray[np.float64], encoder: TextEncoder | None, feature_map: FeatureMap | None = None
    ) -> float:
        """Regret of what an estimate likes best.

        Of items: see ``item_regret``; 1 (a random item's) for the estimate 0. In prompt MDPs: ``ceiling`` minus the
        true score of the prompt that a beam search finds for the estimate; an estimate of 0 likes every prompt the
        same, and the mean score of the held-out random prompts stands for it.

        Args:
            theta: The estimate, (d,), or (D,) of mapped features.
            encoder: For the beam search; None leaves it out, and NaN is returned. Items need none.
            feature_map: The map of the estimate's features; None: none.
        """
        if self.world.items:
            return self.item_regret(int(np.argmax(_mapped(self._items, feature_map) @ theta))) if theta.any() else 1.0
        if encoder is None:
            return float("nan")
        if not theta.any():
            return self.ceiling - float(self.values(self.world.prompts).mean())
        prompt = _search(self.world, _with_map(encoder, feature_map), theta, *_NARROW)
        return self.ceiling - float(self.values(encoder.encode([prompt.text])[0]))

    def item_regret(self, item: int) -> float:
        """Utility of the best item minus that of an item, in units of the best minus the mean of the pool."""
        values = self.values(self._items)
        return float((values.max() - values[item]) / (values.max() - values.mean()))

    @property
    def _items(self) -> NDArray[np.float64]:
        return self.world.tokens.astype(np.float64)


def _mapped(rows: NDArray[np.floating], feature_map: FeatureMap | None) -> NDArray[np.floating]:
    return rows if feature_map is None else map_rows(feature_map, rows)


def _with_map(encoder: TextEncoder, feature_map: FeatureMap | None) -> TextEncoder:
    return encoder if feature_map is None else MappedEncoder(encoder, feature_map)


def _search(world: World, encoder: TextEncoder, theta: NDArray[np.float64], width: int, shortlist: int) -> Prompt:
    return best_prompts(world.vocabulary, encoder, theta, count=1, width=width, shortlist=shortlist)[0]


def ceiling_path(folder: Path, regime: Regime, user: str) -> Path:
    """Where the best score of a user in a vocabulary is kept."""
    return folder / "ceilings" / f"{regime.vocabulary}-{user}{'-two-styles' if regime.styles == 2 else ''}.json"


def find_ceiling(settings: BenchSettings, regime: Regime, user: str, folder: Path, fingerprint: str) -> None:
    """Search the best prompt of a known taste and write its score."""
    world = load_world(settings, regime, folder, fingerprint)
    utility = _utility(regime, world, user)
    taste = world.tastes[user] if utility is None else np.ones(1)
    with one_thread():
        encoder = _with_map(world.encoder(), utility)
        best = max((_search(world, encoder, taste, *beam) for beam in (_WIDE, _NARROW)), key=lambda one: one.score)
    text = json.dumps({"score": best.score, "prompt": best.text})
    write_atomically(ceiling_path(folder, regime, user), lambda name: name.write_text(text, encoding="utf-8"))


def _utility(regime: Regime, world: World, user: str) -> FeatureMap | None:
    """The utility of a user of two styles: its own and the sentence five further on, or the second one drawn."""
    if regime.styles == 1:
        return None
    names = tuple(SENTENCES)
    other = "second" if regime.drawn else names[(names.index(user) + 5) % len(names)]
    return TwoStyles(world.tastes[user], world.tastes[other])


def make_scorer(regime: Regime, world: World, user: str, folder: Path) -> Scorer:
    """The scorer of a user, in prompt MDPs with what ``find_ceiling`` wrote; of first answers by its directions."""
    if regime.first:
        directions = load_directions(folder, regime.taste, regime.vocabulary)[user]
        mixed = TwoStyles(*directions) if len(directions) == 2 else None
        scale = regime.scale if regime.mode == "sampled" else float("nan")
        return Scorer(world, directions[0], utility=mixed, scale=scale)
    utility = _utility(regime, world, user)
    if regime.items:
        return Scorer(world, world.tastes[user], utility=utility)
    score = float(json.loads(ceiling_path(folder, regime, user).read_text(encoding="utf-8"))["score"])
    return Scorer(world, world.tastes[user], score, utility)
