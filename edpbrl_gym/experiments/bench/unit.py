"""One unit of work: an arm asks one user in one regime; after some episodes the taste is estimated and measured."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import numpy as np

from edpbrl_gym._threads import one_thread
from edpbrl_gym.experiments.bench.arms import ANSWERS, KERNELS, Arm, get_arm
from edpbrl_gym.experiments.bench.estimators import Fit, fit, make_map
from edpbrl_gym.experiments.bench.first_metrics import CALIBRATED
from edpbrl_gym.experiments.bench.loading import load_world
from edpbrl_gym.experiments.bench.measuring import KNOWLEDGE, Scorer, make_scorer
from edpbrl_gym.experiments.bench.planners import Asker, make_asker, warm_up
from edpbrl_gym.experiments.bench.playing import Asked, ask_questions, make_user
from edpbrl_gym.experiments.bench.settings import BenchSettings, Unit, get_regime
from edpbrl_gym.experiments.code import code_fingerprint
from edpbrl_gym.features import TextEncoder
from edpbrl_gym.features.maps import map_rows
from edpbrl_gym.likelihood import Terms, make_response_model
from edpbrl_gym.planners import Planner

__all__ = ["run_unit", "score_estimators", "score_first"]

_SEARCHED = ("vocabulary", "ridge100", "planner", *KERNELS)  # estimators whose best prompt is searched for


def run_unit(settings: BenchSettings, unit: Unit, folder: Path, fingerprint: str) -> list[dict[str, Any]]:
    """Ask, answer, estimate and measure; the rows, one for each checkpoint and estimator."""
    start = time.process_time()
    regime, arm = get_regime(unit.regime), get_arm(unit.arm)
    world = load_world(settings, regime, folder, fingerprint, seed=unit.seed)
    rows: list[dict[str, Any]] = []
    with one_thread():
        scorer = make_scorer(regime, world, unit.user, folder)
        user = make_user(regime, scorer.taste, unit.user, unit.seed, arm.answers, utility=scorer.utility)
        search_encoder = world.encoder()
        if arm.design is None:
            warm_up(world)
        setup_start = time.process_time()
        asker = make_asker(settings, regime, arm, unit, world, folder)
        setup_seconds = time.process_time() - setup_start - asker.encoder.seconds
        for asked in ask_questions(
            asker.planner,
            world,
            user,
            asker.encoder,
            num_options=regime.num_options,
            checkpoints=settings.checkpoints(regime, planned=arm.design is None),
        ):
            shared = {
                "regime": regime.name, "seed": unit.seed, "user": unit.user, "arm": arm.name,
                "episodes": asked.episodes, "questions": len(asked.responses),
                **_about_answers(scorer, asked), **_times(asked, asker, setup_seconds),
                "code": code_fingerprint(__name__),
            }  # fmt: skip
            if regime.first:
                scored = score_first(arm, asker.planner, asked, scorer)
            else:
                encoder = search_encoder if asked.episodes in settings.prompt_episodes else None
                scored = score_estimators(arm, asker.planner, asked, scorer, encoder, kernels=regime.kernels)
            rows += [shared | scores for scores in scored]
    seconds = time.process_time() - start
    return [row | {"seconds_unit": seconds} for row in rows]


def score_estimators(
    arm: Arm, planner: Planner, asked: Asked, scorer: Scorer, encoder: TextEncoder | None, *, kernels: bool = False
) -> list[dict[str, Any]]:
    """Fit each estimator of an arm to the same answers and score it.

    Args:
        arm: Who asked, and in which format the user answered.
        planner: The planner that asked.
        asked: The answers.
        scorer: Measures the errors and the regret.
        encoder: For the search of the best prompt; None leaves it out. Items need none.
        kernels: Whether the estimators of tastes that are not linear are fitted to Random questions, too.

    Returns:
        A row for each: ``estimator``, the errors, ``regret``, ``converged``, ``prior_scale``, ``theta_norm`` and
        ``seconds_estimate``. For optuna, which estimates no taste: a row of the vocabulary prior, and a row
        "planner" with the regret of its best item only.
    """
    model = make_response_model(ANSWERS[arm.answers])
    terms = model.terms(asked.queries.features.astype(np.float64), asked.responses)
    if arm.asker == "optuna":
        return [_score("vocabulary", planner, terms, scorer, encoder), _score_item(planner, scorer)]
    rows = [_score(name, planner, terms, scorer, encoder) for name in arm.estimators]
    for name in KERNELS if kernels and arm.asker == "random" else ():
        mapped = map_rows(make_map(name, scorer.world), asked.queries.features)
        rows.append(_score(name, planner, model.terms(mapped, asked.responses), scorer, encoder))
    return rows


def score_first(arm: Arm, planner: Planner, asked: Asked, scorer: Scorer) -> list[dict[str, Any]]:
    """Fit each estimator of first answers to the same answers and score it; like ``score_estimators``, without regret.

    Args:
        arm: Who asked, and in which format the user answered.
        planner: The planner that asked.
        asked: The answers.
        scorer: Measures the errors.
    """
    model = make_response_model(ANSWERS[arm.answers])
    terms = model.terms(asked.queries.features.astype(np.float64), asked.responses)
    rows = []
    for name in arm.first_estimators:
        found, seconds = _fit(name, planner, terms, scorer)
        row = {"estimator": name, **scorer.first_errors(found.theta), **_about_fit(found, seconds)}
        if name == "vocabulary" and found.taste is not None and len(asked.responses) <= CALIBRATED:
            row |= scorer.calibration(found.taste)
        rows.append(row)
    return rows


def _score(name: str, planner: Planner, terms: Terms, scorer: Scorer, encoder: TextEncoder | None) -> dict[str, Any]:
    taste, seconds = _fit(name, planner, terms, scorer)
    return {
        "estimator": name,
        **scorer.errors(taste.theta, taste.feature_map),
        "regret": scorer.regret(taste.theta, encoder if name in _SEARCHED else None, taste.feature_map),
        **_about_fit(taste, seconds),
    }


def _fit(name: str, planner: Planner, terms: Terms, scorer: Scorer) -> tuple[Fit, float]:
    """An estimate, and its CPU seconds."""
    start = time.process_time()
    if name == "planner":
        estimate = planner.estimate
        taste = Fit(np.asarray(estimate.theta), bool(estimate.converged))
    else:
        taste = fit(name, terms, scorer.world)
    return taste, time.process_time() - start


def _about_fit(taste: Fit, seconds: float) -> dict[str, Any]:
    return {
        "converged": taste.converged,
        "prior_scale": taste.prior_scale,
        "theta_norm": float(np.linalg.norm(taste.theta)),
        "seconds_estimate": seconds,
    }


def _score_item(planner: Any, scorer: Scorer) -> dict[str, Any]:
    """The regret of the item that a planner likes best."""
    start = time.process_time()
    regret = scorer.item_regret(int(planner.best_item()))
    unknown = dict.fromkeys((*KNOWLEDGE, "prior_scale", "theta_norm"), float("nan"))
    seconds = time.process_time() - start
    return {"estimator": "planner", **unknown, "regret": regret, "converged": True, "seconds_estimate": seconds}


def _times(asked: Asked, asker: Asker, setup: float) -> dict[str, float]:
    """CPU seconds.

    * ``seconds_setup``: before the first question can be asked (of a design: planning and drawing all questions);
    * ``seconds_first``: of the first question;
    * ``seconds_question``, ``seconds_longest``: mean and maximum of the later ones, with taking in the answer before;
    * ``seconds_encoder``, ``seconds_think``: means over the questions of embedding the options, and of what the planner
      does while the person looks at them.
    """
    count = len(asked.seconds)
    later = asked.seconds[1:] or [float("nan")]
    return {
        "seconds_setup": setup + asker.seconds,
        "seconds_first": asked.seconds[0],
        "seconds_question": float(np.mean(later)),
        "seconds_longest": float(np.max(later)),
        "seconds_encoder": asker.encoder_seconds + asker.encoder.seconds / count,
        "seconds_think": asked.thinking / count,
    }


def _about_answers(scorer: Scorer, asked: Asked) -> dict[str, float]:
    """Best full prompt shown, share of answers that name the truly best option, share of skipped questions."""
    world = scorer.world
    values = scorer.values(asked.queries.features)
    first = np.array([-1 if answer.first is None else answer.first for answer in asked.responses])
    answered = first >= 0
    full = asked.queries.step == world.vocabulary.horizon - 1
    right = first[answered] == values[answered].argmax(axis=1)
    return {
        "best_shown": float(values[full].max()) if world.feedback != "state" else float("nan"),
        "best_chosen": float(right.mean()) if answered.any() else float("nan"),
        "skipped": float(1.0 - answered.mean()),
    }
