"""Planners of the contenders."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from edpbrl_gym._seeds import derive_seed
from edpbrl_gym.estimation import GaussianPrior
from edpbrl_gym.estimation.neighbourhood import VocabularyPrior
from edpbrl_gym.experiments.query_bench.asking import open_lanes, play, static_agent
from edpbrl_gym.experiments.query_bench.estimators import our_prior
from edpbrl_gym.experiments.query_bench.planners import composed_features, option_features
from edpbrl_gym.experiments.query_bench.worlds import World
from edpbrl_gym.experiments.race.contenders import Contender
from edpbrl_gym.experiments.race.settings import RaceRegime, RaceSettings
from edpbrl_gym.features import TextEncoder
from edpbrl_gym.planners import AdaptivePlanner, Planner, ReplayPlanner

__all__ = ["PlannerInputs", "SharedEncoder", "make_planner", "warm_up"]

Tokens = NDArray[np.int64]

_RIDGE = 1.0  # lambda of the literature's rules
_LARGE = 1000  # texts of a batch that contenders share


class SharedEncoder:
    """A world's encoder with a memory of its own, but large batches are encoded once for all contenders of a process.

    Thousands of random trajectories are candidates of several rules, and embedding them takes longer than all the rest.
    Only whole batches are shared: a text's embedding depends on its batch in the last bits, and the numbers of a unit
    must not depend on what ran before it.

    Args:
        world: Whose encoder.
    """

    def __init__(self, world: World) -> None:
        self._world, self._own = world, world.encoder()
        self.name, self.dimension, self.fingerprint = self._own.name, self._own.dimension, self._own.fingerprint

    def encode(self, texts: Sequence[str], *, progress: bool = False) -> NDArray[np.float32]:
        """Return the embeddings, shape (n, d)."""
        if len(texts) < _LARGE:
            return self._own.encode(texts, progress=progress)
        return _large_batch(self._world, tuple(texts)).copy()


@functools.lru_cache(maxsize=2)
def _large_batch(world: World, texts: tuple[str, ...]) -> NDArray[np.float32]:
    return world.encoder().encode(texts)


@dataclass(frozen=True, eq=False)
class PlannerInputs:
    """What a planner is made of.

    Attributes:
        settings: Of the race.
        regime: Which one.
        world: What is asked about.
        folder: The run folder.
        seed: Of the contender's own draws.
        block: Seed of the block, of what contenders share.
        encoder: Its encoder; time spent there is the encoder's.
    """

    settings: RaceSettings
    regime: RaceRegime
    world: World
    folder: Path
    seed: int
    block: int
    encoder: TextEncoder

    @property
    def episodes(self) -> int:
        """Episodes that are going to be asked."""
        return max(self.settings.checkpoints(self.regime))


def make_planner(contender: Contender, inputs: PlannerInputs) -> Planner:
    """Return a new planner for one user."""
    return _MAKERS[contender.kind](contender, inputs)


def warm_up(world: World) -> None:
    """Make what all planners of a world share in this process: it is in nobody's time."""
    if world.feedback == "truncated":
        composed_features(world)


def _ours(contender: Contender, inputs: PlannerInputs) -> Planner:
    return AdaptivePlanner(
        inputs.world.vocabulary,
        options=option_features(inputs.world, inputs.encoder),
        prior=our_prior(inputs.world),
        num_options=inputs.regime.num_options,
        seed=inputs.seed,
        **contender.options,
    )


def _rule(contender: Contender, inputs: PlannerInputs) -> Planner:
    from edpbrl_gym.planners.pool.planner import RulePlanner

    given = dict(contender.options)
    prior: VocabularyPrior | GaussianPrior = GaussianPrior.isotropic(inputs.world.tokens.shape[1], _RIDGE)
    if given.pop("ours", False):
        prior = our_prior(inputs.world)
    return RulePlanner(
        inputs.world.vocabulary,
        options=option_features(inputs.world, inputs.encoder),
        prior=prior,
        num_options=inputs.regime.num_options,
        seed=inputs.seed,
        episodes=inputs.episodes,
        rollout_seed=derive_seed(inputs.block, "rollouts", inputs.regime.name),
        **given,
    )


def _gp(contender: Contender, inputs: PlannerInputs) -> Planner:
    from edpbrl_gym.planners.external.pairwise_gp import PairwiseGPPlanner

    return PairwiseGPPlanner(
        inputs.world.tokens.astype(np.float64),
        prior_variance=1.0 / _RIDGE,
        num_options=inputs.regime.num_options,
        seed=inputs.seed,
        **contender.options,
    )


def _optuna(contender: Contender, inputs: PlannerInputs) -> Planner:
    from edpbrl_gym.planners.external.optuna_gp import OptunaGPPlanner

    return OptunaGPPlanner(inputs.world.tokens.astype(np.float64), seed=inputs.seed, **contender.options)


def _static(contender: Contender, inputs: PlannerInputs) -> Planner:
    """Questions drawn before the first answer."""
    lanes = open_lanes(inputs.world, inputs.regime, inputs.folder, inputs.encoder, episodes=inputs.episodes)
    rule = contender.options["rule"]
    agent = static_agent(rule, lanes, inputs.regime, inputs.folder, episodes=inputs.episodes, seed=inputs.seed)
    tokens = play(agent, lanes, inputs.regime.num_options)
    lanes.close()
    return ReplayPlanner(tokens)


_MAKERS = {"ours": _ours, "rule": _rule, "static": _static, "gp": _gp, "optuna": _optuna}
