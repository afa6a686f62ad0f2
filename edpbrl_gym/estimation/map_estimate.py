"""The estimate of the taste: penalised maximum likelihood (MAP) of the multinomial logit by a damped Newton method.

theta_hat maximises  log-likelihood(theta) - 1/2 (theta - m)' P (theta - m),  with P and m the precision and mean of a
Gaussian prior; P = lambda I with m = 0 is the paper's ridge. For a positive definite P the objective is strictly
concave, so there is exactly one maximum. Without a prior (lambda = 0) it may not exist: see :func:`estimate`.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import numpy as np
from numpy.typing import ArrayLike
from scipy.linalg import LinAlgError, cho_factor, cho_solve

from edpbrl_gym._arrays import Floats, MadeWhenRead
from edpbrl_gym._validation import check_array, check_choice_of, check_count, check_number
from edpbrl_gym.comparisons import Comparisons
from edpbrl_gym.comparisons.frames import answers_of_frame, options_of_frame
from edpbrl_gym.comparisons.queries import is_frame, padded_options, present_options, rank_of
from edpbrl_gym.estimation.newton import Maximum, conjugate_newton, log_posterior, maximise
from edpbrl_gym.estimation.prior import GaussianPrior
from edpbrl_gym.estimation.separation import is_separable, smallest_singular_value
from edpbrl_gym.estimation.taste_prior import check_prior
from edpbrl_gym.likelihood import AnswerFormat, Response, Terms
from edpbrl_gym.likelihood.choice import check_choices, log_softmax, utilities
from edpbrl_gym.likelihood.terms import uneven_terms

if TYPE_CHECKING:
    import pandas

    from edpbrl_gym.comparisons.queries import QuestionShape

__all__ = ["Answers", "Data", "Estimate", "Options", "answer_differences", "answer_terms", "estimate"]

_log = logging.getLogger(__name__)

Options: TypeAlias = "ArrayLike | Sequence[ArrayLike] | pandas.DataFrame"
Answers: TypeAlias = ArrayLike | Sequence[Response]
Data: TypeAlias = "Comparisons | Terms | pandas.DataFrame | tuple[Options, Answers]"


@dataclass(frozen=True, eq=False)
class Estimate:
    """The estimated taste and its precision.

    Attributes:
        theta: The maximiser, (d,), in the user's own units: for a user with inverse temperature s and direction t it
            estimates s * t.
        converged: Whether theta is the maximiser to the tolerance. If False, read ``reason`` and do not use theta.
        iterations: Number of Newton steps.
        gradient_norm: Euclidean norm of the gradient of the log posterior at theta.
        log_likelihood: Log-likelihood of the answers at theta.
        log_posterior: log_likelihood - 1/2 (theta - m)' P (theta - m) (without the normalising constants).
        precision: Fisher information at theta plus the prior precision, (d, d): the precision of the Laplace posterior.
            It may be given as a function without arguments, which is called when the precision is first read.
        reason: Why the iteration did not converge; "" if it did.
        attributes: Names of the features, where the answers had names for them; else None.
        own: The format's own parameters (thresholds of ratings) that were estimated beside theta, (e,); else empty.
            ``precision`` is that of theta alone, with their uncertainty in it (the Schur complement).
        own_errors: Their posterior standard deviations, (e,).
    """

    theta: Floats
    converged: bool
    iterations: int
    gradient_norm: float
    log_likelihood: float
    log_posterior: float
    precision: MadeWhenRead[Floats] = MadeWhenRead()
    reason: str = ""
    attributes: tuple[str, ...] | None = None
    own: Floats = field(default_factory=lambda: np.zeros(0))
    own_errors: Floats = field(default_factory=lambda: np.zeros(0))

    def __getstate__(self) -> dict[str, Any]:
        """All fields, the precision made."""
        _ = self.precision
        return self.__dict__

    def covariance(self) -> Floats:
        """Covariance of the Laplace approximation of the posterior, the inverse of ``precision``, (d, d).

        Raises:
            ValueError: The precision is singular, for example without a prior where the estimate did not converge.
        """
        try:
            inverse = cho_solve(cho_factor(self.precision), np.eye(len(self.precision)))
        except LinAlgError:
            reason = self.reason or "no prior and too few answers"
            raise ValueError(
                f"Expected a positive definite precision, got a singular one ({reason}); use regularization > 0"
            ) from None
        return np.asarray((inverse + inverse.T) / 2)

    def predict(
        self, options: Options | QuestionShape, *, output: Literal["probabilities", "utilities"] = "probabilities"
    ) -> Any:
        """What a person with this taste would choose: the probability of each option, or its utility.

        The utility of option k of question i is v_ik = theta . x_ik; it is chosen with the probability

            p_ik = exp(v_ik) / sum_j exp(v_ij),   j over the options of question i,

        the multinomial logit of :mod:`edpbrl_gym.likelihood`. The uncertainty of theta is left out;
        ``Posterior.from_estimate(estimate).choice_probabilities`` averages over it.

        Args:
            options: Features of one question's options, (K, d); of n questions, (n, K, d) or a list of arrays (K_i, d);
                Comparisons or Queries; or a pandas.DataFrame with a row for each option, whose columns are the
                features: those with the names ``attributes``, else all d but the keys. Without a column or an index
                level of the question all its rows are one question. A column ``available`` is read as in files.
            output: "probabilities" or "utilities".

        Returns:
            (K,) for one question; (n, K) for several, where an option that is not there has the probability 0 and the
            utility -inf (so has one that is not available); for a DataFrame a pandas.Series with its index.

        Raises:
            TypeError: Options that are not numbers.
            ValueError: K < 2, NaN, another number of features, a missing column, or an unknown output.
        """
        check_choice_of(output, "output", ("probabilities", "utilities"))
        if is_frame(options):
            features, rows = options_of_frame(options, len(self.theta), self.attributes)
            there = [row for question in rows for row in question]
            values = np.full(len(features), 0.0 if output == "probabilities" else -np.inf)
            values[there] = utilities(features[there], self.theta)
            if output == "probabilities":
                for question in rows:
                    values[question] = np.exp(log_softmax(values[question]))
            import pandas

            frame: Any = options
            return pandas.Series(values, index=frame.index, name=output)
        one = rank_of(options) == 2
        given = np.asarray(options)[None] if one else options
        features, sizes = padded_options(given, name="options", dtype=np.float64)
        dimension = len(self.theta)
        check_array(features, "options", shape=("n", "K", dimension), hint=f"theta has {dimension} features")
        values = np.where(present_options(sizes, features.shape[1]), utilities(features, self.theta), -np.inf)
        result = np.exp(log_softmax(values)) if output == "probabilities" and len(values) else values
        return result[0] if one else result


def estimate(
    data: Data | Options,
    choices: Answers | None = None,
    *,
    prior: GaussianPrior | None = None,
    regularization: float | None = None,
    model: AnswerFormat | None = None,
    tolerance: float = 1e-8,
    max_iterations: int = 100,
    start: ArrayLike | None = None,
) -> Estimate:
    """Estimate the taste from answered questions: the maximum of the penalised log-likelihood.

    The likelihood is that of the best of K options; with ``model``, or from terms, that of any format of answers, as a
    sum of multinomial logits with offsets. ``Estimate.precision`` then contains the observed information, minus the
    Hessian. Skips carry no information.

    Newton's method with the exact gradient and backtracking. With a proper prior its steps are those of conjugate
    gradients (:mod:`~edpbrl_gym.estimation.newton`), and the Hessian is computed when ``precision`` is first read;
    without one, or where these don't converge, of a Cholesky factor. It has converged when the Newton decrement
    sqrt(g' H^-1 g), the length of the next step in posterior standard deviations, is at most ``tolerance``; this does
    not depend on the scale of the features.

    Without a proper prior the maximum exists if and only if the differences of the options span the features and no
    direction ranks every chosen option at least as high as the others (Albert & Anderson, 1984). If the first condition
    fails, that is an error; if the second fails (separable answers), ``converged`` is False.

    Args:
        data: :class:`~edpbrl_gym.comparisons.Comparisons`; the :class:`~edpbrl_gym.likelihood.Terms` of any answers; a
            long table of one person (pandas.DataFrame, as :func:`~edpbrl_gym.comparisons.load_comparisons` reads); or a
            pair (options, choices). For n = 0 the result is the prior's mode.
        choices: The choices, where ``data`` are the options alone. Options are features (n, K, d), K >= 2, or n arrays
            (K_i, d), and choices the chosen options (n,), or, with ``model``, the n
            :class:`~edpbrl_gym.likelihood.Response`. Options may also be a DataFrame with a row for each option, with
            the question as a column or an index level and the features as columns; choices then are the chosen options
            (n,), by number or by the name of the option, or a truth value for each row.
        prior: Gaussian prior; alternatively give ``regularization``.
        regularization: lambda >= 0 of the isotropic prior, 1.0 if neither is given.
        model: Response model (best-worst, a ranking, with ties); None: the answers name the best option.
        tolerance: Bound on the Newton decrement, > 0.
        max_iterations: Maximum number of Newton steps, >= 1.
        start: Initial theta, (d,), for example the last estimate; ignored where the prior's mean is better. None: the
            prior's mean.

    Returns:
        The estimate; check ``converged``.

    Raises:
        TypeError: Data of another type, responses without a model, or a prior that is not a GaussianPrior.
        ValueError: NaN, K < 2, choices outside 0..K-1, dimensions that do not match, lambda < 0, both a prior and a
            regularization, both terms and a model, or no prior and options that do not span the features.
    """
    given = _with_answers(data, choices)
    terms = _raw_terms(given, model)
    differences, offsets = _differences(terms)
    full = _resolve_prior(prior, regularization, differences.shape[2] - len(terms.own))
    if len(terms.own):
        full = _with_own(full, terms.own)
        start = None if start is None else np.concatenate([np.asarray(start, dtype=np.float64), terms.own[:, 0]])
    if len(differences) and not differences.any():
        _log.warning("All options of each of the %d answers have equal features: nothing is learnt", len(differences))
    found = _solve(differences, offsets, full, tolerance=tolerance, max_iterations=max_iterations, start=start)
    if len(terms.own):
        found = _marginal(found, len(terms.own))
    if isinstance(given, Comparisons) and "attributes" in given.metadata:
        object.__setattr__(found, "attributes", given.attributes)
    return found


def _with_answers(data: Data | Options, answers: Answers | None) -> Comparisons | Terms | tuple[Any, Any]:
    """The data with answers given apart, and tables read.

    Raises:
        TypeError: Answers beside data that have some, or data without any.
        ValueError: A table that holds no answers of one person, or answers that do not match it.
    """
    if is_frame(data):
        return answers_of_frame(data, answers)
    if answers is not None:
        if isinstance(data, (Comparisons, Terms)):
            raise TypeError(
                f"Expected options beside answers, got {type(data).__name__}, which has answers; give it alone"
            )
        return data, answers
    if isinstance(data, tuple) and len(data) == 2 and is_frame(data[0]):
        return answers_of_frame(*data)
    if not isinstance(data, (Comparisons, Terms)) and not (isinstance(data, tuple) and len(data) == 2):
        raise TypeError(
            "Expected answers as Comparisons, Terms, a long table (pandas.DataFrame) or a pair (options, answers), got "
            f"{type(data).__name__}; give the options (n, K, d) and the choices (n,) as estimate(options, choices)"
        )
    return data


def answer_differences(data: Data, model: AnswerFormat | None = None) -> tuple[Floats, Floats | None]:
    """Differences to the chosen alternatives, (n, K - 1, d), and their offsets, (n, K - 1), or None if all are 0.

    Arguments and errors are those of ``answer_terms``.
    """
    return _differences(answer_terms(data, model))


def _differences(terms: Terms) -> tuple[Floats, Floats | None]:
    differences, offsets = terms.differences()
    return differences, offsets if offsets.any() else None


def answer_terms(data: Data, model: AnswerFormat | None = None) -> Terms:
    """Answers as multinomial logits about theta alone.

    A format's own parameters are put in as estimated beside theta, under the ridge whose lambda has the largest Laplace
    evidence among powers of ten.

    Args:
        data: As for ``estimate``, with options and choices as a pair.
        model: Response model; None: each answer names the best of K options. Terms already contain their model.

    Raises:
        TypeError: The data has none of these forms, or there are responses without a model.
        ValueError: A model beside Terms, a response that names no best option without a model, or options and answers
            that do not match.
    """
    terms = _raw_terms(data, model)
    return terms.at(_own_values(terms)) if len(terms.own) else terms


def _raw_terms(data: Data, model: AnswerFormat | None) -> Terms:
    """Answers as multinomial logits, with columns of the format's own parameters."""
    given: Any = _with_answers(data, None)
    if isinstance(given, Terms):
        if model is not None:
            raise ValueError("Expected no model beside Terms, which were made by one; got both")
        return given
    if isinstance(given, Comparisons):
        given = given.features, given.choice if model is None else given.responses, given.sizes
    options, answers, *sizes = given
    if model is None and isinstance(answers, Sequence) and any(isinstance(answer, Response) for answer in answers):
        raise TypeError("Expected a model of the responses, got none; give model=BestOf(), Ranking(), ...")
    least = 2 if model is None else model.least
    features, counts = padded_options(options, *sizes, name="options", dtype=np.float64, least=least)
    if model is not None:
        return uneven_terms(model, features, counts, answers)
    chosen = check_choices(answers, features)
    present = present_options(counts, features.shape[1])
    absent = np.flatnonzero(chosen >= counts)
    if len(absent):
        index = int(absent[0])
        raise ValueError(f"Expected choices in 0..{counts[index] - 1} in question {index}, got {chosen[index]}")
    return Terms(features, np.where(present, 0.0, -np.inf), chosen)


def _with_own(prior: GaussianPrior, own: Floats) -> GaussianPrior:
    """The prior of theta and of a format's own parameters, independent of it and of each other."""
    size = prior.dimension
    precision = np.zeros((size + len(own),) * 2)
    precision[:size, :size] = prior.precision
    precision[range(size, len(precision)), range(size, len(precision))] = own[:, 1] ** -2.0
    return GaussianPrior.from_precision(precision, np.concatenate([prior.mean, own[:, 0]]))


def _marginal(found: Estimate, count: int) -> Estimate:
    """The estimate of theta, from one of theta and ``count`` own parameters of the format."""
    size = len(found.theta) - count
    inner, cross = found.precision[size:, size:], found.precision[:size, size:]
    precision = found.precision[:size, :size] - cross @ np.linalg.solve(inner, cross.T)
    errors = np.sqrt(np.diagonal(np.linalg.pinv(found.precision, hermitian=True))[size:])
    precision = (precision + precision.T) / 2
    return replace(
        found, theta=found.theta[:size], precision=precision, own=found.theta[size:], own_errors=np.array(errors)
    )


_RIDGES = (100.0, 10.0, 1.0, 0.1, 0.01, 0.001)


def _own_values(terms: Terms) -> Floats:
    """The own parameters, (e,), estimated beside theta under the likeliest ridge; without answers their prior means."""
    if not len(terms):
        return terms.own[:, 0]
    differences, offsets = _differences(terms)
    used = np.asarray(differences.any(axis=(0, 1)))  # others are independent of all answers, as of items never shown
    used[terms.dimension - len(terms.own) :] = True
    differences = differences[:, :, used]
    best, values, size = -np.inf, terms.own[:, 0], differences.shape[2] - len(terms.own)
    for ridge in _RIDGES:
        found = _solve(
            differences, offsets, _with_own(GaussianPrior.isotropic(size, ridge), terms.own),
            tolerance=1e-8, max_iterations=100, start=None,
        )  # fmt: skip
        evidence = found.log_posterior + 0.5 * (size * np.log(ridge) - np.linalg.slogdet(found.precision)[1])
        if found.converged and evidence > best:
            best, values = evidence, found.theta[size:]
    return values


def _resolve_prior(prior: GaussianPrior | None, regularization: float | None, dimension: int) -> GaussianPrior:
    """The given prior, or without one the ridge with lambda = ``regularization`` (None: 1.0).

    Raises:
        TypeError: The prior is not a GaussianPrior.
        ValueError: Both are given, the prior has another dimension, or lambda < 0.
    """
    if prior is None:
        return GaussianPrior.isotropic(dimension, 1.0 if regularization is None else regularization)
    check_prior(prior, "prior", GaussianPrior, hint="; make one with GaussianPrior.from_precision(matrix)")
    if regularization is not None:
        raise ValueError("Expected either prior or regularization, got both; the prior already holds the precision")
    if prior.dimension != dimension:
        raise ValueError(f"Expected a prior of dimension {dimension} (the options'), got one of {prior.dimension}")
    return prior


def _solve(
    differences: Floats,
    offsets: Floats | None,
    prior: GaussianPrior,
    *,
    tolerance: float,
    max_iterations: int,
    start: ArrayLike | None,
) -> Estimate:
    """Estimate from the result of ``answer_differences``."""
    dimension = prior.dimension
    tolerance = check_number(tolerance, "tolerance", minimum=0.0, exclusive=True)
    max_iterations = check_count(max_iterations, "max_iterations")
    theta, mean = prior.mean.copy(), prior.mean if prior.mean.any() else None
    if start is not None:
        warm = check_array(start, "start", shape=(dimension,)).copy()
        # far away, saturated probabilities carry next to no curvature
        at_mean, at_warm = (
            log_posterior(differences, prior.precision, point, offsets=offsets, prior_mean=mean)
            for point in (theta, warm)
        )
        theta = theta if at_warm < at_mean else warm
    smallest = 0.0 if prior.proper else smallest_singular_value(differences, prior.null_space)
    maximum: Maximum | None = None
    if prior.proper:
        most = max_iterations // 2  # should products be too inaccurate to converge, dense steps still can
        maximum = conjugate_newton(differences, prior, theta, tolerance=tolerance, max_iterations=most, offsets=offsets)
        theta = maximum.theta
    if maximum is None or maximum.reason:
        maximum = maximise(
            differences,
            prior.precision,
            theta,
            tolerance=tolerance,
            max_iterations=max_iterations,
            offsets=offsets,
            prior_mean=mean,
            taken=0 if maximum is None else maximum.iterations,
        )
    reason = maximum.reason
    if not prior.proper and is_separable(
        *_rejected(differences, offsets, maximum.probabilities), prior.null_space, maximum.score, smallest
    ):
        reason = (
            "the answers are separable: a direction ranks every chosen option at least as high as the others, so the "
            "likelihood has no maximum; use regularization > 0 or ask more questions"
        )
    return Estimate(
        theta=maximum.theta,
        converged=not reason,
        iterations=maximum.iterations,
        gradient_norm=maximum.gradient_norm,
        log_likelihood=maximum.log_likelihood,
        log_posterior=maximum.log_posterior,
        precision=partial(attrgetter("precision"), maximum),
        reason=reason,
    )


def _rejected(differences: Floats, offsets: Floats | None, probabilities: Floats) -> tuple[Floats, Floats]:
    """The differences (m, d) of the options that were there and not chosen, and their probabilities (m,)."""
    present = np.ones(differences.shape[:2], dtype=bool) if offsets is None else ~np.isneginf(offsets)
    return differences[present], probabilities[:, 1:][present]
