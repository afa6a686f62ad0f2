"""What the questions of each arm teach: simulated users answer, and the estimates are compared with their tastes."""

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
    """Random prompts on which an estimate is judged, and the prior of the vocabulary.

    Attributes:
        prior: Of the estimator "words".
        prompts: Embeddings of random prompts, (n, d).
        pairs: Pairs of them, (p, 2).
    """

    prior: VocabularyPrior
    prompts: NDArray[np.float32]
    pairs: NDArray[np.int64]

    @classmethod
    def of(cls, words: Vocabulary, encoder: TextEncoder, *, prompts: int, pairs: int, seed: int) -> EvaluationPrompts:
        """Draw random prompts of the vocabulary.

        No token is held out: a language model may have learnt any of them, so all arms may show any. What no arm has
        asked about are the prompts.
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
    asked: Mapping[str, Queries],
    *,
    users: Mapping[str, NDArray[np.float64]],
    answerings: Sequence[UserSettings],
    counts: Sequence[int],
    evaluation: EvaluationPrompts,
    seed: int,
) -> list[dict[str, Any]]:
    """Let every user answer the questions of every arm, and estimate from the first of them.

    Args:
        asked: The questions of each arm, in the order of asking; at least max(counts).
        users: theta* of each user, (d,).
        answerings: How they answer.
        counts: Numbers of questions after which the taste is estimated.
        evaluation: What the estimates are judged on.
        seed: Of sampled answers; all arms meet the same user with the same draws.

    Returns:
        One row for each arm, user, way of answering, estimator and count; ``theta`` is the estimate at the largest
        count, else None.
    """
    rows: list[dict[str, Any]] = []
    for arm, queries in asked.items():
        features = queries.features.astype(np.float64)
        for name, truth in users.items():
            for how in answerings:
                own = derive_seed(seed, "answers", name, how.label)
                user = SyntheticUser(
                    truth, mode="argmax" if how.mode == "argmax" else "sampled", scale=how.scale, seed=own
                )
                choices = user.answer(queries).choices
                told = {"arm": arm, "user": name, "mode": how.mode, "scale": how.scale}
                for count in counts:
                    given, chosen = features[:count], choices[:count]
                    found = {
                        "ridge": estimate((given, chosen), regularization=RIDGE),
                        "words": evaluation.prior.fit((given, chosen)).estimate,
                    }
                    rows += [
                        {**told, "estimator": estimator, "questions": count, "converged": one.converged}
                        | evaluation.errors(one.theta, truth)
                        | {"theta": one.theta.tolist() if count == max(counts) else None}
                        for estimator, one in found.items()
                    ]
    return rows
