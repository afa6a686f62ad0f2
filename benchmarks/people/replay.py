"""A new person's answers replayed: questions one after the other, the held-out ones predicted at every checkpoint."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from benchmarks.people.data import NewPerson, Person
from benchmarks.people.estimators import Estimator, Fit
from edpbrl_gym._arrays import Floats
from edpbrl_gym._seeds import generator
from edpbrl_gym.estimation import Posterior
from edpbrl_gym.likelihood import Terms

RULES: dict[str, str] = {
    "random": "in random order",
    "adaptive": "the question with the largest expected gain in log det of the posterior precision",
}
"""Name -> which of a person's own remaining questions is asked next."""

_DRAWS = 512  # of the taste: among ten questions, 64 would often take another one by chance
_TIE = 1e-9  # utilities that differ by less, relative to the largest, are equal


def expected_gain(posterior: Posterior, options: Floats, rng: np.random.Generator, draws: int) -> Floats:
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


def choose_question(
    rule: str, posterior: Callable[[], Posterior], left: Person, rng: np.random.Generator, draws: int = _DRAWS
) -> int:
    """Index of the next question among those that are left, in random order; their answers are not looked at."""
    if rule == "random" or len(left) == 1:
        return 0
    return int(expected_gain(posterior(), left.options, rng, draws).argmax())


def replay(estimator: Estimator, rule: str, person: NewPerson, answers: Sequence[int]) -> list[dict[str, Any]]:
    """Ask the person's questions by a rule; a row for each checkpoint and held-out question."""

    def choose(so_far: Terms, left: Person) -> int:
        rng = generator(0, "people", rule, person.place, len(so_far) + 1)
        return choose_question(rule, lambda: estimator.plan(so_far), left, rng)

    fits = follow(estimator, choose, person.asked, answers)
    return [{"answers": count, **row} for count, fit in fits for row in judge(fit, person.held_out)]


def follow(
    estimator: Any, choose: Callable[[Terms, Person], int], person: Person, answers: Sequence[int]
) -> Iterator[tuple[int, Fit]]:
    """Ask a person's questions one after the other, and estimate at every number of answers that there is.

    Args:
        estimator: What is known before the first answer.
        choose: The answers so far and the questions that are left, in random order -> index of the next one.
        person: The questions that may be asked, in random order, with the person's answers.
        answers: Numbers of answers; those beyond the person's questions are left out.
    """
    left = list(range(len(person)))
    asked: list[int] = []
    for count in range(max((one for one in answers if one <= len(left)), default=0) + 1):
        if count:
            asked.append(left.pop(choose(person.select(asked).terms(), person.select(left))))
        if count in answers:
            yield count, estimator.fit(person.select(asked).terms())


def judge(fit: Fit, held_out: Person) -> list[dict[str, Any]]:
    """How well a fit predicts held-out answers; a row for each question.

    - hit: whether the option that the estimate prefers was chosen, 1 / m if it prefers m options equally;
    - log_probability: of the chosen option, averaged over the posterior.
    """
    utilities = held_out.options @ fit.theta
    averaged = np.clip(fit.probabilities(held_out.options), np.finfo(np.float64).tiny, 1.0)
    rows = []
    for question, (values, shares, chosen) in enumerate(zip(utilities, averaged, held_out.chosen, strict=True)):
        best = values >= values.max() - _TIE * max(1.0, float(np.abs(values).max()))
        rows.append(
            {
                "question": question,
                "hit": float(best[chosen]) / int(best.sum()),
                "log_probability": float(np.log(shares[chosen])),
            }
        )
    return rows
