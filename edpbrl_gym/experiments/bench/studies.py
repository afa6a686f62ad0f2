"""The studies that ship with the benchmark: which regimes and arms, with which numbers of questions, for which page."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from edpbrl_gym.experiments.bench.arms import DESIGNS
from edpbrl_gym.experiments.bench.first_answers import FIRST_MODES
from edpbrl_gym.experiments.bench.settings import REGIMES
from edpbrl_gym.experiments.bench.tastes import TASTES
from edpbrl_gym.planners.registry import PLANNERS
from edpbrl_gym.vocabulary import BUILT_IN

__all__ = ["STUDIES", "Study"]


@dataclass(frozen=True)
class Study:
    """What is run unless the user says otherwise.

    Attributes:
        regimes: Names.
        arms: Names; an arm runs in the regimes where it can.
        seeds: How many.
        fewer: Arms beside ``arms`` that get ``fewer_seeds`` in headline regimes only.
        fewer_seeds: Most seeds of those arms, and of all arms in side regimes; None: no limit. 5 seeds of 2 sentences
            see each of the ten sentences once.
        regime_arms: Regime -> its arms, in place of ``arms`` and ``fewer``.
        regime_seeds: Regime -> most seeds of all its arms, where they are fewer.
    """

    regimes: Sequence[str]
    arms: Sequence[str]
    seeds: int = 20
    fewer: Sequence[str] = ()
    fewer_seeds: int | None = None
    regime_arms: Mapping[str, Sequence[str]] = field(default_factory=dict)
    regime_seeds: Mapping[str, int] = field(default_factory=dict)


_HEADLINE = tuple(regime.name for regime in REGIMES.values() if regime.headline)
_SIDE = (
    *(f"{change}-{mode}" for change in ("pairs", "state", "small", "skewed") for mode in ("argmax", "scale-20")),
    *("mistakes", "skips", "myopic"),
)
_POOLS = ("items-d10", "items-d32", "items-clusters", "items-d384")
_COMPARED = (
    *(f"{pool}-K4" for pool in _POOLS), "scale-20", "state-scale-20",
    *(f"{pool}-K2" for pool in _POOLS), "pairs-scale-20", "state-pairs-scale-20",
)  # fmt: skip

_ABLATIONS = (
    *("ed-pbrl", "v-design", "exact-design", "adaptive-best", "adaptive-mutual", "adaptive-theta-hat"),
    *("adaptive,prior=global", "adaptive,prior=fixed", "adaptive,prior=ridge1"),
    *("random+best-worst", "random+ranking", "adaptive+ranking"),
)
_ASKERS = tuple(
    name
    for name in dict.fromkeys(("adaptive", "adaptive-best", "tuples", "ed-pbrl", "ed-pbrl-exact", "random", *PLANNERS))
    if name in DESIGNS or (PLANNERS[name].family != "adaptive" or name in ("adaptive", "adaptive-best"))
    if name != "rollout_pool"  # draws at random unless it is given a rule: those are rollouts-...
)


def _first_arms(words: Sequence[str]) -> dict[str, Sequence[str]]:
    """The arms of each regime of first answers about some vocabularies."""
    arms: dict[str, Sequence[str]] = {}
    for name in words:
        for mode in FIRST_MODES:
            arms[f"{name}-{mode}"] = ("random", "adaptive")
        for mode in ("argmax", "scale-20"):
            arms[f"{name}-{mode}"] = ("random", "adaptive", "adaptive-best")
            arms[f"{name}-{mode}-partial"] = ("random",)
            arms[f"{name}-{mode}-K6"] = tuple(
                f"{asker}+{answers}" for answers in ("best-worst", "ranking") for asker in ("random", "adaptive")
            )
            arms[f"{name}-{mode}-K9"] = ("random", "adaptive")
            arms |= {f"{name}-{mode}-{taste}": ("random",) for taste in TASTES if taste != "sentence"}
        arms[f"{name}-argmax-K9"] = ("random", "adaptive", "random+partial", "adaptive+partial")
    return arms


def _first_study(arms: Mapping[str, Sequence[str]], seeds: int, fewer_seeds: int) -> Study:
    """A study of first answers; more options and other shapes of tastes get fewer seeds."""
    side = [name for name in arms if REGIMES[name].num_options > 4 or REGIMES[name].taste != "sentence"]
    names = dict.fromkeys(name for ran in arms.values() for name in ran)
    return Study(tuple(arms), tuple(names), seeds, regime_arms=arms, regime_seeds=dict.fromkeys(side, fewer_seeds))


_FIRST_QUICK: dict[str, Sequence[str]] = {
    "interiors-argmax": ("random", "adaptive"),
    "interiors-argmax-partial": ("random",),
    "interiors-argmax-K9": ("random", "adaptive"),
    "interiors-argmax-not": ("random",),
    "interiors-scale-20": ("random", "adaptive"),
}
STUDIES: dict[str, Study] = {
    "efficiency": Study((*_HEADLINE, *_SIDE), ("random", "d-design", "tuples", "adaptive"), 20, _ABLATIONS, 5),
    "efficiency-quick": Study(("argmax", "scale-20"), ("random", "adaptive"), 2),
    "comparison": Study(_COMPARED, _ASKERS),
    "comparison-quick": Study(
        ("items-d10-K4", "items-d10-K2", "items-d32-K4"),
        ("random_distinct", "greedy_d", "adaptive_a", "bald", "qeubo", "adaptive"),
        4,
    ),
    "first-answers": _first_study(_first_arms(tuple(BUILT_IN)), 3, 2),
    "first-answers-quick": _first_study(_FIRST_QUICK, 1, 1),
}
"""Name -> study: "efficiency", how many questions each way of asking needs (docs/query-efficiency.md); "comparison",
all planners on the same items and users (docs/planner-comparison.md); "first-answers", what a person's first answers
teach; each in a small version too."""
