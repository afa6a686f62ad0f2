"""Planners of the adaptive arms: the default agent, and the same with one piece taken away."""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from edpbrl_gym.estimation import Estimate
from edpbrl_gym.experiments.query_bench.arms import ADAPTIVE_RULES, ANSWERS, Arm
from edpbrl_gym.experiments.query_bench.worlds import World
from edpbrl_gym.features import TextEncoder
from edpbrl_gym.responses import Response

__all__ = ["Planner", "make_planner"]


class Planner(Protocol):
    """Chooses the options of the next question, and learns from its answer."""

    @property
    def estimate(self) -> Estimate:
        """The estimate from all answers so far."""
        ...

    def ask(self, prefixes: NDArray[np.int64]) -> NDArray[np.int64]:
        """The next token of each lane, (K,), after the tokens (K, h)."""
        ...

    def tell(self, options: NDArray[np.float32], responses: list[Response]) -> Any:
        """Take in the answers to questions with options (n, K, d)."""
        ...


def make_planner(world: World, arm: Arm, *, num_options: int, seed: int, encoder: TextEncoder) -> Planner:
    """Return a new planner for one user.

    Args:
        world: What it asks about.
        arm: Which pieces it has, and the format of the answers.
        num_options: K.
        seed: Of its own draws.
        encoder: Its encoder; the time spent there is the encoder's.
    """
    raise NotImplementedError(ADAPTIVE_RULES[arm.rule], ANSWERS)
