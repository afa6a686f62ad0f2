"""The arms of the benchmark by name: a rule that asks, an estimator, an answer format.

``rule+estimator[+answers]`` for rules whose questions don't depend on the answers, such as ``random+ours`` or
``tuples+ours+ranking``; ``adaptive[-piece][+answers]`` for the adaptive agent, which estimates by itself.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

__all__ = [
    "ABLATION_ARMS",
    "ADAPTIVE_RULES",
    "ANSWERS",
    "ESTIMATORS",
    "HEADLINE_ARMS",
    "SIDE_ARMS",
    "STATIC_RULES",
    "Arm",
    "AdaptiveRule",
    "StaticRule",
    "get_arm",
]


@dataclass(frozen=True)
class StaticRule:
    """Questions that don't depend on the answers: all users of a seed answer the same ones.

    Attributes:
        agent: Registered agent.
        title: In tables.
        options: Of the agent.
        learns_per_seed: Whether the agent's seed enters its ``learn`` (else one design serves all seeds).
        takes_feedback: Whether it is told the regime's kind of feedback.
    """

    agent: str
    title: str
    options: Mapping[str, Any] = field(default_factory=dict)
    learns_per_seed: bool = False
    takes_feedback: bool = False


_D_DESIGN: dict[str, Any] = {"criterion": "D", "regularization": 1.0}

STATIC_RULES: dict[str, StaticRule] = {
    "random": StaticRule("random", "Random", learns_per_seed=True),
    "static-V": StaticRule("newton", "V-design (lambda 1)", {"criterion": "V", "regularization": 1.0}),
    "static-V100": StaticRule("newton", "V-design (lambda 100)", {"criterion": "V", "regularization": 100.0}),
    "static-D": StaticRule("newton", "D-design (lambda 1)", _D_DESIGN),
    "exact": StaticRule("exact", "exact D-design", _D_DESIGN),
    "exact-V100": StaticRule("exact", "exact V-design (lambda 100)", {"criterion": "V", "regularization": 100.0}),
    "tuples": StaticRule("tuples", "tuples", _D_DESIGN, learns_per_seed=True, takes_feedback=True),
    "tuples-state": StaticRule("tuples", "tuples chosen on tokens", _D_DESIGN, learns_per_seed=True),
}


@dataclass(frozen=True)
class AdaptiveRule:
    """The adaptive agent, or it with one piece changed.

    Attributes:
        title: In tables.
        options: What differs from the defaults of ``AdaptivePlanner``; "prior" is a name of ``planners.make_planner``.
    """

    title: str
    options: Mapping[str, Any] = field(default_factory=dict)


ADAPTIVE_RULES: dict[str, AdaptiveRule] = {
    "adaptive": AdaptiveRule("adaptive"),
    "adaptive-best": AdaptiveRule("adaptive, seeks the best prompt", {"mode": "best"}),
    "adaptive-mutual": AdaptiveRule("adaptive, by mutual information", {"score": "mutual"}),
    "adaptive-theta-hat": AdaptiveRule("adaptive, at the estimate only", {"draws": 0}),
    "adaptive-global": AdaptiveRule("adaptive, without the prior around the estimate", {"prior": "global"}),
    "adaptive-fixed-scale": AdaptiveRule("adaptive, embedding prior of a fixed scale", {"prior": "fixed"}),
    "adaptive-ridge1": AdaptiveRule("adaptive, ridge 1", {"prior": "ridge1"}),
}

# name -> title; what they do is in estimators.fit
ESTIMATORS: dict[str, str] = {
    "ridge100": "ridge 100 (the paper's)",
    "ridge1": "ridge 1",
    "ridge-fit": "ridge, lambda from the answers",
    "fixed": "embedding prior, lambda 0.1",
    "global": "embedding prior, scale from the answers",
    "ours": "embedding prior, scale from the answers, around the estimate",
}

# name of the format in an arm -> name of its response model
ANSWERS: dict[str, str] = {"best": "best", "best-worst": "best_worst", "ranking": "ranking"}

HEADLINE_ARMS: tuple[str, ...] = ("random+ridge100", "random+ours", "static-D+ours", "tuples+ours", "adaptive")
SIDE_ARMS: tuple[str, ...] = HEADLINE_ARMS
ABLATION_ARMS: tuple[str, ...] = (
    "static-V100+ridge100",
    "random+ridge1",
    "random+ridge-fit",
    "random+fixed",
    "random+global",
    "static-V+ours",
    "exact+ours",
    "adaptive-best",
    "adaptive-mutual",
    "adaptive-theta-hat",
    "adaptive-global",
    "adaptive-fixed-scale",
    "adaptive-ridge1",
    "random+ours+best-worst",
    "random+ours+ranking",
    "adaptive+ranking",
)


@dataclass(frozen=True)
class Arm:
    """One way of asking, estimating and answering.

    Attributes:
        name: As on the command line.
        rule: Who asks.
        estimator: One of ``ESTIMATORS``, or "own" where the rule estimates by itself.
        answers: Format of an answer, one of ``ANSWERS``.
    """

    name: str
    rule: str
    estimator: str
    answers: str

    @property
    def adaptive(self) -> bool:
        """Whether its questions depend on the answers."""
        return self.rule in ADAPTIVE_RULES

    @property
    def title(self) -> str:
        """In tables."""
        asks = ADAPTIVE_RULES[self.rule].title if self.adaptive else STATIC_RULES[self.rule].title
        parts = [asks] if self.adaptive else [f"{asks} + {ESTIMATORS[self.estimator]}"]
        return " + ".join(parts if self.answers == "best" else [*parts, f"{self.answers} answers"])


def get_arm(name: str) -> Arm:
    """Read the name of an arm.

    Raises:
        ValueError: An unknown rule, estimator or answer format; the message lists what there is.
    """
    rule, *rest = name.split("+")
    adaptive = rule in ADAPTIVE_RULES
    if not adaptive and rule not in STATIC_RULES:
        raise ValueError(f"Expected an arm that begins with {_listed((*STATIC_RULES, *ADAPTIVE_RULES))}, got {name!r}")
    estimator = "own"
    if not adaptive:
        if not rest or rest[0] not in ESTIMATORS:
            raise ValueError(
                f"Expected an estimator ({_listed(ESTIMATORS)}) after {rule!r}, such as '{rule}+ours', got {name!r}"
            )
        estimator = rest.pop(0)
    if len(rest) > 1 or (rest and rest[0] not in ANSWERS):
        given = "the adaptive rules estimate by themselves, so only " if adaptive else ""
        raise ValueError(f"Expected at the end {given}a format of the answers ({_listed(ANSWERS)}), got {name!r}")
    return Arm(name, rule, estimator, rest[0] if rest else "best")


def _listed(names: Any) -> str:
    return ", ".join(names)
