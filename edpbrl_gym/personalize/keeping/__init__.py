"""What is kept of a taste beside its file: a page to send, weighted wildcards, pairs of pictures for training."""

from edpbrl_gym.personalize.keeping.page import PagePrompt, PageWords, write_page
from edpbrl_gym.personalize.keeping.pairs import preferred_options, write_pairs
from edpbrl_gym.personalize.keeping.wildcards import token_weights, wildcard, write_wildcards

__all__ = [
    "PagePrompt",
    "PageWords",
    "preferred_options",
    "token_weights",
    "wildcard",
    "write_page",
    "write_pairs",
    "write_wildcards",
]
