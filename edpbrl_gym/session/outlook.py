"""The progress of a session: which pairs the accuracy is predicted on, and what a typical further question is."""

from __future__ import annotations

import functools
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from edpbrl_gym._validation import check_integers
from edpbrl_gym.estimation.posterior import Posterior
from edpbrl_gym.experiments.metrics import sample_pairs
from edpbrl_gym.experiments.seeds import derive_seed, generator
from edpbrl_gym.features import TextEncoder
from edpbrl_gym.responses import ResponseModel, Terms
from edpbrl_gym.session.forecast import (
    Progress,
    StoppingRule,
    expected_information,
    forecast_accuracy,
    matched,
    sampled_accuracy,
)
from edpbrl_gym.session.questions import QuestionMaker
from edpbrl_gym.session.sampling import sample_posterior
from edpbrl_gym.vocabulary import Vocabulary

__all__ = ["Outlook"]

_PROMPTS, _PAIRS = 200, 1000  # held-out prompts, and pairs of them
_EPISODES = 20  # of typical questions
_DRAWS, _INFORMED = 320, 4  # draws of theta, and those of them at which the information is computed


class Outlook:
    """Predicts the accuracy of a session; encodes its texts on first use.

    The accuracy is predicted on 1,000 random pairs of 200 random complete prompts of ``held_out``. A typical further
    question is one of 20 random episodes of the session's vocabulary: planners that ask better than at random are
    predicted a little late.

    Args:
        maker: Makes the session's questions.
        encoder: With a memory; embeds prompts and typical questions, never the session's own questions.
        num_options: K.
        held_out: Vocabulary of the pairs.
        rule: When to stop.
        seed: Of pairs, typical questions and posterior draws.
    """

    def __init__(
        self,
        maker: QuestionMaker,
        encoder: TextEncoder,
        *,
        num_options: int,
        held_out: Vocabulary,
        rule: StoppingRule,
        seed: int,
    ) -> None:
        self.maker = maker
        self.encoder = encoder
        self.num_options = num_options
        self.held_out = held_out
        self.rule = rule
        self.seed = seed

    @functools.cached_property
    def differences(self) -> NDArray[np.float64]:
        """Features of one prompt less those of the other, of each held-out pair, (p, d)."""
        rng = generator(self.seed, "held-out pairs")
        sample = sample_pairs(self.held_out.sizes, prompts=_PROMPTS, pairs=_PAIRS, rng=rng)
        rows = self.encoder.encode([self.held_out.prompt(tokens) for tokens in sample.tokens]).astype(np.float64)
        return np.asarray(rows[sample.pairs[:, 0]] - rows[sample.pairs[:, 1]])

    @functools.cached_property
    def typical(self) -> NDArray[np.float64]:
        """Features of typical questions, (n, K, d)."""
        rng = generator(self.seed, "typical questions")
        words = self.maker.vocabulary
        tokens = np.stack([rng.integers(size, size=(_EPISODES, self.num_options)) for size in words.sizes], axis=2)
        texts = [
            text
            for episode in tokens
            for step in range(words.horizon)
            for text in self.maker.texts(episode[:, : step + 1])
        ]
        rows = self.encoder.encode(texts).astype(np.float64)
        return np.asarray(rows.reshape(_EPISODES * words.horizon, self.num_options, -1))

    def progress(
        self,
        posterior: Posterior,
        model: ResponseModel,
        terms: Terms,
        *,
        questions: int,
        answers: int,
        further: Sequence[int],
    ) -> Progress:
        """Where the session is, and where further questions would lead.

        Args:
            posterior: Laplace's approximation, at the mode.
            model: Format of the answers.
            terms: The answers.
            questions: Questions answered or skipped so far.
            answers: Answers among them.
            further: Numbers of further questions at which to predict the accuracy.
        """
        asked = check_integers(further, "further", shape=("m",), low=0)
        counts = np.unique(np.concatenate([[0, self.rule.lookahead], asked]))
        rng = np.random.default_rng(derive_seed(self.seed, "posterior draws", questions))
        thetas = sample_posterior(posterior, terms, draws=_DRAWS, rng=rng)
        accuracy = sampled_accuracy(posterior.mean, thetas, self.differences)
        information = expected_information(model, self.typical, thetas[-_INFORMED:])
        gaussian = matched(posterior, self.differences, accuracy)
        curve = forecast_accuracy(gaussian, information, self.differences, counts)
        ahead = float(curve[np.searchsorted(counts, self.rule.lookahead)])
        stop, reason = self.rule.decide(answers, float(curve[0]), ahead)
        return Progress(questions, answers, float(curve[0]), counts, curve, stop, reason)
