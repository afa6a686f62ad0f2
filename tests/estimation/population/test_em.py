"""The climb by EM on problems with a known path, first values, updates, blocks of people, and held-out people."""

from __future__ import annotations

import json
from dataclasses import dataclass

import numpy as np
import pytest
from safetensors import safe_open
from safetensors.numpy import save_file
from scipy.linalg import LinAlgError
from scipy.optimize import minimize_scalar

from edpbrl_gym.estimation import GaussianPrior, estimate, log_evidence
from edpbrl_gym.estimation.population import Population, choose_population, fit_population
from edpbrl_gym.estimation.population.answers import answered_people
from edpbrl_gym.estimation.population.blocks import WarmSites, blocks_of
from edpbrl_gym.estimation.population.em import (
    Settings,
    _log_points,
    first_scale,
    fit_bounds,
    split_parts,
    update_parts,
)
from edpbrl_gym.estimation.population.factor_fit import fit_factors, update_factors
from edpbrl_gym.estimation.population.factors import FactorMoments
from edpbrl_gym.estimation.population.geometry import Grams, Rows, geometry_of
from edpbrl_gym.estimation.population.maximisation import climb_by_em
from edpbrl_gym.estimation.population.parts import Moments, Parts, Shrinkage
from edpbrl_gym.estimation.population.sites import fit_sites
from edpbrl_gym.estimation.variational import fit_gaussian
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


def test_one_extrapolation_finds_the_end_of_a_geometric_series():
    """x0 - 2 a r + a^2 v is the limit of x0, q x0, q^2 x0 for every q whose 1 / (1 - q) is below the limit of 64."""
    end, history, converged = climb_by_em(shrinking([0.9]), Point(np.array([8.0])), rounds=50, tolerance=1e-12)
    assert converged and end.at == pytest.approx([0.0], abs=1e-12)
    assert history[:3] == pytest.approx([-64.0, -64 * 0.81, 0.0], abs=1e-12) and len(history) <= 6
    _, history, _ = climb_by_em(shrinking([0.99]), Point(np.array([8.0])), rounds=3, tolerance=0.0)
    assert history == pytest.approx([-64.0, -64 * 0.99**2, -64 * (1 - 0.01 * 64) ** 4])


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


def test_a_trial_that_fails_or_falls_is_left_out():
    def singular(point):
        if abs(point.at[0]) < 1e-3:
            raise LinAlgError
        return shrinking([0.9])(point)

    end, history, _ = climb_by_em(singular, Point(np.array([8.0])), rounds=6, tolerance=0.0)
    assert len(history) == 6 and end.at == pytest.approx([8.0 * 0.9**6])

    def walled(point):
        value, after = shrinking([0.9])(point)
        return (value if abs(point.at[0]) > 1e-3 else -1e9), after

    end, history, _ = climb_by_em(walled, Point(np.array([8.0])), rounds=6, tolerance=0.0)
    assert end.at == pytest.approx([8.0 * 0.9**6]) and np.diff(history).min() > 0


def people_of(dimension, number, questions, seed, size=1.0):
    thetas = size * np.random.default_rng(seed).normal(size=(number, dimension))
    return answered_people(simulated(thetas, questions, 3, seed + 1), None)


@pytest.mark.parametrize("size", [0.3, 3.0])
def test_the_first_scale_has_the_most_evidence(size):
    people = people_of(3, 12, 8, 0, size)

    def loss(log_scale):
        prior = GaussianPrior.isotropic(3, float(np.exp(-log_scale)))
        logs = [log_evidence(estimate(person.terms(), prior=prior), prior) for person in people]
        return log_scale**2 / 18 - sum(logs)

    best = minimize_scalar(loss, bounds=(-6, 6), method="bounded", options={"xatol": 1e-3})
    assert loss(np.log(first_scale(people))) == pytest.approx(best.fun, abs=0.5)
    assert np.log(first_scale(people)) == pytest.approx(best.x, abs=0.4)


def test_few_people_get_more_points():
    assert _log_points([None] * 10, Parts.single(3, 1.0)) == 10  # type: ignore[list-item]
    assert _log_points([None] * 10**6, Parts.single(3, 1.0)) == 7  # type: ignore[list-item]
    # 1.5 * 2^8 points of 3 numbers for each of 2,000 people, of 2^22 numbers at most
    assert _log_points([None] * 2000, Parts.single(3, 1.0)) == 8  # type: ignore[list-item]


def test_first_types_are_groups_of_people():
    rng = np.random.default_rng(3)
    kinds = np.repeat([0, 1], [20, 10])
    thetas = np.array([[6.0, 0.0], [-6.0, 6.0]])[kinds]
    people = answered_people(simulated(thetas + 0.3 * rng.normal(size=(30, 2)), 12, 3, 4), None)
    one = Parts.single(2, 9.0)
    parts = split_parts(people, one, 2, 0)
    order = np.argsort(-parts.weights)
    assert parts.weights[order] == pytest.approx([21 / 32, 11 / 32])
    np.testing.assert_allclose(parts.covariances, 0.7 * 9.0 * np.eye(2)[None].repeat(2, 0))
    assert parts.scales.tolist() == [9.0, 9.0]
    first, second = parts.means[order]
    assert first[0] > 2 and second[0] < -1 and second[1] > 1


@pytest.mark.parametrize("dimension", [2, 22])
def test_the_people_of_a_fit_do_not_change_it(dimension):
    """An update from empty sums by the people of a fit stays at the fit, and sums of the same people twice add up."""
    people, rule, settings = people_of(dimension, 15, 6, 5), Shrinkage(dimension + 2.0), Settings(200, 0, False)
    start = Parts.single(dimension, 1.0)
    if dimension > 20:
        fitted = fit_bounds(people, start, rule, settings, 1e-5).parts
    else:
        fitted = fit_population([person.terms() for person in people], minimum_people=1).state
    shape = (1, dimension)
    nobody = Moments(np.zeros(1), np.zeros(shape), np.zeros((*shape, dimension)))
    parts, sums = update_parts(people, fitted, nobody, rule, settings)
    assert parts.means == pytest.approx(fitted.means, abs=0.05)
    assert parts.covariances == pytest.approx(fitted.covariances, abs=0.1)
    assert sums.counts == pytest.approx([15.0])
    assert rule.maximise(sums, parts).means == pytest.approx(parts.means, abs=1e-3)
    _, twice = update_parts(people, parts, sums, rule, Settings(1, 0, False))
    assert twice.counts == pytest.approx([30.0])
    assert twice.second == pytest.approx(2 * sums.second, rel=1e-2, abs=0.05)


def test_the_people_of_a_fit_do_not_change_its_factors():
    people, settings = people_of(6, 25, 8, 6), Settings(60, 0, False)
    fitted = fit_factors(people, 1, 1.0, True, settings)
    model, sums = update_factors(people, fitted.parts, FactorMoments.zero(6, 1, 1), settings)
    assert model.means == pytest.approx(fitted.parts.means, abs=0.05)
    assert model.covariances == pytest.approx(fitted.parts.covariances, abs=0.15)
    assert sums.counts == pytest.approx([25.0])
    _, twice = update_factors(people, model, sums, Settings(1, 0, False))
    assert twice.counts == pytest.approx([50.0]) and twice.square == pytest.approx(2 * sums.square, rel=1e-2)


def test_blocks_hold_everyone_once(monkeypatch):
    people = [
        *people_of(3, 4, 6, 7),
        *people_of(3, 3, 2, 8),
        *answered_people(simulated(np.ones((2, 3)), 4, 5, 9), None),
    ]
    whole = blocks_of(people)
    monkeypatch.setattr("edpbrl_gym.estimation.population.blocks._BLOCK_NUMBERS", 3 * 16 * 128)
    blocks = blocks_of(people)
    assert len(whole) == 1 and len(blocks) > 2
    for found in (whole, blocks):
        assert sorted(np.concatenate([block.people for block in found])) == list(range(9))
        for block in found:
            for place, number in enumerate(block.people):
                count, others, _ = people[number].rows.shape
                np.testing.assert_array_equal(block.rows[place, :count, :others], people[number].rows)
                present = np.isfinite(block.offsets[place])
                assert present.sum() == count * others and present[:count, :others].all()
                assert not block.rows[place][~present].any() and not block.offsets[place][present].any()
    theta = np.array([1.0, -2.0, 0.5])
    (block,) = whole
    assert block.offsets_at(theta) == pytest.approx(block.offsets + block.rows @ theta)
    assert block.flat.shape == (9, block.rows.shape[1] * block.rows.shape[2], 3)


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


def test_warm_sites_forget_a_step_that_is_no_improvement():
    (block,) = blocks_of(people_of(3, 4, 5, 12))
    fits = WarmSites()
    values = iter([-3.0, -2.0, -5.0])

    def step(point):
        fits.fit(0, 0, block.under(point * np.eye(3)), block.offsets)
        return next(values), point

    guarded = fits.guarded(step)
    assert guarded(1.0) == (-3.0, 1.0)
    before = fits._last[0, 0]
    guarded(1.5)
    better = fits._last[0, 0]
    assert better is not before
    guarded(4.0)
    assert fits._last[0, 0] is better
    again = fits.fit(0, 0, block.under(1.5 * np.eye(3)), block.offsets)
    assert again.bounds == pytest.approx(better.bounds, abs=1e-2)


def test_both_geometries_do_the_same():
    rng = np.random.default_rng(13)
    rows, scores = rng.normal(size=(4, 3, 2, 5)), rng.normal(size=(4, 3, 2))
    flat = rows.reshape(4, 6, 5)
    for geometry in (Rows(rows), Grams(flat @ flat.transpose(0, 2, 1), 2)):
        assert len(geometry) == 4
        assert geometry.times(scores).reshape(4, 6) == pytest.approx(
            np.einsum("bmr,bnr,bn->bm", flat, flat, scores.reshape(4, 6))
        )
        assert geometry.blocks() == pytest.approx(np.einsum("bnkr,bnjr->bnkj", rows, rows))
        some = geometry.take(np.array([2, 0]))
        assert some.blocks() == pytest.approx(geometry.blocks()[[2, 0]])
    assert isinstance(geometry_of(rows), Rows)
    assert isinstance(geometry_of(np.ones((1, 2, 2, 4))), Rows) and isinstance(
        geometry_of(np.ones((1, 2, 2, 5))), Grams
    )


def test_sites_end_when_they_are_told(monkeypatch):
    people = people_of(3, 5, 6, 14, 4.0)
    (block,) = blocks_of(people)
    geometry = geometry_of(3.0 * block.rows)
    best = fit_sites(geometry, block.offsets, tolerance=1e-10)
    bounds = [fit_sites(geometry, block.offsets, max_iterations=count).bounds for count in range(5)]
    assert all((later >= earlier).all() for earlier, later in zip(bounds, bounds[1:], strict=False))
    assert (bounds[0] < best.bounds - 0.1).all() and fit_sites(
        geometry, block.offsets, max_iterations=2
    ).iterations == 2
    rough = fit_sites(geometry, block.offsets, tolerance=0.5)
    assert rough.iterations < best.iterations and rough.bounds == pytest.approx(best.bounds, abs=0.5)
    # the optimum: scores and information are the expectations that the answers give
    chosen = best.take(np.array([3, 1]))
    np.testing.assert_array_equal(chosen.bounds, best.bounds[[3, 1]])
    np.testing.assert_array_equal(chosen.scores, best.scores[[3, 1]])
    np.testing.assert_array_equal(chosen.log_likelihoods, best.log_likelihoods[[3, 1]])
    again = fit_sites(geometry, block.offsets, start=best, tolerance=1e-10)
    assert again.bounds == pytest.approx(best.bounds, abs=1e-8)


@pytest.mark.parametrize("size", [3.0, 8.0])
def test_sites_of_strong_tastes_need_shorter_steps(size):
    """A full step overshoots under a wide prior; the end is that of one fit at a time."""
    people = people_of(3, 6, 4, 20, 5.0)
    (block,) = blocks_of(people)
    found = fit_sites(geometry_of(size * block.rows), block.offsets, tolerance=1e-8)
    for place, number in enumerate(block.people):
        rows = size * people[number].rows
        alone = fit_gaussian(rows, None, 1.0, np.zeros(3), np.eye(3), tolerance=1e-8)
        assert found.bounds[place] == pytest.approx(alone.log_evidence, abs=0.15)
        mean = np.einsum("nk,nkd->d", found.scores[place], size * block.rows[place])
        assert mean == pytest.approx(alone.mean, abs=0.15)


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
    with pytest.raises(ValueError, match="as many people as folds, got 8 people and 9 folds"):
        choose_population(people, kind="factors", folds=9, minimum_people=8)
    with pytest.raises(ValueError, match="folds"):
        choose_population(people, kind="factors", folds=1, minimum_people=8)
    with pytest.raises(ValueError, match="at least 20 people"):
        choose_population(people, kind="factors")


def test_a_population_weighs_its_parts():
    """Log evidence over types, the size of a typical taste, weights of fallbacks: by their definitions."""
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
    assert population.fit(person, fallback=other).parts[5].scale == 1.0
    for weight in (0.0, 1.0, -0.5):
        with pytest.raises(ValueError, match="fallback_weight"):
            population.fit(person, fallback_weight=weight)


def rewritten(path, target, change):
    """The file with its description changed."""
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
