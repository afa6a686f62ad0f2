"""BoTorch's planner: the same model as our own estimates, and the questions of BoTorch's acquisition functions."""

from __future__ import annotations

import itertools
import math
import sys

import numpy as np
import pytest
import torch  # noqa: E402
from scipy.special import ndtr, xlogy
from scipy.stats import spearmanr

from edpbrl_gym.estimation import GaussianPrior, estimate
from edpbrl_gym.likelihood import Response
from edpbrl_gym.planners import Planner
from edpbrl_gym.planners.external import PairwiseGPPlanner
from edpbrl_gym.planners.pool import PoolState
from edpbrl_gym.planners.registry import make_rule

pytestmark = pytest.mark.needs("external")

EMPTY = np.zeros((2, 0), dtype=np.int64)


class World:
    """Items on a sphere, a taste, and random pairs with the user's answers."""

    def __init__(self, seed=1000, *, n=30, d=4, asked=12, scale=5.0):
        rng = np.random.default_rng(seed)
        self.items = rng.normal(size=(n, d))
        self.items /= np.linalg.norm(self.items, axis=1, keepdims=True)
        theta = rng.normal(size=d)
        self.theta = scale * theta / np.linalg.norm(theta)
        self.questions = np.array([rng.choice(n, 2, replace=False) for _ in range(asked)])
        self.choices = (self.items[self.questions] @ self.theta + rng.gumbel(size=(asked, 2))).argmax(axis=1)

    def planner(self, acquisition="eubo", *, variance=1.0, seed=0):
        planner = PairwiseGPPlanner(self.items, acquisition=acquisition, prior_variance=variance, seed=seed)
        planner.tell(self.items[self.questions], self.choices.tolist())
        return planner

    def state(self, *, variance=1.0, draws=8):
        prior = GaussianPrior.isotropic(self.items.shape[1], 1.0 / variance)
        return PoolState.of(self.items, prior, self.questions, self.choices, num_options=2, draws=draws)

    def pairs(self):
        return np.array(list(itertools.combinations(range(len(self.items)), 2)))


def probit_information(state, pairs):
    """Mutual information of theta and a probit choice of each pair, by quadrature, in nats."""
    mean = state.utilities[pairs] @ [1.0, -1.0]
    differences = state.items[pairs[:, 0]] - state.items[pairs[:, 1]]
    variance = np.vecdot(differences, state.solve(differences))
    nodes, weights = np.polynomial.hermite_e.hermegauss(60)

    def entropy(p):
        return -xlogy(p, p) - xlogy(1.0 - p, 1.0 - p)

    inside = entropy(ndtr(mean[:, None] + np.sqrt(variance)[:, None] * nodes)) @ weights / weights.sum()
    return entropy(ndtr(mean / np.sqrt(1.0 + variance))) - inside


@pytest.mark.parametrize(
    ("n", "d", "asked", "variance"),
    [(100, 10, 1, 1.0), (100, 10, 60, 1.0), (100, 10, 60, 2.5), (20, 3, 200, 40.0), (200, 64, 30, 0.25)],
)
def test_the_estimate_is_our_map_estimate_with_the_same_prior(n, d, asked, variance):
    """Also where more items than features make BoTorch add a millionth to a singular covariance."""
    world = World(n=n, d=d, asked=asked)
    found = world.planner(variance=variance).estimate
    ours = estimate((world.items[world.questions], world.choices), regularization=1.0 / variance)
    root = np.linalg.cholesky(ours.precision)
    assert np.linalg.norm(root.T @ (found.theta - ours.theta)) < 1e-4  # posterior standard deviations
    assert np.linalg.norm(found.covariance() - ours.covariance()) < 1e-4 * np.linalg.norm(ours.covariance())
    assert found.converged and found.reason == ""
    assert found.log_likelihood == pytest.approx(ours.log_likelihood, abs=1e-4)
    assert found.log_posterior == pytest.approx(ours.log_posterior, abs=1e-6)


def test_the_posterior_of_the_unit_vectors_gives_the_utilities_of_all_items():
    world = World(n=40, d=5, asked=25)
    planner = world.planner(variance=3.0)
    with torch.no_grad():
        utilities = planner.fitted_model().posterior(torch.tensor(world.items)).mean.squeeze(-1).numpy()
    solved, left, _, _ = np.linalg.lstsq(world.items, utilities, rcond=None)
    assert float(left.sum()) < 1e-20
    np.testing.assert_allclose(planner.estimate.theta, solved, atol=1e-10)
    np.testing.assert_allclose(planner.posterior.mean, solved, atol=1e-10)


def test_before_the_first_answer_it_is_the_prior_and_asks_the_two_items_farthest_apart():
    world = World(n=25, d=3)
    distances = np.linalg.norm(world.items[:, None] - world.items[None], axis=2)
    for acquisition in ("bald", "eubo"):
        planner = PairwiseGPPlanner(world.items, acquisition=acquisition, prior_variance=4.0)
        assert isinstance(planner, Planner)
        np.testing.assert_array_equal(planner.estimate.theta, np.zeros(3))
        np.testing.assert_allclose(planner.posterior.covariance(), 4.0 * np.eye(3), atol=1e-12)
        first, second = planner.ask(EMPTY)
        assert distances[first, second] > (0.95 if acquisition == "bald" else 1.0 - 1e-12) * distances.max()
    with pytest.raises(ValueError, match="at least one answer"):
        planner.fitted_model()


def test_eubo_asks_what_botorch_scores_highest_and_our_closed_form_agrees():
    from botorch.acquisition.preference import AnalyticExpectedUtilityOfBestOption

    world = World(asked=15)
    planner, pairs = world.planner("eubo", variance=2.0), world.pairs()
    with torch.no_grad():
        theirs = AnalyticExpectedUtilityOfBestOption(planner.fitted_model())(torch.tensor(world.items[pairs])).numpy()
    state = world.state(variance=2.0)
    ours = make_rule("qeubo").prepare(state)(pairs)
    np.testing.assert_allclose(theirs, ours, atol=1e-4)
    asked = planner.ask(EMPTY)
    assert sorted(asked) == sorted(pairs[theirs.argmax()])
    assert sorted(asked) == sorted(make_rule("qeubo").propose(state))


def test_bald_asks_what_botorch_scores_highest_and_ranks_pairs_as_our_rule():
    from botorch.acquisition.preference import PairwiseBayesianActiveLearningByDisagreement

    world = World(asked=15)
    planner, pairs = world.planner("bald"), world.pairs()
    function = PairwiseBayesianActiveLearningByDisagreement(planner.fitted_model(), num_samples=16_384)
    with torch.no_grad(), torch.random.fork_rng():
        torch.manual_seed(0)
        theirs = np.concatenate([function(part).numpy() for part in torch.tensor(world.items[pairs]).split(64)])
    np.testing.assert_allclose(theirs, probit_information(world.state(), pairs), atol=0.01)
    ours = make_rule("bald").prepare(world.state(draws=4096))(pairs)
    assert spearmanr(theirs, ours).statistic > 0.94  # the choices are logistic
    place = pairs.tolist().index(sorted(planner.ask(EMPTY).tolist()))
    assert theirs[place] > 0.93 * theirs.max()  # with 1,024 samples
    assert ours[place] > 0.9 * ours.max()


def test_in_a_large_pool_no_replacement_of_one_item_is_better():
    world = World(n=260, d=3, asked=10)
    planner = world.planner("eubo")
    first, second = planner.ask(EMPTY)
    value = make_rule("qeubo").prepare(world.state())
    asked = value(np.array([[first, second]]))[0]
    others = np.array([[i, j] for i in (first, second) for j in range(260) if j not in (first, second)])
    assert value(others).max() <= asked + 1e-5
    assert math.isclose(asked, value(np.array(list(itertools.combinations(range(260), 2)))).max(), rel_tol=0.05)


@pytest.mark.parametrize("acquisition", ["bald", "eubo"])
def test_the_same_calls_give_the_same_questions_and_nobody_elses_randomness_is_touched(acquisition):
    world = World(n=20, d=3)
    rng = np.random.default_rng(1)
    answers = rng.integers(2, size=4).tolist()

    def questions(look, seed=3):
        planner = PairwiseGPPlanner(world.items, acquisition=acquisition, seed=seed)
        asked = []
        for answer in answers:
            if look:
                np.random.seed(len(asked))
                torch.manual_seed(len(asked))
                _ = planner.estimate, planner.posterior
            asked.append(planner.ask(EMPTY).tolist())
            planner.tell(world.items[asked[-1]][None], [answer])
        planner.reset()
        assert planner.ask(EMPTY).tolist() == asked[0]
        return asked

    np.random.seed(11)
    torch.manual_seed(11)
    before = np.random.get_state()[1].copy(), torch.get_rng_state().clone()
    asked = questions(look=False)
    assert (np.random.get_state()[1] == before[0]).all() and torch.equal(torch.get_rng_state(), before[1])
    assert questions(look=True) == asked


def test_skipped_questions_and_equal_items_teach_nothing():
    world = World(asked=6)
    planner = world.planner()
    before = planner.estimate.theta
    same = np.repeat(world.items[:1], 2, axis=0)
    planner.tell(np.stack([world.items[:2], same]), [Response.skip(), Response.best(1)])
    np.testing.assert_array_equal(planner.estimate.theta, before)


def test_of_equal_items_only_the_first_is_asked_about():
    world = World(n=12, d=3, asked=30)
    favourite = int((world.items @ world.theta).argmax())
    world.items = np.concatenate([world.items, world.items[[favourite, favourite]]])
    first, second = world.planner("eubo").ask(EMPTY)
    assert first < 12 and second < 12 and first != second


def test_it_learns_a_taste_from_its_own_questions():
    cosines = []
    for seed in (1000, 1001):
        world = World(seed, n=40, d=6)
        rng = np.random.default_rng([seed, 1])
        planner = PairwiseGPPlanner(world.items, acquisition="bald", seed=seed)
        for _ in range(25):
            options = world.items[planner.ask(EMPTY)]
            planner.tell(options[None].astype(np.float32), [int((options @ world.theta + rng.gumbel(size=2)).argmax())])
        found = planner.estimate.theta
        cosines.append(found @ world.theta / np.linalg.norm(found) / np.linalg.norm(world.theta))
    assert min(cosines) > 0.75


def test_errors_say_what_was_expected():
    items = World().items
    for options, message in (
        ({"acquisition": "ucb"}, "acquisition"),
        ({"acquisition": "bald", "num_options": 4}, "pairs only; got 4"),
        ({"acquisition": "bald", "prior_variance": 0.0}, "prior_variance"),
        ({"acquisition": "bald", "seed": -1}, "seed"),
    ):
        with pytest.raises(ValueError, match=message):
            PairwiseGPPlanner(items, **options)
    with pytest.raises(ValueError, match="2 different items"):
        PairwiseGPPlanner(np.ones((5, 3)), acquisition="bald")
    planner = PairwiseGPPlanner(items, acquisition="eubo")
    with pytest.raises(ValueError, match="1 tokens"):
        planner.ask(np.zeros((2, 1), dtype=np.int64))
    with pytest.raises(ValueError, match="prefixes"):
        planner.ask(np.zeros((4, 0), dtype=np.int64))
    with pytest.raises(ValueError, match="tie"):
        planner.tell(items[None, :2], [Response.tie()])
    with pytest.raises(ValueError, match="options"):
        planner.tell(items[None, :3], [0])
    with pytest.raises(ValueError):
        planner.tell(items[None, :2], [0, 1])
    np.testing.assert_array_equal(planner.estimate.theta, np.zeros(4))  # nothing of this stays


def test_a_missing_package_is_said_with_the_command_that_installs_it(monkeypatch):
    monkeypatch.setitem(sys.modules, "botorch", None)
    with pytest.raises(ModuleNotFoundError, match=r"botorch.*pip install \"edpbrl-gym\[external\]\""):
        PairwiseGPPlanner(World().items, acquisition="bald")
