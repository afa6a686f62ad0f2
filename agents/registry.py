"""Make agents by name or by import string."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from edpbrl_gym._compat import Need, check_installed, class_of
from edpbrl_gym._validation import known_name
from edpbrl_gym.agents.base import Agent
from edpbrl_gym.planners.registry import PLANNERS

__all__ = ["AGENTS", "AgentEntry", "agent_class", "agent_needs", "check_agent", "make_agent"]


@dataclass(frozen=True)
class AgentEntry:
    """A row of the table.

    Attributes:
        path: "package.module:Class" of the agent.
        title: In tables and figures.
        options: That the name stands for.
    """

    path: str
    title: str
    options: Mapping[str, Any] = field(default_factory=dict)


# the paper's design has one title, whichever solver finds it
_DESIGNS = {
    "newton": "ED-PBRL",
    "frank_wolfe": "ED-PBRL",
    "reference": "ED-PBRL",
    "exact": "ED-PBRL (exact)",
    "tuples": "Tuples",
}

AGENTS: dict[str, AgentEntry] = {
    **{
        name: AgentEntry("edpbrl_gym.agents.design:DesignAgent", title, {"solver": name})
        for name, title in _DESIGNS.items()
    },
    **{
        name: AgentEntry("edpbrl_gym.agents.planner:PlannerAgent", entry.title, {"planner": name})
        for name, entry in PLANNERS.items()
    },
    "deep": AgentEntry("edpbrl_gym.agents.deep:DeepDesignAgent", "ED-PBRL (deep RL)"),
    "enumerated": AgentEntry("edpbrl_gym.agents.enumerated:EnumeratedAgent", "Adaptive over enumerated episodes"),
    "random": AgentEntry("edpbrl_gym.agents.tabular:RandomAgent", "Random"),
    "reinforce": AgentEntry("edpbrl_gym.agents.reinforce:ReinforceAgent", "REINFORCE"),
}
"""All agents by name; every planner's name is an agent's, but "random" plays legal actions of any environment."""


def agent_class(name: str) -> type[Agent]:
    """The class of an agent of the table, or of an import string; raises as ``class_of``."""
    planners = {name for name in PLANNERS if name != "random"}
    listed = f"{', '.join(sorted(set(AGENTS) - planners))}, a planner among {', '.join(sorted(planners))}"
    return class_of(name, AGENTS, Agent, kind="an agent", listed=listed)


def agent_needs(name: str) -> list[Need]:
    """The optional packages that an agent imports.

    Raises:
        ValueError, ImportError, TypeError: As for ``agent_class``.
    """
    return [Need(package, f"the agent {name!r}") for package in agent_class(name).needed_packages(**_fixed(name))]


def check_agent(name: str) -> None:
    """Raise for an agent that can't be made or could not learn: before minutes of work, not after.

    Raises:
        ModuleNotFoundError: If a package that its ``learn`` needs isn't installed; the message says what to install.
        ValueError, ImportError, TypeError: As for ``agent_class``.
    """
    check_installed(*agent_needs(name))


def make_agent(
    name: str,
    env: Any,
    *,
    num_options: int,
    episodes: int,
    regularization: float = 1.0,
    criterion: str | None = None,
    seed: int = 0,
    **options: Any,
) -> Agent:
    """Make an agent; call its ``learn()`` before it plays.

    Args:
        name: One of ``AGENTS``, such as "newton", "adaptive" or "bald"; or an import string "package.module:Class" of a
            user's own.
        env: Environment or vector environment that it will play.
        num_options: K, the options of a question.
        episodes: T, the episodes planned for.
        regularization: lambda of the estimate.
        criterion: Name of the design's criterion (`make_criterion`); None is the agent's own default, "V" for most.
        seed: Seed of the agent.
        **options: More arguments of that agent, such as ``max_iterations`` of ``frank_wolfe``.

    Returns:
        The agent.

    Raises:
        TypeError: If the agent has no such option; the message lists those that it has.
        ValueError: If the name or an argument is wrong.
        ModuleNotFoundError: If a package that it needs isn't installed; the message says what to install.
    """
    check_agent(name)
    cls, fixed = agent_class(name), _fixed(name)
    if criterion is not None:
        options["criterion"] = criterion
    try:
        return cls(
            env,
            num_options=num_options,
            episodes=episodes,
            regularization=regularization,
            seed=seed,
            **fixed,
            **options,
        )
    except TypeError as error:
        message = str(error)
        unknown = [key for key in options if key in fixed or f"unexpected keyword argument {key!r}" in message]
        if not unknown:
            raise
        known = ", ".join(cls.option_names(**fixed)) or "none"
        raise TypeError(f"The agent {name!r} has no option {unknown[0]!r}; its options: {known}.") from error


def _fixed(name: str) -> Mapping[str, Any]:
    """The options that a name stands for."""
    entry = AGENTS.get(known_name(name, AGENTS))
    return {} if entry is None else entry.options
