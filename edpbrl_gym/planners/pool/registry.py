"""Make rules of the literature by name."""

from __future__ import annotations

import importlib
import inspect
from typing import Any

from edpbrl_gym._validation import check_choice_of
from edpbrl_gym.planners.pool.base import Rule

__all__ = ["RULES", "make_rule", "rule_class"]

_ROOM = "edpbrl_gym.planners.pool"

RULES: dict[str, str] = {
    "random": "batches:RandomQuestions",
    "rollout_pool": "batches:RolloutPool",
    "greedy_d": "information:GreedyD",
    "thinning": "batches:Thinning",
    "adaptive_d": "information:AdaptiveD",
    "adaptive_a": "information:AdaptiveA",
    "adaptive_v": "information:AdaptiveV",
    "bald": "uncertainty:Bald",
    "volume_removal": "uncertainty:VolumeRemoval",
    "apo": "information:MaximumUncertainty",
    "directed_fisher": "information:DirectedFisher",
    "dopewolfe": "batches:DopeWolfe",
    "disagreement": "uncertainty:Disagreement",
    "idrl": "best:Idrl",
    "qeubo": "uncertainty:QEubo",
    "dueling_thompson": "best:DuelingThompson",
    "maximum_regret": "best:MaximumRegret",
    "naive": "information:NaiveDesign",
}
"""Name of each rule and where its class is: module of this room, and class."""


def rule_class(name: str) -> type[Rule]:
    """The class of a rule.

    Raises:
        ValueError: An unknown name; the message lists the known ones.
    """
    module, _, cls = RULES[check_choice_of(name, "rule", tuple(RULES))].partition(":")
    found: type[Rule] = getattr(importlib.import_module(f"{_ROOM}.{module}"), cls)
    return found


def make_rule(name: str, **options: Any) -> Rule:
    """A rule of the literature.

    Args:
        name: One of `RULES`.
        **options: Of that rule, such as ``starts`` of the rules that search (see `ScoreRule`).

    Raises:
        TypeError: The rule has no such option; the message lists those that it has.
        ValueError: An unknown name, or an option out of range.
    """
    cls = rule_class(name)
    known = _options(cls)
    unknown = sorted(set(options) - set(known))
    if unknown:
        raise TypeError(f"The rule {name!r} has no option {unknown[0]!r}; its options: {', '.join(known) or 'none'}.")
    return cls(**options)


def _options(cls: type[Rule]) -> list[str]:
    """Names of the constructor's arguments, through all ``**arguments`` of its bases."""
    names: dict[str, None] = {}
    for base in cls.__mro__:
        if "__init__" not in vars(base):
            continue
        parameters = list(inspect.signature(vars(base)["__init__"]).parameters.values())[1:]
        names |= {p.name: None for p in parameters if p.kind not in (p.VAR_KEYWORD, p.VAR_POSITIONAL)}
        if not any(p.kind is p.VAR_KEYWORD for p in parameters):
            break
    return list(names)
