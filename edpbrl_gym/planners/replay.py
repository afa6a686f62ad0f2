"""A planner of questions drawn before the first answer."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NoReturn

import numpy as np
from numpy.typing import ArrayLike, NDArray

from edpbrl_gym._validation import check_integers
from edpbrl_gym.likelihood import Response
from edpbrl_gym.planners.base import Planner

__all__ = ["ReplayPlanner"]


class ReplayPlanner(Planner):
    """Asks a fixed list of questions, whatever the answers: the draws of a design, or those of another run.

    It learns nothing; estimate from the answers themselves (``edpbrl_gym.estimation.estimate``).

    Args:
        tokens: Token of each step of each option, (T, K, H).
        distinct: Whether the options of every question differ; see `Planner`.

    Raises:
        ValueError: No questions, or K < 2.
    """

    name = "replay"
    adaptive = False

    def __init__(self, tokens: ArrayLike, *, distinct: bool = False) -> None:
        self.tokens = check_integers(tokens, "tokens", shape=("T", "K", "H"), low=0)
        episodes, self.num_options, self.horizon = self.tokens.shape
        if not episodes or not self.horizon or self.num_options < 2:
            raise ValueError(f"Expected questions of at least 2 options, tokens (T, K, H), got {self.tokens.shape}")
        self.distinct = distinct

    def ask(self, prefixes: NDArray[np.int64]) -> NDArray[np.int64]:
        """Tokens (K,) of the next step; after the last step comes the next episode.

        Raises:
            ValueError: Prompts of another length than the next question's, or no question is left.
        """
        episode, step = divmod(self.asked, self.horizon)
        if np.shape(prefixes) != (self.num_options, step):
            raise ValueError(
                f"Expected prompts of shape {(self.num_options, step)} to extend by question {self.asked}, got "
                f"{np.shape(prefixes)}"
            )
        if episode >= len(self.tokens):
            raise ValueError(f"Expected at most the {self.asked} questions of the planner, got another one")
        self.asked += 1
        return self.tokens[episode, :, step].copy()

    def follow(self, prefixes: NDArray[np.int64], tokens: NDArray[np.int64]) -> None:
        self.asked += 1

    def tell(self, options: ArrayLike, responses: Sequence[Response]) -> None:
        """Do nothing; a replay learns nothing."""

    @property
    def estimate(self) -> NoReturn:
        raise AttributeError("a ReplayPlanner learns nothing; estimate from the answers")

    @property
    def posterior(self) -> NoReturn:
        raise AttributeError("a ReplayPlanner learns nothing and has no posterior; estimate from the answers")

    def reset(self) -> None:
        """Go back to the first question."""
        self.asked = 0

    def state(self) -> dict[str, Any]:
        return self.questions()

    def restore(self, state: dict[str, Any]) -> None:
        self.restore_questions(state)
