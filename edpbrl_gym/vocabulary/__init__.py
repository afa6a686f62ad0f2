"""Prompt vocabularies: token files, loading, checks and splits."""

from edpbrl_gym.vocabulary.built_in import BUILT_IN
from edpbrl_gym.vocabulary.loading import load_vocabulary
from edpbrl_gym.vocabulary.vocabulary import SEPARATOR, Vocabulary

__all__ = ["BUILT_IN", "SEPARATOR", "Vocabulary", "load_vocabulary"]
