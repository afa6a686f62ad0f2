"""Planners whose answers, estimate and posterior are those of a tracker."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from numpy.typing import ArrayLike

from edpbrl_gym.estimation import Estimate, Posterior
from edpbrl_gym.likelihood import Response
from edpbrl_gym.planners.base import Planner
from edpbrl_gym.planners.calls import check_answers

if TYPE_CHECKING:
    from edpbrl_gym.planners.pool.taste import ExactTaste
    from edpbrl_gym.planners.tracking import TasteTracker

__all__ = ["TrackedPlanner"]


class TrackedPlanner(Planner):
    """A planner that keeps its answers in a tracker, ``_taste``; a subclass makes it, and chooses the questions.

    Attributes:
        dimension: d of the features.
    """

    dimension: int
    _taste: TasteTracker | ExactTaste

    def tell(self, options: ArrayLike, responses: Sequence[Response | int]) -> None:
        """Learn from answered questions.

        Args:
            options: What was compared, (n, K, d).
            responses: The answers, (n,); an integer is the best option.

        Raises:
            ValueError: Shapes that don't fit, or answers that the model does not know.
        """
        self._taste.tell(*check_answers(options, responses, self.num_options, self.dimension))

    @property
    def estimate(self) -> Estimate:
        """The taste from the answers told so far (the latest, where the tracker has a memory)."""
        return self._taste.estimate

    @property
    def posterior(self) -> Posterior:
        """The Gaussian posterior from the same answers."""
        return self._taste.posterior
