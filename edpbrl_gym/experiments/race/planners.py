"""Planners of the contenders."""

from __future__ import annotations

import functools
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from edpbrl_gym._places import write_atomically
from edpbrl_gym._seeds import derive_seed
from edpbrl_gym._threads import one_thread
from edpbrl_gym.agents.registry import agent_class
from edpbrl_gym.collection.collect import reseed
from edpbrl_gym.estimation import GaussianPrior
from edpbrl_gym.estimation.neighbourhood import VocabularyPrior
from edpbrl_gym.experiments.query_bench.arms import STATIC_RULES
from edpbrl_gym.experiments.query_bench.asking import design_path, open_lanes, play, static_agent
from edpbrl_gym.experiments.query_bench.estimators import our_prior
from edpbrl_gym.experiments.query_bench.worlds import World
from edpbrl_gym.experiments.race.contenders import Contender
from edpbrl_gym.experiments.race.settings import RaceRegime, RaceSettings
from edpbrl_gym.experiments.race.worlds import load_world
from edpbrl_gym.features import TextEncoder
from edpbrl_gym.planners import AdaptivePlanner, ComposedFeatures, Planner, ReplayPlanner, TokenFeatures

__all__ = ["Seat", "SharedEncoder", "design_needed", "make_planner", "solve_design", "warm_up"]

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
class Seat:
    """Where a contender sits down.

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


def make_planner(contender: Contender, seat: Seat) -> Planner:
    """Return a new planner for one user."""
    return _MAKERS[contender.kind](contender, seat)


def warm_up(world: World) -> None:
    """Make what all planners of a world share in this process: it is in nobody's time."""
    if world.feedback == "truncated":
        _composed(world)


def _options(seat: Seat) -> ComposedFeatures | TokenFeatures:
    if seat.world.feedback == "truncated":
        return _composed(seat.world).with_encoder(seat.encoder)
    return TokenFeatures(seat.world.vocabulary, seat.world.tokens)


@functools.lru_cache(maxsize=4)
def _composed(world: World) -> ComposedFeatures:
    """The fitted features of a world, once for each process: fitting encodes over a thousand texts."""
    return ComposedFeatures(world.vocabulary, world.tokens, world.encoder())


def _ours(contender: Contender, seat: Seat) -> Planner:
    return AdaptivePlanner(
        seat.world.vocabulary,
        options=_options(seat),
        prior=our_prior(seat.world),
        num_options=seat.regime.num_options,
        seed=seat.seed,
        **contender.options,
    )


def _rule(contender: Contender, seat: Seat) -> Planner:
    from edpbrl_gym.planners.pool.planner import RulePlanner

    given = dict(contender.options)
    prior: VocabularyPrior | GaussianPrior = GaussianPrior.isotropic(seat.world.tokens.shape[1], _RIDGE)
    if given.pop("ours", False):
        prior = our_prior(seat.world)
    return RulePlanner(
        seat.world.vocabulary,
        options=_options(seat),
        prior=prior,
        num_options=seat.regime.num_options,
        seed=seat.seed,
        episodes=seat.episodes,
        rollout_seed=derive_seed(seat.block, "rollouts", seat.regime.name),
        **given,
    )


def _gp(contender: Contender, seat: Seat) -> Planner:
    from edpbrl_gym.planners.external.pairwise_gp import PairwiseGPPlanner

    return PairwiseGPPlanner(
        seat.world.tokens.astype(np.float64),
        prior_variance=1.0 / _RIDGE,
        num_options=seat.regime.num_options,
        seed=seat.seed,
        **contender.options,
    )


def _optuna(contender: Contender, seat: Seat) -> Planner:
    from edpbrl_gym.planners.external.optuna_gp import OptunaGPPlanner

    return OptunaGPPlanner(seat.world.tokens.astype(np.float64), seed=seat.seed, **contender.options)


# -- questions drawn before the first answer --------------------------------------------------------------------------


def design_needed(contender: Contender, regime: RaceRegime, folder: Path) -> Path | None:
    """File that says that the design which all seeds of a regime share is there; None where there is no such design."""
    if contender.kind != "static" or regime.drawn or STATIC_RULES[contender.options["rule"]].learns_per_seed:
        return None
    return design_path(folder, _world_name(regime), contender.options["rule"]) / "solved.json"


def _world_name(regime: RaceRegime) -> str:
    return f"{regime.base.vocabulary}-{regime.feedback}-K{regime.num_options}"


def solve_design(
    settings: RaceSettings, regime: RaceRegime, contender: Contender, folder: Path, fingerprint: str
) -> None:
    """Solve the design that all seeds of a regime share, and save it."""
    import json

    world = load_world(settings, regime, 0, folder, fingerprint)
    with one_thread():
        seat = Seat(settings, regime, world, folder, 0, 0, world.encoder())
        begun = time.process_time()
        agent = _agent(contender, seat, _lanes(seat)).learn()
        if agent.design is not None and agent.design.status == "interrupted":
            raise KeyboardInterrupt  # Ctrl-C ends the run; a design cut short is not this race's
        seconds = time.process_time() - begun
    done = design_needed(contender, regime, folder)
    assert done is not None
    agent.save(done.parent)
    text = json.dumps({"seconds": seconds})
    write_atomically(done, lambda name: name.write_text(text, encoding="utf-8"))


def _lanes(seat: Seat) -> Any:
    lanes = seat.episodes * seat.regime.num_options
    return open_lanes(seat.world, seat.folder, seat.encoder, vocabulary=seat.regime.base.vocabulary, lanes=lanes)


def _agent(contender: Contender, seat: Seat, lanes: Any) -> Any:
    return static_agent(
        STATIC_RULES[contender.options["rule"]],
        lanes,
        num_options=seat.regime.num_options,
        episodes=seat.episodes,
        feedback=seat.regime.feedback,
        seed=seat.seed,
    )


def _static(contender: Contender, seat: Seat) -> Planner:
    lanes = _lanes(seat)
    done = design_needed(contender, seat.regime, seat.folder)
    if done is None:
        agent = _agent(contender, seat, lanes).learn()
    else:
        agent = agent_class(STATIC_RULES[contender.options["rule"]].agent).load(done.parent, lanes)
        reseed(agent, seat.seed)
    tokens = play(agent, lanes, seat.regime.num_options)
    lanes.close()
    return ReplayPlanner(tokens)


_MAKERS = {"ours": _ours, "rule": _rule, "static": _static, "gp": _gp, "optuna": _optuna}
