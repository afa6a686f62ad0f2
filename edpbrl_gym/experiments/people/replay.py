"""A new person's answers replayed: questions one after the other, the held-out ones predicted at every checkpoint."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any, Protocol

import numpy as np

from edpbrl_gym._arrays import Floats
from edpbrl_gym._seeds import generator
from edpbrl_gym.experiments.people.asking import choose_question
from edpbrl_gym.experiments.people.data import Person, same_size
from edpbrl_gym.experiments.people.estimators import Estimator, Fit
from edpbrl_gym.experiments.people.protocol import NewPerson
from edpbrl_gym.likelihood import Terms

__all__ = ["Choose", "follow", "judge", "replay"]

Measure = Callable[[Fit], list[dict[str, Any]]]

_TIE = 1e-9  # utilities that differ by less, relative to the largest, are equal


Choose = Callable[[Terms, Person], int]
"""The answers so far and the questions that are left, in random order -> index of the next one among the latter."""


class _Fits(Protocol):
    def fit(self, answers: Terms) -> Fit: ...


def replay(estimator: Estimator, rule: str, person: NewPerson, answers: Sequence[int]) -> list[dict[str, Any]]:
    """Ask the person's questions by a rule; a row for each checkpoint and held-out question.

    Args:
        estimator: What is known before the first answer.
        rule: Who asks; see ``asking.RULES``.
        person: The person.
        answers: Numbers of answers after which the held-out ones are predicted; those beyond the person's questions
            are left out.

    Returns:
        Rows as of ``follow``, with what ``judge`` measures.
    """

    def choose(so_far: Terms, left: Person) -> int:
        rng = generator(0, "people", rule, person.place, len(so_far) + 1)
        return choose_question(rule, lambda: estimator.plan(so_far), left, rng)

    return follow(estimator, choose, person.asked, answers, lambda fit: judge(fit, person.held_out))


def follow(
    estimator: _Fits, choose: Choose, person: Person, answers: Sequence[int], measure: Measure
) -> list[dict[str, Any]]:
    """Ask a person's questions one after the other, and measure the estimate at every checkpoint.

    Args:
        estimator: What is known before the first answer.
        choose: Chooses the next question.
        person: The questions that may be asked, in random order, with the person's answers.
        answers: Numbers of answers after which estimates are measured; those beyond the person's questions are left
            out.
        measure: What is measured of a fit: rows.

    Returns:
        Rows with answers, what ``measure`` returns, seconds_fit (of the estimate and its posterior), and
        seconds_question (the mean time to choose a question so far; NaN before the first).
    """
    left = list(range(len(person)))
    asked: list[int] = []
    rows: list[dict[str, Any]] = []
    choosing: list[float] = []
    for count in range(max((one for one in answers if one <= len(left)), default=0) + 1):
        if count:
            so_far, candidates = person.select(asked).terms(), person.select(left)
            start = time.perf_counter()
            place = choose(so_far, candidates)
            choosing.append(time.perf_counter() - start)
            asked.append(left.pop(place))
        if count in answers:
            answered = person.select(asked).terms()
            start = time.perf_counter()
            fit = estimator.fit(answered)
            seconds = {"seconds_fit": time.perf_counter() - start}
            seconds["seconds_question"] = float(np.mean(choosing)) if choosing else float("nan")
            rows += [{"answers": count, **row, **seconds} for row in measure(fit)]
    return rows


def judge(fit: Fit, held_out: Person) -> list[dict[str, Any]]:
    """How well a fit predicts held-out answers; a row for each question.

    - hit: whether the option that the estimate prefers was chosen, 1 / m if it prefers m options equally;
    - confidence: its probability, averaged over the posterior (and over the m options);
    - log_probability: of the chosen option, averaged over the posterior;
    - log_probability_at_estimate: the same at the estimate itself, as if it were certain.
    """
    rows: list[dict[str, Any]] = [{} for _ in range(len(held_out))]
    for size, places in same_size(held_out.sizes):
        options = held_out.options[places, :size]
        utilities = options @ fit.theta
        averaged = np.clip(fit.probabilities(options), np.finfo(np.float64).tiny, 1.0)
        for row, place in enumerate(places):
            rows[place] = _judged(int(place), utilities[row], averaged[row], int(held_out.chosen[place]))
    return rows


def _judged(question: int, utilities: Floats, averaged: Floats, chosen: int) -> dict[str, Any]:
    top = utilities.max()
    best = utilities >= top - _TIE * max(1.0, float(np.abs(utilities).max()))
    return {
        "question": question,
        "hit": float(best[chosen]) / int(best.sum()),
        "confidence": float(averaged[best].mean()),
        "log_probability": float(np.log(averaged[chosen])),
        "log_probability_at_estimate": float(utilities[chosen] - top - np.log(np.exp(utilities - top).sum())),
    }
