"""Prompt vocabularies: token files, loading, checks and splits."""

from edpbrl_gym.vocabulary.loading import BUILT_IN, built_in_name, load_vocabulary
from edpbrl_gym.vocabulary.vocabulary import SEPARATOR, Vocabulary

__all__ = ["BUILT_IN", "SEPARATOR", "Vocabulary", "built_in_name", "load_vocabulary"]
