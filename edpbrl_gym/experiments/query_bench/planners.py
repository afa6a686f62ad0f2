"""Planners of the adaptive arms: the default agent, and the same with one piece changed."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from edpbrl_gym.estimation import GaussianPrior
from edpbrl_gym.estimation.neighbourhood import VocabularyPrior
from edpbrl_gym.experiments.query_bench.arms import ADAPTIVE_RULES, ANSWERS, Arm
from edpbrl_gym.experiments.query_bench.estimators import global_prior, our_prior, plain_prior
from edpbrl_gym.experiments.query_bench.worlds import World
from edpbrl_gym.features import TextEncoder
from edpbrl_gym.likelihood import make_response_model
from edpbrl_gym.planners import AdaptivePlanner, ComposedFeatures, TokenFeatures

__all__ = ["composed_features", "make_planner", "option_features"]

# what ADAPTIVE_RULES may name as the prior; the plain ones come with a fixed scale
_PRIORS: dict[str, Callable[[World], VocabularyPrior | GaussianPrior]] = {
    "ours": our_prior,
    "global": global_prior,
    "fixed": functools.partial(plain_prior, "fixed"),
    "ridge1": functools.partial(plain_prior, "ridge1"),
}


def make_planner(world: World, arm: Arm, *, num_options: int, seed: int, encoder: TextEncoder) -> AdaptivePlanner:
    """Return a new planner for one user.

    Args:
        world: What it asks about.
        arm: Which pieces it has, and the format of the answers.
        num_options: K.
        seed: Of its own draws.
        encoder: Its encoder; the time spent there is the encoder's.
    """
    given: dict[str, Any] = dict(ADAPTIVE_RULES[arm.rule].options)
    prior = _PRIORS[given.pop("prior", "ours")](world)
    return AdaptivePlanner(
        world.vocabulary,
        options=option_features(world, encoder),
        prior=prior,
        num_options=num_options,
        seed=seed,
        model=make_response_model(ANSWERS[arm.answers]),
        **given,
    )


def option_features(world: World, encoder: TextEncoder) -> ComposedFeatures | TokenFeatures:
    """What a planner knows of a world's options, with an encoder of its own."""
    if world.feedback == "truncated":
        return composed_features(world).with_encoder(encoder)
    return TokenFeatures(world.vocabulary, world.tokens)


@functools.lru_cache(maxsize=8)
def composed_features(world: World) -> ComposedFeatures:
    """The fitted features of a world, once for each process: fitting encodes over a thousand texts."""
    return ComposedFeatures(world.vocabulary, world.tokens, world.encoder())
