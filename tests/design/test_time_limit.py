"""A time limit in every solver: it ends inside the longest loops too, with a design whose certificate holds."""

from __future__ import annotations

import importlib
from functools import partial

import numpy as np
import pytest

from edpbrl_gym.agents.design import SOLVER_OPTIONS, DesignAgent
from edpbrl_gym.design import exact_design, frank_wolfe, newton, query_set, reference, verify
from edpbrl_gym.mdp import FiniteHorizonMDP, PromptMDP
from tests.helpers.design_cases import problem_of, prompt_problem, screen_above, stochastic_mdp
from tests.helpers.lane_environments import ChainEnv

deadlines = importlib.import_module("edpbrl_gym.design.problem")


class Clock:
    """Stands still until it is moved; or moves by a step at every look."""

    def __init__(self, step: float = 0.0) -> None:
        self.now, self.step = 0.0, step

    def __call__(self) -> float:
        self.now += self.step
        return self.now

    def moved_by(self, function):
        def wrapped(*arguments, **options):
            self.now += 1.0
            return function(*arguments, **options)

        return wrapped


@pytest.fixture
def clock(monkeypatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(deadlines, "perf_counter", clock)
    return clock


def paths_mdp(roots: int) -> FiniteHorizonMDP:
    rng = np.random.default_rng(3)
    transitions = np.eye(20)[rng.integers(20, size=(20, 3))]
    initial = np.zeros(20)
    initial[:roots] = 1.0 / roots
    return FiniteHorizonMDP.from_dense(transitions, initial, 4, rows="pair", allow_unreachable=True)


PROBLEMS = {
    "tokens": lambda: prompt_problem("D", sizes=(40, 300, 30), dimension=8),
    "paths": lambda: problem_of(paths_mdp(2), "A", dimension=16),
    "policies": lambda: problem_of(stochastic_mdp(0), "V"),
    "no prior": lambda: prompt_problem("A", sizes=(40, 300, 30), regularization=0.0),
}
SOLVERS = {
    "newton": partial(newton, tolerance=0.0),
    "frank_wolfe": partial(frank_wolfe, tolerance=0.0),
    "pairwise": partial(frank_wolfe, variant="pairwise", tolerance=0.0),
}


@pytest.mark.parametrize("kind", PROBLEMS)
@pytest.mark.parametrize("solver", [*SOLVERS, pytest.param("reference", marks=pytest.mark.needs("reference"))])
def test_no_time_at_all_gives_a_certified_start(solver, kind):
    problem = PROBLEMS[kind]()
    design = (reference if solver == "reference" else SOLVERS[solver])(problem, time_limit=0)
    assert design.status == "time_limit" and design.iterations == 0
    assert verify(problem, design).confirmed
    assert design.value < newton(problem).value <= design.upper_bound


@pytest.mark.parametrize("kind", PROBLEMS)
@pytest.mark.parametrize("solver", SOLVERS)
def test_the_certificate_holds_wherever_the_time_ends(solver, kind, clock):
    """Each look at the clock takes a second, so that every limit ends somewhere else."""
    clock.step = 1.0
    problem = PROBLEMS[kind]()
    optimum = newton(problem)
    steps = []
    for limit in (1.5, 4.5, 12.5, 40.5):
        design = SOLVERS[solver](problem, time_limit=limit)
        assert design.status in ("time_limit", "converged", "precision_reached")
        assert verify(problem, design).confirmed
        assert design.value <= optimum.upper_bound + 1e-12 * abs(optimum.value)
        assert design.upper_bound >= optimum.value - 1e-12 * abs(optimum.value)
        record = design.history[-1]
        assert len(design.history) == design.iterations + 1 and record.step == 0.0
        assert record.value == pytest.approx(design.value, rel=1e-12)
        steps.append(design.iterations)
    assert steps == sorted(steps) and steps[0] <= 1 and steps[-1] > 1


def test_it_ends_between_the_factors_of_a_quadratic_program(clock, monkeypatch):
    program = importlib.import_module("edpbrl_gym.design.solvers.newton.steps")._Program
    monkeypatch.setattr(program, "minimiser", clock.moved_by(program.minimiser))
    problem = PROBLEMS["tokens"]()
    for limit in range(1, 12):
        clock.now = 0.0
        design = newton(problem, tolerance=0.0, time_limit=limit - 0.5)
        assert clock.now == limit  # not one factor more
        assert design.status == "time_limit" and verify(problem, design).confirmed


def test_it_ends_in_the_pool_that_a_large_vocabulary_starts_from(clock, monkeypatch):
    screen_above(monkeypatch, 100, pool=80)
    clock.step = 1.0
    problem = PROBLEMS["tokens"]()
    iterations = {newton(problem, tolerance=0.0, time_limit=limit).iterations for limit in range(1, 10)}
    assert iterations == {0}  # all of it went into the start


@pytest.mark.parametrize("kind", ["tokens", "paths", "policies"])
def test_exact_designs_are_bounded_wherever_the_time_ends(kind, clock):
    clock.step = 1.0
    problem = PROBLEMS[kind]()
    found = [exact_design(problem, time_limit=limit) for limit in (0.0, 60.5, 1e9)]
    assert found[0].status == "time_limit" != found[-1].status
    assert all(one.value <= one.upper_bound for one in found) and found[0].value < found[-1].value


def test_query_sets_end_between_two_questions(clock):
    problem = PROBLEMS["tokens"]()
    design = newton(problem)
    start = query_set(design, max_sweeps=0)
    assert query_set(design, time_limit=0).status == "time_limit"
    np.testing.assert_array_equal(query_set(design, time_limit=0).tokens, start.tokens)
    clock.step = 1.0
    found = [query_set(design, time_limit=limit) for limit in (10.5, 40.5, 1e9)]
    assert [one.status for one in found] == ["time_limit", "time_limit", "converged"]
    values = [start.value, *(one.value for one in found)]
    assert values == sorted(values) and values[0] < values[1] < values[3]


class TokensEnv(ChainEnv):
    def __init__(self) -> None:
        super().__init__()
        self.mdp = PromptMDP((4, 5))
        self.features = np.random.default_rng(3).normal(size=(9, 3))


@pytest.mark.needs("reference")
@pytest.mark.parametrize("solver", SOLVER_OPTIONS)
def test_agents_pass_it_on(solver, tmp_path):
    given = {"solver": solver, "num_options": 2, "episodes": 6}
    made = DesignAgent(TokensEnv(), criterion="D", time_limit=0, **given).learn()
    assert made.design.status == "time_limit"
    if solver == "tuples":
        assert made.questions.status == "time_limit"
    made.save(tmp_path)
    assert DesignAgent.load(tmp_path, TokensEnv()).options["time_limit"] == 0
    with pytest.raises(ValueError, match="time_limit"):
        DesignAgent(TokensEnv(), time_limit=-1, **given)
