"""Make agents by name or by import string."""

from __future__ import annotations

import importlib
from typing import Any

from edpbrl_gym.agents.base import Agent

__all__ = ["AGENTS", "agent_class", "make_agent"]

AGENTS: dict[str, str] = {
    "random": "edpbrl_gym.agents.random:RandomAgent",
    "frank_wolfe": "edpbrl_gym.agents.frank_wolfe:FrankWolfeAgent",
    "reference": "edpbrl_gym.agents.reference:ReferenceAgent",
}


def agent_class(name: str) -> type[Agent]:
    """Return the agent class of a registered name or of an import string "package.module:Class".

    Raises:
        ValueError: If the name is unknown; the message lists the known ones.
        ImportError: If the module or the class of an import string can't be found.
        TypeError: If it is no subclass of ``Agent``.
    """
    path = AGENTS.get(name, name)
    module_name, colon, class_name = path.partition(":")
    if not colon or not module_name or not class_name:
        raise ValueError(
            f"Expected an agent among {', '.join(sorted(AGENTS))}, or an import string such as "
            f"'my_package.my_module:MyAgent', got {name!r}."
        )
    try:
        module = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        if error.name is not None and (module_name == error.name or module_name.startswith(f"{error.name}.")):
            raise ImportError(
                f"Expected an importable module {module_name!r} for the agent {name!r}, there is none; is it on the "
                "Python path?"
            ) from error
        raise
    found = getattr(module, class_name, None)
    if found is None:
        raise ImportError(f"The module {module_name!r} has no {class_name!r}, asked for by the agent {name!r}.")
    if not (isinstance(found, type) and issubclass(found, Agent)):
        raise TypeError(
            f"Expected {name!r} to be a subclass of edpbrl_gym.agents.base.Agent, got {found!r}; inherit from it."
        )
    return found


def make_agent(
    name: str,
    env: Any,
    *,
    num_policies: int,
    episodes: int,
    regularization: float = 1.0,
    criterion: str = "V",
    seed: int = 0,
    **options: Any,
) -> Agent:
    """Make an agent; call its ``learn()`` before it plays.

    Args:
        name: "random", "frank_wolfe", "reference", or an import string "package.module:Class" of a user's own.
        env: Environment or vector environment that it will play.
        num_policies: K, the options of a question.
        episodes: T, the episodes planned for.
        regularization: lambda of the estimate.
        criterion: "V" (the paper's), "A" or "D".
        seed: Seed of the agent.
        **options: More arguments of that agent, such as ``max_iterations`` of ``frank_wolfe``.

    Returns:
        The agent.
    """
    return agent_class(name)(
        env,
        num_policies=num_policies,
        episodes=episodes,
        regularization=regularization,
        criterion=criterion,
        seed=seed,
        **options,
    )
