"""K different policies by block ascent on the exact expected information."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from edpbrl_gym.agents.designed import DesignAgent
from edpbrl_gym.design import Design, DesignProblem, ExactDesign, exact_design

__all__ = ["ExactAgent"]


class ExactAgent(DesignAgent):
    """Maximise the exact expected information of K independent policies; option q of a question is policy q's.

    The paper's objective depends on the policies only through their mean, so the other design agents play K identical
    ones; these differ. `design` certifies the exact objective against the bound for every way of producing the options.

    Args:
        env: The environment.
        starts: Names of the starts, such as ("clusters", "random"); None is the solver's default.
        max_sweeps: Bound on the sweeps over the policies from each start; None is the solver's default.
        tolerance: Share of the gain at which a start has converged; None is the solver's default.
        options: More options of ``edpbrl_gym.design.exact_design`` (``callback``, ``surrogate``); the seed is the
            agent's unless it is given here.
        **arguments: See ``DesignAgent``.

    Attributes:
        result: What ``learn`` found, with the bounds and the gain over identical policies; None before, and for an
            agent that was loaded (its ``design`` is kept).
    """

    name = "exact"

    def __init__(
        self,
        env: Any,
        *,
        starts: Sequence[str] | None = None,
        max_sweeps: int | None = None,
        tolerance: float | None = None,
        options: dict[str, Any] | None = None,
        **arguments: Any,
    ) -> None:
        given: dict[str, Any] = {"starts": starts, "max_sweeps": max_sweeps, "tolerance": tolerance}
        chosen = {name: value for name, value in given.items() if value is not None}
        super().__init__(env, options={**(options or {}), **chosen}, **arguments)
        self.result: ExactDesign | None = None

    def _solve(self, problem: DesignProblem) -> Design:
        self.result = exact_design(problem, **{"seed": self.seed, **self.options})
        return self.result.design
