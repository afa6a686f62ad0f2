"""All planners by name: one table for sessions, agents, benchmarks and the command line; it imports no planner."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, cast

from edpbrl_gym._compat import Need, class_of, constructor_options, import_string
from edpbrl_gym._validation import check_choice_of, check_count, known_name

if TYPE_CHECKING:
    from edpbrl_gym._validation import Feedback
    from edpbrl_gym.estimation.taste_prior import TastePrior
    from edpbrl_gym.features import TextEncoder
    from edpbrl_gym.likelihood import AnswerFormat
    from edpbrl_gym.planners.base import Planner
    from edpbrl_gym.planners.option_features import OptionFeatures
    from edpbrl_gym.planners.rules.search import Kind, Rule
    from edpbrl_gym.vocabulary import Vocabulary

__all__ = [
    "PLANNERS",
    "RULES",
    "PlannerEntry",
    "RuleEntry",
    "make_planner",
    "make_rule",
    "merged_options",
    "planner_class",
    "planner_needs",
    "planner_options",
    "rule_function",
    "takes_model",
]

Family = Literal["adaptive", "literature", "baseline", "external"]

_ADAPTIVE = "edpbrl_gym.planners.adaptive:AdaptivePlanner"
_RULES = "edpbrl_gym.planners.rules"
# smallest values of the counts among the options of rules
_LEAST = {"starts": 1, "exhaustive": 0, "attempts": 0, "subsets": 1, "iterations": 1, "size": 2}
# arguments that `make_planner` gives to the constructors that take them
_SHARED = {"vocabulary", "sizes", "options", "prior", "num_options", "seed", "episodes", "model"}


@dataclass(frozen=True)
class PlannerEntry:
    """A row of the table.

    Attributes:
        path: "package.module:Class" of the planner.
        title: In tables and figures.
        family: "adaptive" (this package's), "literature" (rules for pools of items), "baseline", or "external" (other
            packages').
        adaptive: Whether its questions depend on the answers.
        options: With which the class is made.
    """

    path: str
    title: str
    family: Family
    adaptive: bool = True
    options: Mapping[str, Any] = field(default_factory=dict)


class RuleEntry(NamedTuple):
    """A row of the table of rules: "module:function" in `planners.rules`, and as in `PlannerEntry` and `Rule`."""

    path: str
    title: str
    adaptive: bool = True
    kind: Kind = "value"


RULES: dict[str, RuleEntry] = {
    "random_distinct": RuleEntry("batches:random_distinct", "Random, distinct options", False, "question"),
    "rollout_pool": RuleEntry("batches:rollout_pool", "Random rollouts", False, "rollouts"),
    "greedy_d": RuleEntry("information:greedy_d", "Greedy D", False),
    "thinning": RuleEntry("batches:thinning", "Batch thinning", False, "batch"),
    "adaptive_d": RuleEntry("information:adaptive_d", "Adaptive D"),
    "adaptive_a": RuleEntry("information:adaptive_a", "Adaptive A"),
    "adaptive_v": RuleEntry("information:adaptive_v", "Adaptive V"),
    "bald": RuleEntry("uncertainty:bald", "BALD"),
    "volume_removal": RuleEntry("uncertainty:volume_removal", "Volume removal"),
    "apo": RuleEntry("information:apo", "APO (maximum uncertainty)"),
    "directed_fisher": RuleEntry("information:directed_fisher", "Directed Fisher"),
    "dopewolfe": RuleEntry("batches:dopewolfe", "DopeWolfe", False, "batch"),
    "disagreement": RuleEntry("uncertainty:disagreement", "Ensemble disagreement"),
    "idrl": RuleEntry("information:idrl", "IDRL"),
    "qeubo": RuleEntry("uncertainty:qeubo", "qEUBO"),
    "dueling_thompson": RuleEntry("favourites:dueling_thompson", "Dueling Thompson sampling", True, "question"),
    "maximum_regret": RuleEntry("favourites:maximum_regret", "Maximum regret", True, "question"),
    "naive": RuleEntry("information:naive", "Naive D (no cross terms)", False),
}
"""Rules of the literature, which choose a question from a pool; `RulePlanner` asks by them, each under its name."""


def _rule(rule: str, *, rollouts: bool = False) -> PlannerEntry:
    entry = RULES[rule]
    options: dict[str, Any] = {"rule": rule}
    if rollouts:
        options = {"rule": "rollout_pool", "rule_options": options}
    family: Family = "baseline" if rollouts or rule in ("random_distinct", "rollout_pool") else "literature"
    title = f"{entry.title}, random rollouts" if rollouts else entry.title
    return PlannerEntry(f"{_RULES}.planner:RulePlanner", title, family, entry.adaptive, options)


PLANNERS: dict[str, PlannerEntry] = {
    "adaptive": PlannerEntry(_ADAPTIVE, "Adaptive", "adaptive"),
    "adaptive-best": PlannerEntry(_ADAPTIVE, "Adaptive, seeks the best", "adaptive", options={"mode": "best"}),
    "adaptive-mutual": PlannerEntry(
        _ADAPTIVE, "Adaptive, by mutual information", "adaptive", options={"score": "mutual"}
    ),
    "adaptive-theta-hat": PlannerEntry(_ADAPTIVE, "Adaptive, at the estimate only", "adaptive", options={"draws": 0}),
    "random": PlannerEntry("edpbrl_gym.planners.random:RandomPlanner", "Random", "baseline", False),
    **{name: _rule(name) for name in RULES},
    **{f"rollouts-{name}": _rule(name, rollouts=True) for name in ("bald", "adaptive_a", "adaptive_d")},
}


def planner_class(name: str) -> type[Planner]:
    """The class of a planner of the table, or of an import string; raises as ``class_of``."""
    from edpbrl_gym.planners.base import Planner

    return class_of(name, PLANNERS, Planner, kind="a planner", listed=", ".join(PLANNERS))


def planner_needs(name: str) -> list[Need]:
    """The optional packages that a planner imports; raises as ``planner_class``."""
    return [Need(package, f"the planner {name!r}") for package in planner_class(name).needs]


def takes_model(name: str) -> bool:
    """Whether a planner learns from answers of any format, not from best options alone; raises as ``planner_class``."""
    return "model" in constructor_options(planner_class(name))


def make_planner(
    name: str,
    vocabulary: Vocabulary,
    features: OptionFeatures | TextEncoder,
    *,
    feedback: Feedback = "truncated",
    prior: TastePrior | str | None = None,
    num_options: int = 4,
    seed: int = 0,
    episodes: int | None = None,
    model: AnswerFormat | None = None,
    **options: Any,
) -> Planner:
    """Make a planner that asks about the prompts of a vocabulary.

    Args:
        name: One of `PLANNERS`, or an import string "package.module:Class" of a planner of one's own.
        vocabulary: The tokens; one step makes it a pool of items.
        features: Features of options: `ComposedFeatures` for partial prompts, `TokenFeatures` for tokens and items,
            `PromptFeatures` for complete prompts. Or the encoder of prompts, from which those of ``feedback`` are made.
        feedback: What questions compare, where ``features`` is an encoder.
        prior: Of the taste, by itself or by its name in `PRIORS`, made of the tokens. A `Population` falls back on the
            `VocabularyPrior` of the tokens for a person unlike all others, unless it has a fallback of its own. None:
            the planner's own, `VocabularyPrior` of the tokens for most, or where the encoder joins several
            `BlocksPrior`, on a pool `ItemsPrior`; N(0, I) for the rules of the literature and for other packages, as
            published.
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
    from edpbrl_gym.estimation import VocabularyPrior
    from edpbrl_gym.estimation.other_texts import other_texts
    from edpbrl_gym.estimation.priors import make_prior
    from edpbrl_gym.features import as_encoder, blocks_of, embed_tokens
    from edpbrl_gym.planners.option_features import option_features

    name = known_name(name, PLANNERS)
    cls, chosen = planner_class(name), merged_options(name, options)
    if hasattr(features, "token_features"):
        described = cast("OptionFeatures", features)
    else:
        described = option_features(feedback, vocabulary, embed_tokens(vocabulary, features), as_encoder(features))
    wanted = set(constructor_options(cls))
    if model is not None and "model" not in wanted:
        raise ValueError(f"Expected no model of the answers for the planner {name!r}: it learns from best options only")
    shared: dict[str, Any] = {
        "vocabulary": vocabulary,
        "sizes": vocabulary.sizes,
        "options": described,
        "num_options": num_options,
        "seed": seed,
        "episodes": episodes,
        "model": model,
    }
    if "prior" in wanted:
        encoder = getattr(described, "encoder", None)
        tokens, blocks = described.token_features, blocks_of(encoder)
        others = other_texts(vocabulary, encoder)
        if prior is None:
            chosen_prior = cls.default_prior(tokens, blocks, pool=len(vocabulary.sizes) == 1, others=others)
        else:
            chosen_prior = make_prior(prior, tokens, blocks=blocks, others=others)
        if chosen_prior.own is not None and len(vocabulary.sizes) > 1:
            raise ValueError(
                f"Expected a pool, a vocabulary of one step, with a prior about its items, got {len(vocabulary.sizes)} "
                "steps; take another prior"
            )
        shared["prior"] = chosen_prior.with_words(lambda: VocabularyPrior(tokens))
    planner = cls(**{key: value for key, value in shared.items() if key in wanted}, **chosen)
    if name in PLANNERS:
        planner.name = name
    return planner


def planner_options(name: str) -> list[str]:
    """What `make_planner` takes for a planner besides its own arguments, sorted; raises as ``planner_class``."""
    return sorted({*constructor_options(planner_class(name))} - _SHARED - {*_fixed(name)})


def merged_options(name: str, options: Mapping[str, Any]) -> dict[str, Any]:
    """A planner's options, those of the table among them.

    Raises:
        TypeError: It has no such option; the message lists those that it has.
    """
    known = planner_options(name)
    for option in options:
        if option not in known:
            raise TypeError(
                f"The planner {name!r} has no option {option!r}; its options: {', '.join(known) or 'none'}."
            )
    return {**_fixed(name), **options}


def _fixed(name: str) -> Mapping[str, Any]:
    """The options that a name stands for."""
    entry = PLANNERS.get(known_name(name, PLANNERS))
    return {} if entry is None else entry.options


def rule_function(name: str) -> Callable[..., Any]:
    """The function of a rule, whose docstring says what it asks.

    Raises:
        ValueError: An unknown name; the message lists the known ones.
    """
    entry = RULES[check_choice_of(known_name(name, RULES), "rule", tuple(RULES))]
    function: Callable[..., Any] = import_string(f"{_RULES}.{entry.path}", "rule")
    return function


def make_rule(name: str, **options: Any) -> Rule:
    """A rule of the literature.

    Args:
        name: One of `RULES`.
        **options: Of its function; of rules that maximise a value also ``starts`` and ``exhaustive`` of
            ``search_questions``.

    Raises:
        TypeError: The rule has no such option; the message lists those that it has.
        ValueError: An unknown name, or an option out of range.
    """
    from edpbrl_gym.planners.rules.search import Rule

    name = known_name(name, RULES)
    function, entry = rule_function(name), RULES[name]
    parameters = inspect.signature(function).parameters.values()
    known = [parameter.name for parameter in parameters if parameter.kind is parameter.KEYWORD_ONLY]
    of_search = ["starts", "exhaustive"] if entry.kind == "value" else []
    for option, value in options.items():
        if option not in (*known, *of_search):
            listed = ", ".join((*known, *of_search)) or "none"
            raise TypeError(f"The rule {name!r} has no option {option!r}; its options: {listed}.")
        if option in _LEAST and value is not None:
            check_count(value, option, minimum=_LEAST[option])
    inner = make_rule(options.get("rule", "random_distinct")) if entry.kind == "rollouts" else None
    return Rule(
        name,
        function,
        kind=entry.kind,
        adaptive=entry.adaptive if inner is None else inner.adaptive,
        options={option: value for option, value in options.items() if option in known},
        search={option: value for option, value in options.items() if option in of_search},
    )
