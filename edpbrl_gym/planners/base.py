"""The interface of a planner, which chooses the next question and learns from its answer."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from edpbrl_gym.estimation import Estimate, Posterior
from edpbrl_gym.estimation.other_texts import OtherTexts
from edpbrl_gym.estimation.priors import default_prior, make_prior
from edpbrl_gym.estimation.taste_prior import TastePrior
from edpbrl_gym.likelihood import AnswerFormat, BestOf, Response

__all__ = ["Planner"]


class Planner(ABC):
    """Chooses the next token of each of the K options, and learns from the answers.

    A planner must be deterministic: with the same arguments and the same calls of ``ask`` and ``tell`` it asks the same
    questions, whether or not its estimate is read in between. A session relies on this to go back and to be resumed.
    Your own planner implements ``ask``, ``tell``, ``estimate`` and ``posterior``, sets ``num_options``,
    and counts its questions in ``asked``; with ``reset``, or ``state`` and ``restore``, a session can go back.

    Attributes:
        name: Name in tables, files and messages.
        needs: Optional packages that it imports, by their import names.
        num_options: K.
        model: Format of the answers.
        asked: Number of questions asked.
        adaptive: Whether its questions depend on the answers.
        distinct: Whether the options of a question always differ, as people should see; a planner for simulated users
            may say False.
    """

    name: str = "planner"
    needs: tuple[str, ...] = ()
    num_options: int
    model: AnswerFormat = BestOf()
    asked: int = 0
    adaptive: bool = True
    distinct: bool = True

    @classmethod
    def default_prior(
        cls,
        token_features: NDArray[np.floating],
        blocks: Sequence[int] = (),
        *,
        pool: bool = False,
        others: OtherTexts | None = None,
    ) -> TastePrior:
        """The default prior, from the embeddings of all tokens, (N, d), in the blocks of their encoder.

        Args:
            token_features: The embeddings.
            blocks: The blocks.
            pool: Whether the tokens are items of a pool.
            others: `other_texts` of the vocabulary.
        """
        name = default_prior(blocks, len(token_features) if pool else 0)
        return make_prior(name, token_features, blocks=blocks, others=others)

    @classmethod  # noqa: B027  (optional for subclasses)
    def check_options(cls, *, num_options: int, **options: Any) -> None:
        """Raise for options that the constructor would refuse, before features are embedded.

        Raises:
            ValueError: An option out of range.
        """

    @classmethod
    def is_adaptive(cls, **options: Any) -> bool:
        """Whether the questions of a planner with these options depend on the answers."""
        return cls.adaptive

    @abstractmethod
    def ask(self, prefixes: NDArray[np.int64]) -> NDArray[np.int64]:
        """Tokens (K,) of step h that extend the prompts ``prefixes``, (K, h)."""

    def follow(self, prefixes: NDArray[np.int64], tokens: NDArray[np.int64]) -> None:
        """Go on as if ``ask(prefixes)`` had returned these tokens: a question that was asked already.

        A planner that need not choose them again is quick at it; the base class asks.
        """
        self.ask(prefixes)

    @abstractmethod
    def tell(self, options: NDArray[np.float32], responses: Sequence[Response]) -> None:
        """Learn from n answered questions, options (n, K, d)."""

    @property
    @abstractmethod
    def estimate(self) -> Estimate:
        """The taste estimated from all answers so far."""

    @property
    @abstractmethod
    def posterior(self) -> Posterior:
        """The posterior of the taste."""

    def think(self) -> None:  # noqa: B027  (optional for subclasses)
        """Precompute while the person looks at the options; it changes no question."""

    def reset(self) -> None:
        """Forget all questions and answers.

        Raises:
            NotImplementedError: The planner has no ``reset``; see ``can_reset``.
        """
        raise NotImplementedError(f"the planner {self.name} has no reset()")

    @property
    def can_reset(self) -> bool:
        """Whether it has a ``reset`` of its own."""
        return type(self).reset is not Planner.reset

    def questions(self) -> dict[str, Any]:
        """Questions asked and planned: the part of the state that answers don't change, as arrays and numbers."""
        return {"asked": self.asked}

    def restore_questions(self, questions: dict[str, Any]) -> None:
        """Go on from ``questions``; the answers are forgotten."""
        self.reset()
        self.asked = int(questions["asked"])

    def state(self) -> dict[str, Any] | None:
        """All that has changed since the planner was made, by name; later calls must not change what was returned.

        Where it consists of arrays and JSON values only, a session saves it beside the answers, so that resuming need
        not replay them; otherwise it only serves to go back. None, the base class's, means that the planner can't be
        restored: a session asks it the same questions again.
        """
        return None

    def restore(self, state: dict[str, Any]) -> None:
        """Go on from a ``state`` of a planner with the same arguments.

        Raises:
            NotImplementedError: The planner has no states.
        """
        raise NotImplementedError(f"the planner {self.name} has no state() to restore")
