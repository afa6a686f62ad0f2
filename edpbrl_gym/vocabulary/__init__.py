"""Prompt vocabularies: token files, loading, checks and splits."""

from edpbrl_gym.vocabulary.loading import BUILT_IN_FOLDER, BUILT_IN_ORDER, load_vocabulary
from edpbrl_gym.vocabulary.vocabulary import SEPARATOR, Vocabulary

__all__ = ["BUILT_IN_FOLDER", "BUILT_IN_ORDER", "SEPARATOR", "Vocabulary", "load_vocabulary"]
