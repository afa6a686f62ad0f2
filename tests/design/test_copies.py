"""Nearly equal tokens: their groups, the mass that is moved within them, and designs that do not depend on them."""

import numpy as np
import pytest

from edpbrl_gym.design import newton, verify
from edpbrl_gym.design.solvers.newton.tokens import Copies, Tokens
from edpbrl_gym.design.solvers.newton.working_sets import WorkingSets
from tests.helpers.design_cases import DESIGN_CRITERIA, copied, problem_from


@pytest.mark.parametrize("copies", [2, 5, 40])
@pytest.mark.parametrize("noise", [0.0, 1e-6, 1e-2])
@pytest.mark.parametrize("dimension", [12, 200])
def test_copies_are_grouped_with_their_first(copies, noise, dimension):
    rows, original = copied(60, copies, noise, dimension)
    found = Copies.find(Tokens(rows, [slice(0, len(rows))], np.ones(1)))
    assert len(found) == 60
    np.testing.assert_array_equal(original[found.first][found.group], original)
    assert all(found.first[number] == np.flatnonzero(found.group == number)[0] for number in range(60))


@pytest.mark.parametrize("criterion", DESIGN_CRITERIA)
@pytest.mark.parametrize("noise", [0.0, 1e-4, 1e-2, 0.04])
def test_designs_do_not_depend_on_groups(criterion, noise, monkeypatch):
    rows, _ = copied(60, 4, noise, seed=3)
    problem = problem_from(rows, [240], criterion)
    design = newton(problem)
    monkeypatch.setattr(Copies, "find", lambda tokens: None)
    without = newton(problem)
    assert design.status == without.status == "converged"
    assert design.value == pytest.approx(without.value, abs=2e-6 * (without.value - problem.baseline))
    assert verify(problem, design).confirmed


@pytest.mark.parametrize("noise", [0.0, 1e-4])
@pytest.mark.parametrize("criterion", ["D", "A"])
def test_working_sets_have_about_one_token_of_a_group(criterion, noise, monkeypatch):
    """With all copies they would have hundreds more, whose Hessian is nearly singular."""
    sizes = []
    make = WorkingSets.objective
    monkeypatch.setattr(WorkingSets, "objective", lambda self, tokens: sizes.append(len(tokens)) or make(self, tokens))
    rows, original = copied(150, 5, noise, dimension=40, seed=5)
    design = newton(problem_from(rows, [750], criterion))
    assert design.status == "converged"
    assert max(sizes) <= 1.5 * 150  # the first sample may have several
    carried = np.unique(original[np.flatnonzero(design.mean_occupancy[0] > 0)], return_counts=True)[1]
    assert np.mean(carried == 1) >= 0.7  # equal copies that the first sample had keep their mass
