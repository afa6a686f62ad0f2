"""The log of a run of REINFORCE: its steps and evaluations, whether it diverged or collapsed, and TensorBoard."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from edpbrl_gym._compat import require
from edpbrl_gym.language.settings import ReinforceSettings

__all__ = [
    "CollapseWarning",
    "DivergedError",
    "Evaluation",
    "Iteration",
    "Scalars",
    "TrainingLog",
    "advice",
    "collapse",
]

_CHANCE = 1e-4  # so small because the best evaluation is chosen among some fifty


@dataclass(frozen=True)
class Iteration:
    """One gradient step."""

    iteration: int  # from 0
    objective: float  # mean of its M meta-samples
    deviation: float  # their standard deviation
    gradient_norm: float  # of all policies together, before clipping
    divergence: float | None  # mean estimate of KL(p_q || p_base), nats a prompt; None without a KL term
    words: float  # mean number a prompt
    seconds: float  # wall-clock time


@dataclass(frozen=True)
class Evaluation:
    """The objective on random streams that training does not use; the same streams every time."""

    iteration: int  # gradient steps before it
    values: tuple[float, ...]  # the objective of each meta-sample

    @property
    def mean(self) -> float:
        """Mean objective."""
        return float(np.mean(self.values))

    @property
    def standard_error(self) -> float:
        """Standard error of the mean."""
        return float(np.std(self.values, ddof=1) / np.sqrt(len(self.values)))


@dataclass
class TrainingLog:
    """All steps and evaluations so far; ``base`` is that of the base model, which is not trained."""

    iterations: list[Iteration] = field(default_factory=list)
    evaluations: list[Evaluation] = field(default_factory=list)
    base: Evaluation | None = None

    @property
    def best(self) -> Evaluation | None:
        """The evaluation with the largest mean, the first if several tie; None if there are none yet."""
        return max(self.evaluations, key=lambda evaluation: evaluation.mean, default=None)

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> TrainingLog:
        """Inverse of ``dataclasses.asdict``."""

        def evaluation(entry: dict[str, Any]) -> Evaluation:
            return Evaluation(entry["iteration"], tuple(entry["values"]))

        return cls(
            [Iteration(**entry) for entry in data["iterations"]],
            [evaluation(entry) for entry in data["evaluations"]],
            None if data["base"] is None else evaluation(data["base"]),
        )


class DivergedError(RuntimeError):
    """Weights, a gradient, or the scores of the next token are NaN or infinite."""


class CollapseWarning(UserWarning):
    """Training made the policies far worse than they had been."""


def collapse(evaluations: Sequence[Evaluation]) -> str | None:
    """Describe how the objective fell; None if it did not.

    It fell if the last evaluation is below the best one by more than chance explains (Welch's test, one-sided, at
    0.0001), or below the first one with no spread left: a step that is far too long makes every policy write one prompt
    again and again. Evaluations of one value, or with values that are not finite, are ignored.
    """
    valid = [record for record in evaluations if len(record.values) > 1 and np.isfinite(record.values).all()]
    if len(valid) < 2 or valid[-1] is not evaluations[-1]:
        return None
    first, last, best = valid[0], valid[-1], max(valid, key=lambda record: record.mean)
    identical = len(set(last.values)) == 1 < len(set(first.values)) and last.mean < first.mean
    if not identical and _chance(best, last) > _CHANCE:
        return None
    return (
        f"the objective in evaluation fell from {best.mean:.2f} ± {best.standard_error:.2f} after {best.iteration} "
        f"iterations to {last.mean:.2f} ± {last.standard_error:.2f} after {last.iteration}"
        f"{'; the policies write the same prompts again and again' if identical else ''}"
    )


def _chance(high: Evaluation, low: Evaluation) -> float:
    """One-sided p-value of Welch's test that ``low`` is below ``high``; 1 where neither has any spread."""
    from scipy.special import stdtr

    errors = np.array([high.standard_error, low.standard_error]) ** 2
    if not errors.any():
        return 1.0
    freedom = errors.sum() ** 2 / (errors**2 / [len(high.values) - 1, len(low.values) - 1]).sum()
    return float(stdtr(freedom, (low.mean - high.mean) / np.sqrt(errors.sum())))


def advice(settings: ReinforceSettings) -> str:
    """Advice for the next run. Clipping the gradient shortens plain gradient steps, not those of AdamW."""
    shorten = settings.optimiser == "sgd" and settings.max_gradient_norm is None
    return (
        f"lower the learning rate (learning_rate, now {settings.learning_rate:g})"
        f"{' or set max_gradient_norm' if shorten else ''} and start again, without the old checkpoint"
    )


class Scalars:
    """A callback of `train` that writes the new entries of a history.

    ``iteration`` is the number of earlier steps; later ones in the folder are of an interrupted run and are purged.

    Raises:
        ModuleNotFoundError: If tensorboard is not installed.
    """

    def __init__(self, folder: Path, iteration: int) -> None:
        module = require("torch.utils.tensorboard", "TensorBoard", "language")
        self._writer = module.SummaryWriter(str(folder), purge_step=iteration)
        self._steps = self._evaluations = iteration

    def __call__(self, history: TrainingLog) -> None:
        """Write the steps and evaluations since the last call."""
        for step in history.iterations[self._steps :]:
            self._add("objective/training", step.objective, step.iteration)
            self._add("objective/deviation", step.deviation, step.iteration)
            self._add("gradient/norm", step.gradient_norm, step.iteration)
            self._add("prompts/words", step.words, step.iteration)
            if step.divergence is not None:
                self._add("prompts/divergence", step.divergence, step.iteration)
        self._steps = len(history.iterations)
        for evaluation in history.evaluations:
            if evaluation.iteration >= self._evaluations:
                self._add("objective/evaluation", evaluation.mean, evaluation.iteration)
                self._add("objective/evaluation_error", evaluation.standard_error, evaluation.iteration)
                if history.base is not None:
                    self._add("objective/base", history.base.mean, evaluation.iteration)
                self._evaluations = evaluation.iteration + 1

    def _add(self, name: str, value: float, iteration: int) -> None:
        self._writer.add_scalar(name, value, iteration)

    def close(self) -> None:
        """Flush and close the file."""
        self._writer.close()
