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
    """A planner that stores its answers in a tracker, ``_taste``, which a subclass creates.

    Attributes:
        dimension: d of the features.
    """

    dimension: int
    _taste: TasteTracker | ExactTaste

    def tell(self, options: ArrayLike, responses: Sequence[Response | int]) -> None:
        """Learn from answered questions.

        Args:
            options: Features of the options, (n, K, d).
            responses: The answers, (n,); an integer is the best option.

        Raises:
            ValueError: Shapes that don't fit, or answers that the model does not know.
        """
        self._taste.tell(*check_answers(options, responses, self.num_options, self.dimension))

    @property
    def estimate(self) -> Estimate:
        """The taste estimated from the answers so far (the latest, where the tracker has a memory)."""
        return self._taste.estimate

    @property
    def posterior(self) -> Posterior:
        """The Gaussian posterior from the same answers."""
        return self._taste.posterior
