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
        device: Where the large products run: "cpu" (numpy), or "cuda", "cuda:1" and so on (torch; prompt MDPs only).
        options: More options of ``edpbrl_gym.design.newton`` (``start``, ``callback``, ``seed``, ``backend``).
        **arguments: See ``DesignAgent``.
    """

    name = "newton"

    def __init__(
        self,
        env: Any,
        *,
        max_iterations: int | None = None,
        tolerance: float | None = None,
        device: str | None = None,
        options: dict[str, Any] | None = None,
        **arguments: Any,
    ) -> None:
        if device is not None and "backend" in (options or {}):
            raise ValueError(f"Expected a device or the solver's option backend, got both (device {device!r}).")
        backend = "numpy" if device == "cpu" else device and f"torch:{device}"
        given: dict[str, Any] = {"max_iterations": max_iterations, "tolerance": tolerance, "backend": backend}
        chosen = {name: value for name, value in given.items() if value is not None}
        super().__init__(env, options={**(options or {}), **chosen}, **arguments)

    def _solve(self, problem: DesignProblem) -> Design:
        return newton(problem, **self.options)
