"""The agent that learns while it asks: every next token is chosen by what the answers so far leave open."""

from __future__ import annotations

from typing import Any, Literal

from numpy.typing import NDArray

from edpbrl_gym._validation import check_choice_of, check_count
from edpbrl_gym.agents.planned import PlannerAgent
from edpbrl_gym.estimation.neighbourhood import VocabularyPrior
from edpbrl_gym.planners import AdaptivePlanner, ComposedFeatures, TokenFeatures
from edpbrl_gym.planners.adaptive import SCORES, Score

__all__ = ["AdaptiveAgent"]


class AdaptiveAgent(PlannerAgent[AdaptivePlanner]):
    """Plays `AdaptivePlanner`; see `PlannerAgent` for how an agent asks through a planner.

    ``planner.think()`` while the person looks at the options spares them long waits.

    Args:
        env: A prompt environment (with ``.vocabulary``, ``.features`` and, for partial prompts, ``.encoder``).
        mode: "learn" the taste, or find the "best" prompt.
        score: See `AdaptivePlanner`.
        draws: See `AdaptivePlanner`.
        starts: See `AdaptivePlanner`.
        memory: See `AdaptivePlanner`.
        **arguments: ``feedback`` and ``prior`` of `PlannerAgent` (prior None: `VocabularyPrior` of the environment's
            tokens, with its scale from the answers), and those of ``Agent``. ``regularization`` and ``criterion`` are
            not used.

    Raises:
        TypeError: If the environment has no vocabulary, or in ``learn`` no features or encoder.
        ValueError: If an option is unknown.
    """

    name = "adaptive"

    def __init__(
        self,
        env: Any,
        *,
        mode: Literal["learn", "best"] = "learn",
        score: Score | None = None,
        draws: int | None = None,
        starts: int | None = None,
        memory: int | None = None,
        **arguments: Any,
    ) -> None:
        super().__init__(env, **arguments)
        check_choice_of(mode, "mode", ("learn", "best"))
        if score is not None:
            check_choice_of(score, "score", SCORES)
        self.mode, self.score = mode, score
        self.draws = None if draws is None else check_count(draws, "draws", minimum=0)
        self.starts = None if starts is None else check_count(starts, "starts")
        self.memory = None if memory is None else check_count(memory, "memory (answers)")

    def _make_planner(self, options: ComposedFeatures | TokenFeatures, rows: NDArray[Any]) -> AdaptivePlanner:
        return AdaptivePlanner(
            self.base.vocabulary,
            options=options,
            prior=VocabularyPrior(rows) if self.prior is None else self.prior,
            num_options=self.num_options,
            seed=self.seed,
            mode=self.mode,
            score=self.score,
            draws=self.draws,
            starts=self.starts,
            memory=self.memory,
        )

    def _arguments(self) -> dict[str, Any]:
        own = {"mode": self.mode, "score": self.score, "draws": self.draws, "starts": self.starts}
        return {**super()._arguments(), **own, "memory": self.memory}
