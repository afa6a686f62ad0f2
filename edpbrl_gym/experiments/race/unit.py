"""One unit of work: a contender asks one user in one regime; at the checkpoints both of its scores are measured."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from edpbrl_gym._seeds import derive_seed
from edpbrl_gym._threads import one_thread
from edpbrl_gym.experiments.code import code_fingerprint
from edpbrl_gym.experiments.query_bench.asking import TimedEncoder, make_user
from edpbrl_gym.experiments.query_bench.estimators import fit
from edpbrl_gym.experiments.query_bench.measuring import Scorer, load_ceiling
from edpbrl_gym.experiments.query_bench.playing import Asked, Clock, ask_questions
from edpbrl_gym.experiments.query_bench.settings import Unit
from edpbrl_gym.experiments.query_bench.worlds import World
from edpbrl_gym.experiments.race.contenders import Contender, get_contender
from edpbrl_gym.experiments.race.planners import PlannerInputs, SharedEncoder, make_planner, warm_up
from edpbrl_gym.experiments.race.settings import RaceRegime, RaceSettings, get_regime
from edpbrl_gym.experiments.race.worlds import PoolScorer, load_world
from edpbrl_gym.features import TextEncoder
from edpbrl_gym.likelihood import BestOf, Terms
from edpbrl_gym.planners import Planner

__all__ = ["scorer_of", "run_unit", "scores"]

Floats = NDArray[np.float64]


def _times(asked: Asked, setup: float, encoder: TimedEncoder) -> dict[str, float]:
    """CPU seconds: until the planner can ask; of the first question; mean and maximum of the others; of embedding."""
    later = asked.seconds[1:] or [float("nan")]
    return {
        "seconds_setup": setup,
        "seconds_first": asked.seconds[0],
        "seconds_question": float(np.mean(later)),
        "seconds_longest": float(np.max(later)),
        "seconds_encoder": encoder.seconds / len(asked.seconds),
    }


def scorer_of(regime: RaceRegime, world: World, user: str, folder: Path) -> Scorer:
    """Who measures estimates of a user's taste."""
    if regime.items:
        return PoolScorer(world, world.tastes[user], float("nan"))
    return Scorer(world, world.tastes[user], load_ceiling(folder, regime.vocabulary, user))


def scores(
    contender: Contender, planner: Planner, asked: Asked, world: World, scorer: Scorer, encoder: TextEncoder | None
) -> list[Any]:
    """Both scores: what our estimator and the contender's own make of the same answers.

    Args:
        contender: Who asked.
        planner: Which asked.
        asked: The answers.
        world: What they are about.
        scorer: Measures.
        encoder: For the search of the best prompt; None leaves it out. Items need none.

    Returns:
        Two rows: ``score`` "ours" or "own", the errors, ``regret``, ``converged`` and ``seconds_estimate``.
    """
    terms = BestOf().terms(asked.queries.features.astype(np.float64), asked.responses)
    return [
        _score(name, estimator, planner, terms, world, scorer, encoder)
        for name, estimator in (("ours", "ours"), ("own", contender.own))
    ]


def _score(
    name: str, estimator: str, planner: Any, terms: Terms, world: World, scorer: Scorer, encoder: TextEncoder | None
) -> dict[str, Any]:
    begun = time.process_time()
    if estimator == "item":
        assert isinstance(scorer, PoolScorer)
        errors = dict.fromkeys(("cosine_error", "preference_error", "choice_error"), float("nan"))
        regret = scorer.regret_of(int(planner.best_item()))
        seconds = time.process_time() - begun
        return {"score": name, **errors, "regret": regret, "converged": True, "seconds_estimate": seconds}
    found = planner.estimate if estimator == "planner" else fit(estimator, terms, world)
    theta = np.asarray(found.theta)
    seconds = time.process_time() - begun
    regret = float("nan")
    if isinstance(scorer, PoolScorer):
        regret = scorer.regret(theta)
    elif encoder is not None:
        regret = scorer.prompt(theta, encoder)["prompt_regret"]
    return {
        "score": name,
        **scorer.errors(theta),
        "regret": regret,
        "converged": bool(found.converged),
        "seconds_estimate": seconds,
    }


def run_unit(settings: RaceSettings, unit: Unit, folder: Path, fingerprint: str) -> list[dict[str, Any]]:
    """Ask, answer, estimate and measure; the rows, two for each checkpoint."""
    begun = time.process_time()
    regime, contender = get_regime(unit.regime), get_contender(unit.arm)
    world = load_world(settings, regime, folder, fingerprint, seed=unit.seed)
    rows: list[dict[str, Any]] = []
    with one_thread():
        scorer = scorer_of(regime, world, unit.user, folder)
        user = make_user(regime, world.tastes[unit.user], unit.user, unit.seed)
        searching = None if regime.items else world.encoder()
        encoder = TimedEncoder(SharedEncoder(world))
        warm_up(world)
        clock = Clock(encoder)
        seed = derive_seed(unit.seed, "planner", contender.name, regime.name, user.name)
        planner = make_planner(contender, PlannerInputs(settings, regime, world, folder, seed, unit.seed, encoder))
        setup = clock.seconds
        options, checkpoints = regime.num_options, settings.checkpoints(regime)
        for asked in ask_questions(planner, world, user, encoder, num_options=options, checkpoints=checkpoints):
            times = _times(asked, setup, encoder)
            known = {
                "regime": regime.name, "seed": unit.seed, "user": unit.user, "arm": contender.name,
                "episodes": asked.episodes, "questions": len(asked.responses),
            }  # fmt: skip
            looks = searching if asked.episodes in settings.prompt_episodes else None
            for score in scores(contender, planner, asked, world, scorer, looks):
                rows.append(known | score | times | {"code": code_fingerprint(__name__)})
    seconds = time.process_time() - begun
    return [row | {"seconds_unit": seconds} for row in rows]
