"""Runs that diverge or collapse: how they are detected, and what to do."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from edpbrl_gym.language.settings import ReinforceSettings
from edpbrl_gym.language.training_log import Evaluation

__all__ = ["CollapseWarning", "DivergedError", "advice", "collapse"]

_CHANCE = 1e-4  # so small because the best evaluation is chosen among some fifty


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
