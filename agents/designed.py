"""Agents that optimise a design and play its policies."""

from __future__ import annotations

import json
from abc import abstractmethod
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from edpbrl_gym._files import replacing
from edpbrl_gym._validation import check_number
from edpbrl_gym.agents.tabular import TabularAgent, require
from edpbrl_gym.design import Design, DesignProblem, make_criterion, token_difference_matrix
from edpbrl_gym.mdp import PromptMDP

__all__ = ["DesignAgent", "target_matrix"]

FloatArray = NDArray[np.float64]


class DesignAgent(TabularAgent):
    """Builds the design problem from the environment's ``.mdp`` and ``.features``, solves it, plays its policies.

    Criterion "V" aims at the differences that ``target_matrix`` takes; "A" and "D" at theta as a whole.

    Args:
        env: The environment.
        v_matrix: V of the criterion "V", shape (d, d); None takes ``target_matrix``.
        prior_precision: Prior precision (d, d) in place of ``regularization`` times the identity.
        time_limit: Seconds for the solver, which then returns its best design so far with its certificate; None is no
            limit.
        options: More options of the solver.
        **arguments: See ``Agent``.

    Raises:
        TypeError: If the environment lacks ``.mdp`` or, in ``learn``, ``.features``.
    """

    def __init__(
        self,
        env: Any,
        *,
        v_matrix: ArrayLike | None = None,
        prior_precision: ArrayLike | None = None,
        time_limit: float | None = None,
        options: dict[str, Any] | None = None,
        **arguments: Any,
    ) -> None:
        super().__init__(env, **arguments)
        if self.criterion not in ("A", "V", "D"):
            raise ValueError(f'Expected a criterion "A", "V" or "D", got {self.criterion!r}.')
        if v_matrix is not None and self.criterion != "V":
            raise ValueError(f'The criterion {self.criterion!r} takes no v_matrix; use criterion="V".')
        self.v_matrix = None if v_matrix is None else np.array(v_matrix, dtype=np.float64)
        self.prior_precision = None if prior_precision is None else np.array(prior_precision, dtype=np.float64)
        self.options = dict(options or {})
        if time_limit is not None:
            self.options["time_limit"] = check_number(time_limit, "time_limit (seconds)", minimum=0.0)

    def problem(self) -> DesignProblem:
        """Build the design problem; the environment computes its features on first use."""
        require(self.base, "features", who=self.name)
        matrix = self.v_matrix
        if self.criterion == "V" and matrix is None:
            matrix = target_matrix(self.base)
        return DesignProblem(
            mdp=self.mdp,
            features=self.base.features,
            num_policies=self.num_options,
            episodes=self.episodes,
            criterion=make_criterion(self.criterion, v_matrix=matrix),
            regularization=self.regularization if self.prior_precision is None else None,
            prior_precision=self.prior_precision,
        )

    @abstractmethod
    def _solve(self, problem: DesignProblem) -> Design:
        """Run the solver."""

    def learn(self) -> Self:
        """Solve the design problem; the result and its certificate are in ``design``."""
        self._use(self._solve(self.problem()))
        return self

    def _use(self, design: Design) -> None:
        self.set_policies(design.policies)
        self.design = design

    def _arguments(self) -> dict[str, Any]:
        # what can't be written as JSON (a callback, a start) matters to the solver only, not to the saved design
        return {**super()._arguments(), "options": {k: v for k, v in self.options.items() if _is_jsonable(v)}}

    def _save(self, folder: Path) -> None:
        given = {"v_matrix": self.v_matrix, "prior_precision": self.prior_precision}
        arrays = {name: value for name, value in given.items() if value is not None}
        with replacing(folder / "matrices.npz") as part, open(part, "wb") as file:
            np.savez_compressed(file, allow_pickle=False, **arrays)
        (folder / "design.npz").unlink(missing_ok=True)  # of an agent saved here before
        if self.design is not None:
            self.design.save(folder / "design.npz")

    def _load(self, folder: Path) -> None:
        with np.load(folder / "matrices.npz", allow_pickle=False) as data:
            self.v_matrix = data["v_matrix"] if "v_matrix" in data else None
            self.prior_precision = data["prior_precision"] if "prior_precision" in data else None
        if (folder / "design.npz").is_file():
            self._use(Design.load(folder / "design.npz", self.problem()))


def target_matrix(base: Any) -> FloatArray:
    """V of an environment: the differences of feature rows that the design should estimate well.

    For a prompt MDP the paper's: differences of two tokens of the same category, the bases left out (the step named
    "bases" in ``base.vocabulary.names``, else step 0; a single step is kept). For any other MDP the differences of
    all pairs of feature rows.

    Args:
        base: An environment with ``.mdp`` and ``.features``.

    Returns:
        V, shape (d, d).
    """
    if not isinstance(base.mdp, PromptMDP):
        return token_difference_matrix(base.features, [np.arange(len(base.features))])
    names = tuple(getattr(getattr(base, "vocabulary", None), "names", ()))
    left_out = names.index("bases") if "bases" in names else 0
    kept = [step for step in range(base.mdp.horizon) if step != left_out] or [0]
    own = [base.mdp.step_pairs(step) for step in kept]
    return token_difference_matrix(base.features, [np.arange(pairs.start, pairs.stop) for pairs in own])


def _is_jsonable(value: Any) -> bool:
    try:
        json.dumps(value)
    except TypeError:
        return False
    return True
