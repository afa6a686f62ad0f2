"""Planners of BoTorch and optuna: the same model as our own estimates, their acquisition functions, what they ask."""

from __future__ import annotations

import itertools

import numpy as np
import optuna
import pytest
import torch

from benchmarks.external_planners import OptunaGPPlanner, PairwiseGPPlanner
from edpbrl_gym.estimation import GaussianPrior, estimate
from edpbrl_gym.likelihood import Response
from edpbrl_gym.planners import TokenFeatures, make_planner
from edpbrl_gym.planners.registry import make_rule
from edpbrl_gym.planners.rules import PoolState
from edpbrl_gym.vocabulary import Vocabulary

pytestmark = pytest.mark.needs("test")

EMPTY = np.zeros((2, 0), dtype=np.int64)


def features(items: np.ndarray) -> TokenFeatures:
    return TokenFeatures(Vocabulary(("item",), (tuple(f"item {i}" for i in range(len(items))),)), items)


class World:
    """Items on a sphere, a taste, and random pairs with the user's answers."""

    def __init__(self, seed=1000, *, n=30, d=4, asked=12):
        rng = np.random.default_rng(seed)
        self.items = rng.normal(size=(n, d))
        self.items /= np.linalg.norm(self.items, axis=1, keepdims=True)
        self.theta = 5.0 * self.items[0]
        self.questions = np.array([rng.choice(n, 2, replace=False) for _ in range(asked)])
        self.choices = (self.items[self.questions] @ self.theta + rng.gumbel(size=(asked, 2))).argmax(axis=1)

    def planner(self, acquisition="eubo", *, regularization=1.0):
        prior = GaussianPrior.isotropic(self.items.shape[1], regularization)
        planner = PairwiseGPPlanner(features(self.items), acquisition=acquisition, prior=prior)
        planner.tell(self.items[self.questions], self.choices.tolist())
        return planner

    def state(self, *, draws=8):
        prior = GaussianPrior.isotropic(self.items.shape[1], 1.0)
        return PoolState.of(self.items, prior, self.questions, self.choices, num_options=2, draws=draws)


@pytest.mark.parametrize(("n", "d", "asked", "regularization"), [(50, 10, 1, 1.0), (50, 10, 40, 0.4), (100, 64, 30, 4)])
def test_the_estimate_is_our_map_estimate_with_the_same_prior(n, d, asked, regularization):
    """Also where more items than features make BoTorch add a millionth to a singular covariance."""
    world = World(n=n, d=d, asked=asked)
    found = world.planner(regularization=regularization).estimate
    ours = estimate((world.items[world.questions], world.choices), regularization=regularization)
    root = np.linalg.cholesky(ours.precision)
    assert np.linalg.norm(root.T @ (found.theta - ours.theta)) < 1e-4  # posterior standard deviations
    assert np.linalg.norm(found.covariance() - ours.covariance()) < 1e-4 * np.linalg.norm(ours.covariance())
    assert found.converged and found.log_posterior == pytest.approx(ours.log_posterior, abs=1e-6)


def test_they_ask_what_our_rules_find():
    world = World()
    pairs = np.array(list(itertools.combinations(range(len(world.items)), 2)))
    assert sorted(world.planner("eubo").ask(EMPTY)) == sorted(make_rule("qeubo").propose(world.state()))
    bald = make_rule("bald").value(world.state(draws=4096))
    assert bald(world.planner("bald").ask(EMPTY)[None])[0] > 0.9 * bald(pairs).max()
    large = World(n=260, d=3)  # no replacement of one item is better
    first, second = large.planner().ask(EMPTY)
    value = make_rule("qeubo").value(large.state())
    others = np.array([[i, j] for i in (first, second) for j in range(260) if j not in (first, second)])
    assert value(others).max() <= value(np.array([[first, second]]))[0] + 1e-5


def asked(planner, items, theta, count):
    """The questions and choices of a user who never errs."""
    questions, choices = [], []
    for _ in range(count):
        questions.append(planner.ask(EMPTY).tolist())
        choices.append(int((items[questions[-1]] @ theta).argmax()))
        planner.tell(items[questions[-1]][None].astype(np.float32), [choices[-1]])
    return questions, choices


def test_optuna_asks_the_best_so_far_against_a_new_item_and_finds_good_ones():
    world = World(n=60, d=2)
    planner = OptunaGPPlanner(features(world.items), seed=1000)
    with pytest.raises(ValueError, match="at least one answer"):
        planner.best_item()
    questions, choices = asked(planner, world.items, world.theta, 8)
    for before, chosen, after in zip(questions, choices, questions[1:], strict=False):
        assert after[0] == before[chosen] and after[1] not in before
    assert planner.best_item() == questions[-1][choices[-1]]
    values = world.items @ world.theta
    assert int((values > values[planner.best_item()]).sum()) <= 6


@pytest.mark.parametrize("name", ["botorch-bald", "botorch-eubo", "optuna"])
def test_the_same_calls_give_the_same_questions_and_nobody_elses_state_is_touched(name):
    world, verbosity = World(n=20, d=3), optuna.logging.get_verbosity()
    pool = features(world.items)
    words = Vocabulary(("item",), (tuple(f"item {i}" for i in range(20)),))
    before = np.random.get_state()[1].copy(), torch.get_rng_state().clone()
    planner = make_planner(name, words, pool, num_options=2, seed=4)
    first, _ = asked(planner, world.items, world.theta, 4)
    assert (np.random.get_state()[1] == before[0]).all() and torch.equal(torch.get_rng_state(), before[1])
    assert optuna.logging.get_verbosity() == verbosity != optuna.logging.WARNING
    torch.manual_seed(12)
    planner.reset()
    assert asked(planner, world.items, world.theta, 4)[0] == first


def test_skipped_questions_and_equal_items_teach_nothing():
    world = World(asked=6)
    planner = world.planner()
    before = planner.estimate.theta
    same = np.repeat(world.items[:1], 2, axis=0)
    planner.tell(np.stack([world.items[:2], same]), [Response.skip(), Response.best(1)])
    np.testing.assert_array_equal(planner.estimate.theta, before)


def test_errors_say_what_was_expected():
    pool, prior = features(World().items), GaussianPrior.isotropic(4, 1.0)
    for options, message in (
        ({"num_options": 4}, "pairs only; got 4"),
        ({"prior": GaussianPrior.from_precision(np.diag(np.arange(1.0, 5.0)))}, "the package takes no other"),
    ):
        with pytest.raises(ValueError, match=message):
            PairwiseGPPlanner(pool, **{"acquisition": "bald", "prior": prior, **options})
    with pytest.raises(ValueError, match="at most 10 features, got 11"):
        OptunaGPPlanner(features(np.eye(11)))
