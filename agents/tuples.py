"""Play a realised query set: trajectories chosen together, instead of draws from a design's policies."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Any, Literal, Self

import numpy as np
from numpy.typing import NDArray

from edpbrl_gym._validation import check_choice_of, check_count
from edpbrl_gym.agents.base import EpisodeStart, State
from edpbrl_gym.agents.designed import DesignAgent
from edpbrl_gym.design import Design, DesignProblem, QuerySet, Restrictions, newton, query_set, truncated_query_set

__all__ = ["TuplesAgent"]


class TuplesAgent(DesignAgent):
    """Solve the design by working-set Newton, choose T x K trajectories from it, play trajectory (t, q).

    Lane b K + q of n lanes plays option q. The lanes of group b play the episodes b, b + n/K, b + 2 n/K and so on, so
    T K lanes play the whole set at once and K lanes one episode after the other. After T episodes the set begins again.
    The environment's transitions must be deterministic, with one initial state.

    Args:
        env: The environment.
        restrictions: What the lanes of an episode may show together (`Restrictions`, or its fields as a dict).
        restarts: Starts of the exchange.
        feedback: "state": choose on the feature rows; "truncated": go on with embeddings of partial prompts, for which
            the environment must have ``encoder`` and ``vocabulary``.
        text_budget: Partial prompts that may be embedded for "truncated".
        **arguments: See ``DesignAgent``; ``options`` are those of ``newton``.

    Attributes:
        questions: The query set, after ``learn``.

    Raises:
        TypeError: If the environment lacks ``.mdp``, or in ``learn`` ``.features`` or, for "truncated", the encoder.
        ValueError: If an option is out of range, or in ``learn`` the trajectories can't be chosen.
    """

    name = "tuples"

    def __init__(
        self,
        env: Any,
        *,
        restrictions: Restrictions | dict[str, Any] | None = None,
        restarts: int = 1,
        feedback: Literal["state", "truncated"] = "state",
        text_budget: int = 10_000,
        **arguments: Any,
    ) -> None:
        super().__init__(env, **arguments)
        given = Restrictions(**restrictions) if isinstance(restrictions, dict) else restrictions
        self.restrictions = Restrictions() if given is None else given
        self.restarts = check_count(restarts, "restarts")
        self.feedback = check_choice_of(feedback, "feedback", ("state", "truncated"))
        self.text_budget = check_count(text_budget, "text_budget")
        self.questions: QuerySet | None = None

    def _solve(self, problem: DesignProblem) -> Design:
        return newton(problem, **self.options)

    def learn(self) -> Self:
        """Solve the design problem and choose the trajectories; they are in ``questions``."""
        if self.feedback == "truncated":
            for needed in ("encoder", "vocabulary"):
                if not hasattr(self.base, needed):
                    raise TypeError(
                        f"The agent {self.name!r} needs env.unwrapped to have .{needed} for truncated feedback; "
                        f'{type(self.base).__name__} has not. Use feedback="state".'
                    )
        super().learn()
        assert self.design is not None
        chosen = query_set(
            self.design,
            restrictions=self.restrictions,
            restarts=self.restarts,
            seed=self.seed,
            time_limit=self._left(self.design.seconds),
        )
        if self.feedback == "truncated":
            chosen = truncated_query_set(
                self.design.problem,
                chosen,
                vocabulary=self.base.vocabulary,
                embed=self.base.encoder.encode,
                budget=self.text_budget,
                restrictions=self.restrictions,
                seed=self.seed,
                time_limit=self._left(self.design.seconds + chosen.seconds),
            )
        self.questions = chosen
        return self

    def _left(self, spent: float) -> float | None:
        """Seconds that are left of the time limit, which is one for the design and the trajectories together."""
        limit = self.options.get("time_limit")
        return None if limit is None else max(0.0, limit - spent)

    def predict(
        self,
        observation: Any,
        state: State = None,
        episode_start: EpisodeStart = None,
        deterministic: bool = False,
    ) -> tuple[NDArray[Any], State]:
        """Action of each lane's trajectory; nothing is drawn. See the base class."""
        if self.questions is None:
            raise RuntimeError(f"The agent {self.name!r} has no query set yet; call learn() first.")
        observations, single = self._batch(observation)
        steps = self._steps(observations, state, episode_start)
        count = len(observations)
        begun = np.zeros(count, dtype=np.int64) if state is None else np.array(state[1], dtype=np.int64)
        begun = begun + (steps == 0)
        group, option = np.divmod(np.arange(count), self.num_options)
        groups = -(-count // self.num_options)
        episode = (np.maximum(begun - 1, 0) * groups + group) % len(self.questions)
        inside = np.minimum(steps, self.mdp.horizon - 1)
        actions = np.where(steps < self.mdp.horizon, self.questions.tokens[episode, option, inside], 0)
        return (actions[0] if single else actions), (steps + 1, begun)

    def _arguments(self) -> dict[str, Any]:
        own = {"restarts": self.restarts, "feedback": self.feedback, "text_budget": self.text_budget}
        return {**super()._arguments(), **own, "restrictions": asdict(self.restrictions)}

    def _save(self, folder: Path) -> None:
        super()._save(folder)
        (folder / "questions.npz").unlink(missing_ok=True)  # of an agent saved here before
        if self.questions is not None:
            self.questions.save(folder / "questions.npz")

    def _load(self, folder: Path) -> None:
        super()._load(folder)
        if (folder / "questions.npz").is_file():
            self.questions = QuerySet.load(folder / "questions.npz", self.problem())
