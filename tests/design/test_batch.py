"""Designs of many users at once against `newton`, `certify`, `verify` and finite differences, on numpy and torch."""

from __future__ import annotations

from unittest import mock

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from edpbrl_gym.design import (
    BatchDesigns,
    Criterion,
    DesignProblem,
    SingularInformationError,
    batch_designs,
    make_backend,
    make_criterion,
    newton,
    verify,
)
from edpbrl_gym.design.deadline import NEVER
from edpbrl_gym.design.solvers.batch import loop
from edpbrl_gym.design.solvers.batch.arrays import arrays_of
from edpbrl_gym.design.solvers.batch.program import solve_programs
from edpbrl_gym.design.solvers.batch.tokens import SharedTokens
from edpbrl_gym.design.solvers.newton.simplex_qp import solve_simplex_qp
from edpbrl_gym.design.solvers.newton.tokens.layout import PromptLayout
from edpbrl_gym.mdp import FiniteHorizonMDP, PromptMDP
from tests.helpers.extras import is_installed, skip_without

BACKENDS = ("numpy", "torch") if is_installed("text") else ("numpy",)


def some_criterion(name: str, dimension: int, rng: np.random.Generator) -> Criterion:
    factor = rng.standard_normal((dimension, max(1, dimension // 3)))
    return make_criterion(name, factor @ factor.T if name == "V" else None)


def some_priors(users: int, dimension: int, rng: np.random.Generator, *, low=-1.0, high=1.0):
    """Between 10^low and 10^high in size, with a few directions known better."""
    known = rng.standard_normal((users, 3, dimension))
    known *= rng.integers(0, 2, size=(users, 3, 1))
    sizes = 10.0 ** rng.uniform(low, high, size=(users, 1, 1))
    return sizes * np.eye(dimension) + known.swapaxes(1, 2) @ known


def solve(seed=0, *, users=9, sizes=(30,), dimension=5, steps=2, name="D", tolerance=1e-6, priors=None, **options):
    """A batch on Gaussian features; one vocabulary is shown at all steps."""
    rng = np.random.default_rng(seed)
    mdp = PromptMDP.repeated(sizes[0], steps) if len(sizes) == 1 else PromptMDP(sizes)
    features = rng.standard_normal((sum(sizes), dimension))
    given_priors = some_priors(users, dimension, rng) if priors is None else priors
    return batch_designs(
        mdp,
        features,
        num_policies=3,
        episodes=7,
        criterion=some_criterion(name, dimension, rng),
        prior_precisions=given_priors,
        tolerance=tolerance,
        **options,
    )


def check(batch: BatchDesigns, users=None) -> None:
    """Every certificate is confirmed by the verifier, agrees with `certify`, and with what newton finds."""
    for user in range(len(batch)) if users is None else users:
        design = batch.design(user)
        assert verify(design.problem, design).confirmed, user
        scale = 1e-9 * max(1.0, abs(design.value))
        assert batch.value[user] == pytest.approx(design.value, abs=scale)
        assert batch.gap[user] == pytest.approx(design.gap, abs=scale + 10 * design.rounding)
        assert batch.gain[user] == pytest.approx(design.gain, abs=scale)
        alone = newton(design.problem, tolerance=1e-9)
        assert alone.value <= batch.upper_bound[user] + scale
        assert batch.value[user] <= alone.upper_bound + scale
        # the two certificates, with allowances of their own, may fall on both sides of the tolerance
        assert design.status in (batch.status[user], "precision_reached")
        assert design.occupancies.shape[0] == 3


# -- against newton and the verifier --------------------------------------------------------------------------------


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("name", ["D", "A", "V"])
@pytest.mark.parametrize("sizes", [(40,), (12, 25, 9)], ids=["one vocabulary", "three vocabularies"])
def test_every_certificate_is_true(name, sizes, backend):
    batch = solve(users=6, sizes=sizes, name=name, backend=backend)
    assert set(batch.status) == {"converged"}
    assert (batch.relative_gap <= 1e-6).all()
    assert (batch.efficiency > 0.99).all()
    check(batch)


@settings(max_examples=12)
@given(
    seed=st.integers(0, 10**6),
    name=st.sampled_from(["D", "A", "V"]),
    dimension=st.integers(1, 12),
    sizes=st.lists(st.integers(1, 40), min_size=1, max_size=3),
    strength=st.sampled_from([-3.0, 0.0, 3.0]),
    spoilt=st.sampled_from(["no", "nearly equal", "large mean", "float16"]),
    tolerance=st.sampled_from([1e-3, 1e-6, 1e-8]),
    backend=st.sampled_from(BACKENDS),
)
@example(0, "D", 5, [3], -3.0, "no", 1e-3, "numpy")  # inverses by LU lose digits that the certificate needs
def test_hard_problems(seed, name, dimension, sizes, strength, spoilt, tolerance, backend):
    rng = np.random.default_rng(seed)
    features = rng.standard_normal((sum(sizes), dimension)) * rng.uniform(0.1, 3.0, dimension)
    if spoilt == "nearly equal":
        features[1::2] = features[: 2 * (len(features) // 2) : 2] + 1e-7 * features[1::2]
    elif spoilt == "large mean":
        features += 1000.0 * rng.standard_normal(dimension)
    elif spoilt == "float16":
        features = features.astype(np.float16).astype(np.float32)
    mdp = PromptMDP.repeated(sizes[0], 3) if len(sizes) == 1 else PromptMDP(sizes)
    batch = batch_designs(
        mdp,
        features,
        num_policies=3,
        episodes=int(rng.integers(1, 100)),
        criterion=some_criterion(name, dimension, rng),
        prior_precisions=some_priors(4, dimension, rng, low=strength - 1.0, high=strength),
        tolerance=tolerance,
        backend=backend,
    )
    together = [word for word, alone in zip(batch.status, batch.alone, strict=True) if not alone]
    assert set(together) <= {"converged"}  # the others are newton's
    check(batch)


def test_priors_of_very_different_strength_in_one_batch():
    rng = np.random.default_rng(3)
    batch = solve(3, dimension=8, priors=some_priors(12, 8, rng, low=-3.0, high=3.0), name="A")
    assert set(batch.status) == {"converged"}
    check(batch)


@pytest.mark.needs("text")
def test_chunks_and_the_order_of_users_and_the_backend_do_not_matter():
    batch = solve(4, users=11)
    order = np.random.default_rng(0).permutation(11)
    others = [
        (solve(4, users=11, users_at_once=3), np.arange(11)),
        (solve(4, users=11, backend="torch", users_at_once=4), np.arange(11)),
        (solve(4, priors=batch.prior_precisions[order]), order),
    ]
    for other, positions in others:
        assert np.abs(other.value - batch.value[positions]).max() <= 1e-6 * batch.gain.max()
        assert (other.value <= batch.upper_bound[positions]).all()
        assert (batch.value[positions] <= other.upper_bound).all()


def test_torch_computes_on_the_gpu_too():
    skip_without("text")
    import torch

    if not torch.cuda.is_available():
        pytest.skip("no CUDA device")
    check(solve(backend="torch:cuda"))


def test_float32_features_and_a_result_that_is_read_only():
    rng = np.random.default_rng(5)
    features = rng.standard_normal((20, 4)).astype(np.float32)
    batch = batch_designs(
        PromptMDP.repeated(20, 1),
        features,
        num_policies=2,
        episodes=3,
        criterion=make_criterion("D"),
        prior_precisions=some_priors(3, 4, rng),
    )
    assert batch.problem.features.dtype == np.float32
    assert batch.weights.sum(axis=1) == pytest.approx(1.0)
    assert not batch.weights.flags.writeable and not batch.prior_precisions.flags.writeable
    assert "3 users: 3 converged" in batch.summary()
    with pytest.raises(ValueError, match="user in 0..2, got 3"):
        batch.design(3)


# -- how it ends ----------------------------------------------------------------------------------------------------


def test_users_without_progress_are_finished_by_newton():
    def nothing(arrays, hessians, gradients, weights, parts, **options):
        return arrays.namespace.zeros_like(weights)

    with mock.patch.object(loop, "solve_programs", nothing):
        batch = solve(6, users=5)
    assert batch.alone.all() and set(batch.status) == {"converged"}
    assert batch.design(0).solver == "newton"
    assert "5 users finished by newton" in batch.summary()
    check(batch)


def test_a_bad_direction_is_never_followed():
    """Directions of noise in place of the programs' solutions: the objective never falls, and newton ends it."""
    rng = np.random.default_rng(0)

    def noise(arrays, hessians, gradients, weights, parts, **options):
        return rng.uniform(0.0, 1.0, weights.shape) - weights

    with mock.patch.object(loop, "solve_programs", noise):
        check(solve(6, users=4))


@pytest.mark.parametrize("name", ["D", "A"])
def test_limits_give_the_best_so_far_with_a_certificate(name):
    for options, word in (({"time_limit": 0.0}, "time_limit"), ({"max_iterations": 1}, "iteration_limit")):
        batch = solve(7, name=name, tolerance=1e-9, **options)
        assert set(batch.status) == {word}
        assert (batch.iterations == int(word == "iteration_limit")).all()
        check(batch, users=range(3))


def test_the_callback_sees_progress_and_can_stop():
    states = []
    batch = solve(8, users=10, users_at_once=4, callback=states.append)
    finished = [state.finished for state in states]
    assert finished == sorted(finished) and finished[-1] == len(batch) == states[0].users
    assert all(state.seconds >= 0 for state in states)
    stopped = solve(8, users=10, users_at_once=4, tolerance=1e-9, callback=lambda state: len(states) > 0)
    assert set(stopped.status) == {"interrupted"}
    check(stopped, users=range(2))


def test_users_who_can_learn_nothing():
    rng = np.random.default_rng(9)
    batch = batch_designs(
        PromptMDP.repeated(6, 2),
        np.ones((6, 3)),
        num_policies=2,
        episodes=4,
        criterion=make_criterion("D"),
        prior_precisions=some_priors(3, 3, rng),
    )
    assert set(batch.status) == {"converged"}
    assert (batch.gain == 0).all() and (batch.gap == 0).all() and (batch.relative_gap == 0).all()
    assert batch.weights.sum(axis=1) == pytest.approx(1.0)
    assert verify(batch.design(1).problem, batch.design(1)).confirmed


# -- what does not fit ----------------------------------------------------------------------------------------------


def test_bad_input_is_named():
    fine = np.stack([np.eye(5)] * 3)
    with pytest.raises(SingularInformationError, match="singular or indefinite one for user 1"):
        solve(priors=fine * np.array([1.0, 0.0, 1.0])[:, None, None])
    with pytest.raises(SingularInformationError, match="for user 2"):
        solve(priors=fine * np.array([1.0, 1.0, -1.0])[:, None, None])
    skewed = fine.copy()
    skewed[1, 0, 3] = 0.5
    with pytest.raises(ValueError, match="differs from its transpose by 0.5 for user 1"):
        solve(priors=skewed)
    with pytest.raises(ValueError, match="prior_precisions"):
        solve(priors=np.eye(5))
    with pytest.raises(ValueError, match="U >= 1"):
        solve(priors=np.zeros((0, 5, 5)))
    with pytest.raises(ValueError, match="prior_precision"):
        solve(priors=fine[:, :4, :4])
    with pytest.raises(ValueError, match="tolerance"):
        solve(tolerance=-1.0)
    with pytest.raises(ValueError, match="users_at_once"):
        solve(users_at_once=0)
    with pytest.raises(ValueError, match="backend"):
        solve(backend="jax")
    common = {"num_policies": 2, "episodes": 1, "prior_precisions": fine}
    with pytest.raises(ValueError, match="A, V or D"):
        batch_designs(PromptMDP.repeated(4, 1), np.ones((4, 5)), criterion=Identity(), **common)
    tree = PromptMDP((2, 2))
    general = FiniteHorizonMDP(
        pair_state=tree.pair_state,
        pair_action=tree.pair_action,
        transitions=tree.transitions,
        initial=tree.initial,
        horizon=2,
        pair_row=tree.pair_row,
    )
    with pytest.raises(ValueError, match="Expected a PromptMDP, got FiniteHorizonMDP"):
        batch_designs(general, np.ones((4, 5)), criterion=make_criterion("D"), **common)


class Identity(Criterion):
    """Not one of the three."""

    name = "trace"

    def value(self, information):
        return float(np.trace(information))

    def gradient(self, information):
        return np.eye(len(information))


# -- parts ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("name", ["D", "A", "V"])
def test_scores_and_hessians_are_derivatives_of_the_objective(name, backend):
    rng = np.random.default_rng(10)
    problem = DesignProblem(
        mdp=PromptMDP((6, 8)),
        features=rng.standard_normal((14, 4)) + 3.0,
        num_policies=2,
        episodes=5,
        criterion=some_criterion(name, 4, rng),
        prior_precision=some_priors(1, 4, rng)[0],
    )
    layout = PromptLayout(problem)
    arrays = arrays_of(make_backend(backend))
    tokens = SharedTokens(problem, layout, arrays)
    weights = np.concatenate([rng.dirichlet(np.ones(6)), rng.dirichlet(np.ones(8))])
    change = rng.standard_normal(14)
    for block in tokens.blocks:
        change[block] -= change[block].mean()
    prior = arrays.array(problem.prior[None])

    def objective(step: float) -> float:
        return problem.objective(layout.occupancy(np.arange(14), weights + step * change))

    evaluation = tokens.evaluate(arrays.array(weights[None]), prior)
    assert float(evaluation.value[0]) == pytest.approx(objective(0.0))
    scores = arrays.numpy(tokens.scores(evaluation, tokens.curvature(evaluation)))[0]
    h = 1e-4
    assert scores @ change == pytest.approx((objective(h) - objective(-h)) / (2 * h), rel=1e-6)
    index = arrays.array(np.arange(14)[None])
    for single, rel in ((False, 1e-5), (True, 1e-4)):
        hessian = arrays.numpy(tokens.hessians(evaluation, index, tokens.blocks, single=single))[0]
        second = (objective(h) - 2 * objective(0.0) + objective(-h)) / h**2
        assert change @ hessian @ change == pytest.approx(-second, rel=rel)


@pytest.mark.parametrize("backend", BACKENDS)
def test_programs_are_solved_as_an_active_set_method_solves_them(backend):
    rng = np.random.default_rng(11)
    arrays = arrays_of(make_backend(backend))
    users, count = 7, 20
    roots = rng.standard_normal((users, count, 12)) * rng.uniform(0.1, 3.0, (users, 1, 12))
    hessians = roots @ roots.swapaxes(1, 2)
    parts = [slice(0, 8), slice(8, 20)]
    gradients = 3.0 * rng.standard_normal((users, count))
    weights = np.concatenate([rng.dirichlet(np.ones(8), users), rng.dirichlet(np.ones(12), users)], axis=1)
    changes = arrays.numpy(
        solve_programs(
            arrays,
            *(arrays.array(value) for value in (hessians, gradients, weights)),
            parts,
            targets=arrays.array(np.full(users, 1e-6)),
            deadline=NEVER,
        )
    )
    for user in range(users):
        exact = solve_simplex_qp(hessians[user], gradients[user], weights[user], parts, tolerance=1e-12)

        def worth(change, user=user):
            return change @ (gradients[user] - 0.5 * hessians[user] @ change)

        assert worth(changes[user]) == pytest.approx(worth(exact - weights[user]), abs=2e-6)
        assert (weights[user] + changes[user]).min() >= -1e-12
        assert [changes[user, part].sum() for part in parts] == pytest.approx([0.0, 0.0], abs=1e-12)
