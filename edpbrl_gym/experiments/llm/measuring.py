"""How well estimated tastes predict the judge's held-out choices."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from edpbrl_gym._threads import one_thread
from edpbrl_gym._validation import check_array
from edpbrl_gym.estimation import estimate
from edpbrl_gym.estimation.neighbourhood import VocabularyPrior
from edpbrl_gym.experiments.llm.questions import ArmQuestions
from edpbrl_gym.experiments.llm.settings import Fold, LLMSettings

__all__ = ["GUIDANCE", "WORDS", "AnsweredArm", "agreement", "estimator_names", "fit_words", "measure"]

WORDS = "words"  # our default estimate
GUIDANCE = "guidance text"  # a reference without questions

_Answers = tuple[NDArray[np.float64], NDArray[np.int64]]  # features (n, K, d), choices (n,)
_Solution = tuple[NDArray[np.float64], bool]  # theta, converged


class AnsweredArm(NamedTuple):
    """The questions of an arm with the judge's choices under one style, (n,); -1 without an answer."""

    questions: ArmQuestions
    choices: NDArray[np.int64]

    def answers(self, chosen: NDArray[np.bool_]) -> _Answers:
        """Features and choices of some of the questions."""
        return self.questions.features[chosen].astype(np.float64), self.choices[chosen]


def estimator_names(lambdas: Sequence[float]) -> dict[str, float]:
    """Name and lambda (NaN without one) of every estimator, in the order of tables."""
    nan = float("nan")
    return {**{f"ridge (lambda = {value:g})": value for value in lambdas}, WORDS: nan, GUIDANCE: nan}


def agreement(
    theta: ArrayLike, features: NDArray[np.float32], choices: NDArray[np.int64], first_equal: NDArray[np.int64]
) -> tuple[int, int]:
    """Count the answered questions, and those where argmax_q theta . phi(tau_q) is the judge's choice (the paper's).

    Args:
        theta: The estimate, (d,).
        features: Embeddings of the options, (n, K, d); of options with exactly the same score the first is predicted.
        choices: Chosen options, (n,); -1 without an answer, which isn't counted.
        first_equal: First option with the same text, (n, K): of two equal options either counts as predicted.
    """
    taste = check_array(theta, "theta", shape=(features.shape[2],))
    answered = np.flatnonzero(choices >= 0)
    predicted = np.argmax(features[answered].astype(np.float64) @ taste, axis=1)
    same = first_equal[answered, predicted] == first_equal[answered, choices[answered]]
    return len(answered), int(same.sum())


def measure(
    settings: LLMSettings,
    style: str,
    arms: Sequence[AnsweredArm],
    tokens: NDArray[np.float32],
    guidance: NDArray[np.float64],
) -> list[dict[str, Any]]:
    """Estimate the taste from each arm's answers under one style; judge it on the held-out questions of every arm.

    The paper tests an arm on held-out questions of its own. Those of two arms differ in how easy they are to predict,
    so each estimate is also tested on the same episodes of the other arms, where all predict the same choices.

    Our default estimate (`VocabularyPrior`) takes the embeddings of the vocabulary's ``tokens``, (N, d); ``guidance``,
    (d,), is the embedding of the style's guidance text, a prediction without any question.
    """
    prior = VocabularyPrior(tokens)
    rows: list[dict[str, Any]] = []
    with one_thread():
        for arm in arms:
            for name, regularization in estimator_names(settings.lambdas).items():
                fit = functools.partial(_fit, name, regularization, prior, guidance)
                for fold in settings.all_folds:
                    for size in settings.train_sizes:
                        head: dict[str, Any] = {"style": style, "arm": arm.questions.arm, "estimator": name}
                        head |= {"regularization": regularization, "fold": fold.number, "episodes": size}
                        rows += [head | row for row in _test_rows(fit, arm, arms, fold, size)]
    return rows


def _fit(
    name: str, regularization: float, prior: VocabularyPrior, guidance: NDArray[np.float64], answers: _Answers
) -> _Solution:
    if name in (WORDS, GUIDANCE):
        return fit_words(prior, answers) if name == WORDS else (guidance, True)
    result = estimate(answers, regularization=regularization)
    return result.theta, result.converged


def fit_words(prior: VocabularyPrior, answers: _Answers) -> _Solution:
    """Our default estimate: theta, and whether it converged; 0 without any answer."""
    if not len(answers[1]):
        return np.zeros(answers[0].shape[2]), True
    fitted = prior.fit(answers).estimate
    return fitted.theta, fitted.converged


def _test_rows(
    fit: Callable[[_Answers], _Solution], arm: AnsweredArm, arms: Sequence[AnsweredArm], fold: Fold, size: int
) -> list[dict[str, Any]]:
    """One estimate, tested on the questions of every arm."""
    train, _ = fold.masks(arm.questions.episode, size)
    answered = train & (arm.choices >= 0)
    theta, converged = fit(arm.answers(answered))
    rows = []
    for tested in arms:
        _, test = fold.masks(tested.questions.episode, size)
        asked = tested.questions
        count, correct = agreement(theta, asked.features[test], tested.choices[test], asked.first_equal[test])
        row = {"tested_on": asked.arm, "train_questions": int(train.sum()), "train_answered": int(answered.sum())}
        row |= {"test_questions": int(test.sum()), "test_answered": count, "correct": correct}
        rows.append(row | {"accuracy": correct / count if count else float("nan"), "converged": converged})
    return rows
