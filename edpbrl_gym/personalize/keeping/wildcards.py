"""A taste as weighted wildcards, in the syntax of dynamic prompts (github.com/adieyal/sd-dynamic-prompts).

The weight of a token is how often this person would name it the best of its step: the probability of the multinomial
logit, softmax(theta . phi) over the step's tokens, averaged over draws from the posterior. So prompts drawn from the
wildcards vary as much as the person's choices would, and nothing that the answers leave open is ruled out; where only
an estimate is known, it is the one draw.

Each step is a file of one line, ``{0.6::watercolor|0.4::ink drawing}``, which ``__medium__`` reads: dynamic prompts
takes weights inside of braces, but not from the lines of a text file, where ``0.6::`` would become a part of the
prompt. Nothing can be escaped in that syntax, so characters that have a meaning there are left out of tokens.
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import softmax

from edpbrl_gym._arrays import Floats
from edpbrl_gym._places import write_atomically
from edpbrl_gym._validation import check_array
from edpbrl_gym.features import TextEncoder
from edpbrl_gym.vocabulary import SEPARATOR, Vocabulary

__all__ = ["PROMPT", "token_weights", "wildcard", "write_wildcards"]

PROMPT = "prompt.txt"
_KEPT = 0.95  # of the weight of a step: the least likely tokens are left out
# variants and wraps, wildcards, comments, variables and numbers of options
_MEANS_SOMETHING = re.compile(r"[{}|$#\\]|__+|/(?=[/*])|\*(?=/)|::+")


def token_weights(features: ArrayLike, draws: ArrayLike) -> Floats:
    """The probability that the person names each token the best of all, (V,), sum 1.

    Args:
        features: Embeddings of the tokens, (V, d).
        draws: Draws from the posterior of the taste, (s, d), or one estimate, (d,).
    """
    rows = check_array(features, "features", shape=("V", "d"))
    tastes = check_array(np.atleast_2d(np.asarray(draws)), "draws", shape=("s", rows.shape[1]))
    return np.asarray(softmax(tastes @ rows.T, axis=1).mean(axis=0))


def wildcard(tokens: Sequence[str], weights: ArrayLike) -> str:
    """The likeliest tokens, together 95% of the weight, as ``{0.6::watercolor|0.4::ink drawing}``; one by itself.

    Args:
        tokens: The tokens, (V,).
        weights: Their weights, (V,), at least 0, not all 0.

    Raises:
        ValueError: Of a token nothing but signs of the syntax remains, or the weights don't fit.
    """
    shares = check_array(weights, "weights", shape=(len(tokens),))
    if not (shares >= 0).all() or not shares.any():
        raise ValueError(f"Expected weights of at least 0, not all 0, got {shares.tolist()}")
    order = np.argsort(-shares, kind="stable")
    kept = order[: 1 + int(np.searchsorted(np.cumsum(shares[order]), (_KEPT - 1e-9) * shares.sum()))]
    if len(kept) == 1:
        return _literal(tokens[kept[0]])
    thousandths = np.maximum(np.round(1000 * shares[kept] / shares[kept].sum()), 1)
    lines = [f"{number / 1000:g}::{_literal(tokens[i])}" for i, number in zip(kept, thousandths, strict=True)]
    return "{" + "|".join(lines) + "}"


def _literal(token: str) -> str:
    """The token without what the syntax would read otherwise."""
    text = " ".join(_MEANS_SOMETHING.sub(" ", token.replace("%", " percent ")).split())
    if not text:
        raise ValueError(f"Expected a token with words in it for a wildcard, got {token!r}; leave it out")
    return text


def write_wildcards(
    folder: str | os.PathLike[str], vocabulary: Vocabulary, encoder: TextEncoder, draws: ArrayLike
) -> list[Path]:
    """Write a file for each step with a choice, such as medium.txt, and prompt.txt, one prompt with all of them.

    Copied to the folder ``wildcards`` of dynamic prompts, ``__medium__`` stands for a medium that the person likes;
    the line of prompt.txt does without the other files.

    Args:
        folder: Folder of the files, created where it isn't there.
        vocabulary: Vocabulary of the prompts; a step of one token, such as a subject, is written as it is.
        encoder: Encoder of the tokens, with which the taste was learnt.
        draws: Draws from the posterior of the taste, (s, d), or one estimate, (d,).

    Returns:
        The files, prompt.txt last.

    Raises:
        ValueError: Of a token nothing but signs of the syntax remains, or the draws don't fit the encoder.
        RunFolderError: A file can't be written.
    """
    parts: list[str] = []
    files: dict[Path, str] = {}
    for name, tokens in zip(vocabulary.names, vocabulary.tokens, strict=True):
        parts.append(wildcard(tokens, token_weights(encoder.encode(list(tokens)), draws)))
        if len(tokens) > 1:
            path = Path(folder) / f"{_file_name(name)}.txt"
            while path in files or path.name == PROMPT:
                path = path.with_stem(f"{path.stem}-2")
            files[path] = parts[-1]
    files[Path(folder) / PROMPT] = SEPARATOR.join(parts)
    for path, text in files.items():
        write_atomically(path, lambda part, text=text: part.write_text(f"{text}\n", encoding="utf-8"))  # type: ignore[misc]
    return list(files)


def _file_name(step: str) -> str:
    """A name that every file system takes, and that can stand between double underscores."""
    return re.sub(r"[\W_]+", "-", step.casefold()).strip("-")[:60] or "step"
