r"""What a session knows: draws of the taste, the predicted accuracy now and after more questions, when to stop.

*Draws* are from the exact posterior of all parts of the fit and of their scales (``sample_parts``), by random numbers
that do not depend on the answers, and every statement about the taste is about them. Parts that the same answers
selected (``Fit.hedged``) give a quarter of their weight to the part that they stand beside.

*Accuracy now*: the share of held-out pairs of prompts, averaged over the draws, that the estimate m orders as a draw
does. *Forecast*: the posterior is a Gaussian about the estimate, theta ~ N(m, c S), with S = P^-1 the Laplace
covariance and c such that the Gaussian has the same accuracy now (``match_accuracy``): m orders a pair whose features
differ by x as theta does with probability Phi(|m . x| / s_0), s_0^2 = c x' S x. Let I be the expected Fisher
information of one typical question, averaged over typical questions and over the posterior. After n more of them the
precision is about P / c + n I, the estimate is m_n, and by the law of total variance

    m_n . x ~ N(m . x, t_n^2),   t_n^2 = s_0^2 - s_n^2,   s_n^2 = x' (P / c + n I)^-1 x,

so that the predicted accuracy after n more questions is the mean over the pairs of

    E[ Phi(|m_n . x| / s_n) ] = E_z[ Phi(|m . x + t_n z| / s_n) ],   z ~ N(0, 1).

For m . x = 0 this is 1/2 + arcsin(t_n / s_0) / pi. It never falls with n, and tends to 1 if the questions determine
theta. Since draws differ in scale, the information at a draw is multiplied by its mean square lead over that of the
Gaussian; and since planners ask better than random, by how much more the questions told so far said than typical ones.

*Questions left*: futures m_0, m_1, .. of the estimate are drawn (a Brownian motion with these variances, the same
random numbers after every answer). Along each the accuracy, mean Phi(|m_n . x| / s_n), and the gain that it predicts
say when the stopping rule stops; shown are the median and the range from the 10% to the 90% quantile.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.linalg import cholesky, eigh, solve_triangular
from scipy.optimize import brentq
from scipy.special import ndtr, ndtri

from edpbrl_gym._arrays import Floats
from edpbrl_gym._seeds import generator
from edpbrl_gym._validation import check_integers
from edpbrl_gym.estimation import Posterior
from edpbrl_gym.estimation.map_estimate import answer_terms
from edpbrl_gym.estimation.metrics import sample_pairs
from edpbrl_gym.estimation.neighbourhood import VocabularyPrior
from edpbrl_gym.estimation.other_texts import OtherTexts, other_texts
from edpbrl_gym.estimation.priors import prior_or_words
from edpbrl_gym.estimation.sampling import sample_parts
from edpbrl_gym.estimation.taste_prior import Fit, TastePrior
from edpbrl_gym.features import TextEncoder, embed_tokens
from edpbrl_gym.likelihood import AnswerFormat, Terms
from edpbrl_gym.session.questions import QuestionMaker
from edpbrl_gym.session.stopping import Left, StoppingRule
from edpbrl_gym.vocabulary import Vocabulary

__all__ = ["Forecast", "Outlook", "Progress", "match_accuracy", "typical_questions"]

_PROMPTS = 32  # held-out prompts: as good as 200 within 0.015 of the accuracy, and an embedding takes 10 ms
_EPISODES = 20  # of typical questions
_POWER = 1.0  # of the prior: 0.75 gives better estimates, 1 better predictions of their accuracy (docs/sessions.md)
_HEDGE = 0.25  # share of the weight of parts that the same answers selected, which the part beside them gets
_DRAWS = 320  # of theta
_INFORMATION_DRAWS, _INFORMATION_ROUNDS = 40, 2  # draws for the information, and at how many a question is looked at
_TYPICAL = 4  # answers that count as much as the expectation that questions are typical
_FUTURES = 64  # possible ones, for the number of questions left
_AHEAD = (0, 1, 2, 3, 4, 6, 8, 10, 13, 16, 20, 25, 30, 35, 40, 50, 60, 80, 100)  # questions of these
_FITTED = 4  # prompts that determine the weights of the tokens in a typical question
_EXPLAINED = 0.25  # share of the variance that weighted tokens must explain (MiniLM: 0.68 or more)
_NODES = ndtri((np.arange(128) + 0.5) / 128)  # equally likely values of a standard normal variable
_PAIRS = 512  # pairs per block: bounds the memory
_MAX_LOG_FACTOR = 12.0  # bound on |log c|, c the factor of the covariance


@dataclass(frozen=True, eq=False)
class Progress:
    """Progress of a session.

    Attributes:
        questions: Number of questions answered or skipped.
        answers: Number of answers among them.
        accuracy: Predicted accuracy now: the share of held-out pairs of prompts that the estimate orders as the
            person would without noise.
        further: Numbers of further questions, (m,), beginning with 0.
        curve: Predicted accuracy after them, (m,).
        should_stop: Whether the stopping rule says stop.
        reason: Its reason.
        left: About how many questions are left until it does, with a range.
    """

    questions: int
    answers: int
    accuracy: float
    further: NDArray[np.int64]
    curve: Floats
    should_stop: bool
    reason: str
    left: Left

    def questions_to(self, target: float) -> float | None:
        """Number of further questions until the predicted accuracy reaches ``target``, None if beyond the curve.

        Interpolated linearly between the points of the curve; 0 if the accuracy is reached already.
        """
        reached = np.flatnonzero(self.curve >= target)
        if not len(reached) or not reached[0]:
            return 0.0 if len(reached) else None
        ends = slice(reached[0] - 1, reached[0] + 1)
        (low, high), (fewer, more) = self.curve[ends], self.further[ends]
        return float(fewer + (target - low) / (high - low) * (more - fewer))


class Outlook:
    """Evaluates a session's estimate, by whatever method it was computed; encodes its texts on first use.

    The prior of the taste is independent of the planner's: the mixture that ``VocabularyPrior`` averages over, with the
    posterior weights of its parts. Or it is that of a ``Population``, with the weights of its components and of that
    mixture, its fallback.

    The accuracy is that on all pairs of 32 random complete prompts of ``held_out``. A typical further question is one
    of 20 random episodes of the session's vocabulary (of complete prompts there are as many), and says as much more as
    the questions told so far said.

    Args:
        maker: Maker of the session's questions.
        encoder: Encoder with a memo for prompts and typical questions, but not for the session's own questions.
        num_options: Number of options K.
        held_out: Vocabulary of the pairs.
        rule: Stopping rule.
        seed: Seed of pairs, typical questions and posterior draws.
        prior: Prior of the taste, or a population; None: that of the session's vocabulary, with power 1.
        relative: Whether only differences between options matter to the format of the answers.
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
        prior: TastePrior | None = None,
        relative: bool = True,
    ) -> None:
        self._relative = relative
        self.maker, self.encoder, self.num_options = maker, encoder, num_options
        self.held_out, self.rule, self.seed = held_out, rule, seed
        self.given_prior = prior
        self._cached: tuple[Terms, Fit, Floats] | None = None

    @functools.cached_property
    def prior(self) -> TastePrior:
        """The prior of the taste; a population without a fallback of its own falls back on that of the vocabulary."""
        others = other_texts(self.maker.vocabulary, self.encoder)
        return prior_or_words(self.given_prior, partial(self.words_prior, self._tokens), others)

    @staticmethod
    def words_prior(tokens: NDArray[np.float32], others: OtherTexts | None = None) -> VocabularyPrior:
        """The prior of a vocabulary without other people, from the embeddings of its tokens, (N, d)."""
        return VocabularyPrior(tokens, power=_POWER, others=others)

    @functools.cached_property
    def _tokens(self) -> NDArray[np.float32]:
        return embed_tokens(self.maker.vocabulary, self.encoder)

    @functools.cached_property
    def differences(self) -> Floats:
        """Differences of the features of the two prompts of each held-out pair, (p, d)."""
        rng = generator(self.seed, "held-out pairs")
        sample = sample_pairs(self.held_out.sizes, prompts=_PROMPTS, pairs=_PROMPTS**2, rng=rng)
        rows = self.encoder.encode([self.held_out.prompt(tokens) for tokens in sample.tokens]).astype(np.float64)
        return np.asarray(rows[sample.pairs[:, 0]] - rows[sample.pairs[:, 1]])

    @functools.cached_property
    def typical(self) -> Floats:
        """Features of typical questions up to a constant vector of each question, (n, K, d)."""
        episodes = _EPISODES * self.maker.num_new  # as many questions for every feedback
        rng = generator(self.seed, "typical questions")
        return typical_questions(
            self.maker, self.encoder, self._tokens, self.num_options, episodes, rng, exact=not self._relative
        )

    def think(self) -> None:
        """Compute one of the things that the first ``progress`` needs, as long as one is missing."""
        for name in ("prior", "differences", "typical"):
            if name not in self.__dict__:
                getattr(self, name)
                return
        self.prior.think()

    def fit_and_draws(self, terms: Terms) -> tuple[Fit, Floats]:
        """The fit of the prior to the answers, and draws of theta from its posterior, (320, d)."""
        terms, cached = answer_terms(terms), self._cached
        if cached is None or not _same(cached[0], terms):
            fit = self.prior.fit(terms)
            draws = sample_parts(fit.parts, _hedged(fit), terms, draws=_DRAWS, seed=self.seed)
            cached = self._cached = terms, fit, draws
        return cached[1], cached[2]

    def progress(
        self,
        estimate: NDArray[np.float64],
        model: AnswerFormat,
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
        ahead = self.rule.lookahead
        own = np.unique([*_AHEAD, *np.add(_AHEAD, ahead)])
        counts = np.unique(np.concatenate([own, requested]))
        terms = answer_terms(terms)
        fit, thetas = self.fit_and_draws(terms)
        signs = np.sign(self.differences @ estimate)
        agreement = (np.sign(thetas @ self.differences.T) == signs).mean(axis=0)
        accuracy = float(np.where(signs == 0, 0.5, agreement).mean())  # a pair without an order counts one half
        gaussian = match_accuracy(Posterior(estimate, fit.planned.precision), self.differences, accuracy)
        forecast = Forecast(gaussian, self._information(model, terms, answers, thetas, gaussian), self.differences)
        curve = forecast.accuracy(counts)
        stop, reason = self.rule.decide(answers, float(curve[0]), float(curve[np.searchsorted(counts, ahead)]))
        left = Left(0, 0, 0, _AHEAD[-1])
        if not stop:
            normal = generator(self.seed, "futures").standard_normal((len(own) - 1, _FUTURES, terms.dimension))
            left = self.rule.left(answers, own, curve[np.isin(counts, own)], forecast.paths(own, normal))
        shown = np.isin(counts, [0, ahead, *requested])
        return Progress(questions, answers, float(curve[0]), counts[shown], curve[shown], stop, reason, left)

    def _information(
        self, model: AnswerFormat, terms: Terms, answers: int, thetas: Floats, gaussian: Posterior
    ) -> Floats:
        """Expected information of a further question, in units of the Gaussian.

        It is that of a typical question, each of them at a few of many draws, times how much more the questions told so
        far said in the directions of the held-out pairs than typical ones: planners ask better than random.

        Draws differ in their scale: theta of twice the size has four times the variance, and the information about its
        direction is four times that about theta. So that of each draw is multiplied by its mean square lead over that
        of the Gaussian.
        """
        chosen = thetas[:: max(1, len(thetas) // _INFORMATION_DRAWS)]
        leads = self.differences @ gaussian.mean
        size_now = np.square(leads).mean() + np.square(gaussian.standard_deviation(self.differences)).mean()
        sizes = np.square(chosen @ self.differences.T).mean(axis=1) / size_now
        parts = max(1, len(chosen) // _INFORMATION_ROUNDS)
        model = model.at(terms.known)
        information, told = np.zeros((2, thetas.shape[1], thetas.shape[1]))
        seen = terms_seen = 0
        for number, (theta, size) in enumerate(zip(chosen, sizes, strict=True)):
            asked, answered = self.typical[number % parts :: parts], terms[number % parts :: parts]
            information += size * model.information(asked, theta)
            told += size * answered.information(theta)
            seen, terms_seen = seen + len(asked), terms_seen + len(answered)
        information /= seen
        if terms_seen:
            told *= len(terms) / max(answers, 1) / terms_seen
            of_typical, of_told = (
                float(np.sum((self.differences @ one) * self.differences)) for one in (information, told)
            )
            if of_typical > 0:
                share = answers / (answers + _TYPICAL)
                information *= (1.0 - share) + share * of_told / of_typical
        return information


def match_accuracy(posterior: Posterior, differences: Floats, accuracy: float) -> Posterior:
    """The Gaussian N(m, c S) that predicts an accuracy in [0.5, 1] on pairs (p, d), with c in exp(-12)..exp(12)."""
    deviations = posterior.standard_deviation(differences)
    leads = np.abs(differences @ posterior.mean)
    standardised = np.divide(leads, deviations, out=np.zeros(len(leads)), where=deviations > 0)
    if not standardised.any():
        return posterior  # an estimate of 0: every c predicts one half

    def excess(log_factor: float) -> float:
        return float(ndtr(standardised * np.exp(-log_factor / 2)).mean()) - accuracy

    if excess(-_MAX_LOG_FACTOR) <= 0:
        log_factor = -_MAX_LOG_FACTOR
    elif excess(_MAX_LOG_FACTOR) >= 0:
        log_factor = _MAX_LOG_FACTOR
    else:
        log_factor = float(brentq(excess, -_MAX_LOG_FACTOR, _MAX_LOG_FACTOR, xtol=1e-10))
    return Posterior(posterior.mean, posterior.precision * np.exp(-log_factor))


class Forecast:
    """Predicted share of pairs that the estimate will order as the truth does, after more questions; see the module.

    Args:
        posterior: Present posterior of theta.
        information: Expected Fisher information of one more question, (d, d), positive semidefinite.
        differences: Differences of the features of the two prompts of each pair, (p, d), p >= 1; pairs without a
            difference count one half.
    """

    def __init__(self, posterior: Posterior, information: Floats, differences: Floats) -> None:
        factor = cholesky(posterior.precision, lower=True)
        half_solved = solve_triangular(factor, information, lower=True)
        rates, vectors = eigh(solve_triangular(factor, half_solved.T, lower=True))
        self._rates = np.maximum(rates, 0.0)  # rounding
        self._vectors = vectors
        # x' (P + n I)^-1 x = sum_j w_j^2 / (1 + n r_j): one decomposition serves every n
        self._rows = solve_triangular(factor, differences.T, lower=True).T @ vectors
        self._means = differences @ posterior.mean

    def accuracy(self, further: ArrayLike) -> Floats:
        """After numbers of further questions (m,): (m,)."""
        counts = np.asarray(further, dtype=np.float64)
        squares = np.square(self._rows)
        variances = squares @ (1.0 / (1.0 + np.outer(self._rates, counts)))  # (p, m)
        present_variances = squares.sum(axis=1, keepdims=True)
        totals = np.zeros(len(counts))
        for start in range(0, len(self._means), _PAIRS):
            block = slice(start, start + _PAIRS)
            spread = np.sqrt(np.maximum(present_variances[block] - variances[block], 0.0))
            leads = self._means[block, None, None] + spread[:, :, None] * _NODES
            totals += _share_right(leads, variances[block][:, :, None]).mean(axis=2).sum(axis=0)
        return np.asarray(totals / len(self._means))

    def paths(self, further: ArrayLike, normal: Floats) -> Floats:
        """Accuracies along possible futures, whose mean over the futures is ``accuracy``, (s, m).

        With the precision P the estimate moves as a Brownian motion in the coordinates in which P = I and the
        information is diagonal, at the times n r / (1 + n r): the variance that is known after n questions.

        Args:
            further: Numbers of further questions, ascending from 0, (m,).
            normal: Standard normal numbers that move the estimates, (m - 1, s, d).
        """
        counts = np.asarray(further, dtype=np.float64)
        known = np.outer(counts, self._rates)
        known /= 1.0 + known
        rows = self._rows.T
        variances = np.square(self._rows) @ (1.0 - known.T)  # (p, m)
        leads = np.tile(self._means, (normal.shape[1], 1))
        found = [_share_right(leads, variances[:, 0]).mean(axis=1)]
        for index, numbers in enumerate(normal):  # V sqrt(change) V': whatever the signs of the vectors are
            moves = numbers @ self._vectors * np.sqrt(np.maximum(known[index + 1] - known[index], 0.0))
            leads = leads + moves @ rows
            found.append(_share_right(leads, variances[:, index + 1]).mean(axis=1))
        return np.stack(found, axis=1)


def _share_right(leads: Floats, variances: Floats) -> Floats:
    """Phi(|lead| / deviation); without a deviation 1, or 1/2 where there is no lead."""
    leads, deviation = np.abs(leads), np.sqrt(variances)
    divisor = np.where(deviation > 0, deviation, 1.0)
    return np.asarray(np.where(deviation > 0, ndtr(leads / divisor), np.where(leads > 0, 1.0, 0.5)))


def typical_questions(
    maker: QuestionMaker,
    encoder: TextEncoder,
    token_features: NDArray[np.float32],
    num_options: int,
    episodes: int,
    rng: np.random.Generator,
    *,
    exact: bool = False,
) -> Floats:
    """Features of all questions of random episodes, (n, K, d), up to a constant vector of each question.

    With ``exact`` all texts are embedded, for formats in which the constant matters.

    With a text encoder, a text of the tokens t_0 .. t_h is nearly a weighted sum of their embeddings, constant +
    sum_j w_hj phi(t_j), and the differences of four random prompts, d equations for each text, determine the weights.
    With MiniLM forecasts from such questions differ by at most 0.01 from those with all 480 texts embedded. If the sums
    explain less than a quarter of the variance of the four prompts' texts of some length (adjusted for the number of
    weights), all texts of the questions are embedded instead.
    """
    words = maker.vocabulary
    tokens = np.stack([rng.integers(size, size=(episodes, num_options)) for size in words.sizes], axis=2)
    steps = range(maker.num_new - 1, words.horizon)
    table = [rows.astype(np.float64) for rows in np.split(token_features, np.cumsum(words.sizes)[:-1])]
    if maker.feedback == "state":
        questions = [table[step][tokens[:, :, step]] for step in steps]
        return np.stack(questions, axis=1).reshape(-1, num_options, table[0].shape[1])

    def embedded(prompts: NDArray[np.int64]) -> Floats:  # of each token, (h + 1, ..., d)
        return np.stack([table[step][prompts[..., step]] for step in range(prompts.shape[-1])])

    sample = np.stack([rng.integers(size, size=_FITTED) for size in words.sizes], axis=1)
    texts = [text for step in steps for text in maker.texts(sample[:, : step + 1])]
    targets = np.split(encoder.encode(texts).astype(np.float64), len(steps))
    fits = [_fitted(embedded(sample[:, : step + 1]), target) for step, target in zip(steps, targets, strict=True)]
    if exact or min(explained for _, explained in fits) < _EXPLAINED:
        all_texts = [text for episode in tokens for step in steps for text in maker.texts(episode[:, : step + 1])]
        return encoder.encode(all_texts).astype(np.float64).reshape(episodes * len(steps), num_options, -1)
    questions = [
        np.einsum("jekd,j->ekd", embedded(tokens[:, :, : step + 1]), weights)
        for step, (weights, _) in zip(steps, fits, strict=True)
    ]
    return np.stack(questions, axis=1).reshape(episodes * len(steps), num_options, -1)


def _fitted(tokens: Floats, target: Floats) -> tuple[Floats, float]:
    """Weights of the tokens (h + 1, n, d) in texts (n, d), fitted about the means; the adjusted explained share."""
    columns = (tokens - tokens.mean(axis=1, keepdims=True)).reshape(len(tokens), -1).T
    values = (target - target.mean(axis=0)).ravel()
    weights = np.linalg.lstsq(columns, values, rcond=None)[0]
    free = values.size - target.shape[1]  # the means are taken off
    left = float(np.sum((values - columns @ weights) ** 2)) * free / max(free - len(weights), 1)
    total = float(values @ values)
    return weights, 1.0 - left / total if total > 0 else 1.0


def _hedged(fit: Fit) -> Floats:
    """Weights of the parts; those that the same answers selected give a part of theirs to the one they stand beside."""
    weights, base = fit.weights.copy(), fit.hedged
    total = float(weights[base:].sum())
    weights[base:] *= 1.0 - _HEDGE
    weights[base : base + 1] += _HEDGE * total
    return weights


def _same(terms: Terms, other: Terms) -> bool:
    return terms.rows.shape == other.rows.shape and all(
        np.array_equal(getattr(terms, name), getattr(other, name)) for name in ("chosen", "rows", "offsets")
    )
