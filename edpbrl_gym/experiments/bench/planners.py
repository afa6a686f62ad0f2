"""The planners of the arms."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from edpbrl_gym._feedback import check_feedback
from edpbrl_gym._seeds import derive_seed
from edpbrl_gym.experiments.bench.arms import ANSWERS, Arm
from edpbrl_gym.experiments.bench.designs import load_questions
from edpbrl_gym.experiments.bench.encoders import SharedEncoder, TimedEncoder
from edpbrl_gym.experiments.bench.estimators import make_prior
from edpbrl_gym.experiments.bench.regime import Regime
from edpbrl_gym.experiments.bench.settings import BenchSettings, Unit
from edpbrl_gym.experiments.bench.worlds import World
from edpbrl_gym.likelihood import make_response_model
from edpbrl_gym.planners import ComposedFeatures, Planner, PromptFeatures, ReplayPlanner
from edpbrl_gym.planners.option_features import OptionFeatures, option_features
from edpbrl_gym.planners.registry import PLANNERS, make_planner, planner_options

__all__ = ["Asker", "make_asker", "warm_up"]


@dataclass(frozen=True, eq=False)
class Asker:
    """Who asks in a unit.

    Attributes:
        planner: New, for one user.
        encoder: Of the options that are shown; the planner's too, so time spent there is the encoder's.
        seconds: CPU time before the unit: of a design and its draws; 0 for a planner.
        encoder_seconds: The same of the encoder, for each question.
    """

    planner: Planner
    encoder: TimedEncoder
    seconds: float = 0.0
    encoder_seconds: float = 0.0


def make_asker(settings: BenchSettings, regime: Regime, arm: Arm, unit: Unit, world: World, folder: Path) -> Asker:
    """Return who asks in a unit; a design's questions are read from the run folder.

    Args:
        settings: Of the benchmark.
        regime: That of the unit.
        arm: That of the unit.
        unit: Which one.
        world: That of the regime.
        folder: The run folder.
    """
    if arm.design is not None:
        questions = load_questions(folder, world, regime, arm.asker, unit.seed)
        encoder = TimedEncoder(SharedEncoder(world, questions.texts, questions.rows))
        embedding = questions.encoder_seconds / (len(questions.tokens) * len(world.question_steps))
        return Asker(ReplayPlanner(questions.tokens), encoder, questions.seconds, embedding)
    encoder = TimedEncoder(SharedEncoder(world))
    options: dict[str, Any] = dict(arm.options)
    external = PLANNERS[arm.asker].family == "external"
    if PLANNERS[arm.asker].family == "adaptive":
        options.setdefault("prior", "vocabulary")  # the planner's default, made once for a process
    prior = options.pop("prior", None)
    if "rollout_seed" in planner_options(arm.asker):  # rules of a block choose from the same trajectories
        options.setdefault("rollout_seed", derive_seed(unit.seed, "rollouts", regime.name))
    planner = make_planner(
        arm.asker,
        world.vocabulary,
        _option_features(world, encoder),
        prior=None if prior is None else make_prior(prior, world),
        num_options=regime.num_options,
        seed=derive_seed(unit.seed, "planner", arm.name, regime.name, unit.user),
        episodes=max(settings.checkpoints(regime, planned=True)),
        model=None if external else make_response_model(ANSWERS[arm.answers]),
        **options,
    )
    return Asker(planner, encoder)


def warm_up(world: World) -> None:
    """Make what all planners of a world share in this process: it is in nobody's time."""
    _shared_features(world)


def _option_features(world: World, encoder: TimedEncoder) -> OptionFeatures:
    """What a planner knows of a world's options, with an encoder of its own."""
    shared = _shared_features(world)
    return shared.with_encoder(encoder) if isinstance(shared, (ComposedFeatures, PromptFeatures)) else shared


@functools.lru_cache(maxsize=8)
def _shared_features(world: World) -> OptionFeatures:
    """The features of a world's options, once for each process: fitting those of prompts encodes hundreds of texts."""
    return option_features(check_feedback(world.feedback), world.vocabulary, world.tokens, world.encoder())
