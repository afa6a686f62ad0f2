"""The arms of the benchmark by name: who asks, and in which format the user answers.

``ASKER[,option=value...][+answers]``, such as ``adaptive``, ``bald,prior=vocabulary`` or ``random+ranking``. An asker
is a planner of `edpbrl_gym.planners.PLANNERS`, whose options are those of `make_planner` and ``prior`` (one of
``PRIORS``), or one of ``DESIGNS``, whose questions are drawn before the first answer. The taste is estimated from the
answers of an arm in several ways: the table has a row for each estimator.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from edpbrl_gym.experiments.bench.regime import Regime
from edpbrl_gym.experiments.settings import AgentSettings
from edpbrl_gym.planners.registry import PLANNERS, planner_options

__all__ = ["ANSWERS", "DESIGNS", "ESTIMATORS", "KERNELS", "PRIORS", "Arm", "DesignEntry", "get_arm"]

ESTIMATORS: dict[str, str] = {
    "vocabulary": "vocabulary prior: embedding prior, scale from the answers, around the estimate",
    "global": "embedding prior, scale from the answers",
    "fixed": "embedding prior, lambda 0.1",
    "ridge-fit": "ridge, lambda from the answers",
    "ridge1": "ridge 1",
    "ridge100": "ridge 100 (the paper's)",
    "planner": "the planner's own estimate",
    "kernel": "ridge on linear and Fourier features, lambda from the answers",
    "kernel-global": "embedding prior on linear and Fourier features, scale from the answers",
}
"""Name of an estimator in the table -> what it is; see ``estimators.fit``."""

KERNELS: tuple[str, ...] = ("kernel", "kernel-global")
"""Estimators of tastes that are not linear: they take seconds, and are fitted in regimes that ask for them."""

PRIORS: tuple[str, ...] = ("vocabulary", "global", "fixed", "ridge1", "ridge100")
"""Estimators that are a prior, with which a planner can plan."""

ANSWERS: dict[str, str] = {"best": "best", "best-worst": "best_worst", "ranking": "ranking", "partial": "partial"}
"""Format in the name of an arm -> name of its response model; "partial" is a partial ranking of three taps."""


@dataclass(frozen=True)
class DesignEntry:
    """Questions that don't depend on the answers: all users of a seed answer the same ones.

    Attributes:
        agent: Registered agent.
        title: In tables and figures.
        family: "paper", "design" or "baseline".
        options: Of the agent.
        estimator: That belongs to it.
        learns_per_seed: Whether the agent's seed enters its ``learn`` (else one design serves all seeds).
        takes_feedback: Whether it is told the regime's kind of feedback.
    """

    agent: str
    title: str
    family: str
    options: Mapping[str, Any] = field(default_factory=dict)
    estimator: str = "vocabulary"
    learns_per_seed: bool = False
    takes_feedback: bool = False


_V: dict[str, Any] = {"criterion": "V", "regularization": 1.0}
_D: dict[str, Any] = {"criterion": "D", "regularization": 1.0}
_PAPER: dict[str, Any] = {"criterion": "V", "regularization": 100.0}

DESIGNS: dict[str, DesignEntry] = {
    "random": DesignEntry("random", "Random", "baseline", estimator="ridge1", learns_per_seed=True),
    "ed-pbrl": DesignEntry("newton", "ED-PBRL", "paper", _PAPER, "ridge100"),
    "ed-pbrl-exact": DesignEntry("exact", "ED-PBRL (exact)", "paper", _PAPER, "ridge100"),
    "v-design": DesignEntry("newton", "V-design (lambda 1)", "design", _V),
    "d-design": DesignEntry("newton", "D-design (lambda 1)", "design", _D),
    "exact-design": DesignEntry("exact", "Exact D-design (lambda 1)", "design", _D),
    "tuples": DesignEntry("tuples", "Tuples", "design", _D, learns_per_seed=True, takes_feedback=True),
    "tuples-state": DesignEntry("tuples", "Tuples chosen on tokens", "design", _D, learns_per_seed=True),
}
"""The paper's design (V, lambda = 100) is ``ed-pbrl`` as its text has it, ``ed-pbrl-exact`` as its scripts compute it
(K different policies)."""


@dataclass(frozen=True)
class Arm:
    """One way of asking and answering.

    Attributes:
        name: As on the command line.
        asker: Name in `PLANNERS` or ``DESIGNS``.
        options: Of the planner.
        answers: Format of an answer, one of ``ANSWERS``.
    """

    name: str
    asker: str
    options: Mapping[str, Any] = field(default_factory=dict)
    answers: str = "best"

    @property
    def design(self) -> DesignEntry | None:
        """What draws its questions before the first answer; None for a planner."""
        return DESIGNS.get(self.asker)

    @property
    def title(self) -> str:
        """In tables and figures."""
        entry = self.design or PLANNERS[self.asker]
        options = ", ".join(f"{key} {value}" for key, value in self.options.items())
        title = f"{entry.title} ({options})" if options else entry.title
        return title if self.answers == "best" else f"{title}, {self.answers} answers"

    @property
    def family(self) -> str:
        """That of the planner, or of the design."""
        return (self.design or PLANNERS[self.asker]).family

    @property
    def estimator(self) -> str:
        """The estimator that belongs to it."""
        return "planner" if self.design is None else self.design.estimator

    @property
    def estimators(self) -> tuple[str, ...]:
        """Those of its rows: all linear ones where Random asks, else the vocabulary prior and the one of its own."""
        if self.asker == "random":
            return tuple(name for name in ESTIMATORS if name not in ("planner", *KERNELS))
        return tuple(dict.fromkeys(("vocabulary", self.estimator)))

    @property
    def first_estimators(self) -> tuple[str, ...]:
        """Those of its rows in regimes of first answers.

        A planner that plans with the vocabulary prior has the estimate of that prior, and no row of its own.
        """
        if self.asker == "random":
            return ("vocabulary", "global", "ridge-fit", "ridge100")
        if self.family == "adaptive" and self.options.get("prior", "vocabulary") == "vocabulary":
            return ("vocabulary",)
        return tuple(dict.fromkeys(("vocabulary", self.estimator)))

    def runs_in(self, regime: Regime) -> bool:
        """Whether it can ask there.

        Other packages compare pairs out of a small pool, rollouts need several steps.
        """
        if self.design is None and PLANNERS[self.asker].family == "external":
            small = regime.num_items <= 100 if self.asker == "optuna" else regime.num_items <= 1000
            return regime.items and regime.num_options == 2 and small
        if regime.feedback == "prompt":  # all others ask a question at every step, or are designed to
            return self.asker == "random" or self.family == "adaptive"
        return not (regime.items and self.asker.startswith("rollout"))


def get_arm(name: str) -> Arm:
    """Read the name of an arm.

    Raises:
        ValueError: An unknown asker, option, prior or answer format; the message lists what there is.
    """
    text, *formats = name.split("+")
    if len(formats) > 1 or (formats and formats[0] not in ANSWERS):
        raise ValueError(f"Expected at the end of an arm a format of the answers ({_listed(ANSWERS)}), got {name!r}")
    answers = formats[0] if formats else "best"
    asker = AgentSettings.parse(text)
    if asker.name not in DESIGNS and asker.name not in PLANNERS:
        raise ValueError(f"Expected an arm that begins with {_listed({**DESIGNS, **PLANNERS})}, got {name!r}")
    if asker.name not in DESIGNS and PLANNERS[asker.name].family == "external" and answers != "best":
        raise ValueError(
            f"Expected best options as answers to {asker.name!r}, which learns from nothing else, got {name!r}"
        )
    known = [] if asker.name in DESIGNS else [*planner_options(asker.name), *_prior_option(asker.name)]
    for option in asker.options:
        if option not in known:
            raise ValueError(f"Expected options of {asker.name!r} among {_listed(known) or 'none'}, got {name!r}")
    prior = asker.options.get("prior", "vocabulary")
    if prior not in PRIORS:
        raise ValueError(f"Expected prior among {_listed(PRIORS)}, got {name!r}")
    return Arm(name, asker.name, asker.options, answers)


def _prior_option(planner: str) -> list[str]:
    """Other packages plan with a prior of their own."""
    return [] if PLANNERS[planner].family == "external" else ["prior"]


def _listed(names: Iterable[str]) -> str:
    return ", ".join(names)
