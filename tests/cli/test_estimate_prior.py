"""`edpbrl estimate` with its priors: the ridge, the vocabulary's embeddings, and a scale from the answers."""

import json
import re
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas
import pytest

from edpbrl_gym.cli import main
from edpbrl_gym.comparisons import Comparisons
from edpbrl_gym.comparisons.question_files import read_answers
from edpbrl_gym.estimation import GaussianPrior, estimate, fit_prior
from edpbrl_gym.estimation.neighbourhood import VocabularyPrior
from edpbrl_gym.estimation.other_texts import other_texts
from edpbrl_gym.likelihood import Response, make_format
from edpbrl_gym.personalize.taste import load_taste
from edpbrl_gym.vocabulary import Vocabulary, load_vocabulary


@pytest.fixture(scope="module")
def tokens(words, minilm):
    return minilm.encode(load_vocabulary(words).all_tokens)


@pytest.fixture(scope="module")
def comparisons(tokens, minilm):
    rng = np.random.default_rng(0)
    features = tokens[rng.integers(len(tokens), size=(30, 3))]
    theta = 20 * minilm.encode(["a stormy sea at night"])[0].astype(float)
    return Comparisons.of_choices(
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


def test_the_ridge_of_the_regularization(run, comparisons):
    taste = run("--prior", "ridge", "--regularization", 0.5)
    expected = estimate(comparisons, regularization=0.5)
    np.testing.assert_allclose(taste.theta, expected.theta, atol=1e-6)
    assert taste.provenance["regularization"] == 0.5 and taste.provenance["prior"] == "ridge"
    expected = estimate(comparisons, regularization=1.0)
    np.testing.assert_allclose(run("--prior", "ridge").theta, expected.theta, atol=1e-6)


def test_without_a_prior_it_is_the_librarys_default(run, comparisons, words, tokens, minilm):
    """Near words of the vocabulary: what sessions, the demo and the adaptive agent estimate with."""
    taste = run("--vocabulary", words)
    others = other_texts(load_vocabulary(words), minilm)
    expected = VocabularyPrior(tokens, others=others).fit(comparisons)
    np.testing.assert_allclose(taste.theta, expected.theta, atol=1e-6)
    told = taste.provenance
    assert told["prior"] == "words" and told["scale"] == pytest.approx(expected.base.scale)
    elsewhere = told["weight_of_other_texts"]
    assert elsewhere > 0 and told["weight_of_neighbourhoods"] == pytest.approx(1 - expected.weights[0] - elsewhere)
    assert told["vocabulary_fingerprint"] == load_vocabulary(words).fingerprint
    expected = VocabularyPrior(tokens, power=0.5, others=others).fit(comparisons)
    np.testing.assert_allclose(run("--vocabulary", words, "--power", 0.5).theta, expected.theta, atol=1e-6)


@pytest.fixture(scope="module")
def study(words, tmp_path_factory):
    """A design's questions, all answered with 1."""
    folder = tmp_path_factory.mktemp("study")
    given = ["design", "--vocabulary", words, "--solver", "random", "--episodes", "4", "--split", "train"]
    assert main([*given, "--seed", "3", "--out", str(folder)]) == 0
    table = pandas.read_csv(folder / "questions.csv")
    table["choice"] = 1
    table.to_csv(folder / "questions.csv", index=False)
    return folder


def test_the_vocabulary_is_that_of_the_design_beside_the_answers(study, words, minilm, tmp_path, capsys):
    out = tmp_path / "theta"
    given = ["estimate", str(study / "questions.csv"), "--out", str(out)]
    assert main(given) == 0
    train = load_vocabulary(words).split(3)[0]
    assert load_taste(out).provenance["vocabulary_fingerprint"] == train.fingerprint
    answers, _ = read_answers(study / "questions.csv", minilm)
    expected = VocabularyPrior(minilm.encode(train.all_tokens), others=other_texts(train, minilm)).fit(answers)
    np.testing.assert_allclose(load_taste(out).theta, expected.theta, atol=1e-6)
    assert main([*given, "--vocabulary", words]) == 0
    assert load_taste(out).provenance["vocabulary_fingerprint"] == load_vocabulary(words).fingerprint


def test_the_vocabulary_of_a_design_is_found_from_any_folder(words, minilm, tmp_path, monkeypatch, capsys):
    """The design was given a relative path: from elsewhere, or with the folder gone, its tokens still count."""
    shutil.copytree(words, tmp_path / "words")
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path)
    assert main(["design", "--vocabulary", "words", "--solver", "random", "--episodes", "2", "--out", "de sign"]) == 0
    table = pandas.read_csv("de sign/questions.csv").assign(choice=1)
    table.to_csv("de sign/questions.csv", index=False)
    shutil.rmtree("words")
    monkeypatch.chdir(tmp_path / "elsewhere")
    capsys.readouterr()
    assert main(["estimate", "../de sign/questions.csv", "--out", "theta"]) == 0
    assert "words (../de sign/design.json)" in " ".join(capsys.readouterr().out.split())
    assert load_taste("theta").provenance["vocabulary_fingerprint"] == load_vocabulary(words).fingerprint
    document = json.loads((tmp_path / "de sign/design.json").read_text())
    document["vocabulary"]["tokens"][0][0] = "another"
    (tmp_path / "de sign/design.json").write_text(json.dumps(document))
    assert main(["estimate", "../de sign/questions.csv", "--out", "theta"]) == 1
    assert "changed since" in capsys.readouterr().err


def test_the_built_in_vocabulary_is_never_taken_for_another(study, comparisons, minilm, tmp_path, capsys):
    """Without design.json beside the answers, only options of built-in tokens may use the built-in vocabulary."""
    shutil.copy(study / "questions.csv", tmp_path / "copied.csv")
    comparisons.to_parquet(tmp_path / "silent.parquet")
    out = ["--out", str(tmp_path / "theta")]
    assert main(["estimate", str(tmp_path / "silent.parquet"), *out]) == 2
    assert "give --vocabulary FOLDER, or --prior ridge" in capsys.readouterr().err
    assert main(["estimate", str(tmp_path / "copied.csv"), *out]) == 0
    assert "phrases of the options (--vocabulary gives others)" in capsys.readouterr().out
    assert main(["estimate", str(tmp_path / "silent.parquet"), "--prior", "ridge", *out]) == 0
    assert load_taste(tmp_path / "theta").vocabulary() is None
    built_in = load_vocabulary("posters")  # the smallest
    texts = [[built_in.prompt(tokens) for tokens in question] for question in ([[0, 1], [2, 3]], [[4], [5]])]
    asked = {f"option_{k + 1}": [question[k] for question in texts] for k in range(2)}
    pandas.DataFrame({**asked, "choice": [1, 2]}).to_csv(tmp_path / "plain.csv", index=False)
    read_answers(tmp_path / "plain.csv", minilm)[0].to_parquet(tmp_path / "told.parquet")
    capsys.readouterr()
    for name in ("plain.csv", "told.parquet"):
        assert main(["estimate", str(tmp_path / name), *out]) == 0
        assert "the built-in one" in capsys.readouterr().out
        assert load_taste(tmp_path / "theta").provenance["vocabulary_fingerprint"] == built_in.fingerprint


PAGE = Path(__file__).parents[2] / "docs" / "own-people.md"


def test_the_table_of_the_page_is_enough(minilm, tmp_path, monkeypatch, capsys):
    """What docs/own-people.md writes and runs, as it says; the same file for each person makes a population."""
    monkeypatch.chdir(tmp_path)
    code = next(block for block in re.findall(r"```python\n(.*?)```", PAGE.read_text("utf-8"), re.S) if "csv" in block)
    exec(code, {})
    assert main(["estimate", "answers.csv"]) == 0
    printed = " ".join(capsys.readouterr().out.split())
    assert "2 questions with 3 options" in printed and "the 6 phrases of the options" in printed
    taste = load_taste("runs/theta.safetensors")
    phrases = ["a lighthouse", "an old fox", "a paper boat", "before a storm", "in the snow", "half asleep"]
    words = Vocabulary(("phrase 1", "phrase 2"), (tuple(phrases[:3]), tuple(phrases[3:])))
    assert taste.provenance["vocabulary_fingerprint"] == words.fingerprint
    prior = VocabularyPrior(minilm.encode(words.all_tokens), others=other_texts(words, minilm))
    fit = prior.fit(read_answers("answers.csv", minilm)[0])
    np.testing.assert_allclose(taste.theta, fit.theta, atol=1e-6)
    small = ["--minimum-people", "2", "--kind", "gaussian"]
    (tmp_path / "people").mkdir()
    for name in ("ann", "bob", "eve"):
        shutil.copy("answers.csv", f"people/{name}.csv")
    assert main(["fit-population", "people", *small]) == 0
    assert "the 6 phrases of the options" in " ".join(capsys.readouterr().out.split())


def test_code_that_a_file_names_is_not_run_unasked(study, words, tmp_path, capsys):
    """A design or a taste of someone else must not decide which module is imported here."""
    moved = tmp_path / "study"
    shutil.copytree(study, moved)
    document = json.loads((moved / "design.json").read_text())
    document["settings"]["encoder"] = "tests.helpers.encoders:OwnEncoder"
    (moved / "design.json").write_text(json.dumps(document))
    given = ["estimate", str(moved / "questions.csv"), "--out", str(tmp_path / "theta")]
    assert main(given) == 2
    assert "give --encoder tests.helpers.encoders:OwnEncoder" in capsys.readouterr().err
    own = ["--encoder", "tests.helpers.encoders:OwnEncoder"]
    assert main([*given, *own]) == 0
    prompts = ["personalize", str(tmp_path / "theta"), "--vocabulary", words, "--out", str(tmp_path / "p.csv")]
    assert main(prompts) == 2
    assert "give --encoder tests.helpers.encoders:OwnEncoder" in capsys.readouterr().err
    assert main([*prompts, *own]) == 0


def test_embeddings_with_the_scale_that_fits_the_answers(run, comparisons, words, tokens, capsys):
    taste = run("--prior", "embeddings", "--vocabulary", words)
    base = GaussianPrior.from_embeddings(tokens, power=1.0, centred=False)
    expected = fit_prior(comparisons, base=base)
    np.testing.assert_allclose(taste.theta, expected.estimate.theta, atol=1e-6)
    told = taste.provenance
    assert told["prior"] == "embeddings" and told["power"] == 1.0 and told["scale_from"] == "answers"
    assert told["scale"] == pytest.approx(expected.scale) and told["converged"]
    assert told["log_evidence"] == pytest.approx(expected.log_evidence)
    assert f"scale {expected.scale:.3g} from the answers" in " ".join(capsys.readouterr().out.split())


def test_answers_that_name_no_best_option_are_left_out_and_counted(comparisons, tmp_path, capsys):
    path, out = tmp_path / "answers.parquet", tmp_path / "theta.safetensors"
    more = comparisons
    for response in (Response.tie(), Response.skip()):
        more = more.appended(comparisons.features[0], response, episode=0, step=0)
    more.to_parquet(path)
    assert main(["estimate", str(path), "--prior", "ridge", "--out", str(out)]) == 0
    assert "30 questions with 3 options, 2 without an answer left out" in " ".join(capsys.readouterr().out.split())
    np.testing.assert_allclose(load_taste(out).theta, estimate(comparisons).theta, atol=1e-6)
    more.select([30, 31]).to_parquet(path)
    assert main(["estimate", str(path), "--prior", "ridge", "--out", str(out)]) in (1, 2)
    assert "name a best option" in " ".join(capsys.readouterr().err.split())


@pytest.mark.parametrize("kind", ["partial", "best_worst"])
def test_richer_answers_are_estimated_by_their_own_likelihood(comparisons, tmp_path, kind):
    theta = np.random.default_rng(3).normal(size=comparisons.dimension)
    model = make_format(kind, taps=2)
    answers = (Response.best(1), *model.sample(comparisons.features, theta, None)[1:])
    richer = replace(comparisons, responses=answers)
    richer.to_parquet(tmp_path / "richer.parquet")
    out = tmp_path / "theta.safetensors"
    assert main(["estimate", str(tmp_path / "richer.parquet"), "--prior", "ridge", "--out", str(out)]) == 0
    expected = estimate(richer, model=model, regularization=1.0).theta
    np.testing.assert_allclose(load_taste(out).theta, expected, atol=1e-6)
    assert np.abs(expected - estimate(richer, regularization=1.0).theta).max() > 1e-3  # not by the best alone
