"""The arms of the benchmark by name: who asks, in which format the user answers, and how the taste is estimated.

``ASKER[,option=value...][+answers]``, such as ``adaptive``, ``bald,prior=vocabulary`` or ``random+ranking``. An asker
is a planner of `edpbrl_gym.planners.PLANNERS`, whose options are those of `make_planner` and ``prior`` (one of
``PRIORS``), or one of ``DESIGNS``, whose questions are drawn before the first answer. The taste is estimated from the
answers of an arm in several ways: the table has a row for each estimator.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

import benchmarks.external_planners  # noqa: F401  (adds the planners of other packages to the table)
from benchmarks.planners.regimes import Regime
from edpbrl_gym._arrays import Floats
from edpbrl_gym._validation import check_choice_of
from edpbrl_gym.estimation import GaussianPrior
from edpbrl_gym.estimation.evidence import fit_given, fit_prior
from edpbrl_gym.estimation.neighbourhood import VocabularyPrior
from edpbrl_gym.estimation.other_texts import other_texts
from edpbrl_gym.estimation.sampling import sample_parts
from edpbrl_gym.experiments.settings import AgentSettings
from edpbrl_gym.likelihood import Terms
from edpbrl_gym.planners.registry import PLANNERS, planner_options

if TYPE_CHECKING:
    from benchmarks.planners.worlds import World

PRIORS: tuple[str, ...] = ("vocabulary", "ridge1", "ridge100", "alone")
"""Estimators that are a prior, with which a planner can plan; see ``make_prior``."""

ESTIMATORS: tuple[str, ...] = ("vocabulary", "ridge1", "ridge100")
"""Those of prompt MDPs but "planner", the planner's own estimate. Of first answers there are "ridge-fit", the ridge
with lambda from the answers, "alone", and "ideal", which knows more than any estimator can: `ideal_prior`."""

ANSWERS: dict[str, str] = {"best": "best", "best-worst": "best_worst", "ranking": "ranking", "partial": "partial"}
"""Format in the name of an arm -> name of its response model; "partial" is a partial ranking of three taps."""


@dataclass(frozen=True)
class DesignEntry:
    """Questions that don't depend on the answers: all users of a seed answer the same ones."""

    agent: str  # registered
    title: str
    family: str  # "paper" or "baseline"
    options: Mapping[str, Any]  # of the agent
    estimator: str  # that belongs to it


_D: dict[str, Any] = {"criterion": "D", "regularization": 1.0}
_PAPER: dict[str, Any] = {"criterion": "V", "regularization": 100.0}

DESIGNS: dict[str, DesignEntry] = {
    "random": DesignEntry("random", "Random", "baseline", _D, "ridge1"),
    "ed-pbrl": DesignEntry("newton", "ED-PBRL", "paper", _PAPER, "ridge100"),
    "ed-pbrl-exact": DesignEntry("exact", "ED-PBRL (exact)", "paper", _PAPER, "ridge100"),
}
"""The paper's design (V, lambda = 100) is ``ed-pbrl`` as its text has it, ``ed-pbrl-exact`` as its scripts compute it
(K different policies)."""

# "rollout_pool" draws at random unless it is given a rule: those are rollouts-...
PLANNED: tuple[str, ...] = tuple(
    name for name, entry in PLANNERS.items() if entry.family != "adaptive" and name != "rollout_pool"
)
"""The planners of the race beside the adaptive ones."""


@dataclass(frozen=True)
class Arm:
    """One way of asking and answering."""

    name: str
    asker: str  # of `PLANNERS` or ``DESIGNS``
    options: Mapping[str, Any]  # of the planner
    answers: str  # format, of ``ANSWERS``

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

    def estimators(self, regime: Regime) -> tuple[str, ...]:
        """Those of its rows: where Random asks all that are compared, else the vocabulary prior and the one of its own.

        In regimes of first answers a planner that plans with the vocabulary prior has no row of its own.
        """
        if self.asker == "random":
            return _of_first_answers(regime) if regime.first else ESTIMATORS
        if regime.first and self.family == "adaptive" and self.options.get("prior", "vocabulary") == "vocabulary":
            return ("vocabulary",)
        return tuple(dict.fromkeys(("vocabulary", self.estimator)))

    def runs_in(self, regime: Regime) -> bool:
        """Whether it can ask there: other packages compare pairs out of a small pool, rollouts need several steps."""
        if self.family == "external":
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
        raise ValueError(f"Expected at the end of an arm a format of the answers ({', '.join(ANSWERS)}), got {name!r}")
    answers = formats[0] if formats else "best"
    asker = AgentSettings.parse(text)
    if asker.name not in DESIGNS and asker.name not in PLANNERS:
        raise ValueError(f"Expected an arm that begins with {', '.join({**DESIGNS, **PLANNERS})}, got {name!r}")
    external = asker.name not in DESIGNS and PLANNERS[asker.name].family == "external"
    if external and answers != "best":
        raise ValueError(
            f"Expected best options as answers to {asker.name!r}, which learns from nothing else, got {name!r}"
        )
    # other packages plan with a prior of their own
    known = [] if asker.name in DESIGNS else [*planner_options(asker.name), *([] if external else ["prior"])]
    for option in asker.options:
        if option not in known:
            raise ValueError(f"Expected options of {asker.name!r} among {', '.join(known) or 'none'}, got {name!r}")
    if asker.options.get("prior", "vocabulary") not in PRIORS:
        raise ValueError(f"Expected prior among {', '.join(PRIORS)}, got {name!r}")
    return Arm(name, asker.name, asker.options, answers)


# -- estimates and priors ---------------------------------------------------------------------------------------------

_RIDGES = {"ridge100": 100.0, "ridge1": 1.0}


@dataclass(frozen=True, eq=False)
class Fit:
    """An estimate as the benchmark needs it."""

    theta: Floats  # (d,)
    converged: bool  # whether it is the maximiser to the tolerance


@functools.lru_cache(maxsize=16)
def make_prior(name: str, world: World) -> VocabularyPrior | GaussianPrior:
    """A prior of a world's tastes from the embeddings of its vocabulary.

    "vocabulary" is the library's default, `VocabularyPrior` beside other texts where the vocabulary is small, "alone"
    without these, "ridge1" and "ridge100" are lambda I.
    """
    check_choice_of(name, "prior", PRIORS)
    if name in _RIDGES:
        return GaussianPrior.isotropic(world.tokens.shape[1], _RIDGES[name])
    if name == "vocabulary":
        return VocabularyPrior(world.tokens, others=other_texts(world.vocabulary, world.encoder()))
    return VocabularyPrior(world.tokens)


_IDEAL_DRAWS = 640  # of its exact posterior, whose mean is the estimate
_NO_NOISE = 100.0  # scale that stands for users who never err


@functools.lru_cache(maxsize=16)
def ideal_prior(world: World, regime: Regime) -> GaussianPrior:
    """What nobody knows: mean and covariance of the tastes "composed", and the scale of the user (100: no noise)."""
    assert world.sentences is not None, "the worlds of such tastes have sentences"
    rows = world.sentences.astype(np.float64)
    scale = _NO_NOISE if regime.mode == "argmax" else regime.scale
    covariance = np.cov(rows, rowvar=False)
    covariance += 1e-3 * np.trace(covariance) / len(covariance) * np.eye(len(covariance))
    return GaussianPrior.from_covariance(scale**2 * covariance, scale * rows.mean(axis=0))


def _of_first_answers(regime: Regime) -> tuple[str, ...]:
    names = ["vocabulary", "ridge-fit"]
    if regime.vocabulary != "images":  # which is large, and has no other texts
        names.append("alone")
    return (*names, "ideal") if regime.taste == "composed" else tuple(names)


def fit(name: str, terms: Terms, world: World, regime: Regime) -> Fit:
    """Estimate the taste under a prior by its name; "ridge-fit" is lambda I with lambda by the evidence."""
    if name == "ideal":
        best = fit_given(terms, ideal_prior(world, regime))
        draws = sample_parts(best.parts, best.weights, terms, draws=_IDEAL_DRAWS, seed=0)
        return Fit(draws.mean(axis=0), bool(best.estimate.converged))
    if name == "ridge-fit":
        best = fit_prior(terms, base=GaussianPrior.isotropic(terms.dimension, 1.0)).estimate
        return Fit(best.theta, bool(best.converged))
    best = make_prior(name, world).fit(terms).estimate
    return Fit(best.theta, bool(best.converged))
