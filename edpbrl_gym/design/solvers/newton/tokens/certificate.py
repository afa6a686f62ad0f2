"""The certified gap of weights on tokens: from scores in float64, with what rounding may hide of it (`rounding`)."""

from __future__ import annotations

from collections.abc import Callable

from edpbrl_gym._arrays import Floats, Positions
from edpbrl_gym.design.problem import DesignProblem
from edpbrl_gym.design.rounding import Rounding, rounding_of
from edpbrl_gym.design.solvers.newton.tokens.feature_space import FeatureSpace
from edpbrl_gym.design.solvers.newton.tokens.pricing import Pricing, levels_of
from edpbrl_gym.design.solvers.newton.tokens.space import Space
from edpbrl_gym.design.solvers.newton.tokens.token_space import TokenSpace

__all__ = ["certified_gap"]


_CANCELLED = 1e-10  # of the largest scores: a larger allowance is worth another computation


def certified_gap(
    problem: DesignProblem,
    pricing: Pricing,
    space: Space,
    weights: Floats,
    value: float,
    *,
    feature_space: Callable[[Positions], FeatureSpace],
) -> tuple[float, Rounding]:
    """The gap without its allowance for rounding, and the allowances.

    In the metric of the prior the products with V may be thousands of times what is left of them. Where that costs too
    many digits the gap comes from the d x d information.

    Args:
        problem: The problem.
        pricing: Prices all tokens.
        space: The working set.
        weights: Its weights.
        value: Objective, as `space` computes it.
        feature_space: Makes a `FeatureSpace` of some tokens.
    """
    gap, rounding, reward = _priced(problem, pricing, space, weights, value)
    if rounding.gap > _CANCELLED * reward and isinstance(space, TokenSpace):
        feature_gap, feature_rounding, _ = _priced(problem, pricing, feature_space(space.tokens), weights, value)
        if feature_rounding.gap < rounding.gap:
            return feature_gap, Rounding(feature_rounding.gap, rounding.value)
    return gap, rounding


def _priced(
    problem: DesignProblem, pricing: Pricing, space: Space, weights: Floats, value: float
) -> tuple[float, Rounding, float]:
    """Gap, allowances, and the largest score of each block, summed, in the coordinates of a space."""
    gap = pricing(space, weights, exact=True).gap
    reward = float(levels_of(space, weights, space.gradient(weights)).sum()) + gap
    rounding = rounding_of(
        problem,
        condition=space.condition(weights),
        value=value,
        learned=space.learned(weights),
        reward=reward,
        magnitude=space.magnitude,
        offset=space.offset,
    )
    return gap, rounding, reward
