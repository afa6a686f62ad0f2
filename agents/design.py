"""The agent that optimises a design and plays its policies, or prompts chosen from it."""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from edpbrl_gym._arrays import Floats
from edpbrl_gym._validation import check_choice_of, check_count, check_number
from edpbrl_gym.agents.base import EpisodeStart, State, write_arrays
from edpbrl_gym.agents.tabular import TabularAgent, require
from edpbrl_gym.design import (
    SOLVERS,
    Criterion,
    Design,
    DesignProblem,
    QuerySet,
    Restrictions,
    exact_design,
    make_criterion,
    query_set,
    token_difference_matrix,
)
from edpbrl_gym.design.criteria import builds_array, read_criterion
from edpbrl_gym.mdp import PromptMDP

__all__ = ["SOLVER_OPTIONS", "DesignAgent", "criterion_of", "target_matrix"]


SOLVER_OPTIONS: dict[str, tuple[str, ...]] = {
    "newton": ("max_iterations", "tolerance"),
    "frank_wolfe": ("max_iterations", "tolerance", "variant"),
    "reference": (),
    "exact": ("max_iterations", "tolerance"),
    "tuples": ("restrictions", "restarts"),
}
"""Names of the solvers that a `DesignAgent` takes, and the options of each that have a name of their own."""


class DesignAgent(TabularAgent):
    """Builds the design problem from the environment's ``.mdp`` and ``.features``, solves it, plays its policies.

    "newton" and "frank_wolfe" (ED-PBRL; paper, Alg. 2) maximise the surrogate information, which depends on the
    policies only through their mean: they play K identical ones. "reference" solves the same problem with cvxpy (extra
    ``reference``), for small problems. "exact" maximises the exact expected information of K independent policies,
    which differ: option q of a question is policy q's.

    "tuples" plays no policies but a realised query set: T x K prompts chosen together from Newton's design. Lane
    b K + q of n lanes plays option q. The lanes of group b play the episodes b, b + n/K, b + 2 n/K and so on, so T K
    lanes play the whole set at once and K lanes one episode after the other. After T episodes the set begins again. The
    environment must have a ``PromptMDP``.

    Criterion "V" aims at the differences that ``target_matrix`` takes; the others: see
    ``edpbrl_gym.design.make_criterion``.

    Args:
        env: The environment.
        solver: "newton", "frank_wolfe", "reference", "exact" or "tuples".
        v_matrix: The array that the criterion takes, as V of "V", shape (d, d); None takes ``target_matrix`` for "V".
        prior_precision: Prior precision (d, d) in place of ``regularization`` times the identity.
        time_limit: Seconds for the solver, which then returns its best design so far with its certificate; None is no
            limit. With "tuples" it covers the design and the prompts together.
        options: More options of the solver (of Newton, for "tuples"): see ``edpbrl_gym.design``.
        **arguments: Options of the solver by their names (`SOLVER_OPTIONS`): ``max_iterations``, ``tolerance``,
            ``variant`` ("plain", the paper's, or "pairwise"). Of "tuples": ``restrictions`` (what the lanes of an
            episode may show together: `Restrictions`, or its fields as a dict) and ``restarts`` of the exchange. The
            rest: see ``Agent``.

    Attributes:
        questions: The query set of "tuples", after ``learn``.

    Raises:
        TypeError: If the environment lacks ``.mdp`` or, in ``learn``, ``.features``.
        ValueError: If an option is out of range, or in ``learn`` the prompts can't be chosen.
    """

    def __init__(
        self,
        env: Any,
        *,
        solver: str = "newton",
        v_matrix: ArrayLike | None = None,
        prior_precision: ArrayLike | None = None,
        time_limit: float | None = None,
        options: dict[str, Any] | None = None,
        **arguments: Any,
    ) -> None:
        self.name = self.solver = check_choice_of(solver, "solver", tuple(SOLVER_OPTIONS))
        by_name = {name: arguments.pop(name) for name in SOLVER_OPTIONS[solver] if name in arguments}
        super().__init__(env, **arguments)
        self.criterion, self.v_matrix = read_criterion(self.criterion, v_matrix)
        self.prior_precision = None if prior_precision is None else np.array(prior_precision, dtype=np.float64)
        self.options = dict(options or {})
        if solver == "tuples":
            given = by_name.get("restrictions")
            self.restrictions = Restrictions(**given) if isinstance(given, dict) else given or Restrictions()
            self.restarts = check_count(by_name.get("restarts", 1), "restarts")
        else:
            self.options |= {name: value for name, value in by_name.items() if value is not None}
        if time_limit is not None:
            self.options["time_limit"] = check_number(time_limit, "time_limit (seconds)", minimum=0.0)
        self.questions: QuerySet | None = None

    @classmethod
    def needed_packages(cls, *, solver: str = "newton", **fixed: Any) -> tuple[str, ...]:
        """Cvxpy for "reference"."""
        return ("cvxpy",) if solver == "reference" else ()

    @classmethod
    def option_names(cls, *, solver: str = "newton", **fixed: Any) -> list[str]:
        """Those of the class and of the solver."""
        return sorted({*super().option_names(solver=solver, **fixed), *SOLVER_OPTIONS[solver]})

    @property
    def tolerance(self) -> float | None:
        """Gain-relative gap at which the solver stops, of solvers that tell a ``callback`` their gap; else None."""
        if "tolerance" not in SOLVER_OPTIONS[self.solver]:
            return None
        default = inspect.signature(self._solve).parameters["tolerance"].default
        return float(self.options.get("tolerance", default))

    @property
    def _solve(self) -> Callable[..., Design]:
        if self.solver == "exact":
            return exact_design
        return SOLVERS["newton" if self.solver == "tuples" else self.solver]

    def problem(self) -> DesignProblem:
        """Build the design problem; the environment computes its features on first use."""
        require(self.base, "features", who=self.name)
        return DesignProblem(
            mdp=self.mdp,
            features=self.base.features,
            num_policies=self.num_options,
            episodes=self.episodes,
            criterion=criterion_of(self),
            regularization=self.regularization if self.prior_precision is None else None,
            prior_precision=self.prior_precision,
        )

    def learn(self) -> Self:
        """Solve the design problem; the result and its certificate are in ``design``."""
        design = self._solve(self.problem(), **self.options)
        self._use(design)
        if self.solver == "tuples":
            limit = self.options.get("time_limit")
            self.questions = query_set(
                design,
                restrictions=self.restrictions,
                restarts=self.restarts,
                seed=self.seed,
                time_limit=None if limit is None else max(0.0, limit - design.seconds),
            )
        return self

    def predict(
        self,
        observation: Any,
        state: State = None,
        episode_start: EpisodeStart = None,
        deterministic: bool = False,
    ) -> tuple[NDArray[Any], State]:
        """Draw from the policies, or take the tokens of each lane's prompt."""
        if self.solver != "tuples":
            return super().predict(observation, state, episode_start, deterministic)
        questions = self._made(self.questions, "query set")
        observations, single = self._batch(observation)
        steps = self._steps(observations, state, episode_start)
        count = len(observations)
        episode_count = np.zeros(count, dtype=np.int64) if state is None else np.array(state[1], dtype=np.int64)
        episode_count = episode_count + (steps == 0)
        group, option = np.divmod(np.arange(count), self.num_options)
        groups = -(-count // self.num_options)
        episode = (np.maximum(episode_count - 1, 0) * groups + group) % len(questions)
        inside = np.minimum(steps, self.mdp.horizon - 1)
        actions = np.where(steps < self.mdp.horizon, questions.tokens[episode, option, inside], 0)
        return (actions[0] if single else actions), (steps + 1, episode_count)

    def _use(self, design: Design) -> None:
        self.set_policies(design.policies)
        self.design = design

    def _arguments(self) -> dict[str, Any]:
        # what can't be written as JSON (a callback, a start) matters to the solver only, not to the saved design
        options = {name: value for name, value in self.options.items() if _is_jsonable(value)}
        arguments = {**super()._arguments(), "solver": self.solver, "options": options}
        if self.solver == "tuples":
            arguments |= {"restrictions": asdict(self.restrictions), "restarts": self.restarts}
        return arguments

    def _save(self, folder: Path) -> None:
        matrices = {"v_matrix": self.v_matrix, "prior_precision": self.prior_precision}
        write_arrays(folder / "matrices.npz", {name: value for name, value in matrices.items() if value is not None})
        for old in (folder / "design.npz", folder / "questions.npz"):  # of an agent saved here before
            old.unlink(missing_ok=True)
        if self.design is not None:
            self.design.save(folder / "design.npz")
        if self.questions is not None:
            self.questions.save(folder / "questions.npz")

    def _load(self, folder: Path) -> None:
        with np.load(folder / "matrices.npz", allow_pickle=False) as data:
            self.v_matrix = data["v_matrix"] if "v_matrix" in data else None
            self.prior_precision = data["prior_precision"] if "prior_precision" in data else None
        if (folder / "design.npz").is_file():
            self._use(Design.load(folder / "design.npz", self.problem()))
        if (folder / "questions.npz").is_file():
            self.questions = QuerySet.load(folder / "questions.npz", self.problem())


def criterion_of(agent: Any) -> Criterion:
    """The criterion of an agent with ``criterion`` and ``v_matrix``, whose matrix is built where it may be.

    Raises:
        TypeError: If a matrix is to be built and the environment lacks ``.mdp`` or ``.features``.
        ValueError: If the criterion's array is missing, or does not fit.
    """
    array, base = agent.v_matrix, agent.base
    if array is None and builds_array(agent.criterion):
        if not (hasattr(base, "mdp") and hasattr(base, "features")):
            raise TypeError(
                f"Expected a v_matrix for the criterion {agent.criterion!r}, as {type(base).__name__} has no .mdp and "
                ".features to build one from; give v_matrix, or a criterion that takes none."
            )
        array = target_matrix(base)
    return make_criterion(agent.criterion, array)


def target_matrix(base: Any) -> Floats:
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
    bases = names.index("bases") if "bases" in names else 0
    steps = [step for step in range(base.mdp.horizon) if step != bases] or [0]
    ranges = [base.mdp.step_pairs(step) for step in steps]
    return token_difference_matrix(base.features, [np.arange(pairs.start, pairs.stop) for pairs in ranges])


def _is_jsonable(value: Any) -> bool:
    try:
        json.dumps(value)
    except TypeError:
        return False
    return True
