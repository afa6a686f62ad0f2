"""`edpbrl fit-population`, and what its file changes in `edpbrl estimate`."""

import json
import shutil

import numpy as np
import pandas
import pytest

from edpbrl_gym.cli import main
from edpbrl_gym.comparisons import Comparisons
from edpbrl_gym.estimation.neighbourhood import VocabularyPrior
from edpbrl_gym.estimation.population import Population, fit_population
from edpbrl_gym.features import load_encoder
from edpbrl_gym.personalize.taste import load_taste
from edpbrl_gym.vocabulary import load_vocabulary
from tests.helpers.commands import refused
from tests.helpers.communities import known_population

OWN = ["--encoder", "tests.helpers.encoders:OwnEncoder"]
PEOPLE = 22


@pytest.fixture(scope="module")
def encoder():
    return load_encoder("tests.helpers.encoders:OwnEncoder")


@pytest.fixture(scope="module")
def study(words, encoder, tmp_path_factory):
    """The questions of one design, answered by people who share a taste, each with a part of their own."""
    folder = tmp_path_factory.mktemp("study")
    given = ["design", "--vocabulary", words, "--solver", "random", "--episodes", 3, "--num-options", 3, *OWN]
    assert main([*map(str, given), "--out", str(folder)]) == 0
    table = pandas.read_csv(folder / "questions.csv")
    options = table[["option_1", "option_2", "option_3"]].to_numpy()
    rows = encoder.encode(options.ravel().tolist()).reshape(*options.shape, -1).astype(np.float64)
    rng = np.random.default_rng(0)
    common = 2.0 * rng.standard_normal(rows.shape[2])
    people = folder / "people"
    people.mkdir()
    shutil.copy(folder / "design.json", people)
    for number in range(PEOPLE + 1):
        theta = common + 0.3 * rng.standard_normal(len(common))
        choice = (rows @ theta + rng.gumbel(size=rows.shape[:2])).argmax(axis=1) + 1
        place = people / f"person-{number:02d}.csv" if number < PEOPLE else folder / "new.csv"
        table.assign(choice=choice).to_csv(place, index=False)
    return folder


@pytest.fixture(scope="module")
def population(study):
    out = study / "population.safetensors"
    assert main(["fit-population", str(study / "people"), *OWN, "--out", str(out)]) == 0
    return out


def test_the_population_is_that_of_the_library(study, population, words, encoder):
    from edpbrl_gym.comparisons.question_files import read_answers

    found = Population.load(population)
    people = [read_answers(path, encoder)[0] for path in sorted((study / "people").glob("*.csv"))]
    base = VocabularyPrior(encoder.encode(load_vocabulary(words).all_tokens)).base
    assert found.fingerprint == fit_population(people, base=base).fingerprint
    assert (found.kind, found.people, found.features) == ("gaussian", PEOPLE, OWN[1])
    told = found.provenance
    assert told["encoder_fingerprint"] == encoder.fingerprint
    assert told["vocabulary_fingerprint"] == load_vocabulary(words).fingerprint
    assert told["answers"] == sum(map(len, people)) and told["base"] == "vocabulary"
    assert "person" not in json.dumps(dict(told))  # no file of a person is named


def test_it_says_what_the_population_looks_like(study, words, tmp_path, capsys):
    given = ["fit-population", study / "people", *OWN, "--out", tmp_path / "p.safetensors"]
    assert main([*map(str, given), "--kind", "factors", "--factors", "2"]) == 0
    captured = capsys.readouterr()
    said = " ".join(captured.out.split())
    for text in (
        f"{PEOPLE} with {9 * PEOPLE} answers",
        "factors, 8 features",
        f"{-np.log(3):.3f} by guessing",
        "factor 2",
        "Most liked",
    ):
        assert text in said, text
    assert any(token in said for token in load_vocabulary(words).all_tokens)
    assert "edpbrl estimate ANSWERS --prior" in said
    assert "log-likelihood" in captured.err  # progress


def test_a_new_person_is_estimated_under_it(study, population, words, encoder, tmp_path, capsys):
    from edpbrl_gym.comparisons.question_files import read_answers

    out = tmp_path / "theta.safetensors"
    given = ["estimate", study / "new.csv", "--prior", population, *OWN, "--out", out]
    assert main([*map(str, given)]) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "like its people" in said and "unlike all of them (gaussian)" in said
    found, embedded = Population.load(population), encoder.encode(load_vocabulary(words).all_tokens)
    answers = read_answers(study / "new.csv", encoder)[0]
    fit = found.with_fallback(VocabularyPrior(embedded)).fit(answers)  # design.json lies beside the answers
    taste = load_taste(out)
    np.testing.assert_allclose(taste.theta, fit.theta, atol=1e-9)
    told = taste.provenance
    assert told["prior"] == "population" and told["population_fingerprint"] == found.fingerprint
    assert told["weight_of_the_fallback"] == pytest.approx(fit.fallback_weight)
    assert told["fallback"] == "vocabulary"
    assert told["vocabulary_fingerprint"] == load_vocabulary(words).fingerprint
    # comparisons give the same with vocabulary and encoder; without them the base prior is the fallback, and it is said
    answers.to_parquet(tmp_path / "new.parquet")
    again = ["estimate", tmp_path / "new.parquet", "--prior", population, "--out", tmp_path / "t.safetensors"]
    assert main([*map(str, again), "--vocabulary", words, *OWN]) == 0
    np.testing.assert_allclose(load_taste(tmp_path / "t.safetensors").theta, taste.theta, atol=1e-6)
    assert "base prior" not in capsys.readouterr().out
    assert main([*map(str, again)]) == 0
    assert "the population's base prior" in " ".join(capsys.readouterr().out.split())
    plain = load_taste(tmp_path / "t.safetensors")
    np.testing.assert_allclose(plain.theta, found.fit(answers).theta, atol=1e-6)
    assert plain.provenance["fallback"] == "base"
    refused(capsys, [*again, "--vocabulary", words], 2, "--encoder")  # its custom code runs only where asked for


def test_an_update_adds_people_and_forgets_others(study, population, tmp_path, capsys):
    out = tmp_path / "later.safetensors"
    given = ["fit-population", study / "people", *OWN, "--update", population, "--forgetting", 0.1, "--out", out]
    assert main([*map(str, given)]) == 0
    assert f"{2 * PEOPLE} people with the earlier ones" in " ".join(capsys.readouterr().out.split())
    earlier, later = Population.load(population), Population.load(out)
    assert later.people == 2 * PEOPLE and later.fingerprint != earlier.fingerprint
    assert later.provenance["answers"] == 2 * earlier.provenance["answers"]
    assert later.provenance["updates"] == 1 and later.provenance["forgetting"] == 0.1
    assert later.sums["counts"].sum() == pytest.approx(1.9 * PEOPLE)
    assert later.provenance["encoder_fingerprint"] == earlier.provenance["encoder_fingerprint"]


def test_comparisons_without_texts_need_no_vocabulary(study, encoder, tmp_path):
    rng = np.random.default_rng(1)
    for number in range(20):
        features = rng.normal(size=(4, 2, 3)).astype(np.float32)
        plain = Comparisons.of_choices(features, rng.integers(2, size=4), np.arange(4), np.zeros(4, dtype=int))
        plain.to_parquet(tmp_path / f"{number}.parquet")
    files = [str(tmp_path / f"{number}.parquet") for number in range(20)]
    out = tmp_path / "out" / "p.safetensors"
    assert main(["fit-population", *files, "--out", str(out)]) == 0
    found = Population.load(out)
    assert found.dimension == 3 and found.provenance["base"] == "identity" and "encoder" not in found.provenance


def test_wrong_groups_of_files_are_refused(study, tmp_path, capsys):
    people, out = study / "people", tmp_path / "p.safetensors"
    few = sorted(people.glob("*.csv"))[:5]
    refused(capsys, ["fit-population", *few, "--out", out], 2, "at least 20 people, got 5", "--minimum-people")
    refused(capsys, ["fit-population", people, few[0], "--out", out], 2, "twice")
    refused(capsys, ["fit-population", tmp_path, "--out", out], 2, "one for each person")
    mixed = tmp_path / "mixed"
    shutil.copytree(people, mixed)
    (mixed / "zz.csv").write_text("name,age\na,1\n")
    refused(capsys, ["fit-population", mixed, *OWN, "--out", out], 1, "zz.csv", "name, age")
    (mixed / "zz.csv").unlink()
    table = pandas.read_csv(mixed / "person-03.csv").assign(choice=None)
    table.to_csv(mixed / "person-03.csv", index=False)
    refused(capsys, ["fit-population", mixed, *OWN, "--out", out], 1, "person-03.csv", "at least one answer")
    (mixed / "person-03.csv").unlink()
    other = Comparisons.of_choices(np.eye(4)[None, :2], [0], [0], [0], metadata={"encoder": "minilm"})
    other.to_parquet(mixed / "zz.parquet")
    refused(capsys, ["fit-population", mixed, *OWN, "--out", out], 1, "zz.parquet", "same features")
    refused(capsys, ["fit-population", people, "--out", out], 2, "give --encoder")  # code that a file names
    assert not out.exists()


def test_wrong_populations_are_refused(study, population, words, tmp_path, capsys):
    known_population(np.eye(2)[0]).save(tmp_path / "two.safetensors")
    given = ["fit-population", study / "people", *OWN, "--out", tmp_path / "p.safetensors", "--update"]
    refused(capsys, [*given, population, "--kind", "factors"], 2, "no --kind with --update")
    refused(capsys, [*given, tmp_path / "two.safetensors"], 1, "2 features", "8 features")
    given = ["design", "--vocabulary", words, "--out", tmp_path / "out", *OWN]
    refused(capsys, [*given, "--prior", "words"], 2, "fit-population", "'words'")
    refused(capsys, [*given, "--prior", population, "--regularization", 2], 2, "takes the place of lambda")
    refused(capsys, [*given, "--prior", population, "--solver", "greedy_d"], 2, "newton", "greedy_d")
    refused(capsys, [*given, "--prior", tmp_path / "two.safetensors"], 1, "2 features", "8 features")
    assert not (tmp_path / "out" / "questions.csv").exists()
    given = ["estimate", study / "new.csv", *OWN, "--out", tmp_path / "theta", "--prior"]
    refused(capsys, [*given, tmp_path / "none.safetensors"], 2, "none.safetensors", "fit-population")
    damaged = tmp_path / "damaged.safetensors"
    data = bytearray(population.read_bytes())
    data[-3] ^= 1
    damaged.write_bytes(bytes(data))
    refused(capsys, [*given, damaged], 1, "damaged.safetensors", "has changed")
    refused(capsys, [*given, tmp_path / "two.safetensors"], 1, "2 features", "8 features")
    for option in (["--power", 1], ["--scale", 1], ["--regularization", 1]):
        refused(capsys, [*given, population, *option], 2, f"no {option[0]} with a population")
    other = Comparisons.of_choices(
        np.eye(8)[None, :2], [0], [0], [0], metadata={"encoder": "tests:Other", "encoder_fingerprint": "0" * 64}
    )
    other.to_parquet(tmp_path / "other.parquet")
    given = ["estimate", tmp_path / "other.parquet", "--prior", population, "--out", tmp_path / "theta"]
    refused(capsys, given, 1, "tests:Other", "same encoder")
    assert not (tmp_path / "theta").exists()


def test_a_design_takes_the_covariance_of_the_population(words, study, population, tmp_path, capsys):
    found = Population.load(population)
    out = tmp_path / "design"
    given = ["design", "--vocabulary", words, "--episodes", 2, "--num-options", 3, *OWN]
    assert main([*map(str, given), "--prior", str(population), "--out", str(out)]) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "a given precision matrix" in said and f"--prior {population}" in said
    document = json.loads((out / "design.json").read_text())
    assert document["population_fingerprint"] == found.fingerprint
    with np.load(out / "agent" / "matrices.npz") as data:
        np.testing.assert_array_equal(data["prior_precision"], found.gaussian.precision)


def test_what_people_like_in_each_item_starts_the_next_person(study, tmp_path, capsys):
    from edpbrl_gym.estimation.items import ItemsPrior
    from edpbrl_gym.estimation.priors import load_prior

    out = tmp_path / "population.safetensors"
    given = ["fit-population", str(study / "people"), *OWN, "--kind", "items", "--out", str(out)]
    assert main(given) == 0
    said = capsys.readouterr().out
    assert f"{PEOPLE} with" in said and "shared by all" in said and f"--prior {out}" in said
    prior = load_prior(out)
    assert isinstance(prior, ItemsPrior) and prior.crowd.people == PEOPLE and prior.crowd.seen.min() == PEOPLE
    assert prior.provenance["encoder"] == OWN[1]
    taste = tmp_path / "taste.safetensors"
    assert main(["estimate", str(study / "new.csv"), *OWN, "--prior", str(out), "--out", str(taste)]) == 0
    said = capsys.readouterr().out
    assert "like the others" in said and f"{PEOPLE} other people" in said
    assert len(load_taste(taste).theta) == prior.dimension
    # what needs a population of tastes, or can't be done with items, says so in one line
    assert main(["design", "--prior", str(out), "--out", str(tmp_path / "design")]) != 0
    assert "population of tastes" in capsys.readouterr().err
    refused(capsys, [*given, "--base", "identity"], 2, "no --base and no --vocabulary with --kind items")


def test_more_people_update_what_is_liked_in_each_item(study, population, tmp_path, capsys):
    from edpbrl_gym.estimation.priors import load_prior

    out, later = tmp_path / "population.safetensors", tmp_path / "later.safetensors"
    people = [str(study / "people"), *OWN]
    assert main(["fit-population", *people, "--kind", "items", "--out", str(out)]) == 0
    update = ["fit-population", *people, "--update", str(out), "--out", str(later)]
    assert main([*update, "--kind", "items", "--forgetting", "0.1"]) == 0
    assert f"{PEOPLE} with" in (said := capsys.readouterr().out) and f"{2 * PEOPLE} people with the earlier" in said
    found, before = load_prior(later), load_prior(out)
    assert found.crowd.people == 2 * PEOPLE and found.crowd.seen.min() == 2 * PEOPLE
    assert (found.provenance["updates"], found.provenance["forgetting"]) == (1, 0.1)
    assert found.provenance["answers"] == 2 * before.provenance["answers"] and found.space == before.space
    # refused in one line: another encoder, other kinds, other items, few people
    other = ["--encoder", "tests.helpers.encoders:BatchEncoder"]
    assert main([*update[:2], *other, *update[4:]]) == 1  # encodes texts, and says so, before it is refused
    assert "Expected the features of the population" in capsys.readouterr().err.splitlines()[-1]
    refused(capsys, [*update, "--kind", "factors"], 2, "no --kind with --update")
    refused(capsys, [*update, "--vocabulary", "posters"], 2, "no --vocabulary")
    refused(capsys, [*update[:4], "--update", str(population), "--kind", "items"], 2, "a population of items to update")
    refused(capsys, [*update, "--minimum-people", str(PEOPLE + 1)], 2, f"at least {PEOPLE + 1} people")
    strangers = tmp_path / "strangers"
    shutil.copytree(study / "people", strangers)
    for path in strangers.glob("*.csv"):
        table = pandas.read_csv(path)
        table["option_1"] = [f"another {number}" for number in range(len(table))]
        table.to_csv(path, index=False)
    assert main([update[0], str(strangers), *update[2:]]) == 1
    assert "items of the pool of" in capsys.readouterr().err.splitlines()[-1]
