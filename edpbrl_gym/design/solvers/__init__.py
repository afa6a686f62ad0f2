"""Solvers of the concave design problem over occupancy measures, each with its certificate, by name."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from edpbrl_gym._validation import check_choice_of, known_name
from edpbrl_gym.design.problem import DesignProblem
from edpbrl_gym.design.result import Design
from edpbrl_gym.design.solvers.frank_wolfe import frank_wolfe
from edpbrl_gym.design.solvers.newton import newton
from edpbrl_gym.design.solvers.reference import reference

__all__ = ["SOLVERS", "frank_wolfe", "newton", "reference", "solve"]

SOLVERS: dict[str, Callable[..., Design]] = {"newton": newton, "frank_wolfe": frank_wolfe, "reference": reference}


def solve(problem: DesignProblem, *, solver: str = "newton", **options: Any) -> Design:
    """Solve a design problem.

    Args:
        problem: The problem.
        solver: One of `SOLVERS`: "newton" (the fastest, for prompts), "frank_wolfe" (the paper's algorithm) or
            "reference" (cvxpy, for small problems).
        **options: Options of the solver; each takes `callback` and `time_limit`.

    Returns:
        The design with its certificate.

    Raises:
        ValueError: If the solver is unknown, or for its own reasons.
    """
    name = check_choice_of(known_name(solver, SOLVERS), "solver", tuple(SOLVERS))
    return SOLVERS[name](problem, **options)
