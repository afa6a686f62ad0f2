"""An agent for every rule of the literature."""

from __future__ import annotations

import json
import zipfile
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from edpbrl_gym._files import replacing
from edpbrl_gym._validation import check_choice_of, check_count
from edpbrl_gym.agents.planned import PlannerAgent
from edpbrl_gym.estimation import GaussianPrior
from edpbrl_gym.estimation.neighbourhood import VocabularyPrior
from edpbrl_gym.planners import ComposedFeatures, TokenFeatures
from edpbrl_gym.planners.pool import RulePlanner
from edpbrl_gym.planners.registry import RULES, make_rule

__all__ = ["RuleAgent"]


class RuleAgent(PlannerAgent[RulePlanner]):
    """Plays a rule of the literature by `RulePlanner`; see `PlannerAgent` for how an agent asks through a planner.

    ``make_agent("bald", env, ...)`` is ``make_agent("rule", env, rule="bald", ...)``. A saved agent keeps its questions
    and plans, too.

    Args:
        env: A prompt environment (with ``.vocabulary``, ``.features`` and, for partial prompts, ``.encoder``).
        rule: One of ``edpbrl_gym.planners.pool.RULES``.
        rule_options: Of the rule, such as ``{"rule": "bald"}`` of "rollout_pool": names, numbers and arrays.
        posterior: "ridge", the literature's: N(0, I / lambda) with lambda the ``regularization``, and the exact
            estimate; or "vocabulary": the default agent's, `VocabularyPrior` of the environment's tokens. A given
            ``prior`` takes the place of both.
        draws: Of the posterior, M >= 1.
        rollouts: Random trajectories that batch rules choose from.
        **arguments: ``feedback`` and ``prior`` of `PlannerAgent`, and those of ``Agent``; batch rules plan ``episodes``
            questions at once. ``criterion`` is not used.

    Attributes:
        static: Whether its questions don't depend on the answers.

    Raises:
        TypeError: If the environment has no vocabulary, or in ``learn`` no features or encoder; if the rule has no such
            option, or one that can't be saved.
        ValueError: If the rule or an option is unknown, or in ``learn`` lambda is 0 where it is needed.
    """

    name = "rule"

    def __init__(
        self,
        env: Any,
        *,
        rule: str = "bald",
        rule_options: dict[str, Any] | None = None,
        posterior: Literal["ridge", "vocabulary"] = "ridge",
        draws: int = 32,
        rollouts: int = 2000,
        **arguments: Any,
    ) -> None:
        self.rule = check_choice_of(rule, "rule", tuple(RULES))
        self.name = self.rule
        super().__init__(env, **arguments)
        self.rule_options = _plain(rule_options or {})
        self.static = not make_rule(self.rule, **self.rule_options).adaptive  # wrong options are said now
        self.posterior = check_choice_of(posterior, "posterior", ("ridge", "vocabulary"))
        self.draws = check_count(draws, "draws (M)")
        self.rollouts = check_count(rollouts, "rollouts", minimum=self.num_options)

    def _make_planner(self, options: ComposedFeatures | TokenFeatures, rows: NDArray[Any]) -> RulePlanner:
        prior: GaussianPrior | VocabularyPrior
        if self.prior is not None:
            prior = self.prior
        elif self.posterior == "vocabulary":
            prior = VocabularyPrior(rows)
        elif self.regularization > 0:
            prior = GaussianPrior.isotropic(rows.shape[1], self.regularization)
        else:
            raise ValueError("Expected regularization (lambda) > 0, got 0; rules need a proper posterior")
        return RulePlanner(
            self.base.vocabulary,
            rule=self.rule,
            options=options,
            prior=prior,
            num_options=self.num_options,
            seed=self.seed,
            episodes=self.episodes,
            draws=self.draws,
            rule_options=self.rule_options,
            rollouts=self.rollouts,
        )

    def _arguments(self) -> dict[str, Any]:
        own = {"rule": self.rule, "rule_options": self.rule_options, "posterior": self.posterior}
        return {**super()._arguments(), **own, "draws": self.draws, "rollouts": self.rollouts}

    def _save(self, folder: Path) -> None:
        super()._save(folder)
        (folder / "questions.npz").unlink(missing_ok=True)  # of an agent saved here before
        if self.planner is not None:
            with replacing(folder / "questions.npz") as part, open(part, "wb") as file:
                np.savez_compressed(file, **self.planner.questions())

    def _load_questions(self, folder: Path) -> None:
        planner, path = self._ready(), folder / "questions.npz"
        try:
            with np.load(path, allow_pickle=False) as stored:
                planner.restore_questions(dict(stored))
        except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile) as error:
            raise ValueError(
                f"Expected the questions of a saved agent in {path}, got {error}; save it again."
            ) from error


def _plain(options: dict[str, Any]) -> dict[str, Any]:
    """The options as values that JSON can hold, since agents are saved with them."""
    plain = {
        name: value.tolist() if isinstance(value, np.ndarray | np.generic) else value for name, value in options.items()
    }
    for name, value in plain.items():
        try:
            json.dumps(value)
        except (TypeError, ValueError):
            raise TypeError(
                f"Expected rule_options of names, numbers and arrays, got {type(value).__name__} for {name!r}; a rule "
                "is given by its name"
            ) from None
    return plain
