"""Wrappers: preference queries over lanes, learned rewards, other features, legal actions, text observations."""

from edpbrl_gym.envs.wrappers.learned_reward import LearnedReward, LearnedRewardVector
from edpbrl_gym.envs.wrappers.legal_actions import LegalActions, LegalActionsVector
from edpbrl_gym.envs.wrappers.preference_query import PreferenceQuery
from edpbrl_gym.envs.wrappers.state_actions import StateActionFeatures
from edpbrl_gym.envs.wrappers.text_observation import TextObservation
from edpbrl_gym.envs.wrappers.word_steps import WordSteps

__all__ = [
    "LearnedReward",
    "LearnedRewardVector",
    "LegalActions",
    "LegalActionsVector",
    "PreferenceQuery",
    "StateActionFeatures",
    "TextObservation",
    "WordSteps",
]
