"""The agent that optimises a design and plays its policies, or trajectories chosen from it."""

from __future__ import annotations

import inspect
import json
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from edpbrl_gym._arrays import Floats
from edpbrl_gym._feedback import check_feedback
from edpbrl_gym._files import replacing
from edpbrl_gym._validation import check_choice_of, check_count, check_number
from edpbrl_gym.agents.base import EpisodeStart, State
from edpbrl_gym.agents.tabular import TabularAgent, require
from edpbrl_gym.design import (
    SOLVERS,
    Design,
    DesignProblem,
    ExactDesign,
    QuerySet,
    Restrictions,
    exact_design,
    make_criterion,
    query_set,
    token_difference_matrix,
    truncated_query_set,
)
from edpbrl_gym.mdp import PromptMDP

__all__ = ["SOLVER_OPTIONS", "DesignAgent", "QuerySettings", "target_matrix"]


SOLVER_OPTIONS: dict[str, tuple[str, ...]] = {
    "newton": ("max_iterations", "tolerance", "device"),
    "frank_wolfe": ("max_iterations", "tolerance", "variant"),
    "reference": (),
    "exact": ("starts", "max_sweeps", "tolerance"),
    "tuples": ("restrictions", "restarts", "feedback", "text_budget"),
}
"""Names of the solvers that a `DesignAgent` takes, and the options of each that have a name of their own."""


@dataclass(frozen=True)
class QuerySettings:
    """How the trajectories of "tuples" are chosen; see `DesignAgent`."""

    restrictions: Restrictions = field(default_factory=Restrictions)
    restarts: int = 1
    feedback: str = "state"
    text_budget: int = 10_000

    def __post_init__(self) -> None:
        check_count(self.restarts, "restarts")
        check_feedback(self.feedback, every_step="the solver 'tuples'")
        check_count(self.text_budget, "text_budget")


class DesignAgent(TabularAgent):
    """Builds the design problem from the environment's ``.mdp`` and ``.features``, solves it, plays its policies.

    "newton" and "frank_wolfe" (ED-PBRL; paper, Alg. 2) maximise the surrogate information, which depends on the
    policies only through their mean: they play K identical ones. "reference" solves the same problem with cvxpy (extra
    ``reference``), for small problems. "exact" maximises the exact expected information of K independent policies,
    which differ: option q of a question is policy q's.

    "tuples" plays no policies but a realised query set: T x K trajectories chosen together from Newton's design. Lane
    b K + q of n lanes plays option q. The lanes of group b play the episodes b, b + n/K, b + 2 n/K and so on, so T K
    lanes play the whole set at once and K lanes one episode after the other. After T episodes the set begins again. The
    environment's transitions must be deterministic, with one initial state.

    Criterion "V" aims at the differences that ``target_matrix`` takes; "A" and "D" at theta as a whole.

    Args:
        env: The environment.
        solver: "newton", "frank_wolfe", "reference", "exact" or "tuples".
        v_matrix: V of the criterion "V", shape (d, d); None takes ``target_matrix``.
        prior_precision: Prior precision (d, d) in place of ``regularization`` times the identity.
        time_limit: Seconds for the solver, which then returns its best design so far with its certificate; None is no
            limit. With "tuples" it covers the design and the trajectories together.
        options: More options of the solver (of Newton, for "tuples"): see ``edpbrl_gym.design``. The seed of "exact" is
            the agent's unless it is set here.
        **arguments: Options of the solver by their names: ``max_iterations`` and ``tolerance`` of "newton" and
            "frank_wolfe"; ``variant`` ("plain", the paper's, or "pairwise") of "frank_wolfe"; ``device`` of "newton":
            "cpu" (numpy), or "cuda", "cuda:1" and so on (torch; prompt MDPs only); ``starts``, ``max_sweeps`` and
            ``tolerance`` of "exact". Of "tuples": ``restrictions`` (what the lanes of an episode may show together:
            `Restrictions`, or its fields as a dict), ``restarts`` of the exchange, ``feedback`` ("state": choose by the
            feature rows; "truncated": then by embeddings of partial prompts, for which the environment must have
            ``encoder`` and ``vocabulary``) and ``text_budget``, the partial prompts that may be embedded then. The
            rest: see ``Agent``.

    Attributes:
        result: Result of "exact", with the bounds and the gain over identical policies; None before ``learn``, and for
            a loaded agent (its ``design`` is saved).
        questions: The query set of "tuples", after ``learn``.

    Raises:
        TypeError: If the environment lacks ``.mdp`` or, in ``learn``, ``.features`` or what "truncated" needs.
        ValueError: If an option is out of range, or in ``learn`` the trajectories can't be chosen.
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
        if self.criterion not in ("A", "V", "D"):
            raise ValueError(f'Expected a criterion "A", "V" or "D", got {self.criterion!r}.')
        if v_matrix is not None and self.criterion != "V":
            raise ValueError(f'The criterion {self.criterion!r} takes no v_matrix; use criterion="V".')
        self.v_matrix = None if v_matrix is None else np.array(v_matrix, dtype=np.float64)
        self.prior_precision = None if prior_precision is None else np.array(prior_precision, dtype=np.float64)
        self.query_settings = _query_settings(**by_name) if solver == "tuples" else None
        self.options = {**(options or {}), **({} if solver == "tuples" else _solver_options(by_name, options or {}))}
        if time_limit is not None:
            self.options["time_limit"] = check_number(time_limit, "time_limit (seconds)", minimum=0.0)
        self.result: ExactDesign | None = None
        self.questions: QuerySet | None = None

    @classmethod
    def needed_packages(cls, *, solver: str = "newton", **fixed: Any) -> tuple[str, ...]:
        """See the base class."""
        return ("cvxpy",) if solver == "reference" else ()

    @classmethod
    def option_names(cls, *, solver: str = "newton", **fixed: Any) -> list[str]:
        """See the base class; the solver's options are among them."""
        return sorted({*super().option_names(solver=solver, **fixed), *SOLVER_OPTIONS[solver]})

    @property
    def tolerance(self) -> float | None:
        """Gain-relative gap at which the solver stops, of solvers that tell a ``callback`` their gap; else None."""
        if self.solver not in ("newton", "frank_wolfe"):
            return None
        default = inspect.signature(SOLVERS[self.solver]).parameters["tolerance"].default
        return float(self.options.get("tolerance", default))

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

    def learn(self) -> Self:
        """Solve the design problem; the result and its certificate are in ``design``."""
        settings = self.query_settings
        if settings is not None and settings.feedback == "truncated":
            for attribute in ("encoder", "vocabulary"):
                if not hasattr(self.base, attribute):
                    raise TypeError(
                        f"The agent {self.name!r} needs env.unwrapped to have .{attribute} for truncated feedback; "
                        f'{type(self.base).__name__} has not. Use feedback="state".'
                    )
        problem = self.problem()
        if self.solver == "exact":
            self.result = exact_design(problem, **{"seed": self.seed, **self.options})
            self._use(self.result.design)
        else:
            self._use(SOLVERS["newton" if settings else self.solver](problem, **self.options))
        if settings is not None:
            self.questions = self._choose_trajectories(settings)
        return self

    def _choose_trajectories(self, settings: QuerySettings) -> QuerySet:
        """Trajectories chosen from the design, within what is left of the time limit."""
        assert self.design is not None
        limit = self.options.get("time_limit")

        def remaining(spent: float) -> float | None:
            return None if limit is None else max(0.0, limit - spent)

        trajectories = query_set(
            self.design,
            restrictions=settings.restrictions,
            restarts=settings.restarts,
            seed=self.seed,
            time_limit=remaining(self.design.seconds),
        )
        if settings.feedback == "state":
            return trajectories
        return truncated_query_set(
            self.design.problem,
            trajectories,
            vocabulary=self.base.vocabulary,
            embed=self.base.encoder.encode,
            budget=settings.text_budget,
            restrictions=settings.restrictions,
            seed=self.seed,
            time_limit=remaining(self.design.seconds + trajectories.seconds),
        )

    def predict(
        self,
        observation: Any,
        state: State = None,
        episode_start: EpisodeStart = None,
        deterministic: bool = False,
    ) -> tuple[NDArray[Any], State]:
        """Draw from the policies, or take the actions of each lane's trajectory. See the base class."""
        if self.query_settings is None:
            return super().predict(observation, state, episode_start, deterministic)
        if self.questions is None:
            raise RuntimeError(f"The agent {self.name!r} has no query set yet; call learn() first.")
        observations, single = self._batch(observation)
        steps = self._steps(observations, state, episode_start)
        count = len(observations)
        episode_count = np.zeros(count, dtype=np.int64) if state is None else np.array(state[1], dtype=np.int64)
        episode_count = episode_count + (steps == 0)
        group, option = np.divmod(np.arange(count), self.num_options)
        groups = -(-count // self.num_options)
        episode = (np.maximum(episode_count - 1, 0) * groups + group) % len(self.questions)
        inside = np.minimum(steps, self.mdp.horizon - 1)
        actions = np.where(steps < self.mdp.horizon, self.questions.tokens[episode, option, inside], 0)
        return (actions[0] if single else actions), (steps + 1, episode_count)

    def _use(self, design: Design) -> None:
        self.set_policies(design.policies)
        self.design = design

    def _arguments(self) -> dict[str, Any]:
        # what can't be written as JSON (a callback, a start) matters to the solver only, not to the saved design
        options = {name: value for name, value in self.options.items() if _is_jsonable(value)}
        settings = {} if self.query_settings is None else asdict(self.query_settings)
        return {**super()._arguments(), "solver": self.solver, "options": options, **settings}

    def _save(self, folder: Path) -> None:
        matrices = {"v_matrix": self.v_matrix, "prior_precision": self.prior_precision}
        arrays = {name: value for name, value in matrices.items() if value is not None}
        with replacing(folder / "matrices.npz") as part, open(part, "wb") as file:
            np.savez_compressed(file, allow_pickle=False, **arrays)
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


def _query_settings(restrictions: Restrictions | dict[str, Any] | None = None, **settings: Any) -> QuerySettings:
    rules = Restrictions(**restrictions) if isinstance(restrictions, dict) else restrictions
    return QuerySettings(restrictions=Restrictions() if rules is None else rules, **settings)


def _solver_options(by_name: dict[str, Any], options: dict[str, Any]) -> dict[str, Any]:
    """Options of a solver by their own names, without those that are None; a device is Newton's backend."""
    device = by_name.pop("device", None)
    if device is not None:
        if "backend" in options:
            raise ValueError(f"Expected a device or the solver's option backend, got both (device {device!r}).")
        by_name["backend"] = "numpy" if device == "cpu" else f"torch:{device}"
    return {name: value for name, value in by_name.items() if value is not None}


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
