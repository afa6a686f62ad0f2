"""The prior gp from the first question to the last prompt: planners, sessions, agents, files and commands."""

from __future__ import annotations

import csv
import io

import gymnasium as gym
import numpy as np
import pytest

import edpbrl_gym as eg
from edpbrl_gym.cli import main
from edpbrl_gym.comparisons import Comparisons
from edpbrl_gym.estimation import VocabularyPrior
from edpbrl_gym.estimation.priors import make_prior
from edpbrl_gym.features import load_encoder
from edpbrl_gym.likelihood import Response
from edpbrl_gym.oracles import SyntheticUser
from edpbrl_gym.personalize.taste import load_taste
from edpbrl_gym.planners import PLANNERS, make_planner
from edpbrl_gym.session import Session, run
from edpbrl_gym.study.config_reading import read_config
from edpbrl_gym.study.materials import Materials
from tests.helpers.commands import refused
from tests.helpers.session_planners import WORDS, D, encoder
from tests.helpers.small_vocabulary import write_vocabulary
from tests.helpers.studies import write_study

OWN = ["--encoder", "tests.helpers.encoders:OwnEncoder"]
USER = 4.0 * np.random.default_rng(0).normal(size=D)


def planner(name="adaptive", feedback="state", prior="gp"):
    return make_planner(name, WORDS, encoder(), feedback=feedback, prior=prior, num_options=3, seed=5)


@pytest.mark.parametrize("feedback", ["prompt", "truncated", "state"])
def test_a_session_is_about_the_features_of_the_process(feedback, tmp_path):
    shared = {"vocabulary": WORDS, "encoder": encoder()}
    with Session(planner(feedback=feedback), feedback=feedback, folder=tmp_path / "one", **shared) as one:
        run(one, SyntheticUser(USER), 6)
        prior = one.planner.prior
        assert one.comparisons.dimension == D and one.theta.shape == (prior.dimension,)
        mapped = prior.mapped(one.comparisons)
        fit = prior.fit(mapped.terms(one.model))
        assert one.theta == pytest.approx(fit.theta, abs=1e-5)
        assert one.draws().shape == (320, prior.dimension)
        progress = one.progress((0, 20))
        assert 0.5 <= progress.accuracy <= progress.curve[-1] <= 1.0
        best = one.recommend(1)[0]
        row = prior.feature_map(encoder().encode([best.text]))[0]
        assert best.low < best.score < best.high
        assert best.score == pytest.approx((one.draws() @ row).mean(), abs=1e-5)
    with Session.resume(tmp_path / "one", planner(feedback=feedback), **shared) as other:
        np.testing.assert_array_equal(other.theta, one.theta)
    other = make_prior("gp", encoder().encode(WORDS.all_tokens), length_scales=(3.0,))
    with pytest.raises(ValueError, match="gaussian process"):
        Session.resume(tmp_path / "one", planner(feedback=feedback, prior=other), **shared)
    with pytest.raises(ValueError, match="same features as the planner's"):
        Session(planner(), prior=VocabularyPrior(encoder().encode(WORDS.all_tokens)), **shared)


OTHERS = [name for name, entry in PLANNERS.items() if entry.path.startswith("edpbrl_gym.") and name != "adaptive"]


@pytest.mark.parametrize("name", OTHERS)  # benchmarks add others to the table
def test_every_planner_learns_under_it(name):
    one = planner(name)
    for seed in range(2):
        tokens = one.ask(np.zeros((3, 0), dtype=np.int64))
        features = encoder().encode([WORDS.tokens[0][token] for token in tokens])
        one.tell(features[None], [Response.best(seed)])
    assert one.estimate.theta.shape == one.posterior.mean.shape == (one.prior.dimension,)


@pytest.fixture(scope="module")
def words(tmp_path_factory):
    return write_vocabulary(tmp_path_factory.mktemp("words") / "words")


def test_an_agent_is_saved_with_it(words, tmp_path):
    lanes = gym.make_vec("edpbrl/PromptConstruction-v0", num_envs=3, vocabulary=str(words))
    lanes.unwrapped.model.use_encoder(encoder())
    agent = eg.make_agent("adaptive", lanes, num_options=3, episodes=2, posterior="gp").learn()
    agent.observe(eg.collect(lanes, agent, SyntheticUser(USER), episodes=2))
    agent.save(tmp_path / "agent")
    again = type(agent).load(tmp_path / "agent", lanes)
    assert len(again.planner.estimate.theta) == again.planner.prior.dimension > D
    np.testing.assert_array_equal(again.planner.estimate.theta, agent.planner.estimate.theta)


def test_from_answers_to_prompts(words, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    vocabulary, own = eg.load_vocabulary(words), load_encoder(OWN[1])
    rng = np.random.default_rng(0)
    with open("answers.csv", "w", newline="") as file:
        csv.writer(file).writerows(
            [
                ["option_1", "option_2", "choice"],
                *([vocabulary.prompt([rng.integers(s) for s in vocabulary.sizes]) for _ in range(2)] + [1]
                  for _ in range(12)),
            ]
        )  # fmt: skip
    given = ["estimate", "answers.csv", "--prior", "gp", *OWN]
    assert main([*given, "--vocabulary", str(words), "--out", "taste.safetensors"]) == 0
    assert "Gaussian process (rbf, weight of the kernel" in " ".join(capsys.readouterr().out.split())
    taste = load_taste("taste.safetensors")
    prior = make_prior("gp", own.encode(vocabulary.all_tokens))
    texts = [row[:2] for row in csv.reader(open("answers.csv"))][1:]
    features = np.stack([own.encode(pair) for pair in texts])
    told = Comparisons.of_choices(features, np.zeros(12, int), np.arange(12), np.zeros(12, int))
    fit = prior.fit(prior.mapped(told))
    np.testing.assert_allclose(taste.theta, fit.theta, atol=1e-5)
    assert taste.provenance["prior"] == "gp" and taste.provenance["weight_of_the_kernel"] == pytest.approx(
        1 - fit.weights[0], abs=1e-4
    )
    assert taste.encoder(own).dimension == prior.dimension
    assert main(["personalize", "taste.safetensors", *OWN, "--out", "prompts.csv"]) == 0
    best = next(iter(csv.DictReader(open("prompts.csv"))))
    assert best["prompt"] in capsys.readouterr().out
    row = prior.feature_map(own.encode([best["prompt"]]))[0]
    assert float(best["score"]) == pytest.approx(row @ fit.theta, abs=1e-3)

    assert main([*given, "--out", "phrases.safetensors"]) == 0  # of other landmarks
    both = ["personalize", "taste.safetensors", *OWN, "--compare", "b=phrases.safetensors", "--out", "p.csv"]
    refused(capsys, both, 2, "another feature map")
    refused(
        capsys, [*given, "--power", "1", "--out", "t"], 2, "--prior words or embeddings or blocks or items with --power"
    )


def test_asked_in_the_terminal(words, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    ask = ["ask", "--terminal", "--out", "ask", "--vocabulary", str(words), "--num-options", "3", "--prior", "gp", *OWN]
    monkeypatch.setattr("sys.stdin", io.StringIO("1\n2\n"))
    assert main(ask) == 0
    given = ["estimate", "ask/answers.parquet", "--prior", "gp", "--vocabulary", str(words), *OWN, "--out", "t"]
    assert main(given) == 0
    np.testing.assert_allclose(load_taste("t").theta, load_taste("ask/taste.safetensors").theta, atol=1e-9)
    capsys.readouterr()
    refused(capsys, [*ask[:-3], "words", *OWN], 2, "--prior gp")


def test_an_arm_of_a_study_names_it(minilm, tmp_path):
    """Named in study.toml, like a file: the participant's planner and session are about its features."""
    folder = write_study(tmp_path / "study")
    text = (folder / "study.toml").read_text("utf-8")
    before, sign, after = text.partition("[[arms]]\n")
    (folder / "study.toml").write_text(f'{before}{sign}prior = "gp"\n{after}', "utf-8")
    config = read_config(folder)
    session = Materials(config, encoder=minilm).session(config.arms[0], 1)
    session.ask()
    session.tell(0)
    assert session.planner.prior.space and len(session.theta) == session.planner.prior.dimension > minilm.dimension
    assert session.draws().shape == (320, len(session.theta))
