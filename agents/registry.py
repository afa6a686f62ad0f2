"""Make agents by name or by import string."""

from __future__ import annotations

import inspect
from typing import Any

from edpbrl_gym._compat import import_string, need
from edpbrl_gym.agents.base import Agent
from edpbrl_gym.planners.registry import RULES

__all__ = ["AGENTS", "agent_class", "check_agent", "make_agent"]

AGENTS: dict[str, str] = {
    "newton": "edpbrl_gym.agents.newton:NewtonAgent",
    "exact": "edpbrl_gym.agents.exact:ExactAgent",
    "tuples": "edpbrl_gym.agents.tuples:TuplesAgent",
    "adaptive": "edpbrl_gym.agents.adaptive:AdaptiveAgent",
    "rule": "edpbrl_gym.agents.rule:RuleAgent",
    "reinforce": "edpbrl_gym.agents.reinforce:ReinforceAgent",
    "random": "edpbrl_gym.agents.random:RandomAgent",
    "frank_wolfe": "edpbrl_gym.agents.frank_wolfe:FrankWolfeAgent",
    "reference": "edpbrl_gym.agents.reference:ReferenceAgent",
}


def agent_class(name: str) -> type[Agent]:
    """Return the agent class of a registered name, of a rule, or of an import string "package.module:Class".

    Raises:
        ValueError: If the name is unknown; the message lists the known ones.
        ImportError: If the module or the class of an import string can't be found.
        TypeError: If ``name`` is no string, or what it names is no subclass of ``Agent``.
    """
    if not isinstance(name, str):
        raise TypeError(
            f"Expected the name of an agent or an import string, got {name!r}; a class can be called directly, without "
            "make_agent."
        )
    path = AGENTS["rule"] if _is_rule(name) else AGENTS.get(name, name)
    module_name, colon, class_name = path.partition(":")
    if not colon or not module_name or not class_name:
        raise ValueError(
            f"Expected an agent among {', '.join(sorted(AGENTS))}, a rule of the literature among "
            f"{', '.join(sorted(set(RULES) - set(AGENTS)))}, or an import string such as "
            f"'my_package.my_module:MyAgent', got {name!r}."
        )
    found = import_string(path, "agent")
    if not (isinstance(found, type) and issubclass(found, Agent)):
        raise TypeError(
            f"Expected {name!r} to be a subclass of edpbrl_gym.agents.base.Agent, got {found!r}; inherit from it."
        )
    return found


def check_agent(name: str) -> None:
    """Raise for an agent that can't be made or could not learn: before minutes of work, not after.

    Raises:
        ModuleNotFoundError: If a package that its ``learn`` needs isn't installed; the message says what to install.
        ValueError, ImportError, TypeError: As for ``agent_class``.
    """
    for package, extra in agent_class(name).needs:
        need(package, f"the agent {name!r}", extra)


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
        name: One of ``AGENTS``, such as "newton" or "adaptive"; a rule of the literature, such as "bald"
            (``planners.pool.registry.RULES``); or an import string "package.module:Class" of a user's own.
        env: Environment or vector environment that it will play.
        num_options: K, the options of a question.
        episodes: T, the episodes planned for.
        regularization: lambda of the estimate.
        criterion: "V" (the paper's), "A" or "D"; None is the agent's own default, "V" for most.
        seed: Seed of the agent.
        **options: More arguments of that agent, such as ``max_iterations`` of ``frank_wolfe``.

    Returns:
        The agent.

    Raises:
        TypeError: If the agent has no such option; the message lists those that it has.
        ValueError: If the name or an argument is wrong.
    """
    cls = agent_class(name)
    if _is_rule(name):
        if "rule" in options:
            raise TypeError(f"The agent {name!r} is a rule itself and has no option 'rule'; the agent 'rule' has.")
        options["rule"] = name
    if criterion is not None:
        options["criterion"] = criterion
    try:
        return cls(
            env,
            num_options=num_options,
            episodes=episodes,
            regularization=regularization,
            seed=seed,
            **options,
        )
    except TypeError as error:
        unknown = [option for option in options if f"unexpected keyword argument {option!r}" in str(error)]
        if not unknown:
            raise
        known = ", ".join(one for one in _own_options(cls) if not (_is_rule(name) and one == "rule")) or "none"
        raise TypeError(f"The agent {name!r} has no option {unknown[0]!r}; its options: {known}.") from error


def _is_rule(name: str) -> bool:
    return name not in AGENTS and name in RULES


def _own_options(cls: type[Agent]) -> list[str]:
    """Names of the constructor's arguments that not every agent has, through all ``**arguments`` of its bases."""
    names: set[str] = set()
    for base in cls.__mro__:
        if "__init__" not in vars(base):
            continue
        parameters = inspect.signature(vars(base)["__init__"]).parameters.values()
        names |= {p.name for p in parameters if p.kind not in (p.VAR_KEYWORD, p.VAR_POSITIONAL)}
        if not any(p.kind is p.VAR_KEYWORD for p in parameters):
            break
    return sorted(names - set(inspect.signature(Agent.__init__).parameters))
