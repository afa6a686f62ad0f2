"""A unit of work: an arm asks one user in one regime; after some episodes the taste is estimated and measured."""

from __future__ import annotations

import functools
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.kit.worlds import order_error, regret_of_the_best
from benchmarks.planners.arms import ANSWERS, Arm, Fit, fit, get_arm
from benchmarks.planners.asking import Asked, ask_questions, make_asker, make_user
from benchmarks.planners.regimes import Regime, get_regime
from benchmarks.planners.settings import PlannerSettings, Unit
from benchmarks.planners.tastes import utilities
from benchmarks.planners.worlds import World, load_world
from edpbrl_gym._arrays import Floats
from edpbrl_gym._places import write_atomically
from edpbrl_gym._threads import one_thread
from edpbrl_gym.comparisons import Comparisons
from edpbrl_gym.estimation.metrics import choice_accuracy, cosine_error, preference_error
from edpbrl_gym.features import TextEncoder
from edpbrl_gym.likelihood import make_format
from edpbrl_gym.personalize.search import Prompt, best_prompts
from edpbrl_gym.planners import Planner

# lower is better in all of them
METRICS: dict[str, str] = {
    "cosine_error": "cosine error",
    "preference_error": "preference error",
    "choice_error": "held-out choice error",
    "regret": "regret of the best prompt or item",
}
KNOWLEDGE: tuple[str, ...] = ("cosine_error", "preference_error", "choice_error")
FIRST_METRICS: dict[str, str] = {"preference_error": "preference error", "regret_ten": "regret of the ten best"}
"""Of first answers: both are about prompts. A cosine also rewards the direction that all embeddings share, which tells
no two prompts apart."""

# (width, shortlist): a narrower beam for the many estimates than for the best there is, a fifth of the texts
_NARROW, _WIDE = (6, 8), (16, 16)
_SEARCHED = ("vocabulary", "ridge100", "planner")  # estimators whose best prompt is searched for


@dataclass(frozen=True, eq=False)
class Scorer:
    """Measures estimates of one user's taste."""

    world: World  # with the held-out prompts and questions
    taste: Floats  # theta*, (1, d), or two styles, (2, d)
    ceiling: float = float("nan")  # best true score that a wide beam search finds with theta*

    def values(self, rows: NDArray[np.floating[Any]]) -> Floats:
        """True utilities (...) of rows (..., d)."""
        return utilities(self.taste, rows)

    @functools.cached_property
    def _held_out(self) -> Comparisons:
        """The held-out questions, answered without noise."""
        features = self.world.held_out
        count = np.zeros(len(features), dtype=np.int64)
        choice = np.argmax(self.values(features), axis=1)
        return Comparisons.of_choices(features=features, choice=choice, episode=count, step=count)

    def errors(self, theta: Floats) -> dict[str, float]:
        """Cosine error, preference error on held-out prompts, error on held-out questions (1 - choice accuracy)."""
        return {
            "cosine_error": cosine_error(theta, self.taste[0]),
            "preference_error": preference_error(theta, self.taste[0], self.world.prompts, self.world.pairs),
            "choice_error": 1.0 - choice_accuracy(self._held_out, theta),
        }

    def first_errors(self, theta: Floats) -> dict[str, float]:
        """``FIRST_METRICS`` of an estimate, (d,), by any taste."""
        pool, prompts = self.world.pool, self.world.prompts
        assert pool is not None, "the worlds of first answers have a pool"
        return {
            "preference_error": order_error(prompts @ theta, self.values(prompts), self.world.pairs),
            "regret_ten": regret_of_the_best(pool @ theta, self.values(pool)),
        }

    def regret(self, theta: Floats, encoder: TextEncoder | None) -> float:
        """Regret of what an estimate, (d,), likes best.

        Of items: see ``item_regret``; 1 (a random item's) for the estimate 0. In prompt MDPs: ``ceiling`` minus the
        true score of the prompt that a beam search finds for the estimate; an estimate of 0 likes every prompt the
        same, and the mean score of the held-out random prompts stands for it. Without an encoder for the search: NaN.
        """
        if self.world.items:
            return self.item_regret(int(np.argmax(self._items @ theta))) if theta.any() else 1.0
        if encoder is None:
            return float("nan")
        if not theta.any():
            return self.ceiling - float(self.values(self.world.prompts).mean())
        prompt = _search(self.world, encoder, theta, *_NARROW)
        return self.ceiling - float(self.values(encoder.encode([prompt.text])[0]))

    def item_regret(self, item: int) -> float:
        """Utility of the best item minus that of an item, in units of the best minus the mean of the pool."""
        values = self.values(self._items)
        return float((values.max() - values[item]) / (values.max() - values.mean()))

    @property
    def _items(self) -> Floats:
        return self.world.tokens.astype(np.float64)


def _search(world: World, encoder: TextEncoder, theta: Floats, width: int, shortlist: int) -> Prompt:
    return best_prompts(world.vocabulary, encoder, theta, count=1, width=width, shortlist=shortlist)[0]


def ceiling_path(folder: Path, regime: Regime, user: str) -> Path:
    """Where the best score of a user in a vocabulary is kept."""
    return folder / "ceilings" / f"{regime.vocabulary}-{user}.json"


def find_ceiling(settings: PlannerSettings, regime: Regime, user: str, folder: Path, fingerprint: str) -> None:
    """Search the best prompt of a known taste and write its score."""
    world = load_world(settings, regime, folder, fingerprint)
    with one_thread():
        encoder, taste = world.encoder(), world.tastes[user][0]
        score = max(_search(world, encoder, taste, *beam).score for beam in (_WIDE, _NARROW))
    write_atomically(ceiling_path(folder, regime, user), lambda name: name.write_text(json.dumps(score)))


def make_scorer(regime: Regime, world: World, user: str, folder: Path) -> Scorer:
    """The scorer of a user, in prompt MDPs with what ``find_ceiling`` wrote."""
    ceiling = float("nan")
    if not (regime.first or regime.items):
        ceiling = float(json.loads(ceiling_path(folder, regime, user).read_text()))
    return Scorer(world, world.tastes[user], ceiling)


# -- a unit of work ---------------------------------------------------------------------------------------------------


def run_unit(settings: PlannerSettings, unit: Unit, folder: Path, fingerprint: str) -> list[dict[str, Any]]:
    """Ask, answer, estimate and measure; the rows, one for each checkpoint and estimator."""
    regime, arm = get_regime(unit.regime), get_arm(unit.arm)
    world = load_world(settings, regime, folder, fingerprint, seed=unit.seed)
    rows: list[dict[str, Any]] = []
    with one_thread():
        scorer = make_scorer(regime, world, unit.user, folder)
        user = make_user(regime, scorer.taste, unit.user, unit.seed, arm.answers)
        search_encoder = world.encoder()
        planner, encoder = make_asker(settings, regime, arm, unit, world, folder)
        checkpoints = settings.checkpoints(regime, planned=arm.design is None)
        options = regime.num_options
        for asked in ask_questions(planner, world, user, encoder, num_options=options, checkpoints=checkpoints):
            shared = {
                **{"regime": regime.name, "seed": unit.seed, "user": unit.user, "arm": arm.name},
                **{"episodes": asked.episodes, "questions": len(asked.responses)},
                "skipped": 1.0 - float(np.mean([answer.first is not None for answer in asked.responses])),
            }
            searched = search_encoder if asked.episodes in settings.prompt_episodes else None
            rows += [shared | scores for scores in score_estimators(arm, regime, planner, asked, scorer, searched)]
    return rows


def score_estimators(
    arm: Arm, regime: Regime, planner: Planner, asked: Asked, scorer: Scorer, encoder: TextEncoder | None
) -> list[dict[str, Any]]:
    """Fit each estimator of an arm to the same answers and score it: a row for each.

    Without an encoder no best prompt is searched for; items and first answers need none. For optuna, which estimates no
    taste, the row "planner" has the regret of its best item only.
    """
    terms = make_format(ANSWERS[arm.answers]).terms(asked.queries.features.astype(np.float64), asked.responses)
    rows = []
    for name in arm.estimators(regime):
        if name == "planner" and arm.asker == "optuna":
            regret = scorer.item_regret(int(planner.best_item()))  # type: ignore[attr-defined]
            unknown = dict.fromkeys(KNOWLEDGE, float("nan"))
            rows.append({"estimator": name, "converged": True, **unknown, "regret": regret})
            continue
        if name == "planner":
            found = Fit(np.asarray(planner.estimate.theta), bool(planner.estimate.converged))
        else:
            found = fit(name, terms, scorer.world, regime)
        row: dict[str, Any] = {"estimator": name, "converged": found.converged}
        if regime.first:
            row |= scorer.first_errors(found.theta)
        else:
            row |= scorer.errors(found.theta)
            row["regret"] = scorer.regret(found.theta, encoder if name in _SEARCHED else None)
        rows.append(row)
    return rows
