"""The choice model: a K-way multinomial logit (softmax of linear utilities).

A question shows K options with features x_1..x_K; the user chooses option k with probability

    p_k = exp(theta . x_k) / sum_j exp(theta . x_j),

for K = 2 the Bradley-Terry model. The Fisher information of one question is the covariance of the features under
these probabilities, sum_k p_k x_k x_k' - xbar xbar' with xbar = sum_k p_k x_k (McFadden, 1974; the paper's Eq. 3).

Everything is float64 and works on arrays: ``options`` is (n, K, d), ``choices`` is (n,), ``theta`` is (d,). All raise a
ValueError for K < 2, NaN, choices outside 0..K-1, and lengths or dimensions that do not match.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, DTypeLike, NDArray

from edpbrl_gym._arrays import Floats
from edpbrl_gym._validation import check_array, check_integers

__all__ = [
    "check_choices",
    "check_options",
    "choice_probabilities",
    "fisher_information",
    "information_from_differences",
    "log_likelihood",
    "log_softmax",
    "score",
    "utilities",
]


# Feature rows in a block of the Fisher information: large enough for BLAS, small enough for the memory.
_BLOCK_ROWS = 4096


def check_options(
    options: ArrayLike, *, name: str = "options", dtype: DTypeLike = np.float64, least: int = 2
) -> NDArray[Any]:
    """Return ``options`` as a finite array (n, K, d) of the given floating type, with K >= ``least``.

    Raises:
        ValueError: Another shape, fewer options per question, no features, NaN or infinity.
    """
    array = check_array(options, name, shape=("n", "K", "d"), dtype=dtype)
    if array.shape[1] < least:
        raise ValueError(
            f"Expected at least {least} option{'s' if least > 1 else ''} in every question, got {name} of shape "
            f"{array.shape} (K = {array.shape[1]}); a choice among fewer says nothing"
        )
    if array.shape[2] < 1:
        raise ValueError(f"Expected at least 1 feature for every option, got {name} of shape {array.shape}")
    return array


def check_choices(choices: ArrayLike, options: NDArray[Any]) -> NDArray[np.int64]:
    """Return ``choices`` as int64 (n,), each in 0..K-1 of ``options`` (n, K, d).

    Raises:
        TypeError: The choices are not integers.
        ValueError: There are more or fewer choices than questions, or an index is outside 0..K-1.
    """
    num_questions, num_options = options.shape[:2]
    hint = f"one choice for each of the {num_questions} questions"
    return check_integers(choices, "choices", shape=(num_questions,), low=0, high=num_options - 1, hint=hint)


def utilities(options: Floats, theta: Floats) -> Floats:
    """Utilities theta . x_k, shape (n, K), of checked arrays.

    One dot product per row, so that the value of an option depends neither on its position nor on the size of the batch
    (matrix products of BLAS may round equal rows differently, which would break ties at random).
    """
    return np.asarray(np.vecdot(options, theta))


def log_softmax(values: Floats) -> Floats:
    """log(exp(v_k) / sum_j exp(v_j)) over the last axis, stable for values of any size."""
    shifted = values - values.max(axis=-1, keepdims=True)
    return np.asarray(shifted - np.log(np.exp(shifted).sum(axis=-1, keepdims=True)))


def utilities_at(features: Floats, theta: ArrayLike) -> Floats:
    """`utilities` of checked options at a theta that is checked here."""
    hint = f"the options have {features.shape[2]} features"
    return utilities(features, check_array(theta, "theta", shape=(features.shape[2],), hint=hint))


def _log_probabilities(features: Floats, theta: ArrayLike) -> Floats:
    """Log p, (n, K), of checked options."""
    return log_softmax(utilities_at(features, theta))


def choice_probabilities(options: ArrayLike, theta: ArrayLike) -> Floats:
    """Probability of each option under the multinomial logit, (n, K), rows sum to 1."""
    return np.exp(_log_probabilities(check_options(options), theta))


def log_likelihood(options: ArrayLike, choices: ArrayLike, theta: ArrayLike) -> float:
    """Sum over the questions of log p(choice)."""
    features = check_options(options)
    chosen = check_choices(choices, features)
    logs = _log_probabilities(features, theta)
    return float(np.take_along_axis(logs, chosen[:, None], axis=1).sum())


def score(options: ArrayLike, choices: ArrayLike, theta: ArrayLike) -> Floats:
    """Gradient of the log-likelihood in theta: sum over the questions of x_choice - sum_k p_k x_k, (d,)."""
    features = check_options(options)
    chosen = check_choices(choices, features)
    residuals = -np.exp(_log_probabilities(features, theta))
    residuals[np.arange(len(chosen)), chosen] += 1.0
    return np.asarray(residuals.ravel() @ features.reshape(-1, features.shape[2]))


def fisher_information(options: ArrayLike, theta: ArrayLike | None = None) -> Floats:
    """Fisher information of the questions: the sum of the features' covariances under the choice probabilities.

    It does not depend on the answers, so it is minus the Hessian of the log-likelihood as well as its expectation.

    Without a theta p = 1/K for every option, as at theta = 0. The matrix is symmetric positive semidefinite, (d, d).
    """
    features = check_options(options)
    num_questions, num_options, dimension = features.shape
    if theta is None:
        probabilities = np.full((num_questions, num_options), 1.0 / num_options)
    else:
        probabilities = np.exp(_log_probabilities(features, theta))
    information = np.zeros((dimension, dimension))
    block = max(1, _BLOCK_ROWS // num_options)
    for start in range(0, num_questions, block):  # by blocks: all differences could take gigabytes
        block_features = features[start : start + block]
        differences = block_features[:, 1:] - block_features[:, :1]
        information += information_from_differences(differences, probabilities[start : start + block])
    return information


def information_from_differences(differences: NDArray[np.floating], probabilities: Floats) -> Floats:
    """Fisher information from differences to a reference option, by one symmetric BLAS product per block.

    A covariance of K points has rank K - 1. Adding the points one at a time (West, 1979) writes it as K - 1 squares,

        Cov = sum_{j>=2} (W_{j-1} p_j / W_j) (x_j - m_{j-1}) (x_j - m_{j-1})',

    with W_j = p_1 + .. + p_j and m_j the weighted mean of the first j points. All terms are positive, so nothing
    cancels and the result is positive semidefinite up to the rounding of the product.

    Args:
        differences: x_k - x_reference for the other K - 1 options, (n, K - 1, d), whose precision that of the products
            is.
        probabilities: Probabilities of the K options, the reference first, (n, K).

    Returns:
        Sum over the questions, (d, d).
    """
    num_questions, others, dimension = differences.shape
    information = np.zeros((dimension, dimension))
    block = max(1, _BLOCK_ROWS // others)
    for start in range(0, num_questions, block):
        rows = information_rows(differences[start : start + block], probabilities[start : start + block])
        information += rows.T @ rows
    return information


def information_rows(differences: NDArray[np.floating], probabilities: Floats) -> NDArray[np.floating]:
    """The rows Y, (n (K - 1), d), whose squares Y' Y are ``information_from_differences``."""
    factor = _running_factor(probabilities).astype(differences.dtype, copy=False)
    return np.asarray(np.matmul(factor, differences).reshape(-1, differences.shape[2]))


def _running_factor(probabilities: Floats) -> Floats:
    """Lower triangular (n, K-1, K-1) matrices A with (A D)'(A D) = Cov, D the differences to the first option."""
    num_questions, num_options = probabilities.shape
    factor = np.zeros((num_questions, num_options - 1, num_options - 1))
    total = probabilities[:, 0].copy()
    for j in range(1, num_options):
        probability = probabilities[:, j]
        new_total = total + probability
        weight = np.sqrt(np.divide(total * probability, new_total, out=np.zeros_like(new_total), where=new_total > 0))
        factor[:, j - 1, j - 1] = weight
        # shares of the earlier options in their mean; where all of them have underflowed to 0 the row weighs 0
        shares = np.zeros((num_questions, j - 1))
        np.divide(probabilities[:, 1:j], total[:, None], out=shares, where=total[:, None] > 0)
        factor[:, j - 1, : j - 1] = -weight[:, None] * shares
        total = new_total
    return factor
