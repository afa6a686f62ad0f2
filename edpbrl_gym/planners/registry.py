"""All planners by name: one table for sessions, agents, benchmarks and the command line; it imports no planner."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray

from edpbrl_gym._compat import Need, constructor_options, import_string
from edpbrl_gym._validation import check_choice_of

if TYPE_CHECKING:
    from edpbrl_gym._feedback import Feedback
    from edpbrl_gym.features import TextEncoder
    from edpbrl_gym.likelihood import ResponseModel
    from edpbrl_gym.planners.base import Planner
    from edpbrl_gym.planners.option_features import OptionFeatures
    from edpbrl_gym.planners.pool.base import Rule
    from edpbrl_gym.planners.tracking import TastePrior
    from edpbrl_gym.vocabulary import Vocabulary

__all__ = [
    "PLANNERS",
    "RULES",
    "PlannerEntry",
    "make_planner",
    "make_rule",
    "merged_options",
    "planner_class",
    "planner_needs",
    "planner_options",
    "rule_class",
    "takes_model",
]

Family = Literal["adaptive", "literature", "baseline", "external"]

_POOL = "edpbrl_gym.planners.pool"
# arguments that `make_planner` gives to the constructors that take them
_SHARED = {
    *("vocabulary", "sizes", "items", "options", "prior", "prior_variance"),
    *("num_options", "seed", "episodes", "model"),
}


@dataclass(frozen=True)
class PlannerEntry:
    """A row of the table.

    Attributes:
        path: "package.module:Class" of the planner.
        title: In tables and figures.
        family: "adaptive" (this package's), "literature" (rules for pools of items), "baseline", or "external" (other
            packages).
        adaptive: Whether its questions depend on the answers.
        options: With which the class is made.
    """

    path: str
    title: str
    family: Family
    adaptive: bool = True
    options: Mapping[str, Any] = field(default_factory=dict)


# name -> class of the rule below planners.pool, title, whether its questions depend on the answers
_RULES: dict[str, tuple[str, str, bool]] = {
    "random_distinct": ("batches:RandomQuestions", "Random, distinct options", False),
    "rollout_pool": ("batches:RolloutPool", "Random rollouts", False),
    "greedy_d": ("information:GreedyD", "Greedy D", False),
    "thinning": ("batches:Thinning", "Batch thinning", False),
    "adaptive_d": ("information:AdaptiveD", "Adaptive D", True),
    "adaptive_a": ("information:AdaptiveA", "Adaptive A", True),
    "adaptive_v": ("information:AdaptiveV", "Adaptive V", True),
    "bald": ("uncertainty:Bald", "BALD", True),
    "volume_removal": ("uncertainty:VolumeRemoval", "Volume removal", True),
    "apo": ("information:MaximumUncertainty", "APO (maximum uncertainty)", True),
    "directed_fisher": ("information:DirectedFisher", "Directed Fisher", True),
    "dopewolfe": ("batches:DopeWolfe", "DopeWolfe", False),
    "disagreement": ("uncertainty:Disagreement", "Ensemble disagreement", True),
    "idrl": ("best:Idrl", "IDRL", True),
    "qeubo": ("uncertainty:QEubo", "qEUBO", True),
    "dueling_thompson": ("best:DuelingThompson", "Dueling Thompson sampling", True),
    "maximum_regret": ("best:MaximumRegret", "Maximum regret", True),
    "naive": ("information:NaiveDesign", "Naive D (no cross terms)", False),
}

RULES: dict[str, str] = {name: f"{_POOL}.{path}" for name, (path, _, _) in _RULES.items()}
"""Rules of the literature, which choose a question from a pool; `RulePlanner` asks by them, each under its name."""


def _adaptive(title: str, **options: Any) -> PlannerEntry:
    return PlannerEntry("edpbrl_gym.planners.adaptive:AdaptivePlanner", title, "adaptive", True, options)


def _rule(rule: str, **options: Any) -> PlannerEntry:
    _, title, adaptive = _RULES[rule]
    family: Family = "baseline" if rule in ("random_distinct", "rollout_pool") else "literature"
    return PlannerEntry(f"{_POOL}.planner:RulePlanner", title, family, adaptive, {"rule": rule, **options})


def _rollouts(rule: str) -> PlannerEntry:
    _, title, adaptive = _RULES[rule]
    options = {"rule": "rollout_pool", "rule_options": {"rule": rule}}
    return PlannerEntry(f"{_POOL}.planner:RulePlanner", f"{title}, random rollouts", "baseline", adaptive, options)


def _botorch(acquisition: str, title: str) -> PlannerEntry:
    options = {"acquisition": acquisition}
    return PlannerEntry("edpbrl_gym.planners.external.pairwise_gp:PairwiseGPPlanner", title, "external", True, options)


PLANNERS: dict[str, PlannerEntry] = {
    "adaptive": _adaptive("Adaptive"),
    "adaptive-best": _adaptive("Adaptive, seeks the best", mode="best"),
    "adaptive-mutual": _adaptive("Adaptive, by mutual information", score="mutual"),
    "adaptive-theta-hat": _adaptive("Adaptive, at the estimate only", draws=0),
    "random": PlannerEntry("edpbrl_gym.planners.random:RandomPlanner", "Random", "baseline", False),
    **{name: _rule(name) for name in _RULES},
    **{f"rollouts-{name}": _rollouts(name) for name in ("bald", "adaptive_a", "adaptive_d")},
    "botorch-bald": _botorch("bald", "BoTorch, BALD"),
    "botorch-eubo": _botorch("eubo", "BoTorch, EUBO"),
    "optuna": PlannerEntry("edpbrl_gym.planners.external.optuna_gp:OptunaGPPlanner", "Optuna", "external"),
}


def planner_class(name: str) -> type[Planner]:
    """The class of a planner of the table, or of an import string "package.module:Class".

    Raises:
        ValueError: An unknown name; the message lists the known ones.
        ImportError: The module or the class of an import string can't be found.
        TypeError: What it names is no subclass of `Planner`.
    """
    from edpbrl_gym.planners.base import Planner

    if name not in PLANNERS and ":" not in name:
        raise ValueError(
            f"Expected a planner among {', '.join(PLANNERS)}, or an import string such as "
            f"'my_package.my_module:MyPlanner', got {name!r}"
        )
    cls = import_string(PLANNERS[name].path if name in PLANNERS else name, "planner")
    if not (isinstance(cls, type) and issubclass(cls, Planner)):
        raise TypeError(f"Expected {name!r} to be a subclass of edpbrl_gym.planners.Planner, got {cls!r}")
    return cls


def planner_needs(name: str) -> list[Need]:
    """The optional packages that a planner imports.

    Raises:
        ValueError, ImportError, TypeError: As for ``planner_class``.
    """
    return [Need(package, f"the planner {name!r}") for package in planner_class(name).needs]


def takes_model(name: str) -> bool:
    """Whether a planner learns from answers of any format, not from best options alone.

    Raises:
        ValueError, ImportError, TypeError: As for ``planner_class``.
    """
    return "model" in constructor_options(planner_class(name))


def make_planner(
    name: str,
    vocabulary: Vocabulary,
    features: OptionFeatures | TextEncoder,
    *,
    feedback: Feedback = "truncated",
    prior: TastePrior | None = None,
    num_options: int = 4,
    seed: int = 0,
    episodes: int | None = None,
    model: ResponseModel | None = None,
    **options: Any,
) -> Planner:
    """Make a planner that asks about the prompts of a vocabulary.

    Args:
        name: One of `PLANNERS`, or an import string "package.module:Class" of a planner of one's own.
        vocabulary: The tokens; one step makes it a pool of items.
        features: Features of options: `ComposedFeatures` for partial prompts, `TokenFeatures` for tokens and items,
            `PromptFeatures` for complete prompts. Or the encoder of prompts, from which those of ``feedback`` are made.
        feedback: What questions compare, where ``features`` is an encoder.
        prior: Of the taste, a `VocabularyPrior`, a `GaussianPrior` or a `Population`, which for a person unlike all
            others falls back on the `VocabularyPrior` of the tokens unless it has a fallback of its own; None: the
            planner's own, `VocabularyPrior` of the tokens for most, N(0, I) for the rules of the literature and for
            other packages, as published.
        num_options: K.
        seed: Of its draws.
        episodes: T, for planners that plan all questions at once.
        model: Format of the answers; None: the best option.
        **options: More arguments of its class, such as ``score`` of `AdaptivePlanner`.

    Returns:
        The planner; its ``name`` is that of the table.

    Raises:
        TypeError: It has no such option; the message lists those that it has.
        ValueError: An unknown name, or an argument out of range.
        ModuleNotFoundError: A package that it needs isn't installed; the message says what to install.
    """
    from edpbrl_gym.features import TextEncoder
    from edpbrl_gym.planners.option_features import option_features

    cls, chosen = planner_class(name), merged_options(name, options)
    if isinstance(features, TextEncoder):
        features = option_features(feedback, vocabulary, features.encode(vocabulary.all_tokens), features)
    wanted = set(constructor_options(cls))
    if model is not None and "model" not in wanted:
        raise ValueError(f"Expected no model of the answers for the planner {name!r}: it learns from best options only")
    shared: dict[str, Any] = {
        "vocabulary": vocabulary,
        "sizes": vocabulary.sizes,
        "options": features,
        "num_options": num_options,
        "seed": seed,
        "episodes": episodes,
        "model": model,
    }
    if "prior" in wanted:
        shared["prior"] = _prior(cls, prior, features.token_features)
    if "prior_variance" in wanted:
        shared["prior_variance"] = _variance(prior)
    if "items" in wanted:
        shared["items"] = _items(name, vocabulary, features)
    planner = cls(**{key: value for key, value in shared.items() if key in wanted}, **chosen)
    if name in PLANNERS:
        planner.name = name
    return planner


def _prior(cls: type[Planner], given: TastePrior | None, tokens: NDArray[np.floating]) -> TastePrior:
    """The prior of a planner; a population without a fallback of its own falls back on that of the tokens."""
    from edpbrl_gym.estimation.neighbourhood import VocabularyPrior
    from edpbrl_gym.estimation.population import Population

    if given is None:
        return cls.default_prior(tokens)
    if isinstance(given, Population) and given.fallback is None:
        return given.with_fallback(VocabularyPrior(tokens))
    return given


def _items(name: str, vocabulary: Vocabulary, features: OptionFeatures) -> NDArray[np.floating]:
    if len(vocabulary.sizes) != 1:
        raise ValueError(
            f"Expected a vocabulary of one step for the planner {name!r}, which asks about a pool of items, got "
            f"{len(vocabulary.sizes)} steps"
        )
    return features.tokens(0)


def _variance(prior: TastePrior | None) -> float:
    """The variance of a prior N(0, variance I); None is N(0, I)."""
    from edpbrl_gym.estimation import GaussianPrior

    if prior is None:
        return 1.0
    if isinstance(prior, GaussianPrior) and not prior.mean.any():
        precision = float(prior.precision[0, 0])
        if precision > 0 and np.array_equal(prior.precision, precision * np.eye(prior.dimension)):
            return 1.0 / precision
    raise ValueError("Expected the prior N(0, I / lambda), GaussianPrior.isotropic: the package takes no other")


def planner_options(name: str) -> list[str]:
    """What `make_planner` takes for a planner besides its own arguments, sorted.

    Raises:
        ValueError, ImportError, TypeError: As for ``planner_class``.
    """
    fixed = PLANNERS[name].options if name in PLANNERS else {}
    return sorted({*constructor_options(planner_class(name))} - _SHARED - {*fixed})


def merged_options(name: str, options: Mapping[str, Any]) -> dict[str, Any]:
    """A planner's options, those of the table among them.

    Raises:
        TypeError: It has no such option; the message lists those that it has.
        ValueError, ImportError: As for ``planner_class``.
    """
    known = planner_options(name)
    for option in options:
        if option not in known:
            raise TypeError(
                f"The planner {name!r} has no option {option!r}; its options: {', '.join(known) or 'none'}."
            )
    return {**(PLANNERS[name].options if name in PLANNERS else {}), **options}


def rule_class(name: str) -> type[Rule]:
    """The class of a rule.

    Raises:
        ValueError: An unknown name; the message lists the known ones.
    """
    cls: type[Rule] = import_string(RULES[check_choice_of(name, "rule", tuple(RULES))], "rule")
    return cls


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
    known = constructor_options(cls)
    unknown = sorted(set(options) - set(known))
    if unknown:
        raise TypeError(f"The rule {name!r} has no option {unknown[0]!r}; its options: {', '.join(known) or 'none'}.")
    return cls(**options)
