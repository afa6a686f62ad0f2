"""`edpbrl estimate` with its priors: the ridge, the vocabulary's embeddings, and a scale from the answers."""

import numpy as np
import pytest

from edpbrl_gym.cli import main
from edpbrl_gym.comparisons import Comparisons
from edpbrl_gym.estimation import GaussianPrior, estimate, fit_prior
from edpbrl_gym.experiments.taste import load_taste
from edpbrl_gym.vocabulary import load_vocabulary
from tests.small_vocabulary import write_vocabulary


@pytest.fixture(scope="module")
def words(tmp_path_factory):
    return write_vocabulary(tmp_path_factory.mktemp("words") / "words")


@pytest.fixture(scope="module")
def tokens(words, minilm):
    return minilm.encode(load_vocabulary(words).all_tokens)


@pytest.fixture(scope="module")
def comparisons(tokens, minilm):
    rng = np.random.default_rng(0)
    features = tokens[rng.integers(len(tokens), size=(30, 3))]
    theta = 20 * minilm.encode(["a stormy sea at night"])[0].astype(float)
    return Comparisons(
        features=features,
        choice=(features @ theta + rng.gumbel(size=(30, 3))).argmax(axis=1),
        episode=np.arange(30),
        step=np.zeros(30, dtype=int),
        metadata={"encoder": "minilm", "encoder_fingerprint": minilm.fingerprint},
    )


@pytest.fixture
def run(comparisons, tmp_path):
    def go(*arguments):
        comparisons.to_parquet(tmp_path / "answers.parquet")
        out = tmp_path / "theta.safetensors"
        assert main(["estimate", str(tmp_path / "answers.parquet"), "--out", str(out), *map(str, arguments)]) == 0
        return load_taste(out)

    return go


def test_without_a_prior_it_is_the_ridge_of_the_regularization(run, comparisons):
    taste = run("--regularization", 0.5)
    expected = estimate(comparisons.features, comparisons.choice, regularization=0.5)
    np.testing.assert_allclose(taste.theta, expected.theta, atol=1e-6)
    assert taste.provenance["regularization"] == 0.5 and "prior" not in taste.provenance


def test_embeddings_with_the_scale_that_fits_the_answers(run, comparisons, words, tokens, capsys):
    taste = run("--prior", "embeddings", "--vocabulary", words)
    base = GaussianPrior.from_embeddings(tokens, power=1.0, centred=False)
    expected = fit_prior(comparisons.features, comparisons.choice, base=base)
    np.testing.assert_allclose(taste.theta, expected.estimate.theta, atol=1e-6)
    told = taste.provenance
    assert told["prior"] == "embeddings" and told["power"] == 1.0 and told["scale_from"] == "answers"
    assert told["scale"] == pytest.approx(expected.scale) and told["converged"]
    assert told["log_evidence"] == pytest.approx(expected.log_evidence)
    assert f"scale {expected.scale:.3g} from the answers" in " ".join(capsys.readouterr().out.split())


def test_embeddings_with_a_given_scale_and_power(run, comparisons, words, tokens):
    taste = run("--prior", "embeddings", "--vocabulary", words, "--power", 0.5, "--scale", 7)
    prior = GaussianPrior.from_embeddings(tokens, power=0.5, scale=7.0, centred=False)
    expected = estimate(comparisons.features, comparisons.choice, prior=prior)
    np.testing.assert_allclose(taste.theta, expected.theta, atol=1e-6)
    assert taste.provenance["scale"] == 7.0 and taste.provenance["scale_from"] == "given"


def test_a_ridge_with_a_scale(run, comparisons):
    expected = fit_prior(comparisons.features, comparisons.choice, base=GaussianPrior.isotropic(384, 1.0))
    np.testing.assert_allclose(run("--scale", "auto").theta, expected.estimate.theta, atol=1e-6)
    given = estimate(comparisons.features, comparisons.choice, regularization=0.25)
    np.testing.assert_allclose(run("--scale", "4").theta, given.theta, atol=1e-6)


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (["--scale", "0"], 2, "--scale > 0"),
        (["--power", "-1"], 2, "--power >= 0"),
        (["--scale", "wide"], 2, "wide"),
        (["--prior", "flat"], 2, "'ridge', 'embeddings'"),
        (["--prior", "embeddings", "--vocabulary", "no/such/folder"], 1, "no/such/folder"),
    ],
)
def test_bad_arguments_are_named(arguments, code, said, comparisons, tmp_path, capsys):
    comparisons.to_parquet(tmp_path / "answers.parquet")
    given = ["estimate", str(tmp_path / "answers.parquet"), "--out", str(tmp_path / "theta"), *arguments]
    try:
        found = main(given)
    except SystemExit as exit:
        found = exit.code
    assert found == code
    assert said in capsys.readouterr().err


def test_answers_of_another_encoder_have_no_embedding_prior(comparisons, tmp_path, capsys):
    other = Comparisons(
        features=comparisons.features,
        choice=comparisons.choice,
        episode=comparisons.episode,
        step=comparisons.step,
        metadata={"encoder": "minilm", "encoder_fingerprint": "0" * 64},
    )
    other.to_parquet(tmp_path / "other.parquet")
    plain = Comparisons(other.features, other.choice, other.episode, other.step)
    plain.to_parquet(tmp_path / "plain.parquet")
    for name, said in (("other", "load the same weights"), ("plain", "--encoder")):
        given = ["estimate", str(tmp_path / f"{name}.parquet"), "--prior", "embeddings", "--out", str(tmp_path / "t")]
        assert main(given) in (1, 2)
        assert said in capsys.readouterr().err
