"""Real people's answers replayed: data, folds, rules and estimates, and a small run."""

import numpy as np
import pandas
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.kit.command import parse
from benchmarks.people.__main__ import Options, start
from benchmarks.people.data import NewPerson, Person, load_people, make_fold
from benchmarks.people.estimators import ESTIMATORS, Fit, make_estimator
from benchmarks.people.replay import expected_gain, judge, replay
from benchmarks.people.report import Replays
from benchmarks.people.run import PeopleSettings, plan_units
from edpbrl_gym.estimation import GaussianPrior, Posterior, estimate, fit_posterior
from edpbrl_gym.estimation.population import fit_population
from edpbrl_gym.experiments.runs import read_results
from tests.helpers.made_people import long_table


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    place = tmp_path_factory.mktemp("people") / "made.csv"
    long_table(30, 9).to_csv(place, index=False)
    return str(place)


@pytest.fixture(scope="module")
def people(path):
    return load_people([path])[0]


@pytest.fixture(scope="module")
def fold(people):
    return make_fold(people.standardised(), 0, folds=3, most=4, held_out=4)


def softmax(values):
    powers = np.exp(values - values.max(axis=-1, keepdims=True))
    return powers / powers.sum(axis=-1, keepdims=True)


def test_a_long_table_is_read_and_standardised(people):
    table = long_table(30, 9)
    first = table[table["person"] == "p0"]
    assert people.attributes == ("warm", "loud", "wide") and len(people.people) == 30 and people.num_options == 3
    person = people.people[0]
    np.testing.assert_allclose(person.options.reshape(-1, 3), first[["warm", "loud", "wide"]])
    assert person.chosen.tolist() == (first.loc[first["chosen"], "option"] - 1).tolist()
    rows = np.concatenate([one.options.reshape(-1, 3) for one in people.standardised().people])
    np.testing.assert_allclose(rows.std(axis=0), 1.0)
    np.testing.assert_allclose(person.terms().rows, person.options)


def test_folds_hold_answers_out(people):
    folds = [make_fold(people, number, folds=3, most=99, held_out=4) for number in range(3)]
    assert sorted(person.place for fold in folds for person in fold.new) == list(range(30))
    for one in folds:
        assert {person.name for person in one.known}.isdisjoint(person.asked.name for person in one.new)
        for new in one.new:
            whole = np.concatenate([new.held_out.options, new.asked.options])
            assert len(new.held_out) == 4
            np.testing.assert_array_equal(np.sort(whole, axis=0), np.sort(people.people[new.place].options, axis=0))


@pytest.mark.parametrize(
    ("call", "error", "said"),
    [
        (lambda path, place: load_people([]), ValueError, "got none; give long tables"),
        (lambda path, place: load_people([str(place / "no.csv")]), FileNotFoundError, "found no such file"),
        (lambda path, place: load_people([path, path]), ValueError, "'made' more than once"),
        (lambda path, place: load_people([str(place / "uneven.csv")]), ValueError, r"number of options .*\[2, 3\]"),
        (lambda path, place: load_people([str(place / "bad.csv")]), ValueError, "'maybe'"),
        (lambda path, place: plan_units(PeopleSettings((path,), folds=31)), ValueError, "at least 31 people"),
        (lambda path, place: plan_units(PeopleSettings((path,), held_out=9)), ValueError, "more than 9 questions"),
        (lambda path, place: plan_units(PeopleSettings((path,), folds=2)), ValueError, "at least 20 other people"),
        (lambda path, place: plan_units(PeopleSettings((path,)), ["best"]), ValueError, "ridge100.*'best'"),
        (lambda path, place: PeopleSettings(rule=("bald",)), ValueError, "random"),
        (lambda path, place: PeopleSettings(answers=(-1,)), ValueError, "answers >= 0"),
        (lambda path, place: make_estimator("ridge", [], 3), ValueError, "ridge1"),
    ],
)
def test_what_is_refused(path, tmp_path, call, error, said):
    long_table(4, 4, sizes=(3, 2)).to_csv(tmp_path / "uneven.csv", index=False)
    long_table(4, 4).astype({"chosen": str}).replace("True", "maybe").to_csv(tmp_path / "bad.csv", index=False)
    with pytest.raises(error, match=said):
        call(path, tmp_path)


@settings(max_examples=10)
@given(seed=st.integers(0, 10_000), size=st.integers(2, 5))
def test_the_expected_gain_is_that_of_the_full_matrices(seed, size):
    rng = np.random.default_rng(seed)
    root = rng.standard_normal((3, 3))
    posterior, options = Posterior(rng.standard_normal(3), root @ root.T + np.eye(3)), rng.standard_normal((4, size, 3))
    values = expected_gain(posterior, options, np.random.default_rng(seed), 64)
    draws = posterior.draws(64, np.random.default_rng(seed))
    for question, value in zip(options, values, strict=True):
        shares = softmax(draws @ question.T)
        information = sum(question.T @ (np.diag(p) - np.outer(p, p)) @ question for p in shares) / 64
        after = np.linalg.slogdet(posterior.precision + information)[1]
        assert value == pytest.approx(after - np.linalg.slogdet(posterior.precision)[1], abs=1e-9)


def test_estimates_are_those_of_the_library(fold):
    answers, options = fold.new[1].asked.terms(), fold.new[1].held_out.options
    none = fold.new[1].asked.select([]).terms()
    for name, ridge in (("ridge100", 100.0), ("ridge1", 1.0), ("alone", None)):
        one = make_estimator(name, fold.known, 3)
        assert not one.fit(none).theta.any() and one.plan(answers).precision.shape == (3, 3)
        if ridge is not None:
            assert np.allclose(one.fit(answers).theta, estimate(answers, regularization=ridge).theta)
            posterior = fit_posterior(answers, base=GaussianPrior.isotropic(3, ridge), scale=1.0).posterior
            assert np.allclose(one.fit(answers).probabilities(options), posterior.choice_probabilities(options))
    known = make_estimator("population-gaussian", fold.known, 3)
    expected = fit_population([person.terms() for person in fold.known], kind="gaussian").fit(answers)
    assert np.allclose(known.fit(answers).theta, expected.theta)
    assert np.allclose(known.fit(answers).probabilities(options), expected.choice_probabilities(options))
    assert np.allclose(known.plan(answers).mean, expected.planned.mean)


def test_groups_divide_the_people(people):
    found = {
        group: {
            one.place
            for number in range(5)
            for one in make_fold(people, number, folds=5, most=999, held_out=2, group=group).new
        }
        for group in ("development", "reported", "all")
    }
    assert found["development"].isdisjoint(found["reported"])
    assert found["development"] | found["reported"] == found["all"]


def test_ties_share_a_hit():
    options = np.array([[[1.0], [1.0], [0.0]], [[1.0], [0.0], [9.0]], [[2.0], [0.0], [1.0]]])
    fit = Fit(np.array([0.5]), lambda rows: np.full(rows.shape[:2], 1.0 / rows.shape[1]))
    rows = judge(fit, Person("p", options, np.array([1, 2, 2])))
    assert [row["hit"] for row in rows] == [0.5, 1.0, 0.0]
    assert [row["log_probability"] for row in rows] == pytest.approx([-np.log(3)] * 3)


def test_a_replay_asks_every_question_once_and_looks_at_no_held_out_answer(fold):
    estimator, person = make_estimator("ridge1", fold.known, 3), fold.new[2]
    rows = {rule: replay(estimator, rule, person, (0, 1, 5, 30)) for rule in ("random", "adaptive")}
    assert [(row["answers"], row["question"]) for row in rows["random"]] == [
        (n, q) for n in (0, 1, 5) for q in range(4)
    ]
    logs = {rule: [row["log_probability"] for row in found] for rule, found in rows.items()}
    assert np.allclose(logs["random"][8:], logs["adaptive"][8:], atol=1e-6)  # the same questions in the end
    other = Person("x", person.held_out.options, (person.held_out.chosen + 1) % 3)
    changed = replay(estimator, "adaptive", NewPerson(person.place, person.asked, other), (0, 1, 5))
    assert sum(row["hit"] for row in changed) != sum(row["hit"] for row in rows["adaptive"])
    again = replay(estimator, "adaptive", person, (0, 1, 5))
    assert [row["hit"] for row in again] == [row["hit"] for row in rows["adaptive"]]


def test_answers_needed_are_of_the_people_who_have_them_all():
    logs = {"random": {0: -2.0, 2: -1.5, 4: -1.0}, "adaptive": {0: -2.0, 2: -1.0, 4: -0.8}}
    rows = [
        {"data": "d", "estimator": "ridge1", "rule": rule, "person": person, "answers": count, "question": question}
        | {"hit": 0.5, "log_probability": value + 0.1 * question}
        for rule, curve in logs.items()
        for person in range(4)
        for count, value in curve.items()
        for question in range(2)
        if person < 3 or count < 4
    ]
    found = Replays(pandas.DataFrame(rows), "d")
    assert found.common == [0, 2, 4] and len(found.complete.table["person"].unique()) == 3
    gap = found.curves.difference([(("ridge1", "adaptive"), ("ridge1", "random"))], "log_probability", 2)
    assert gap.value == pytest.approx(0.5)
    needed = found.complete.needed(("ridge1", "adaptive"), ("ridge1", "random"), "log_probability", 4, higher=True)
    assert needed.value == needed.low == needed.high == pytest.approx(2.0)


def test_a_small_run(path, tmp_path, capsys):
    estimators = [name for name in ESTIMATORS if name != "population-factors"]
    command = [path, "--folds=3", "--people-per-fold=2", "--jobs=1", f"--out={tmp_path}", "--answers", "0", "2"]
    assert parse(Options, start, "benchmark", [*command, "--estimator", *estimators[:2]]) == 0
    assert parse(Options, start, "benchmark", [*command, "--estimator", *estimators]) == 0  # estimators may be added
    table = read_results(tmp_path).table
    assert len(table) == len(estimators) * 2 * 3 * 2 * 2 * 4  # rules, folds, people, numbers of answers, held out
    means = table[table["answers"] == 0].groupby("estimator")["log_probability"].mean()
    assert means["population-gaussian"] > means["ridge1"]  # the point of it all: other people help
    report = (tmp_path / "REPORT.md").read_text()
    assert "hit rate of held-out answers" in report and "that random questions reach after" in report
    assert (tmp_path / "figures" / "learning.png").stat().st_size > 1000 and "hit rate" in capsys.readouterr().out
    assert parse(Options, start, "benchmark", [path, "--rule", "bald"]) == 2
