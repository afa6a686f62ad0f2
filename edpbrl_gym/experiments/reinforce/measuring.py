"""Measures of trained policies: similarity of their prompts, perplexity under the base model, a map of prompts."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike

from edpbrl_gym._arrays import Floats
from edpbrl_gym._validation import check_array

if TYPE_CHECKING:
    from edpbrl_gym.language.model import LanguageModel
    from edpbrl_gym.language.sampling import Samples

__all__ = ["between_policy_similarity", "map_prompts", "perplexity"]


def between_policy_similarity(embeddings: ArrayLike) -> Floats:
    """Mean cosine similarity of prompts from different policies, for each repeat.

    The paper's measure of diversity (Appendix "Vocabulary-Free Experimental Design via REINFORCE"): lower is more
    diverse; it reports mean and standard deviation over 10 repeats of 10 prompts from each of 4 policies.

    Args:
        embeddings: Embeddings of complete prompts, (R, K, n, d): n prompts of each of K >= 2 policies in R repeats; not
            zero.

    Returns:
        For each repeat the mean over all pairs of prompts from two different policies, (R,).

    Raises:
        ValueError: Another shape, fewer than two policies, NaN, or an embedding of zero.
    """
    rows = check_array(embeddings, "embeddings", shape=("R", "K", "n", "d"))
    policies = rows.shape[1]
    if policies < 2:
        raise ValueError(f"Expected embeddings (R, K, n, d) of at least K = 2 policies, got {rows.shape}")
    norms = np.linalg.norm(rows, axis=-1, keepdims=True)
    if not norms.all():
        raise ValueError("Expected embeddings other than zero, got a zero row; it has no direction")
    # the mean over pairs of prompts of two policies is the inner product of the policies' mean directions
    means = (rows / norms).mean(axis=2)
    products = means @ means.swapaxes(1, 2)
    between = products.sum(axis=(1, 2)) - np.trace(products, axis1=1, axis2=2)
    return np.asarray(between / (policies * (policies - 1)))


def perplexity(model: LanguageModel, samples: Samples, *, batch_size: int = 64) -> float:
    """Perplexity of sampled prompts under a model: exp of minus the mean log-probability of a choice.

    A choice is a token, or the stop that ended a prompt (see `edpbrl_gym.language.sampling`); forced ends are none.

    Args:
        model: The scoring model, with the tokenizer of the sampling one.
        samples: The prompts.
        batch_size: Prompts in one forward pass.

    Raises:
        ValueError: If the samples hold no choice at all.
    """
    import torch

    from edpbrl_gym.language.sampling import log_probabilities

    choices = int(samples.lengths.sum())
    if not choices:
        raise ValueError("Expected samples with at least one choice, got none; raise the budgets of words and tokens")
    with torch.no_grad():
        total = log_probabilities(model, samples, batch_size=batch_size).double().sum()
    return float(torch.exp(-total / choices))


def map_prompts(embeddings: ArrayLike, *, seed: int) -> Floats:
    """Map embeddings to the plane by t-SNE (van der Maaten and Hinton, 2008) on cosine distances.

    The effective number of neighbours is 30, or a third of n if that is less.

    Args:
        embeddings: (n, d), n >= 4.
        seed: Seed of the initial map.

    Returns:
        Positions, (n, 2); only neighbourhoods are meaningful, not axes or distances between groups.

    Raises:
        ValueError: Fewer than four rows, or NaN.
    """
    rows = check_array(embeddings, "embeddings", shape=("n", "d"))
    if len(rows) < 4:
        raise ValueError(f"Expected at least 4 embeddings for a map, got {len(rows)}")
    from sklearn.manifold import TSNE

    mapper = TSNE(metric="cosine", init="random", perplexity=min(30.0, len(rows) / 3.0), random_state=seed)
    return np.asarray(mapper.fit_transform(rows), dtype=np.float64)
