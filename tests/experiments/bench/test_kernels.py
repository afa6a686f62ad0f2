"""Users of two styles in the benchmark, and the estimators of tastes that are not linear."""

import numpy as np
import pytest

from edpbrl_gym.estimation import GaussianPrior, fit_prior
from edpbrl_gym.experiments.bench.arms import KERNELS, get_arm
from edpbrl_gym.experiments.bench.encoders import TimedEncoder
from edpbrl_gym.experiments.bench.estimators import fit, make_map
from edpbrl_gym.experiments.bench.item_worlds import load_items
from edpbrl_gym.experiments.bench.measuring import Scorer, make_scorer
from edpbrl_gym.experiments.bench.playing import ask_questions, make_user
from edpbrl_gym.experiments.bench.settings import REGIMES, BenchSettings, get_regime
from edpbrl_gym.experiments.bench.unit import score_estimators
from edpbrl_gym.features.maps import map_rows
from edpbrl_gym.likelihood import BestOf
from edpbrl_gym.oracles import MappedUser, TwoStyles
from edpbrl_gym.planners import ReplayPlanner

TWO, ONE = get_regime("two-styles-items-d10"), get_regime("one-style-items-d10")
SETTINGS = BenchSettings(prompts=60, pairs=200, held_out_questions=40)


@pytest.fixture
def world(tmp_path):
    return load_items(SETTINGS, TWO, tmp_path, "none", 7)


def asked_of(world, scorer, regime, count=40):
    planner = ReplayPlanner(np.random.default_rng(1).integers(100, size=(count, 4, 1)))
    user = make_user(regime, scorer.taste, "drawn", 3, utility=scorer.utility)
    encoder = TimedEncoder(world.encoder())
    (asked,) = ask_questions(planner, world, user, encoder, num_options=4, checkpoints=(count,))
    return planner, asked


def test_both_regimes_have_the_same_items_and_first_taste(world, tmp_path):
    plain = load_items(SETTINGS, get_regime("items-d10-K4"), tmp_path, "none", 7)
    np.testing.assert_array_equal(world.tokens, plain.tokens)
    np.testing.assert_array_equal(world.tastes["drawn"], plain.tastes["drawn"])
    assert abs(world.tastes["drawn"] @ world.tastes["second"]) < 0.99
    assert {name for name, regime in REGIMES.items() if regime.kernels} == {
        f"{style}-{what}"
        for style in ("two-styles", "one-style")
        for what in ("argmax", "scale-20", "items-d10", "items-d384")
    }


def test_errors_of_two_styles_are_those_of_the_utility(world, tmp_path):
    scorer = make_scorer(TWO, world, "drawn", tmp_path)
    assert isinstance(scorer.utility, TwoStyles)
    assert isinstance(make_user(TWO, scorer.taste, "drawn", 3, utility=scorer.utility), MappedUser)
    truth = scorer.utility
    perfect = scorer.errors(np.ones(1), truth)  # an estimate that is the utility itself
    assert perfect["preference_error"] == perfect["choice_error"] == scorer.regret(np.ones(1), None, truth) == 0.0
    assert np.isnan(perfect["cosine_error"])
    worst = scorer.errors(-np.ones(1), truth)
    assert worst["preference_error"] == 1.0 and worst["choice_error"] == 1.0
    theta = world.tastes["drawn"]
    found = scorer.errors(theta)
    left, right = (truth(world.prompts[world.pairs[:, side]])[:, 0] for side in (0, 1))
    signs = np.sign((world.prompts[world.pairs[:, 0]] - world.prompts[world.pairs[:, 1]]) @ theta)
    assert found["preference_error"] == pytest.approx(np.mean(signs != np.sign(left - right)))
    best, chosen = truth(world.held_out)[..., 0].argmax(axis=1), (world.held_out @ theta).argmax(axis=1)
    assert found["choice_error"] == pytest.approx(np.mean(best != chosen))
    values = truth(world.tokens)[:, 0]
    item = int((world.tokens @ theta).argmax())
    expected = (values.max() - values[item]) / (values.max() - values.mean())
    assert scorer.regret(theta, None) == pytest.approx(expected, rel=1e-5)


def test_a_mapped_linear_taste_is_judged_like_a_linear_one(world):
    scorer = Scorer(world, world.tastes["drawn"])
    theta = np.random.default_rng(0).normal(size=10)
    feature_map = make_map("kernel", world)
    padded = np.concatenate([theta, np.zeros(feature_map.dimension - 10)])  # the linear part alone
    linear, mapped = scorer.errors(theta), scorer.errors(padded, feature_map)
    assert mapped["preference_error"] == pytest.approx(linear["preference_error"])
    assert mapped["choice_error"] == pytest.approx(linear["choice_error"])
    assert scorer.regret(padded, None, feature_map) == pytest.approx(scorer.regret(theta, None))


@pytest.mark.parametrize("name", KERNELS)
def test_kernels_are_ridges_on_mapped_features(world, name):
    scorer = Scorer(world, world.tastes["drawn"])
    _, asked = asked_of(world, scorer, ONE)
    feature_map = make_map(name, world)
    mapped = map_rows(feature_map, asked.queries.features)
    terms = BestOf().terms(mapped, asked.responses)
    found = fit(name, terms, world)
    expected = fit_prior(terms, base=GaussianPrior.isotropic(feature_map.dimension, 1.0))
    np.testing.assert_allclose(found.theta, expected.estimate.theta)
    assert found.feature_map is feature_map and found.prior_scale == expected.scale
    with pytest.raises(ValueError, match="kernel estimator"):
        make_map("fixed", world)


def test_the_coordinates_of_the_embedding_prior(world):
    mapped = make_map("kernel-global", world)(world.tokens)[:, :10]
    products = mapped @ mapped.T
    prior = np.asarray(world.tokens, dtype=float)
    covariance = np.linalg.lstsq(prior, mapped, rcond=None)[0]
    np.testing.assert_allclose(prior @ covariance, mapped, atol=1e-8)  # a linear map
    distances = np.sqrt(np.maximum(np.diag(products)[:, None] + np.diag(products) - 2 * products, 0))
    assert np.median(distances[np.triu_indices(100, k=1)]) == pytest.approx(1.0)


def test_kernels_are_rows_where_a_regime_asks_for_them(world, tmp_path):
    scorer = make_scorer(TWO, world, "drawn", tmp_path)
    planner, asked = asked_of(world, scorer, TWO)
    plain = score_estimators(get_arm("random"), planner, asked, scorer, None)
    rows = score_estimators(get_arm("random"), planner, asked, scorer, None, kernels=True)
    added = [row for row in rows if row["estimator"] in KERNELS]
    assert len(rows) == len(plain) + len(KERNELS) and {row["estimator"] for row in added} == set(KERNELS)
    for row in added:
        assert row["converged"] and 0.0 <= row["preference_error"] <= 1.0 and row["regret"] >= 0.0
