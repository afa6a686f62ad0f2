"""Runs that diverge: one kind of error, and what to do about it."""

from __future__ import annotations

from edpbrl_gym.language.settings import ReinforceSettings

__all__ = ["DivergedError", "advice"]


class DivergedError(RuntimeError):
    """Weights, a gradient, or the scores of the next token are NaN or infinite."""


def advice(settings: ReinforceSettings) -> str:
    """What to change for the next run. A shorter gradient shortens plain gradient steps only, not those of AdamW."""
    shorten = settings.optimiser == "sgd" and settings.max_gradient_norm is None
    return (
        f"lower the learning rate (learning_rate, now {settings.learning_rate:g})"
        f"{' or set max_gradient_norm' if shorten else ''} and begin anew, without the old checkpoint"
    )
