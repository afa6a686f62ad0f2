"""Long tables in the commands that read answers."""

import numpy as np
import pandas
import pytest

from edpbrl_gym.cli import main
from edpbrl_gym.comparisons import load_people
from edpbrl_gym.estimation import attribute_prior, choice_accuracy, fit_prior
from edpbrl_gym.estimation.population import Population, fit_population
from edpbrl_gym.personalize.taste import load_taste
from tests.helpers.commands import refused
from tests.helpers.made_people import long_table


@pytest.fixture(scope="module")
def choices(tmp_path_factory):
    """The choices of 24 people between two or three options with attributes."""
    path = tmp_path_factory.mktemp("choices") / "choices.csv"
    long_table(24, sizes=(3, 2)).to_csv(path, index=False)
    return path


def test_an_estimate_of_one_person(choices, tmp_path, capsys):
    out = tmp_path / "theta.safetensors"
    assert main(["estimate", str(choices), "--person", "p3", "--out", str(out)]) == 0
    person = load_people(choices)[3]
    expected = fit_prior(person, base=attribute_prior([person]), strength=8.0, log_spread=0.5).estimate
    taste, said = load_taste(out), capsys.readouterr().out
    np.testing.assert_allclose(taste.theta, expected.theta, atol=1e-9)
    assert taste.provenance["attributes"] == ["warm", "loud", "wide"] and taste.provenance["who"] == "p3"
    assert "9 questions with 2 to 3 options" in said and f"warm {expected.theta[0]:.4g}, loud" in said
    guess = np.mean([1 / 3, 1 / 2] * 4 + [1 / 3])
    assert f"{choice_accuracy(person, expected.theta):.1%} of these answers ({guess:.1%} by guessing)" in said
    refused(capsys, ["personalize", out], 2, "got one for the attributes warm, loud, wide", "no prompts")


def test_a_population_of_a_long_table_and_a_new_person_under_it(choices, tmp_path, capsys):
    out, theta = tmp_path / "population.safetensors", tmp_path / "theta.safetensors"
    assert main(["fit-population", str(choices), "--out", str(out)]) == 0
    people = load_people(choices)
    expected = fit_population(people, kind="gaussian", base=attribute_prior(people))
    found = Population.load(out)
    np.testing.assert_allclose(found.gaussian.mean, expected.gaussian.mean, atol=1e-6)
    assert found.provenance["attributes"] == ["warm", "loud", "wide"] and found.people == 24
    assert main(["estimate", str(choices), "--person", "p2", "--prior", str(out), "--out", str(theta)]) == 0
    np.testing.assert_allclose(load_taste(theta).theta, found.fit(people[2]).estimate.theta, atol=1e-6)
    capsys.readouterr()
    renamed = pandas.read_csv(choices).rename(columns={"warm": "hot"})
    renamed.to_csv(tmp_path / "renamed.csv", index=False)
    given = ["estimate", tmp_path / "renamed.csv", "--person", "p2", "--prior", out, "--out", theta]
    refused(capsys, given, 1, "the attributes warm, loud, wide", "the attributes hot, loud, wide")


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ([], "got 24 people (p0, p1, p2, ...); name one"),
        (["--person", "nobody"], "'nobody'"),
        (["--person", "p0", "--prior", "embeddings"], "got embeddings"),
        (["--person", "p0", "--vocabulary", "images"], "no --vocabulary with the attributes"),
    ],
)
def test_what_a_long_table_does_not_have(choices, tmp_path, capsys, given, said):
    code = 1 if "people" in said or "nobody" in said else 2
    refused(capsys, ["estimate", choices, "--out", tmp_path / "t", *given], code, said)
    if not given:
        fit = ["fit-population", choices, "--base", "vocabulary", "--out", tmp_path / "p.safetensors"]
        refused(capsys, fit, 2, "attributes of a long table")
