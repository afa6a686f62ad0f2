"""Designs as files and as text."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest

from edpbrl_gym.design import Design, certify, frank_wolfe, reference, verify
from edpbrl_gym.design.certificate import Rounding, assemble
from edpbrl_gym.design.result import prior_balance
from edpbrl_gym.mdp import PromptMDP
from tests.helpers.design_cases import problem_of, prompt_problem, random_mdp_problem, random_occupancy

GIVEN = {"status": "given", "solver": "by hand", "iterations": 0, "seconds": 0.0}


@pytest.fixture(scope="module")
def design():
    return frank_wolfe(prompt_problem("V"), max_iterations=20)


def assert_equal(one: Design, other: Design) -> None:
    names = ("value", "upper_bound", "gap", "gain", "relative_gap", "efficiency", "status", "solver", "iterations")
    for name in (*names, "oracle_calls", "seconds", "history", "warnings"):
        assert getattr(one, name) == getattr(other, name), name
    np.testing.assert_array_equal(one.occupancies, other.occupancies)


def test_a_design_survives_its_file(design, tmp_path):
    path = design.save(tmp_path / "new" / "design.npz")
    loaded = Design.load(path, prompt_problem("V"))  # an equal problem, not the same object
    assert_equal(design, loaded)
    assert not loaded.occupancies.flags.writeable
    assert verify(design.problem, loaded).confirmed
    assert [entry.name for entry in path.parent.iterdir()] == ["design.npz"]  # no temporary file left
    assert loaded.history[0].iteration == 0


def test_different_policies_and_no_prior_survive(tmp_path):
    problem = random_mdp_problem("D", regularization=0.0)
    rng = np.random.default_rng(0)
    occupancies = np.stack([random_occupancy(problem.mdp, rng) for _ in range(4)])
    design = certify(problem, occupancies, oracle_calls=0, **GIVEN)
    assert design.gain == np.inf and verify(problem, design).confirmed
    np.testing.assert_allclose(design.mean_occupancy, occupancies.mean(axis=0))
    for policy, occupancy in zip(design.policies, occupancies, strict=True):
        np.testing.assert_allclose(problem.mdp.occupancy(policy), occupancy, atol=1e-12)
    assert_equal(design, Design.load(design.save(tmp_path / "d"), problem))


def test_other_problems_and_files_are_refused(design, tmp_path):
    path = design.save(tmp_path / "design.npz")
    with pytest.raises(ValueError, match="was made for another problem"):
        Design.load(path, prompt_problem("V", regularization=2.0))
    with pytest.raises(FileNotFoundError, match="saved design at .*missing.npz"):
        Design.load(tmp_path / "missing.npz", design.problem)
    np.savez(tmp_path / "other.npz", features=np.eye(2))
    np.save(tmp_path / "array.npy", np.eye(2))
    np.savez(tmp_path / "old.npz", occupancies=np.zeros((1, 2, 3)), document=np.array(json.dumps({"format": "x"})))
    for name in ("other.npz", "array.npy", "old.npz"):
        with pytest.raises(ValueError, match=f"Expected a design saved by Design.save .*{name}"):
            Design.load(tmp_path / name, design.problem)


@pytest.mark.needs("reference")
def test_the_summary_names_the_certificate(design):
    text = design.summary()
    for part in (
        "V-optimal",
        "K = 4",
        "T = 60",
        "H = 3",
        "31 rows x 5",
        "lambda = 1",
        "gap",
        "efficiency",
        "12, 9, 10",
    ):
        assert part in text
    given = reference(prompt_problem("D", prior_precision=np.eye(5))).summary()
    assert "a given precision matrix" in given
    assert "cvxpy CLARABEL: converged" in given


@pytest.mark.parametrize(("efficiency", "said"), [(0.99999, "99.99%"), (0.98767, "98.76%"), (1.0, "100.00%")])
def test_the_summary_promises_no_more_than_was_proved(design, efficiency, said):
    assert f"at least {said}" in replace(design, efficiency=efficiency).summary()


def test_the_support_is_sorted_by_mass():
    design = frank_wolfe(prompt_problem("D"), variant="pairwise", max_iterations=500)
    for step, rows in enumerate(design.support):
        mass = design.mean_rows[step]
        assert (np.diff(mass[rows]) <= 0).all()
        assert mass[rows].sum() == pytest.approx(1.0)
        offsets = design.problem.mdp.offsets
        assert ((rows >= offsets[step]) & (rows < offsets[step + 1])).all()


@pytest.mark.parametrize("criterion", ["D", "A", "V"])
def test_a_design_assembled_from_its_numbers_is_the_certified_one(criterion):
    for problem in (prompt_problem(criterion), random_mdp_problem(criterion)):
        rng = np.random.default_rng(0)
        for occupancies in (
            random_occupancy(problem.mdp, rng),
            np.stack([random_occupancy(problem.mdp, rng) for _ in range(4)]),
        ):
            whole = certify(problem, occupancies, oracle_calls=2, **GIVEN)
            rounding = Rounding(0.0, whole.upper_bound - (whole.value + whole.gap))
            numbers = {"value": whole.value, "gap": whole.gap, "rounding": rounding, "oracle_calls": 3}
            assert_equal(whole, assemble(problem, occupancies, **numbers, **GIVEN))
            balance = prior_balance(problem, whole.mean_rows)
            assert_equal(whole, assemble(problem, occupancies, **numbers, balance=balance, **GIVEN))


def test_no_design_without_a_true_certificate():
    problem = prompt_problem("D")
    good = problem.mdp.occupancy(problem.mdp.uniform_policy())
    with pytest.raises(ValueError, match=r"occupancies \(K, H, M\) with K = 4"):
        certify(problem, np.zeros((2, 3, 31)), oracle_calls=0, **GIVEN)
    with pytest.raises(ValueError, match="violates the flow equations"):
        certify(problem, np.zeros((3, 31)), oracle_calls=0, **GIVEN)
    for gap in (-1e-3, np.nan):
        with pytest.raises(ValueError, match="Expected a gap >= 0"):
            assemble(problem, good, value=1.0, gap=gap, oracle_calls=0, **GIVEN)
    elsewhere = np.roll(good, 1, axis=1)  # a bit of mass on tokens of other steps
    for bad in (1.001 * good, elsewhere, 0 * good):
        with pytest.raises(ValueError, match="violates the flow equations by"):
            assemble(problem, bad, value=1.0, gap=0.0, oracle_calls=0, **GIVEN)
    with pytest.raises(ValueError, match="non-negative occupancy"):
        assemble(problem, good - 0.2, value=1.0, gap=0.0, oracle_calls=0, **GIVEN)
    with pytest.raises(ValueError, match=r"occupancy of shape \(H, M\) = \(3, 31\)"):
        assemble(problem, good[:, :5], value=1.0, gap=0.0, oracle_calls=0, **GIVEN)


def test_policies_and_steps_that_are_the_same_share_their_memory(tmp_path):
    problem = problem_of(PromptMDP.repeated(50, 3), "D", unit=True)
    weights = np.zeros(50)
    weights[[4, 7, 30]] = [0.2, 0.5, 0.3]
    shared = certify(problem, np.broadcast_to(weights, (4, 3, 50)), oracle_calls=0, **GIVEN)
    assert shared.occupancies.strides[:2] == (0, 0) and not shared.occupancies.flags.writeable
    plain = certify(problem, np.tile(weights, (3, 1)), oracle_calls=0, **GIVEN)
    assert_equal(shared, plain)
    assert shared.summary() == plain.summary()
    assert [list(rows) for rows in shared.support] == [[7, 30, 4]] * 3 == [list(rows) for rows in plain.support]
    np.testing.assert_array_equal(shared.policies, plain.policies)
    for array in (shared.mean_rows, shared.mean_occupancy):
        np.testing.assert_array_equal(array, np.tile(weights, (3, 1)))
        array[:] = 0.0  # a copy of the caller's own
    for design in (shared, plain):
        loaded = Design.load(design.save(tmp_path / "design.npz"), problem)
        assert_equal(loaded, shared)
        assert not loaded.occupancies.flags.writeable
    assert Design.load(shared.save(tmp_path / "shared.npz"), problem).occupancies.strides[:2] == (0, 0)
    assert verify(problem, shared).confirmed
