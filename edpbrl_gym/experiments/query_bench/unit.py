"""One unit of work: a regime, a sentence, a seed and an arm; T episodes of questions, an estimate after some."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from edpbrl_gym._seeds import derive_seed
from edpbrl_gym._threads import one_thread
from edpbrl_gym.comparisons import Queries
from edpbrl_gym.experiments.code import code_fingerprint
from edpbrl_gym.experiments.query_bench.arms import ADAPTIVE_RULES, ANSWERS, Arm, get_arm
from edpbrl_gym.experiments.query_bench.asking import TimedEncoder, load_questions, make_user
from edpbrl_gym.experiments.query_bench.estimators import fit
from edpbrl_gym.experiments.query_bench.measuring import Scorer, load_ceiling
from edpbrl_gym.experiments.query_bench.planners import make_planner
from edpbrl_gym.experiments.query_bench.playing import ask_questions
from edpbrl_gym.experiments.query_bench.settings import BenchSettings, Regime, Unit, get_regime
from edpbrl_gym.experiments.query_bench.worlds import World, load_world
from edpbrl_gym.likelihood import Response, make_response_model
from edpbrl_gym.oracles.imperfect import ImperfectUser

__all__ = ["Snapshot", "adaptive_snapshots", "run_unit", "static_snapshots"]


@dataclass(frozen=True, eq=False)
class Snapshot:
    """What is known after some episodes.

    Attributes:
        episodes: T.
        theta: The estimate, (d,).
        queries: All questions so far.
        responses: Their answers.
        timing: ``seconds_question`` and ``seconds_encoder`` (means over the questions so far: choosing a question, the
            last answer's update included; and embedding its options), ``seconds_think`` (mean over the questions of
            what the planner does while the person looks at the options), ``seconds_estimate``.
        details: ``converged``, ``prior_scale``.
    """

    episodes: int
    theta: NDArray[np.float64]
    queries: Queries
    responses: list[Response]
    timing: dict[str, float]
    details: dict[str, Any]


def static_snapshots(
    settings: BenchSettings, regime: Regime, arm: Arm, seed: int, world: World, user: ImperfectUser, folder: Path
) -> Iterator[Snapshot]:
    """Let the user answer the questions drawn for this seed; estimate after each number of episodes."""
    asked = load_questions(folder, regime.world, arm.rule, seed)
    responses = list(user.answer(asked.queries).responses)
    model = make_response_model(ANSWERS[arm.answers])
    total = len(responses)
    for episodes in settings.episodes:
        count = int((asked.queries.episode < episodes).sum())
        queries = _first(asked.queries, count)
        begun = time.process_time()
        found = fit(arm.estimator, model.terms(queries.features.astype(np.float64), responses[:count]), world)
        timing = {
            "seconds_question": asked.seconds / total,
            "seconds_encoder": asked.encoder_seconds / total,
            "seconds_think": 0.0,
            "seconds_estimate": time.process_time() - begun,
        }
        details = {"converged": found.converged, "prior_scale": found.prior_scale}
        yield Snapshot(episodes, found.theta, queries, responses[:count], timing, details)


def adaptive_snapshots(
    settings: BenchSettings, regime: Regime, arm: Arm, seed: int, world: World, user: ImperfectUser
) -> Iterator[Snapshot]:
    """Let the planner ask question by question; its own estimate after each number of episodes."""
    encoder = TimedEncoder(world.encoder())
    own = derive_seed(seed, "planner", arm.name, regime.name, user.name)
    planner = make_planner(world, arm, num_options=regime.num_options, seed=own, encoder=encoder)
    options, checkpoints = regime.num_options, settings.episodes
    for asked in ask_questions(planner, world, user, encoder, num_options=options, checkpoints=checkpoints, think=True):
        count = len(asked.responses)
        begun = time.process_time()
        estimate = planner.estimate
        timing = {
            "seconds_question": (sum(asked.seconds) + asked.telling) / count,
            "seconds_encoder": encoder.seconds / count,
            "seconds_think": asked.thinking / count,
            "seconds_estimate": time.process_time() - begun,
        }
        details = {"converged": bool(estimate.converged), "prior_scale": float("nan")}
        yield Snapshot(asked.episodes, estimate.theta, asked.queries, asked.responses, timing, details)


def _first(queries: Queries, count: int) -> Queries:
    return Queries(queries.features[:count], queries.episode[:count], queries.step[:count])


def run_unit(settings: BenchSettings, unit: Unit, folder: Path, fingerprint: str) -> list[dict[str, Any]]:
    """Ask, answer, estimate and measure; the rows, one for each T."""
    regime, arm = get_regime(unit.regime), get_arm(unit.arm)
    world = load_world(settings, regime, folder, fingerprint)
    taste = world.tastes[unit.user]
    scorer = Scorer(world, taste, load_ceiling(folder, regime.vocabulary, unit.user))
    rows: list[dict[str, Any]] = []
    with one_thread():
        user = make_user(regime, taste, unit.user, unit.seed, arm.answers)
        searching = world.encoder()
        if arm.rule in ADAPTIVE_RULES:
            snapshots = adaptive_snapshots(settings, regime, arm, unit.seed, world, user)
        else:
            snapshots = static_snapshots(settings, regime, arm, unit.seed, world, user, folder)
        for snapshot in snapshots:
            row = {
                "regime": regime.name, "sentence": unit.user, "seed": unit.seed, "arm": arm.name,
                "episodes": snapshot.episodes, "questions": len(snapshot.responses),
            }  # fmt: skip
            row |= scorer.errors(snapshot.theta) | {"prompt_score": float("nan"), "prompt_regret": float("nan")}
            if snapshot.episodes in settings.prompt_episodes:
                row |= scorer.prompt(snapshot.theta, searching)
            row |= _about_answers(world, taste, snapshot)
            row |= {"theta_norm": float(np.linalg.norm(snapshot.theta)), "code": code_fingerprint(__name__)}
            rows.append(row | snapshot.timing | snapshot.details)
    return rows


def _about_answers(world: World, taste: NDArray[np.float64], snapshot: Snapshot) -> dict[str, float]:
    """Best full prompt shown, share of answers that name the truly best option, share of skipped questions."""
    values = snapshot.queries.features.astype(np.float64) @ taste
    first = np.array([-1 if answer.first is None else answer.first for answer in snapshot.responses])
    answered = first >= 0
    full = snapshot.queries.step == world.vocabulary.horizon - 1
    right = first[answered] == values[answered].argmax(axis=1)
    return {
        "best_shown": float(values[full].max()) if world.feedback == "truncated" else float("nan"),
        "best_chosen": float(right.mean()) if answered.any() else float("nan"),
        "skipped": float(1.0 - answered.mean()),
    }
