"""A new person's answers replayed: questions one after the other, the held-out ones predicted at every checkpoint."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

import numpy as np

from edpbrl_gym._arrays import Floats
from edpbrl_gym._seeds import generator
from edpbrl_gym.experiments.people.asking import choose_question
from edpbrl_gym.experiments.people.data import Person, same_size
from edpbrl_gym.experiments.people.estimators import Estimator, Fit
from edpbrl_gym.experiments.people.protocol import NewPerson

__all__ = ["judge", "replay"]

_TIE = 1e-9  # utilities that differ by less, relative to the largest, are equal


def replay(estimator: Estimator, rule: str, person: NewPerson, answers: Sequence[int]) -> list[dict[str, Any]]:
    """Ask the person's questions by a rule; a row for each checkpoint and held-out question.

    Args:
        estimator: What is known before the first answer.
        rule: Who asks; see ``asking.RULES``.
        person: The person.
        answers: Numbers of answers after which the held-out ones are predicted; those beyond the person's questions
            are left out.

    Returns:
        Rows with answers, question and what ``judge`` measures, seconds_fit (of the estimate and its posterior), and
        seconds_question (the mean time to choose a question so far; NaN before the first).
    """
    left = list(range(len(person.asked)))
    asked: list[int] = []
    rows: list[dict[str, Any]] = []
    choosing: list[float] = []
    for count in range(max((one for one in answers if one <= len(left)), default=0) + 1):
        if count:
            so_far, candidates = person.asked.select(asked).terms(), person.asked.select(left)
            rng = generator(0, "people", rule, person.place, count)
            start = time.perf_counter()
            place = choose_question(rule, lambda: estimator.plan(so_far), candidates, rng)  # noqa: B023
            choosing.append(time.perf_counter() - start)
            asked.append(left.pop(place))
        if count in answers:
            answered = person.asked.select(asked).terms()
            start = time.perf_counter()
            fit = estimator.fit(answered)
            seconds = {"seconds_fit": time.perf_counter() - start}
            seconds["seconds_question"] = float(np.mean(choosing)) if choosing else float("nan")
            rows += [{"answers": count, **row, **seconds} for row in judge(fit, person.held_out)]
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
