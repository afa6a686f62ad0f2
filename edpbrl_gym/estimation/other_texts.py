"""Other texts that say what a taste may be about, where a vocabulary has few of its own.

The few hundred tokens of a small vocabulary show only some of the directions in which tastes differ. Two more
collections of texts do: the tokens of the largest built-in vocabulary, and complete prompts of the vocabulary itself,
which are as long as the sentence that somebody would describe a taste with. `VocabularyPrior` weighs them by evidence
(docs/first-answers.md, where no gain was found for a large vocabulary).
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Sequence
from functools import partial
from typing import cast

import numpy as np
from numpy.typing import NDArray

from edpbrl_gym._seeds import generator
from edpbrl_gym.features import TextEncoder, embed_tokens
from edpbrl_gym.vocabulary import Vocabulary, load_vocabulary

__all__ = ["MOST_TOKENS", "OtherTexts", "composed_prompts", "other_texts"]

OtherTexts = Callable[[], Sequence[NDArray[np.float32]]]
"""Gives the embeddings of collections of texts, (M, d) each."""

MOST_TOKENS = 1000
"""A vocabulary with more tokens does without other texts."""

_PROMPTS = 800
_BANK = "images"
_ENCODERS = ("minilm",)  # measured with this one, which embeds these texts within seconds
_KEPT = 4  # vocabularies whose texts a process keeps

_known: OrderedDict[tuple[str, str], tuple[NDArray[np.float32], ...]] = OrderedDict()
_lock = threading.Lock()


def other_texts(vocabulary: Vocabulary, encoder: object) -> OtherTexts | None:
    """What `VocabularyPrior` takes as ``others`` for a vocabulary: nothing is embedded before it is called.

    Args:
        vocabulary: The vocabulary.
        encoder: What makes its features: an encoder, or anything else.

    Returns:
        A function that gives the embeddings of the two collections, (M, d) each; None for a large vocabulary, a pool of
        items, or an encoder of which it isn't known whether that helps.
    """
    if vocabulary.horizon < 2 or sum(vocabulary.sizes) > MOST_TOKENS or getattr(encoder, "name", "") not in _ENCODERS:
        return None
    return partial(_embedded, vocabulary, cast(TextEncoder, encoder))


def _embedded(vocabulary: Vocabulary, encoder: TextEncoder) -> Sequence[NDArray[np.float32]]:
    key = encoder.fingerprint, vocabulary.fingerprint
    with _lock:  # a thread that needs them while another one embeds them waits
        if key not in _known:
            _known[key] = embed_tokens(load_vocabulary(_BANK), encoder), encoder.encode(composed_prompts(vocabulary))
            while len(_known) > _KEPT:
                _known.popitem(last=False)
        return _known[key]


def composed_prompts(vocabulary: Vocabulary) -> list[str]:
    """Up to 800 random complete prompts, the same at every call."""
    rng = generator(0, "composed prompts")
    tokens = np.stack([rng.integers(size, size=_PROMPTS) for size in vocabulary.sizes], axis=1)
    return list(dict.fromkeys(vocabulary.prompt(row) for row in tokens))
