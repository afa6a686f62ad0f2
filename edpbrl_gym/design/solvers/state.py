"""What the callbacks of the solvers see."""

from __future__ import annotations

from dataclasses import dataclass

from edpbrl_gym._arrays import Floats

__all__ = ["IterationState", "NewtonState"]


@dataclass(frozen=True)
class IterationState:
    """State that a callback receives at the start of an iteration, of `newton` also after each step inside.

    Attributes:
        iteration: Number of the iteration, from 0.
        value: Objective of the current mean occupancy.
        gap: Its certified gap; inside an iteration of `newton` what the objective is below the upper bound.
        relative_gap: The gap relative to the gain.
        seconds: Time since the start.
        occupancy: The current mean occupancy, shape (H, M), read-only.
    """

    iteration: int
    value: float
    gap: float
    relative_gap: float
    seconds: float
    occupancy: Floats


@dataclass(frozen=True)
class NewtonState(IterationState):
    """State that a callback of `newton` receives: an `IterationState` and the following.

    Attributes:
        upper_bound: No policies have a larger objective, but for rounding. Inside an iteration it is that of its start.
        support: Tokens (paths, policies) with mass.
        oracle_calls: Times that all tokens were scored.
        step: Newton steps taken in this iteration; at its start 0.
    """

    upper_bound: float
    support: int
    oracle_calls: int
    step: int
