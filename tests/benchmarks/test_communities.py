"""Simulated communities: people and answers, what is measured, and a small run."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas
import pytest

from benchmarks.communities.__main__ import Options, start
from benchmarks.communities.community import INDIVIDUAL, known_people, load_world, measure, new_people, prepare_world
from benchmarks.communities.report import Communities, _needed_table, _verdict
from benchmarks.communities.settings import KINDS, CommunitySettings, CommunityUnit, plan_units
from benchmarks.kit.command import parse
from benchmarks.kit.sentences import UNSEEN
from benchmarks.kit.worlds import regret_of_the_best
from benchmarks.people.estimators import at_estimate
from edpbrl_gym.estimation.metrics import preference_error
from edpbrl_gym.experiments.runs import read_results
from edpbrl_gym.features import load_encoder

ENCODER = "tests.helpers.encoders:CountingEncoder"
SMALL: dict[str, Any] = {
    **{"people": 20, "questions": 4, "new": 2, "candidates": 10, "answers": (0, 2, 4), "factors": 2, "shown": 60},
    **{"held_out": 8, "prompts": 30, "pairs": 60, "pool": 40, "encoder": ENCODER},
}


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    folder, settings = tmp_path_factory.mktemp("community"), CommunitySettings(**SMALL)
    prepare_world(settings, "interiors", load_encoder(ENCODER), folder)
    return load_world(settings, "interiors", folder)


def test_people_of_a_style_are_near_it(world):
    new = new_people(CommunitySettings(**SMALL | {"new": 24}), CommunityUnit("interiors-argmax", "alone"), world)
    assert [person.kind for person in new] == [kind for kind in KINDS for _ in range(24)]
    seen = len(world.styles) - UNSEEN
    for person in new:
        assert np.linalg.norm(person.taste) == pytest.approx(1.0)
        style = {"same style": person.number % seen, "unseen style": seen + person.number % UNSEEN}.get(person.kind)
        if style is not None:
            assert person.taste @ world.styles[style] >= np.sqrt(1 - INDIVIDUAL**2) - 1e-9


def test_answers_are_the_best_options_or_sampled_and_the_same_whoever_asks(world):
    settings, units = CommunitySettings(**SMALL | {"candidates": 400}), ("argmax", "scale-5", "argmax")
    each = [new_people(settings, CommunityUnit(f"interiors-{mode}", "alone"), world) for mode in units]
    for one, other, same in zip(*each, strict=True):
        utilities = one.candidates.options @ one.taste
        assert (one.candidates.chosen == utilities.argmax(axis=1)).all()
        assert (one.candidates.options == other.candidates.options).all() and (one.taste == other.taste).all()
        assert (one.candidates.chosen == same.candidates.chosen).all()
        powers = np.exp(5.0 * utilities)
        expected = (powers.max(axis=1) / powers.sum(axis=1)).mean()
        assert (other.candidates.chosen == one.candidates.chosen).mean() == pytest.approx(expected, abs=0.09)
    known = known_people(settings, CommunityUnit("interiors-argmax", "alone"), world)
    assert len(known) == 20 and not np.array_equal(known[0].rows[0], each[0][0].candidates.options[0])
    developed = CommunitySettings(**SMALL, development=True)
    others = new_people(developed, CommunityUnit("interiors-argmax", "alone"), world)
    assert not np.array_equal(others[0].taste, each[0][0].taste)


def test_what_is_measured_against_the_definitions(world):
    rng = np.random.default_rng(0)
    taste, theta = (rng.normal(size=8) for _ in range(2))
    taste /= np.linalg.norm(taste)
    found = measure(at_estimate(theta), world, taste, 20.0)
    assert found["preference_error"] == pytest.approx(preference_error(theta, taste, world.prompts, world.pairs))
    assert found["regret_ten"] == pytest.approx(regret_of_the_best(world.pool @ theta, world.pool @ taste))
    total = 0.0
    for options in world.held_out:
        truth, guess = np.exp(20.0 * options @ taste), np.exp(options @ theta)
        total += truth / truth.sum() @ np.log(guess / guess.sum())
    assert found["log_likelihood"] == pytest.approx(total / len(world.held_out))
    sure = measure(at_estimate(1e3 * taste), world, taste, float("inf"))
    assert sure["preference_error"] == sure["regret_ten"] == 0 and sure["log_likelihood"] == pytest.approx(0, abs=0.1)


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda: CommunitySettings(people=10), "people >= 20"),
        (lambda: CommunitySettings(candidates=5), "candidates >= 40"),
        (lambda: CommunitySettings(new=0), "new >= 1"),
        (lambda: CommunitySettings(rules=("own",)), "random"),
        (lambda: plan_units(CommunitySettings(), estimators=()), "at least one estimator"),
        (lambda: plan_units(CommunitySettings(), regimes=("outdoors-argmax",)), "images-argmax"),
    ],
)
def test_what_is_refused(call, said):
    with pytest.raises(ValueError, match=said):
        call()


def test_the_report_says_what_the_population_changes():
    curves = {"alone": (0.5, 0.4, 0.3), "population-factors": (0.4, 0.3, 0.3)}
    rows = [
        {"regime": f"images-{mode}", "words": "images", "estimator": estimator, "rule": "random", "kind": "same style"}
        | {"person": person, "answers": count, "preference_error": value, "regret_ten": value, "log_likelihood": -value}
        for mode in ("argmax", "scale-20")
        for estimator, values in curves.items()
        for person in range(3)
        for count, value in zip((0, 2, 4), values, strict=True)
    ]
    found = Communities(pandas.DataFrame(rows))
    # 0.3 after 2 answers with others, after 4 alone; better after 0 and 2 answers by all three measures
    assert _needed_table(found, "preference_error").rows == [
        ["same style", "random", "4.0 [4.0, 4.0]", "4.0 [4.0, 4.0]"]
    ]
    assert "of 9 differences" in _verdict(found)[0] and "6 are surely for the better and 0" in _verdict(found)[0]


def test_a_small_run(tmp_path, capsys):
    arguments = [f"--{name.replace('_', '-')}={value}" for name, value in SMALL.items() if name != "answers"]
    command = [*arguments, "--answers", "0", "2", "4", "--regime=interiors-argmax", f"--out={tmp_path}", "--jobs=1"]
    assert parse(Options, start, "benchmark", [*command, "--estimator", "alone", "population-factors"]) == 0
    table = read_results(tmp_path).table
    assert len(table) == (2 + 2) * 3 * 2 * 3  # rules, kinds, new people, numbers of answers
    assert table["preference_error"].between(0, 1).all() and (table["log_likelihood"] < 0).all()
    report = (tmp_path / "REPORT.md").read_text()
    assert "minus alone" in report and "Answers needed alone" in report and "differences between" in report
    assert (tmp_path / "figures" / "learning.png").stat().st_size > 1000 and "Answers needed" in capsys.readouterr().out
    assert parse(Options, start, "benchmark", ["--estimator", "best"]) == 2
