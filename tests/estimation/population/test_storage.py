"""Populations on disk, and updated by new people."""

import json
from dataclasses import replace

import numpy as np
import pytest
from safetensors import safe_open
from safetensors.numpy import save_file

from edpbrl_gym.estimation.population import Population, fit_population
from tests.helpers.communities import known_population, simulated

KINDS = [("gaussian", {}), ("factors", {"factors": 1})]


def community(size, mean, seed):
    return simulated(np.random.default_rng(seed).multivariate_normal(mean, 0.5 * np.eye(2), size), 4, 3, seed + 1)


@pytest.mark.parametrize(("kind", "options"), KINDS)
def test_a_population_survives_its_file_and_every_change_of_it_is_noticed(tmp_path, kind, options):
    path, options = tmp_path / "population.safetensors", {"kind": kind, "rounds": 5, **options}
    fitted = fit_population(community(30, [1.0, 0.0], 0), features="two numbers", **options)
    named = replace(fitted, provenance={"encoder": "two numbers", "answers": 100})
    named.save(path)
    read = Population.load(path)
    assert (read.kind, read.people, read.features, read.shrinkage) == (kind, 30, "two numbers", fitted.shrinkage)
    assert read.log_likelihood == fitted.log_likelihood and dict(read.provenance) == named.provenance
    assert read.fingerprint == named.fingerprint == fitted.fingerprint and len(read.fingerprint) == 64
    np.testing.assert_array_equal(read.gaussian.precision, fitted.gaussian.precision)
    np.testing.assert_array_equal(read.gaussian.mean, fitted.gaussian.mean)
    more = community(20, [1.0, 0.0], 5)
    later, expected = (one.updated(more, rounds=3) for one in (read, fitted))
    np.testing.assert_array_equal(later.gaussian.mean, expected.gaussian.mean)
    assert expected.fingerprint != fitted.fingerprint
    data = bytearray(path.read_bytes())
    data[-3] ^= 1  # in the last array
    path.write_bytes(bytes(data))
    with pytest.raises(ValueError, match="the file has changed"):
        Population.load(path)
    path.write_bytes(bytes(data[:-8]))
    with pytest.raises(ValueError, match="Expected a population"):
        Population.load(path)


def test_no_array_of_the_file_grows_with_the_people(tmp_path):
    shapes = []
    for size in (25, 50):
        fitted = fit_population(community(size, [1.0, 0.0], 2), rounds=4)
        fitted.save(tmp_path / "one.safetensors")
        with safe_open(tmp_path / "one.safetensors", framework="numpy") as file:
            names = file.keys()
            shapes.append({name: file.get_tensor(name).shape for name in names if name != "log_likelihood"})
    assert shapes[0] == shapes[1]


def test_damaged_and_foreign_files_are_refused(tmp_path):
    with pytest.raises(FileNotFoundError, match="no such file"):
        Population.load(tmp_path / "none.safetensors")
    with pytest.raises(ValueError, match="ending in .safetensors"):
        Population.load(tmp_path / "one.npz")
    (tmp_path / "one.safetensors").write_bytes(b"not a file of tensors")
    with pytest.raises(ValueError, match="Expected a population"):
        Population.load(tmp_path / "one.safetensors")
    save_file({"embeddings": np.eye(2)}, tmp_path / "one.safetensors")
    with pytest.raises(ValueError, match="names no population"):
        Population.load(tmp_path / "one.safetensors")


def test_an_update_is_close_to_a_fit_to_everyone():
    first, second = community(80, [1.0, 0.0], 10), community(80, [1.0, 0.0], 20)
    updated = fit_population(first).updated(second)
    whole = fit_population([*first, *second])
    assert updated.people == 160
    assert updated.sums["counts"].sum() == pytest.approx(160)
    assert updated.gaussian.mean == pytest.approx(whole.gaussian.mean, abs=0.1)
    assert updated.gaussian.covariance == pytest.approx(whole.gaussian.covariance, abs=0.2)


def test_forgetting_follows_tastes_that_drift():
    population = fit_population(community(60, [1.5, 0.0], 30))
    new = community(60, [-1.5, 0.0], 40)
    means = [population.updated(new, forgetting=share).gaussian.mean[0] for share in (0.0, 0.5, 0.95)]
    assert means[0] > means[1] > means[2]
    assert means[0] == pytest.approx(0.0, abs=0.4)
    assert means[2] == pytest.approx(-1.5, abs=0.4)


def rewritten(path, target, change):
    with safe_open(path, framework="numpy") as file:
        tensors, metadata = {name: file.get_tensor(name) for name in file.keys()}, file.metadata()  # noqa: SIM118
    about = json.loads(metadata["population"])
    change(about, tensors)
    save_file(tensors, target, metadata={**metadata, "population": json.dumps(about)})
    return target


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda about, _: about.update(version=3), "version 3 is later than 2"),
        (lambda about, _: about.update(kind="types"), "fit the answers again"),
        (lambda about, _: about.update(kind="groups"), "unknown kind 'groups'"),
        (lambda about, _: about.update(kind="factors", version=1), "earlier version"),
        (lambda about, _: about.update(people=101), "has changed since"),
        (lambda about, _: about.update(shrinkage=0.5), "has changed since"),
        (lambda _, tensors: tensors["moments/first"].fill(np.nan), "not finite"),
    ],
)
def test_files_that_say_something_else_are_refused(tmp_path, change, message):
    path = tmp_path / "p.safetensors"
    known_population(np.eye(2)[0]).save(path)
    assert Population.load(path).people == 100
    with pytest.raises(ValueError, match=message):
        Population.load(rewritten(path, tmp_path / "other.safetensors", change))


def test_files_of_the_first_version_are_read(tmp_path):
    path = tmp_path / "p.safetensors"
    population = known_population(np.eye(2)[0])
    population.save(path)
    old = Population.load(rewritten(path, tmp_path / "old.safetensors", lambda about, _: about.update(version=1)))
    assert old.fingerprint == population.fingerprint
