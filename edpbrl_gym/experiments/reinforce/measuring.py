"""Measures of policies: similarity, perplexity and a map of their prompts, tastes that their questions teach."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from edpbrl_gym._arrays import Floats
from edpbrl_gym._seeds import derive_seed
from edpbrl_gym._validation import check_array
from edpbrl_gym.comparisons import Queries
from edpbrl_gym.estimation import estimate
from edpbrl_gym.estimation.metrics import cosine_error, preference_error
from edpbrl_gym.estimation.neighbourhood import VocabularyPrior
from edpbrl_gym.experiments.settings import UserSettings
from edpbrl_gym.oracles import SyntheticUser

if TYPE_CHECKING:
    from edpbrl_gym.language.model import LanguageModel
    from edpbrl_gym.language.sampling import Samples

__all__ = [
    "ESTIMATORS",
    "between_policy_similarity",
    "learn_tastes",
    "map_prompts",
    "perplexity",
]

RIDGE = 100.0  # lambda of the paper's estimates
_ANSWERINGS = (UserSettings("argmax", 1.0), UserSettings("sampled", 20.0))
# name -> title
ESTIMATORS = {"ridge": "ridge, lambda = 100 (the paper's)", "words": "prior around the words of the vocabulary"}


def between_policy_similarity(embeddings: ArrayLike) -> Floats:
    """Mean cosine similarity of prompts from different policies, for each repeat, (R,).

    The paper's measure of diversity (Appendix "Vocabulary-Free Experimental Design via REINFORCE"): lower is more
    diverse; it reports mean and standard deviation over 10 repeats of 10 prompts from each of 4 policies.

    Args:
        embeddings: Embeddings of complete prompts, (R, K, n, d): n prompts of each of K >= 2 policies in R repeats; not
            zero.
    """
    rows = check_array(embeddings, "embeddings", shape=("R", "K", "n", "d"))
    policies = rows.shape[1]
    norms = np.linalg.norm(rows, axis=-1, keepdims=True)
    # the mean over pairs of prompts of two policies is the inner product of the policies' mean directions
    means = (rows / norms).mean(axis=2)
    products = means @ means.swapaxes(1, 2)
    between = products.sum(axis=(1, 2)) - np.trace(products, axis1=1, axis2=2)
    return np.asarray(between / (policies * (policies - 1)))


def perplexity(model: LanguageModel, samples: Samples, *, batch_size: int = 64) -> float:
    """Perplexity of sampled prompts under a model: exp of minus the mean log-probability of a choice.

    A choice is a token, or the stop that ended a prompt (see `edpbrl_gym.language.sampling`); forced ends are none.

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
    """Map embeddings (n, d) to the plane, (n, 2), by t-SNE (van der Maaten and Hinton, 2008) on cosine distances.

    The effective number of neighbours is 30, or a third of n if that is less. Only neighbourhoods are meaningful, not
    axes or distances between groups.
    """
    rows = check_array(embeddings, "embeddings", shape=("n", "d"))
    from sklearn.manifold import TSNE

    mapper = TSNE(metric="cosine", init="random", perplexity=min(30.0, len(rows) / 3.0), random_state=seed)
    return np.asarray(mapper.fit_transform(rows), dtype=np.float64)


def learn_tastes(
    questions: Mapping[str, Queries],
    users: Mapping[str, NDArray[np.float64]],
    counts: Sequence[int],
    prior: VocabularyPrior,
    evaluation: tuple[NDArray[np.float32], NDArray[np.int64]],
    seed: int,
) -> list[dict[str, Any]]:
    """Let every user, by theta* (d,), answer the questions of every arm, and estimate from the first ``counts``.

    ``prior`` is that of the default estimate, ``evaluation`` the prompts on which estimates are judged, (n, d), and
    pairs of them, (p, 2). Sampled answers are the same draws for all arms. ``theta`` of a row is None before the last
    count.
    """
    rows: list[dict[str, Any]] = []
    for arm, queries in questions.items():
        features = queries.features.astype(np.float64)
        for name, truth in users.items():
            for answering in _ANSWERINGS:
                user_seed = derive_seed(seed, "answers", name, answering.label)
                mode: Any = answering.mode
                user = SyntheticUser(truth, mode=mode, scale=answering.scale, seed=user_seed)
                choices = user.answer(queries).choices
                for count in counts:
                    answered = features[:count], choices[:count]
                    estimates = {
                        "ridge": estimate(answered, regularization=RIDGE),
                        "words": prior.fit(answered).estimate,
                    }
                    for estimator, fit in estimates.items():
                        row = {"arm": arm, "user": name, "mode": answering.mode, "scale": answering.scale}
                        row |= {"estimator": estimator, "questions": count, "converged": fit.converged}
                        row |= {"cosine_error": cosine_error(fit.theta, truth)}
                        error = preference_error(fit.theta, truth, *evaluation)
                        row |= {
                            "preference_error": error,
                            "theta": fit.theta.tolist() if count == max(counts) else None,
                        }
                        rows.append(row)
    return rows
