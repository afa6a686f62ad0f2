"""How well estimated tastes predict the judge's held-out choices."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from edpbrl_gym._threads import one_thread
from edpbrl_gym._validation import check_array
from edpbrl_gym.estimation import estimate
from edpbrl_gym.estimation.neighbourhood import VocabularyPrior
from edpbrl_gym.experiments.llm.folds import Fold
from edpbrl_gym.experiments.llm.questions import ArmQuestions
from edpbrl_gym.experiments.llm.settings import LLMSettings

__all__ = ["GUIDANCE", "WORDS", "Agreement", "AnsweredArm", "agreement", "estimator_names", "fit_words", "measure"]

WORDS = "words"  # our default estimate
GUIDANCE = "guidance text"  # a reference without questions

_Solution = tuple[NDArray[np.float64], bool]  # theta, converged
_Fit = Callable[[NDArray[np.float64], NDArray[np.int64]], _Solution]


@dataclass(frozen=True, eq=False)
class AnsweredArm:
    """The questions of an arm with the judge's choices under one style.

    Attributes:
        questions: The questions.
        choices: Chosen options, (n,); -1 without an answer.
    """

    questions: ArmQuestions
    choices: NDArray[np.int64]


@dataclass(frozen=True)
class Agreement:
    """Agreement of predicted choices with the judge's.

    Attributes:
        answered: Questions that the judge answered.
        correct: Number of them whose choice was predicted.
    """

    answered: int
    correct: int

    @property
    def accuracy(self) -> float:
        """Share of the answered questions; NaN without any."""
        return self.correct / self.answered if self.answered else float("nan")


def estimator_names(lambdas: Sequence[float]) -> dict[str, float]:
    """Name and lambda (NaN without one) of every estimator, in the order of tables."""
    nan = float("nan")
    return {**{f"ridge (lambda = {value:g})": value for value in lambdas}, WORDS: nan, GUIDANCE: nan}


def agreement(
    theta: ArrayLike, features: NDArray[np.float32], choices: NDArray[np.int64], first_equal: NDArray[np.int64]
) -> Agreement:
    """Count the questions where argmax_q theta . phi(tau_q) is the judge's choice (paper, hold-out accuracy).

    Args:
        theta: The estimate, (d,).
        features: Embeddings of the options, (n, K, d).
        choices: Chosen options, (n,); -1 without an answer, which isn't counted.
        first_equal: First option with the same text, (n, K): of two equal options either counts as predicted.

    Returns:
        The counts. Of different options with exactly the same score the first is the prediction.
    """
    taste = check_array(theta, "theta", shape=(features.shape[2],))
    answered = np.flatnonzero(choices >= 0)
    predicted = np.argmax(features[answered].astype(np.float64) @ taste, axis=1)
    same = first_equal[answered, predicted] == first_equal[answered, choices[answered]]
    return Agreement(len(answered), int(same.sum()))


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

    Args:
        settings: Folds, train sizes, lambdas.
        style: Name of the style.
        arms: All arms.
        tokens: Embeddings of the vocabulary, (N, d), for our default estimate (`VocabularyPrior`).
        guidance: Embedding of the style's guidance text, (d,): a prediction without any question.

    Returns:
        A row for each arm, estimator, fold, train size and arm whose questions are predicted.
    """
    fits = _fits(settings, VocabularyPrior(tokens), guidance)
    rows: list[dict[str, Any]] = []
    with one_thread():
        for arm in arms:
            for name, regularization in estimator_names(settings.lambdas).items():
                for fold in settings.all_folds:
                    for size in settings.train_sizes:
                        head: dict[str, Any] = {"style": style, "arm": arm.questions.arm, "estimator": name}
                        head |= {"regularization": regularization, "fold": fold.number, "episodes": size}
                        rows += [head | row for row in _test_rows(fits[name], arm, arms, fold, size)]
    return rows


def _test_rows(fit: _Fit, arm: AnsweredArm, arms: Sequence[AnsweredArm], fold: Fold, size: int) -> list[dict[str, Any]]:
    """One estimate, tested on the questions of every arm."""
    train, _ = fold.masks(arm.questions.episode, size)
    answered = train & (arm.choices >= 0)
    theta, converged = fit(arm.questions.features[answered].astype(np.float64), arm.choices[answered])
    rows = []
    for tested in arms:
        _, test = fold.masks(tested.questions.episode, size)
        counts = agreement(
            theta, tested.questions.features[test], tested.choices[test], tested.questions.first_equal[test]
        )
        rows.append(
            {
                "tested_on": tested.questions.arm, "train_questions": int(train.sum()),
                "train_answered": int(answered.sum()), "test_questions": int(test.sum()),
                "test_answered": counts.answered, "correct": counts.correct, "accuracy": counts.accuracy,
                "converged": converged,
            }
        )  # fmt: skip
    return rows


def fit_words(prior: VocabularyPrior, options: NDArray[np.float64], choices: NDArray[np.int64]) -> _Solution:
    """Our default estimate: theta, and whether it converged; 0 without any answer."""
    if not len(choices):
        return np.zeros(options.shape[2]), True
    fitted = prior.fit((options, choices)).estimate
    return fitted.theta, fitted.converged


def _fits(settings: LLMSettings, prior: VocabularyPrior, guidance: NDArray[np.float64]) -> dict[str, _Fit]:
    fits: dict[str, _Fit] = {
        WORDS: lambda options, choices: fit_words(prior, options, choices),
        GUIDANCE: lambda options, choices: (guidance, True),
    }
    for name, value in estimator_names(settings.lambdas).items():
        if name not in fits:
            fits[name] = _ridge(value)
    return fits


def _ridge(regularization: float) -> _Fit:
    def fit(options: NDArray[np.float64], choices: NDArray[np.int64]) -> _Solution:
        result = estimate((options, choices), regularization=regularization)
        return result.theta, result.converged

    return fit
