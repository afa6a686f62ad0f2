"""Nearly equal tokens: their groups, the mass that is moved within them, and designs that do not depend on them."""

from __future__ import annotations

import importlib

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from edpbrl_gym.design import newton, verify
from edpbrl_gym.design.solvers.newton.tokens.blocks import TokenBlocks
from edpbrl_gym.design.solvers.newton.tokens.copies import Copies
from tests.helpers.design_cases import DESIGN_CRITERIA, copied, problem_from

solver = importlib.import_module("edpbrl_gym.design.solvers.newton.tokens.solver")


def blocks_of(*parts) -> TokenBlocks:
    bounds = np.cumsum([0, *map(len, parts)])
    rows = [slice(int(begin), int(end)) for begin, end in zip(bounds[:-1], bounds[1:], strict=True)]
    return TokenBlocks(np.concatenate(parts), rows, np.ones(len(parts)))


# -- groups ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("copies", [2, 5, 40])
@pytest.mark.parametrize("noise", [0.0, 1e-6, 1e-2])
@pytest.mark.parametrize("dimension", [12, 200])
def test_copies_are_grouped_with_their_first(copies, noise, dimension):
    rows, original = copied(60, copies, noise, dimension)
    found = Copies.find(blocks_of(rows))
    assert len(found) == 60
    np.testing.assert_array_equal(original[found.first][found.group], original)
    assert all(found.first[number] == np.flatnonzero(found.group == number)[0] for number in range(60))


def test_blocks_are_apart():
    rows, _ = copied(30, 3, 0.0)
    found = Copies.find(blocks_of(rows, rows))
    assert len(found) == 60
    assert set(found.group[:90]).isdisjoint(found.group[90:])


@pytest.mark.parametrize(
    "rows",
    [
        np.random.default_rng(1).standard_normal((500, 20)),
        np.zeros((1, 3)),
        np.zeros((20, 12)),  # nothing to compare with
        np.random.default_rng(1).standard_normal((5000, 2)),  # all near to others, and no copies
        np.ones((5, 12)) * 1e30,
    ],
)
def test_other_tokens_are_no_copies(rows):
    assert Copies.find(blocks_of(rows)) is None


def test_a_few_copies_among_many_tokens_are_not_looked_for():
    rows = np.random.default_rng(2).standard_normal((1000, 20))
    rows[-5:] = rows[:5]
    assert Copies.find(blocks_of(rows)) is None


@given(st.integers(0, 2**32 - 1), st.integers(2, 200), st.integers(9, 12))
def test_groups_cover_all_tokens_and_stay_small(seed, count, dimension):
    rng = np.random.default_rng(seed)
    rows = rng.standard_normal((count, 1)) + 0.01 * rng.standard_normal((count, dimension))  # along a line
    found = Copies.find(blocks_of(rows))
    if found is None:
        return
    np.testing.assert_array_equal(found.group[found.first], np.arange(len(found)))
    spread = np.sqrt(np.mean(np.sum((rows - rows.mean(axis=0)) ** 2, axis=1)))
    assert np.linalg.norm(rows - rows[found.first][found.group], axis=1).max() <= 2 * 0.05 * spread * (1 + 1e-5)


# -- mass --------------------------------------------------------------------------------------------------------------

GROUPS = Copies(np.array([0, 1, 0, 2, 1, 0, 3]), np.array([0, 1, 3, 6]))


def test_the_best_of_each_group():
    best = GROUPS.best(np.array([0, 2, 3, 4, 5]), np.array([1.0, 3.0, 0.5, 0.1, 2.0]))
    np.testing.assert_array_equal(best, [1, 2, 3])


def test_mass_goes_to_the_token_that_is_named():
    support, weights = GROUPS.moved(np.array([0, 1, 3, 5]), np.array([0.4, 0.3, 0.2, 0.1]), np.array([2, 6]))
    np.testing.assert_array_equal(support, [1, 2, 3])  # of groups 1 and 2 none is named, group 3 has no mass
    np.testing.assert_allclose(weights, [0.3, 0.5, 0.2])


def test_every_group_has_a_token():
    np.testing.assert_array_equal(GROUPS.filled(np.array([2, 4])), [2, 3, 4, 6])


# -- designs -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("criterion", DESIGN_CRITERIA)
@pytest.mark.parametrize("noise", [0.0, 1e-4, 1e-2, 0.04])
def test_designs_do_not_depend_on_groups(criterion, noise, monkeypatch):
    rows, _ = copied(60, 4, noise, seed=3)
    problem = problem_from(rows, [240], criterion)
    design = newton(problem)
    monkeypatch.setattr(solver.Copies, "find", lambda blocks: None)
    without = newton(problem)
    assert design.status == without.status == "converged"
    assert design.value == pytest.approx(without.value, abs=2e-6 * (without.value - problem.baseline))
    assert verify(problem, design).confirmed


@pytest.mark.parametrize("criterion", ["D", "A"])
def test_without_a_proper_prior(criterion):
    rows, _ = copied(60, 4, 1e-3, seed=4)
    problem = problem_from(rows, [240], criterion, regularization=0.0)
    design = newton(problem)
    assert design.status == "converged" and verify(problem, design).confirmed


@pytest.mark.parametrize("noise", [0.0, 1e-4])
@pytest.mark.parametrize("criterion", ["D", "A"])
def test_working_sets_have_about_one_token_of_a_group(criterion, noise, monkeypatch):
    """With all copies they would have hundreds more, whose Hessian is nearly singular."""
    sizes = []
    space = solver.TokenSolver.space
    monkeypatch.setattr(
        solver.TokenSolver, "space", lambda self, tokens: sizes.append(len(tokens)) or space(self, tokens)
    )
    rows, original = copied(150, 5, noise, dimension=40, seed=5)
    design = newton(problem_from(rows, [750], criterion))
    assert design.status == "converged"
    assert max(sizes) <= 1.5 * 150  # the first sample may have several
    carried = np.unique(original[np.flatnonzero(design.mean_occupancy[0] > 0)], return_counts=True)[1]
    assert np.mean(carried == 1) >= 0.7  # equal copies that the first sample had keep their mass
