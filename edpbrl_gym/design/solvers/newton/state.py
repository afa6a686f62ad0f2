"""What the callback of `newton` sees, whichever of its solvers runs."""

from __future__ import annotations

from dataclasses import dataclass

from edpbrl_gym.design.solvers.frank_wolfe import IterationState

__all__ = ["NewtonState"]


@dataclass(frozen=True)
class NewtonState(IterationState):
    """What a callback of `newton` sees: an `IterationState` and the following.

    Attributes:
        upper_bound: value + gap.
        support: Tokens with mass.
        oracle_calls: Times that all tokens were scored.
    """

    upper_bound: float
    support: int
    oracle_calls: int
