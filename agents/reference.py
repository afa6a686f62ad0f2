"""The same design by a general convex solver, to compare with."""

from __future__ import annotations

from typing import Any

from edpbrl_gym.agents.designed import DesignAgent
from edpbrl_gym.design import Design, DesignProblem, reference

__all__ = ["ReferenceAgent"]


class ReferenceAgent(DesignAgent):
    """Solves the design problem with cvxpy (extra ``reference``); for small problems only.

    Args:
        env: The environment.
        solver: Name of the cvxpy solver; None is the default of ``edpbrl_gym.design.solvers.reference``.
        options: More options of ``edpbrl_gym.design.solvers.reference``.
        **arguments: See ``DesignAgent``.
    """

    name = "reference"
    needs = (("cvxpy", "reference"),)

    def __init__(
        self, env: Any, *, solver: str | None = None, options: dict[str, Any] | None = None, **arguments: Any
    ) -> None:
        chosen = {} if solver is None else {"solver": solver}
        super().__init__(env, options={**(options or {}), **chosen}, **arguments)

    def _solve(self, problem: DesignProblem) -> Design:
        return reference(problem, **self.options)
