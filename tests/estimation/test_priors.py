"""The table of priors: what a name makes, its options, files, and what is refused."""

from __future__ import annotations

import numpy as np
import pytest

from edpbrl_gym.estimation import GaussianPrior, Posterior, VocabularyPrior, estimate, fit_prior
from edpbrl_gym.estimation.priors import PRIOR_FILES, PRIORS, load_prior, make_prior, prior_needs, prior_options
from tests.helpers.communities import known_population

TOKENS = np.random.default_rng(0).normal(size=(30, 4))
IDENTITY = GaussianPrior.isotropic(4, 1.0)
ANSWERS = TOKENS[np.arange(24).reshape(8, 3)], np.arange(8) % 3


@pytest.mark.parametrize(
    ("name", "options", "theta", "start"),
    [
        ("words", {"power": 0.5}, VocabularyPrior(TOKENS, power=0.5).fit(ANSWERS).theta, None),
        ("ridge", {}, estimate(ANSWERS, regularization=1.0).theta, np.eye(4)),
        ("ridge", {"regularization": 3.0}, estimate(ANSWERS, regularization=3.0).theta, 3 * np.eye(4)),
        ("ridge", {"scale": 4.0}, estimate(ANSWERS, regularization=0.25).theta, np.eye(4) / 4),
        (
            "ridge",
            {"scale": "auto"},
            fit_prior(ANSWERS, base=GaussianPrior.isotropic(4, 1.0)).estimate.theta,
            np.eye(4),
        ),
        (
            "Embeddings",
            {},
            fit_prior(ANSWERS, base=GaussianPrior.from_embeddings(TOKENS, power=1.0, centred=False)).estimate.theta,
            GaussianPrior.from_embeddings(TOKENS, power=1.0, centred=False).precision,
        ),
    ],
)
def test_a_name_makes_what_its_class_or_function_makes(name, options, theta, start):
    prior = make_prior(name, lambda: TOKENS, **options)
    fit = prior.fit(ANSWERS)
    np.testing.assert_allclose(fit.estimate.theta, theta, atol=1e-9)
    assert make_prior(prior, TOKENS) is prior and prior.dimension == 4 and prior.fingerprint == ""
    assert prior.mapped(None) is None and prior.feature_map(TOKENS) is TOKENS and prior.landmarks is None
    title, facts, belonging = prior.described(fit)
    assert title and facts["prior"] == name.lower() and not belonging
    assert len(fit.parts) == len(fit.weights) and fit.weights.sum() == pytest.approx(1.0)
    if start is not None:
        np.testing.assert_allclose(prior.start().precision, start)
        assert fit.planned is fit.posterior
        expected = Posterior.from_estimate(fit.estimate)
        np.testing.assert_array_equal(fit.posterior.precision, expected.precision)


def test_the_evidence_under_a_given_prior_is_laplaces():
    prior = GaussianPrior.isotropic(4, 0.5)
    fit, scaled = prior.fit(ANSWERS), prior.with_scale().fit(ANSWERS)
    at = fit_prior(ANSWERS, base=prior, typical_scale=1.0, log_spread=1e-3)  # held at the scale 1
    assert fit.log_evidence == pytest.approx(at.log_evidence, abs=1e-3) and fit.scale == 1.0
    np.testing.assert_allclose(scaled.mean, fit_prior(ANSWERS, base=prior).estimate.theta)


def test_files_are_read_whatever_they_hold(tmp_path):
    gaussian = GaussianPrior.from_precision(np.diag([1.0, 2.0, 3.0, 4.0]), [1.0, 0, 0, 0])
    for prior in (gaussian, known_population(2.0 * np.eye(4)[0])):
        prior.save(tmp_path / prior.file)
        again = load_prior(tmp_path / prior.file)
        np.testing.assert_array_equal(again.start().precision, prior.start().precision)
        assert prior.file in PRIOR_FILES and again.fingerprint == prior.fingerprint
    with pytest.raises(ValueError, match=r"\.safetensors or \.npz"):
        load_prior("prior.txt")
    with pytest.raises(NotImplementedError, match="no file"):
        VocabularyPrior(TOKENS).save(tmp_path / "words")


def test_what_is_refused():
    with pytest.raises(ValueError, match="did you mean 'words'"):
        make_prior("word", TOKENS)
    with pytest.raises(TypeError, match="no option 'power'; its options: regularization, scale"):
        make_prior("ridge", TOKENS, power=1.0)
    with pytest.raises(ImportError, match="prior"):
        make_prior("nowhere:Prior", TOKENS)
    assert "scale" in prior_options("embeddings") and prior_needs("population.safetensors") == []
    assert all(entry.path.startswith("edpbrl_gym.estimation.") for entry in PRIORS.values())
