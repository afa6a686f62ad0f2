"""The state of knowledge of a session: posterior draws, accuracy now and in the future, and when to stop."""

from __future__ import annotations

import functools
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from edpbrl_gym._seeds import derive_seed, generator
from edpbrl_gym._validation import check_integers
from edpbrl_gym.estimation import Posterior, PriorFit
from edpbrl_gym.estimation.metrics import sample_pairs
from edpbrl_gym.estimation.neighbourhood import TasteFit, VocabularyPrior
from edpbrl_gym.estimation.population import PersonFit, PersonPart, Population
from edpbrl_gym.features import TextEncoder
from edpbrl_gym.likelihood import BestOf, ResponseModel, Terms
from edpbrl_gym.session.forecast import (
    Progress,
    expected_information,
    forecast_accuracy,
    match_accuracy,
    sampled_accuracy,
)
from edpbrl_gym.session.questions import QuestionMaker
from edpbrl_gym.session.sampling import sample_posterior
from edpbrl_gym.session.stopping import StoppingRule
from edpbrl_gym.session.typical import typical_questions
from edpbrl_gym.vocabulary import Vocabulary

__all__ = ["Outlook"]

_PROMPTS = 32  # held-out prompts: as good as 200 within 0.015 of the accuracy, and an embedding takes 10 ms
_EPISODES = 20  # of typical questions
_POWER = 1.0  # 0.75 gives better estimates, 1 better predictions of their accuracy (docs/sessions.md)
_HEDGE = 0.5  # share of the draws that ignore the neighbourhoods
_DRAWS, _INFORMATION_DRAWS = 320, 4  # draws of theta, and those at which the information is computed


class Outlook:
    """Evaluates a session's estimate, by whatever method it was computed; encodes its texts on first use.

    The prior of the taste is independent of the planner's: the mixture that ``VocabularyPrior`` averages over, of all
    embeddings, a neighbourhood of the estimate or no direction in particular, with their posterior weights. Half of the
    draws use the first component alone, since the neighbourhoods were selected with the same answers. Or it is that of
    a ``Population``, with the weights of its parts and of that mixture, its fallback. The draws are from the exact
    posterior (``sample_posterior``), and every statement about the taste is about these draws.

    The accuracy is that on all pairs of 32 random complete prompts of ``held_out``. A typical further question is one
    of 20 random episodes of the session's vocabulary (of complete prompts there are as many), so for planners that ask
    better than random the forecast is slightly pessimistic. Its features are weighted sums of the tokens' embeddings
    (`edpbrl_gym.session.typical`), since only the information that it is expected to give matters.

    Args:
        maker: Maker of the session's questions.
        encoder: Encoder with a memo for prompts and typical questions, but not for the session's own questions.
        num_options: Number of options K.
        held_out: Vocabulary of the pairs.
        rule: Stopping rule.
        seed: Seed of pairs, typical questions and posterior draws.
        prior: Prior of the taste, or a population; None: that of the session's vocabulary, with power 1.
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
        prior: VocabularyPrior | Population | None = None,
    ) -> None:
        self.maker = maker
        self.encoder = encoder
        self.num_options = num_options
        self.held_out = held_out
        self.rule = rule
        self.seed = seed
        self.given_prior = prior
        self._cached: tuple[Terms, TasteFit | PersonFit, NDArray[np.float64]] | None = None

    @functools.cached_property
    def prior(self) -> VocabularyPrior | Population:
        """The prior of the taste; a population without a fallback of its own falls back on that of the vocabulary."""
        given = self.given_prior
        if given is None or (isinstance(given, Population) and given.fallback is None):
            words = self.words_prior(self._tokens)
            return words if given is None else given.with_fallback(words)
        return given

    @staticmethod
    def words_prior(tokens: NDArray[np.float32]) -> VocabularyPrior:
        """The prior of a vocabulary without other people, from the embeddings of its tokens, (N, d)."""
        return VocabularyPrior(tokens, power=_POWER)

    @functools.cached_property
    def _tokens(self) -> NDArray[np.float32]:
        return self.encoder.encode(self.maker.vocabulary.all_tokens)

    @functools.cached_property
    def differences(self) -> NDArray[np.float64]:
        """Differences of the features of the two prompts of each held-out pair, (p, d)."""
        rng = generator(self.seed, "held-out pairs")
        sample = sample_pairs(self.held_out.sizes, prompts=_PROMPTS, pairs=_PROMPTS**2, rng=rng)
        rows = self.encoder.encode([self.held_out.prompt(tokens) for tokens in sample.tokens]).astype(np.float64)
        return np.asarray(rows[sample.pairs[:, 0]] - rows[sample.pairs[:, 1]])

    @functools.cached_property
    def typical(self) -> NDArray[np.float64]:
        """Features of typical questions up to a constant vector of each question, (n, K, d)."""
        return typical_questions(
            self.maker,
            self.encoder,
            self._tokens,
            num_options=self.num_options,
            episodes=_EPISODES * self.maker.num_new,  # as many questions for every feedback
            rng=generator(self.seed, "typical questions"),
        )

    def think(self) -> None:
        """Compute one of the things that the first ``progress`` needs, as long as one is missing."""
        for name in ("prior", "differences", "typical"):
            if name not in self.__dict__:
                getattr(self, name)
                return

    def fit_and_draws(self, terms: Terms) -> tuple[TasteFit | PersonFit, NDArray[np.float64]]:
        """The fit of the prior's scales or parts to the answers, and draws from the posterior of theta, (320, d)."""
        cached = self._cached
        if cached is None or not _same(cached[0], terms):
            fit = self.prior.fit(terms)
            rng = generator(self.seed, "posterior draws", len(terms))
            parts: tuple[PriorFit | PersonPart, ...] = fit.parts
            draws = [
                sample_posterior(Posterior.from_estimate(part.estimate), terms, draws=count, rng=rng)
                for part, count in zip(parts, _shares(fit), strict=True)
                if count
            ]
            cached = self._cached = terms, fit, np.concatenate(draws)
        return cached[1], cached[2]

    def progress(
        self,
        estimate: NDArray[np.float64],
        model: ResponseModel,
        terms: Terms,
        *,
        questions: int,
        answers: int,
        further: Sequence[int],
    ) -> Progress:
        """Predict the accuracy now and after further questions.

        Args:
            estimate: Estimate of the taste, (d,), by any method.
            model: Format of the answers.
            terms: The answers.
            questions: Number of questions answered or skipped so far.
            answers: Number of answers among them.
            further: Numbers of further questions at which to predict the accuracy.
        """
        requested = check_integers(further, "further", shape=("m",), low=0)
        counts = np.unique(np.concatenate([[0, self.rule.lookahead], requested]))
        fit, thetas = self.fit_and_draws(terms)
        accuracy = sampled_accuracy(estimate, thetas, self.differences)
        order = np.random.default_rng(derive_seed(self.seed, "information", len(terms))).permutation(len(thetas))
        # typical questions have no level, which alone says when a person skips
        format_ahead = BestOf() if "skip" in model.kinds else model
        information = expected_information(format_ahead, self.typical, thetas[order[:_INFORMATION_DRAWS]])
        gaussian = match_accuracy(Posterior(estimate, fit.planned.precision), self.differences, accuracy)
        curve = forecast_accuracy(gaussian, information, self.differences, counts)
        ahead = float(curve[np.searchsorted(counts, self.rule.lookahead)])
        stop, reason = self.rule.decide(answers, float(curve[0]), ahead)
        return Progress(questions, answers, float(curve[0]), counts, curve, stop, reason)


def _shares(fit: TasteFit | PersonFit) -> list[int]:
    """Numbers of draws under each part, 320 in total; the base, or the heaviest of a population, gets the remainder.

    Half of what the prior of a vocabulary gets is drawn under its base.
    """
    weights = fit.weights.copy()
    words = isinstance(fit, TasteFit)
    if isinstance(fit, TasteFit) or fit.alone is not None:
        base = 0 if isinstance(fit, TasteFit) else fit.size
        total = float(weights[base:].sum())
        weights[base:] *= 1.0 - _HEDGE
        weights[base] += _HEDGE * total
    counts = np.floor(_DRAWS * weights).astype(np.int64)
    counts[0 if words else int(weights.argmax())] += _DRAWS - int(counts.sum())
    return [int(count) for count in counts]


def _same(terms: Terms, other_terms: Terms) -> bool:
    return (
        terms.rows.shape == other_terms.rows.shape
        and np.array_equal(terms.chosen, other_terms.chosen)
        and np.array_equal(terms.rows, other_terms.rows)
        and np.array_equal(terms.offsets, other_terms.offsets)
    )
