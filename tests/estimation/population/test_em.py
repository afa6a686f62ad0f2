"""The climb by EM on problems with a known path, first values, updates, blocks of people, and held-out people."""

from __future__ import annotations

import json
from dataclasses import dataclass

import numpy as np
import pytest
from safetensors import safe_open
from safetensors.numpy import save_file

from edpbrl_gym.estimation import GaussianPrior
from edpbrl_gym.estimation.population import Population, choose_population, fit_population
from edpbrl_gym.estimation.population.em import climb_by_em
from tests.helpers.communities import known_types, simulated


@dataclass
class Point:
    at: np.ndarray

    def pack(self):
        return self.at

    def unpack(self, vector):
        return Point(np.array(vector))


def shrinking(rates):
    """A step of EM whose objective is -|x|^2 and which multiplies the coordinates by their rates."""
    return lambda point: (-float(point.at @ point.at), Point(np.array(rates) * point.at))


def test_the_climb_stops_as_it_is_told():
    rates, start = [0.97, 0.5, 0.1], Point(np.array([5.0, -3.0, 2.0]))
    end, history, converged = climb_by_em(shrinking(rates), start, rounds=200, tolerance=1e-10)
    assert converged and len(history) < 60  # 400 steps without extrapolation
    assert np.abs(end.at).max() < 1e-3 and np.diff(history).min() >= 0
    for rounds in (1, 2, 7):
        _, short, done = climb_by_em(shrinking(rates), start, rounds=rounds, tolerance=0.0)
        assert not done and rounds <= len(short) <= rounds + 2
        assert short == history[: len(short)]
    step, _ = climb_by_em(shrinking([0.5]), Point(np.array([8.0])), rounds=9, tolerance=48.0)[:2]
    assert step.at == pytest.approx([2.0])  # the rise of 48 nats is no more than the tolerance
    assert climb_by_em(shrinking([0.5]), Point(np.array([8.0])), rounds=9, tolerance=47.9)[0].at != pytest.approx([2.0])
    # a rise from one extrapolation to the next
    loose = climb_by_em(shrinking(rates), start, rounds=200, tolerance=0.0, cycle_tolerance=1.0)
    assert loose[2] and len(loose[1]) < len(history)


def test_people_in_blocks_are_fitted_as_together(monkeypatch):
    data = simulated(np.random.default_rng(10).normal(size=(24, 22)), 4, 3, 11)
    options = {"rounds": 4, "shrinkage": 5.0}
    whole = [
        fit_population(data, kind=kind, **options, **more) for kind, more in (("gaussian", {}), ("types", {"types": 2}))
    ]
    monkeypatch.setattr("edpbrl_gym.estimation.population.blocks._BLOCK_NUMBERS", 5 * 8 * 128)
    for one, kind, more in zip(whole, ("gaussian", "types"), ({}, {"types": 2}), strict=True):
        split = fit_population(data, kind=kind, **options, **more)
        assert split.log_likelihood == pytest.approx(one.log_likelihood)
        assert split.parts[0].mean == pytest.approx(one.parts[0].mean, abs=1e-6)


@pytest.mark.parametrize(("kind", "candidates"), [("types", (2, 1)), ("factors", (1, 0))])
def test_each_left_out_person_is_predicted_by_the_others(kind, candidates):
    people = simulated(np.random.default_rng(15).normal(size=(4, 2)), 3, 3, 16)
    options = {"rounds": 2, "minimum_people": 1, "shrinkage": 3.0}
    choice = choose_population(people, kind=kind, candidates=candidates, folds=4, **options)
    assert choice.candidates == tuple(sorted(candidates))[: len(choice.candidates)]
    for row, number in enumerate(choice.candidates):
        for left in (0, 2):
            others = [person for place, person in enumerate(people) if place != left]
            population = fit_population(others, kind=kind, **{kind: number}, **options)
            assert choice.log_evidence[row, left] == pytest.approx(population.log_evidence(people[left]), abs=1e-6)
    means = choice.log_evidence.mean(axis=1)
    best = int(means.argmax())
    assert choice.number == choice.candidates[best]
    away = choice.log_evidence - choice.log_evidence[best]
    assert choice.standard_errors == pytest.approx(np.sqrt(np.square(away - away.mean(1)[:, None]).mean(1) / 4))


def test_the_search_ends_where_a_number_is_worse():
    people = simulated(np.random.default_rng(17).normal(size=(8, 1)), 3, 2, 18)
    choice = choose_population(people, kind="factors", folds=2, rounds=1, minimum_people=8)
    assert set(choice.candidates) <= {0, 1}  # no more factors than features
    rising = np.diff(choice.log_evidence.mean(axis=1))
    assert (rising[:-1] >= 0).all()


def test_a_population_weighs_its_parts():
    means = np.array([[2.0, 0.0], [-1.0, 1.0]])
    population = known_types(means, spread=0.5, weights=np.array([0.25, 0.75]))
    person = simulated(means[:1], 4, 3, 19)[0]
    parts = population.fit(person, fallback=None).parts
    expected = np.log(0.25 * np.exp(parts[0].log_evidence) + 0.75 * np.exp(parts[1].log_evidence))
    assert population.log_evidence(person) == pytest.approx(expected)
    square = 0.25 * 4 + 0.75 * 2 + 2 * 0.25
    assert population.typical_scale == pytest.approx(square / 2)
    fit = population.fit(person)
    assert [part.scale for part in fit.parts[2:]] == pytest.approx(square / 2 * np.exp(1.5 * np.linspace(-2, 2, 7)))
    assert fit.memberships.sum() + fit.fallback_weight == pytest.approx(1.0)
    other = GaussianPrior.isotropic(2, 0.5)
    nothing = np.zeros((0, 3, 2)), np.zeros(0, dtype=int)
    assert population.fit(nothing, fallback=other).fallback_weight == pytest.approx(0.03)
    assert population.fit(nothing, fallback_weight=0.4).memberships == pytest.approx([0.15, 0.45])
    assert population.fit(person, fallback=other).parts[5].scale == pytest.approx(
        square / 4
    )  # as strong as these people


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
        (lambda about, _: about.update(kind="groups"), "unknown kind 'groups'"),
        (lambda about, _: about.update(kind="factors", version=1), "earlier version"),
        (lambda about, _: about.update(people=101), "has changed since"),
        (lambda about, _: about.update(shrinkage=0.5), "has changed since"),
        (lambda _, tensors: tensors["moments/first"].fill(np.nan), "not finite"),
    ],
)
def test_files_that_say_something_else_are_refused(tmp_path, change, message):
    path = tmp_path / "types.safetensors"
    known_types(np.eye(2)).save(path)
    assert Population.load(path).people == 100
    with pytest.raises(ValueError, match=message):
        Population.load(rewritten(path, tmp_path / "other.safetensors", change))


def test_files_of_the_first_version_are_read(tmp_path):
    path = tmp_path / "types.safetensors"
    population = known_types(np.eye(2))
    population.save(path)
    old = Population.load(rewritten(path, tmp_path / "old.safetensors", lambda about, _: about.update(version=1)))
    assert old.fingerprint == population.fingerprint
