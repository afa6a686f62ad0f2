"""Which question next: expected information or gain of a set of options, searched over the whole vocabulary."""

from edpbrl_gym.planners.adaptive import AdaptivePlanner
from edpbrl_gym.planners.option_features import ComposedFeatures, TokenFeatures
from edpbrl_gym.planners.scores import (
    ExpectedBest,
    ExpectedInformation,
    ExpectedVariance,
    MutualInformation,
    QuestionScore,
)

__all__ = [
    "AdaptivePlanner",
    "ComposedFeatures",
    "ExpectedBest",
    "ExpectedInformation",
    "ExpectedVariance",
    "MutualInformation",
    "QuestionScore",
    "TokenFeatures",
]
