"""Policies from working-set Newton: the same design problem as the paper's agent, solved to optimality in less time."""

from __future__ import annotations

from typing import Any

from edpbrl_gym.agents.designed import DesignAgent
from edpbrl_gym.design import Design, DesignProblem, newton

__all__ = ["NewtonAgent"]


class NewtonAgent(DesignAgent):
    """Maximise the surrogate information by working-set Newton, play the extracted policies.

    Args:
        env: The environment.
        max_iterations: Bound on the iterations; None is the solver's default.
        tolerance: Gain-relative gap to stop at; None is the solver's default.
        options: More options of ``edpbrl_gym.design.newton`` (``start``, ``callback``, ``seed``).
        **arguments: See ``DesignAgent``.
    """

    name = "newton"

    def __init__(
        self,
        env: Any,
        *,
        max_iterations: int | None = None,
        tolerance: float | None = None,
        options: dict[str, Any] | None = None,
        **arguments: Any,
    ) -> None:
        given: dict[str, Any] = {"max_iterations": max_iterations, "tolerance": tolerance}
        chosen = {name: value for name, value in given.items() if value is not None}
        super().__init__(env, options={**(options or {}), **chosen}, **arguments)

    def _solve(self, problem: DesignProblem) -> Design:
        return newton(problem, **self.options)
