"""Which of a person's own remaining questions is asked next."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from edpbrl_gym._arrays import Floats
from edpbrl_gym._validation import check_choice_of
from edpbrl_gym.estimation import Posterior
from edpbrl_gym.experiments.people.data import Person, same_size
from edpbrl_gym.planners.pool.state import PoolState
from edpbrl_gym.planners.pool.uncertainty import Bald

__all__ = ["DRAWS", "RULES", "choose_question", "expected_gain", "mutual_information"]

RULES: dict[str, str] = {
    "random": "in random order",
    "adaptive": "the question with the largest expected gain in log det of the posterior precision, over 512 draws",
    "bald": "the question whose answer has the largest mutual information with the taste, over 512 draws",
}
"""Name -> what it asks."""

DRAWS = 512
"""Of the taste: among ten questions, 64 would often take another one by chance."""

Value = Callable[[Posterior, Floats, np.random.Generator, int], Floats]


def expected_gain(posterior: Posterior, options: Floats, rng: np.random.Generator, draws: int = DRAWS) -> Floats:
    """The expected gain in log det of the posterior precision by each question, log det(I + P X' W X), (n,).

    P is the posterior covariance, W the mean over posterior draws of diag(p) - p p', p = softmax(X theta): the expected
    Fisher information of the question is X' W X. The determinant is that of the (K, K) matrix I + W X P X'.

    Args:
        posterior: Of theta.
        options: (n, K, d).
        rng: Draws theta.
        draws: How often.
    """
    utilities = options @ posterior.draws(draws, rng).T  # (n, K, M)
    shares = np.exp(utilities - utilities.max(axis=1, keepdims=True))
    shares /= shares.sum(axis=1, keepdims=True)
    weights = -(shares @ shares.transpose(0, 2, 1)) / draws
    diagonal = np.arange(options.shape[1])
    weights[:, diagonal, diagonal] += shares.mean(axis=2)
    inner = weights @ (options @ posterior.covariance() @ options.transpose(0, 2, 1))
    inner[:, diagonal, diagonal] += 1.0
    return np.asarray(np.linalg.slogdet(inner)[1])


def mutual_information(posterior: Posterior, options: Floats, rng: np.random.Generator, draws: int = DRAWS) -> Floats:
    """Mutual information of each question's answer and the taste, in nats, (n,): the rule ``Bald`` of the pools.

    Args:
        posterior: Of theta.
        options: (n, K, d).
        rng: Draws theta.
        draws: How often.
    """
    count, size = options.shape[:2]
    items = options.reshape(count * size, -1)
    state = PoolState(
        items, posterior.mean, posterior.precision, posterior.draws(draws, rng), posterior.precision, size
    )
    return Bald().prepare(state)(np.arange(count * size).reshape(count, size))


_VALUES: dict[str, Value] = {"adaptive": expected_gain, "bald": mutual_information}


def choose_question(
    rule: str, posterior: Callable[[], Posterior], left: Person, rng: np.random.Generator, draws: int = DRAWS
) -> int:
    """Index of the next question among those that are left.

    Args:
        rule: Of ``RULES``.
        posterior: Returns the posterior of the taste; called by rules that look at it.
        left: The questions that are left, in random order, at least one; answers are not looked at.
        rng: Of the draws.
        draws: Of the taste.

    Raises:
        ValueError: An unknown rule.
    """
    check_choice_of(rule, "rule", tuple(RULES))
    if rule == "random" or len(left) == 1:
        return 0
    known, values = posterior(), np.empty(len(left))
    for size, rows in same_size(left.sizes):
        values[rows] = _VALUES[rule](known, left.options[rows, :size], rng, draws)
    return int(values.argmax())
