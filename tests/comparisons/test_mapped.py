"""Comparisons with mapped features, and a taste that only they can learn."""

import numpy as np
import pytest

from edpbrl_gym.comparisons import Comparisons, map_comparisons
from edpbrl_gym.design import DesignProblem, make_criterion
from edpbrl_gym.design.solvers.newton import newton
from edpbrl_gym.estimation import GaussianPrior, choice_accuracy, estimate, fit_prior
from edpbrl_gym.features import RandomFourierFeatures, WithLinear
from edpbrl_gym.likelihood import Response
from edpbrl_gym.mdp import PromptMDP

MAP = WithLinear(RandomFourierFeatures(2, 40, bandwidth=0.7, seed=1))


def answered(n=30, seed=0, utility=lambda rows: rows[..., 0], **fields):
    rng = np.random.default_rng(seed)
    features = rng.normal(size=(n, 3, 2))
    return Comparisons.of_choices(
        features, utility(features).argmax(axis=1), np.arange(n), np.zeros(n, dtype=int), **fields
    )


def test_only_the_features_and_their_space_change():
    features = np.random.default_rng(0).normal(size=(4, 3, 2))
    responses = (Response.best(1), Response.tie(), Response.skip(), Response.best(0))
    texts = [["a", "b", "c"]] * 4
    given = Comparisons(
        features,
        responses,
        np.arange(4),
        np.zeros(4, dtype=int),
        texts=texts,
        who="ada",
        metadata={"encoder": "toy", "encoder_fingerprint": "c0ffee00", "scale": 2.0},
    )
    mapped = map_comparisons(given, MAP)
    np.testing.assert_allclose(mapped.features, MAP(given.features), atol=1e-6)
    assert mapped.features.dtype == np.float32
    assert mapped.responses == responses and mapped.who == "ada" and mapped.metadata["scale"] == 2.0
    assert [list(row) for row in mapped.texts] == texts
    assert mapped.metadata["feature_map"] == [MAP.name]
    assert mapped.metadata["encoder_fingerprint"] != "c0ffee00" and MAP.name in mapped.metadata["encoder"]
    assert given.metadata["encoder"] == "toy"


def test_spaces_are_never_mixed():
    plain = answered()
    first = map_comparisons(plain, MAP)
    other = map_comparisons(plain, WithLinear(RandomFourierFeatures(2, 40, bandwidth=0.8, seed=1)))
    with pytest.raises(ValueError, match="feature_map"):
        Comparisons.concatenate([first, other])
    assert len(Comparisons.concatenate([first, map_comparisons(answered(seed=1), MAP)])) == 60


def test_empty_comparisons_have_the_mapped_dimension():
    assert map_comparisons(Comparisons.empty(3, 2), MAP).features.shape == (0, 3, 42)


def test_two_bumps_are_learnt_by_the_kernel_only():
    centres = np.array([[1.2, 0.0], [-1.2, 0.0]])

    def bumps(rows):
        return np.exp(-np.square(rows[..., None, :] - centres).sum(axis=-1) / 0.5).max(axis=-1)

    train, test = answered(400, utility=bumps), answered(1000, seed=1, utility=bumps)
    linear = estimate(train, regularization=1.0).theta
    fit = fit_prior(map_comparisons(train, MAP), base=GaussianPrior.isotropic(MAP.dimension, 1.0))
    assert choice_accuracy(test, linear) < 0.45
    assert choice_accuracy(map_comparisons(test, MAP), fit.estimate.theta) > 0.85


def test_a_design_takes_mapped_features():
    mdp = PromptMDP((4, 5))
    rows = np.random.default_rng(0).normal(size=(9, 2))
    problem = DesignProblem(
        mdp=mdp,
        features=MAP(rows),
        num_policies=2,
        episodes=10,
        criterion=make_criterion("D"),
        regularization=1.0,
    )
    design = newton(problem)
    assert problem.dimension == 42 and design.efficiency > 0.99
