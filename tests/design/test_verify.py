"""Faults injected into designs, each of which the verifier must catch; and rounding, which it must not blame."""

from __future__ import annotations

import importlib
import re
from dataclasses import replace

import numpy as np
import pytest

from edpbrl_gym.design import frank_wolfe, newton, verify
from edpbrl_gym.design.criteria import Form
from edpbrl_gym.mdp import FiniteHorizonMDP, PromptMDP
from tests.helpers.design_cases import Plain, problem_of, prompt_problem, random_mdp_problem, stochastic_mdp

verifier = importlib.import_module("edpbrl_gym.design.verify")  # the package's attribute is the function

CASES = [(random_mdp_problem, criterion) for criterion in "DAV"] + [(prompt_problem, criterion) for criterion in "DAV"]


@pytest.fixture(params=CASES, ids=lambda case: f"{case[0].__name__}-{case[1]}")
def solved(request):
    make, criterion = request.param
    problem = make(criterion)
    return problem, frank_wolfe(problem, max_iterations=30)


def test_a_true_design_is_confirmed(solved):
    problem, design = solved
    result = verify(problem, design)
    assert result.confirmed
    assert result.max_violation < 1e-12
    assert result.value == pytest.approx(design.value, rel=1e-10)
    assert result.upper_bound == pytest.approx(design.upper_bound, rel=1e-8)


@pytest.mark.parametrize("name", ["value", "gap", "upper_bound", "relative_gap", "efficiency", "gain"])
def test_falsified_claims_are_caught(solved, name):
    problem, design = solved
    true = getattr(design, name)
    slack = 1e-3 * design.gap if name in ("value", "upper_bound", "gap", "gain") else 1e-3 * abs(true)
    slack = max(slack, 1e-6 * abs(true))  # a change that matters, far below one that shows
    for wrong in (true - slack, true + slack, np.nan):
        messages = verify(problem, replace(design, **{name: wrong})).messages
        assert len(messages) == 1
        assert messages[0].startswith(f"the design claims {name} =")


def broken(design, change):
    occupancies = np.array(design.occupancies)
    change(occupancies)
    return replace(design, occupancies=occupancies)


def move_mass(occupancies):
    """Keep every step's total but break the flow between steps or leave the step's own tokens."""
    pair = int(occupancies[0, -1].argmax())
    occupancies[0, -1, pair] -= 1e-3
    occupancies[0, -1, 0 if pair else 1] += 1e-3


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda o: o.__setitem__((1, -1), 1.01 * o[1, -1]), "policy 1 is infeasible: the flow into state"),
        (move_mass, "policy 0 is infeasible: the flow into state"),
        (lambda o: o.__setitem__((2, 0), -0.5 * np.eye(1, o.shape[2])[0]), "policy 2 is infeasible"),
        (lambda o: o.fill(0.0), "policy 0 is infeasible: the flow into state"),  # F4: the paper's start d = 0
        (lambda o: o.__setitem__((3, 0, 0), np.nan), "policy 3 is infeasible: it has NaN"),
    ],
)
def test_broken_flow_is_caught(solved, change, message):
    problem, design = solved
    result = verify(problem, broken(design, change))
    assert not result.feasible
    assert not result.confirmed
    assert result.gap == result.upper_bound == np.inf
    assert any(text.startswith(message) for text in result.messages)
    assert not result.max_violation <= 1e-4


def test_inadmissible_mass_is_caught():
    mdp = stochastic_mdp(0, states=6, actions=3, horizon=3, rows="pair", masked=True)
    problem = problem_of(mdp, "D", dimension=3)
    design = frank_wolfe(problem, max_iterations=5)
    step, pair = np.argwhere(~mdp.admissible)[0]
    siblings = np.flatnonzero((mdp.pair_state == mdp.pair_state[pair]) & mdp.admissible[step])

    def change(occupancies):  # the flow into the state is kept
        occupancies[:, step, pair] = occupancies[:, step, siblings[0]]
        occupancies[:, step, siblings[0]] = 0.0

    result = verify(problem, broken(design, change))
    assert not result.feasible
    assert "policy 0 is infeasible" in result.messages[0]


def test_wrong_shapes_and_problems_are_caught():
    problem = prompt_problem("D")
    design = frank_wolfe(problem, max_iterations=5)
    result = verify(problem, replace(design, occupancies=design.occupancies[:2]))
    assert "expected occupancies of shape (K, H, M) = (4, 3, 31), got (2, 3, 31)" in result.messages
    assert not result.feasible
    other = verify(prompt_problem("D", regularization=2.0), design)
    assert other.feasible
    assert not other.confirmed


def test_without_a_prior_a_singular_design_has_no_certificate():
    problem = prompt_problem("D", regularization=0.0)
    design = frank_wolfe(problem, max_iterations=20)
    assert verify(problem, design).confirmed
    vertex = problem.mdp.occupancy(problem.mdp.best_response(np.zeros((3, 31)))[0])
    result = verify(problem, replace(design, occupancies=np.broadcast_to(vertex, (4, *vertex.shape))))
    assert result.value == -np.inf
    assert "singular" in result.messages[0]


@pytest.mark.parametrize("criterion", ["D", "A", "V"])
@pytest.mark.parametrize(
    "case",
    [
        {"regularization": 1e-9},  # a value without data far beyond the value
        {"regularization": 1e-8, "dimension": 40},  # fewer rows than features: a condition number of 1e10
        {"shift": 1e5},  # a large common part of the features
        {"scale": 1e-6},
        {"scale": 1e6},
    ],
    ids=str,
)
def test_rounding_is_no_disagreement(criterion, case):
    options = dict(case)
    shift, scale = options.pop("shift", 0.0), options.pop("scale", 1.0)
    base = prompt_problem(criterion, **options)
    problem = replace(base, features=scale * base.features + shift)
    design = frank_wolfe(problem, max_iterations=20)
    result = verify(problem, design)
    assert result.messages == ()
    if shift == 0.0 and "dimension" not in case:  # there the gap itself is lost in rounding
        assert verify(problem, replace(design, gap=0.9 * design.gap)).messages[0].startswith("the design claims gap")


@pytest.mark.parametrize("criterion", ["D", "A", "V"])
@pytest.mark.parametrize("condition", [1e8, 1e12, 1e14, 1e17])
def test_an_ill_conditioned_prior_is_no_disagreement(criterion, condition):
    """The value without data is known to the condition number times epsilon only: all that a gain can be held to."""
    turn = np.linalg.qr(np.random.default_rng(2).standard_normal((5, 5)))[0]
    precision = (turn * np.geomspace(1e4 / condition, 1e4, 5)) @ turn.T
    problem = prompt_problem(criterion, prior_precision=(precision + precision.T) / 2)
    for design in (frank_wolfe(problem, max_iterations=20), newton(problem)):
        assert verify(problem, design).messages == ()
        if condition < 1e13:
            wrong = verify(problem, replace(design, gain=design.gain * (1 + 100 * condition * 1e-15))).messages
            assert len(wrong) == 1 and wrong[0].startswith("the design claims gain")


def chain_mdp(seed: int) -> FiniteHorizonMDP:
    """One state a step although the tables are a general MDP's: two states in turn, not all actions at all steps."""
    rng = np.random.default_rng(seed)
    admissible = rng.random((5, 14)) < 0.6
    admissible[:, [0, 7]] = True
    return FiniteHorizonMDP(
        pair_state=np.repeat([0, 1], 7),
        pair_action=np.tile(np.arange(7), 2),
        transitions=np.repeat([[0.0, 1.0], [1.0, 0.0]], 7, axis=0),
        initial=[0.0, 1.0],
        horizon=5,
        admissible=admissible,
        pair_row=rng.integers(0, 9, 14),
        num_rows=9,
    )


@pytest.mark.parametrize("criterion", ["D", "A", "V"])
@pytest.mark.parametrize("mdp", [PromptMDP([5, 3, 4]), PromptMDP.repeated(20, 3), chain_mdp(0), chain_mdp(1)])
def test_the_oracle_without_a_linear_program_finds_the_same_gap(criterion, mdp, monkeypatch):
    problem = problem_of(mdp, criterion)
    design = frank_wolfe(problem, max_iterations=3)
    expected = verify(problem, design)
    assert expected.confirmed and expected.gap > 0
    monkeypatch.setattr(verifier, "MAX_COLUMNS", 0)
    monkeypatch.setattr(verifier, "linprog", None)  # not called
    found = verify(problem, design)
    assert found.confirmed
    assert found.gap == pytest.approx(expected.gap, rel=1e-7)
    assert not verify(problem, replace(design, gap=0.9 * design.gap)).confirmed


@pytest.mark.parametrize("criterion", ["D", "A", "V"])
def test_float32_features_are_verified_in_float64(criterion):
    base = prompt_problem(criterion, sizes=(3000, 40, 2500), dimension=6)
    small = replace(base, features=base.features.astype(np.float32))
    large = replace(base, features=small.features.astype(np.float64))
    design = frank_wolfe(small, max_iterations=5)
    found, expected = verify(small, design), verify(large, replace(design, problem=large))
    assert found.confirmed and expected.confirmed
    assert found.value == pytest.approx(expected.value, rel=1e-13)
    assert found.gap == pytest.approx(expected.gap, rel=1e-9)


class Faulty(Plain):
    """A criterion with its value or gradient changed."""

    def __init__(self, criterion, value=None, gradient=None, form=None):
        super().__init__(criterion)
        self.form, self._value, self._gradient = form, value, gradient

    def value(self, information):
        value = super().value(information)
        return value if self._value is None else self._value(value)

    def gradient(self, information):
        gradient = super().gradient(information)
        return gradient if self._gradient is None else self._gradient(gradient)


@pytest.mark.parametrize(
    ("faults", "message"),
    [
        ({"gradient": lambda gradient: 1.001 * gradient}, "gradient of the criterion plain A is off by"),
        ({"gradient": lambda gradient: gradient + 0.001 * gradient.trace() * np.eye(5)}, "is off by"),
        ({"gradient": lambda gradient: np.triu(gradient)}, "is not symmetric"),
        # -v^2 of a concave negative v that is homogeneous: half of the information is worth a quarter
        ({"value": lambda v: -(v**2)}, "gives half of the information an efficiency of 0.25, not 0.5"),
        ({"form": Form(trace=True, factor=np.eye(5)[:, :2])}, "plain A has the value .*, by its form"),
        ({"form": Form(trace=False)}, "plain A has the value"),
    ],
)
def test_faults_of_a_criterion_are_caught(faults, message):
    problem = prompt_problem("A")
    design = newton(problem)
    own = replace(problem, criterion=Faulty(problem.criterion, **faults))
    messages = verify(own, replace(design, problem=own)).messages
    assert messages and re.search(message, messages[0]), messages


class NotConcave(Plain):
    """tr I - 1000, which is linear, plus a convex part."""

    def value(self, information):
        return float(np.trace(information) + np.vdot(information, information) / 100) - 1e4

    def gradient(self, information):
        return np.eye(len(information)) + information / 50

    def efficiency(self, value, upper_bound, dimension):
        return 0.5


def test_a_criterion_that_is_not_concave_is_caught():
    problem = prompt_problem("A")
    own = replace(problem, criterion=NotConcave(problem.criterion))
    messages = verify(own, replace(newton(problem), problem=own)).messages
    assert "the criterion plain A is not concave" in messages[0]
