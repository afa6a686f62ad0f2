"""Tastes learnt from the questions of each arm: simulated users answer, and estimates are compared with the truth."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from edpbrl_gym._seeds import derive_seed
from edpbrl_gym.comparisons import Queries
from edpbrl_gym.estimation import estimate
from edpbrl_gym.estimation.metrics import cosine_error, preference_error, sample_pairs
from edpbrl_gym.estimation.neighbourhood import VocabularyPrior
from edpbrl_gym.experiments.settings import UserSettings
from edpbrl_gym.features import TextEncoder
from edpbrl_gym.oracles import SyntheticUser
from edpbrl_gym.vocabulary import Vocabulary

__all__ = ["ESTIMATORS", "EvaluationPrompts", "learn_tastes"]

RIDGE = 100.0  # lambda of the paper's estimates
# name -> title
ESTIMATORS = {"ridge": "ridge, lambda = 100 (the paper's)", "words": "prior around the words of the vocabulary"}


@dataclass(frozen=True, eq=False)
class EvaluationPrompts:
    """Random prompts for the evaluation of an estimate, and the prior of the vocabulary.

    Attributes:
        prior: Prior of the estimator "words".
        prompts: Embeddings of random prompts, (n, d).
        pairs: Pairs of them, (p, 2).
    """

    prior: VocabularyPrior
    prompts: NDArray[np.float32]
    pairs: NDArray[np.int64]

    @classmethod
    def of(cls, words: Vocabulary, encoder: TextEncoder, *, prompts: int, pairs: int, seed: int) -> EvaluationPrompts:
        """Draw random prompts of the vocabulary.

        No token is held out, since a language model may have learnt any of them; only the prompts are new to all arms.
        """
        sample = sample_pairs(words.sizes, prompts=prompts, pairs=pairs, rng=np.random.default_rng(seed))
        texts = [words.prompt(row) for row in sample.tokens.tolist()]
        return cls(VocabularyPrior(encoder.encode(words.all_tokens)), encoder.encode(texts), sample.pairs)

    def errors(self, theta: NDArray[np.float64], truth: NDArray[np.float64]) -> dict[str, float]:
        """Cosine and preference error of an estimate."""
        return {
            "cosine_error": cosine_error(theta, truth),
            "preference_error": preference_error(theta, truth, self.prompts, self.pairs),
        }


def learn_tastes(
    questions: Mapping[str, Queries],
    *,
    users: Mapping[str, NDArray[np.float64]],
    answerings: Sequence[UserSettings],
    counts: Sequence[int],
    evaluation: EvaluationPrompts,
    seed: int,
) -> list[dict[str, Any]]:
    """Let every user answer the questions of every arm, and estimate from the first of them.

    Args:
        questions: The questions of each arm, in the order of asking; at least max(counts).
        users: theta* of each user, (d,).
        answerings: How they answer.
        counts: Numbers of questions after which the taste is estimated.
        evaluation: Prompts of the evaluation.
        seed: Seed of sampled answers, which are the same draws for all arms.

    Returns:
        One row for each arm, user, way of answering, estimator and count; ``theta`` is the estimate at the largest
        count, else None.
    """
    rows: list[dict[str, Any]] = []
    for arm, queries in questions.items():
        features = queries.features.astype(np.float64)
        for name, truth in users.items():
            for answering in answerings:
                user_seed = derive_seed(seed, "answers", name, answering.label)
                user = SyntheticUser(
                    truth,
                    mode="argmax" if answering.mode == "argmax" else "sampled",
                    scale=answering.scale,
                    seed=user_seed,
                )
                choices = user.answer(queries).choices
                common = {"arm": arm, "user": name, "mode": answering.mode, "scale": answering.scale}
                for count in counts:
                    options, answers = features[:count], choices[:count]
                    estimates = {
                        "ridge": estimate((options, answers), regularization=RIDGE),
                        "words": evaluation.prior.fit((options, answers)).estimate,
                    }
                    rows += [
                        {**common, "estimator": estimator, "questions": count, "converged": fit.converged}
                        | evaluation.errors(fit.theta, truth)
                        | {"theta": fit.theta.tolist() if count == max(counts) else None}
                        for estimator, fit in estimates.items()
                    ]
    return rows
