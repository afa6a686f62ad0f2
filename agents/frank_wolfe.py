"""The paper's agent: policies from Frank-Wolfe with value iteration as linear oracle."""

from __future__ import annotations

from typing import Any

from edpbrl_gym.agents.designed import DesignAgent
from edpbrl_gym.design import Design, DesignProblem, frank_wolfe

__all__ = ["FrankWolfeAgent"]


class FrankWolfeAgent(DesignAgent):
    """ED-PBRL (paper, Alg. 2): maximise the surrogate information by Frank-Wolfe, play the extracted policies.

    Args:
        env: The environment.
        max_iterations: Bound on the iterations; None is the solver's default.
        tolerance: Gain-relative gap to stop at; None is the solver's default.
        variant: "plain" (the paper's algorithm) or "pairwise"; None is the solver's default.
        options: More options of ``edpbrl_gym.design.solvers.frank_wolfe`` (``start``, ``callback``).
        **arguments: See ``DesignAgent``.
    """

    name = "frank_wolfe"

    def __init__(
        self,
        env: Any,
        *,
        max_iterations: int | None = None,
        tolerance: float | None = None,
        variant: str | None = None,
        options: dict[str, Any] | None = None,
        **arguments: Any,
    ) -> None:
        given: dict[str, Any] = {"max_iterations": max_iterations, "tolerance": tolerance, "variant": variant}
        chosen = {name: value for name, value in given.items() if value is not None}
        super().__init__(env, options={**(options or {}), **chosen}, **arguments)

    def _solve(self, problem: DesignProblem) -> Design:
        return frank_wolfe(problem, **self.options)
