"""Communities: styles, people, answers, and what is measured of an estimate."""

from __future__ import annotations

import numpy as np
import pytest

from edpbrl_gym.estimation.metrics import preference_error
from edpbrl_gym.experiments.bench.first_metrics import regret_of_the_best
from edpbrl_gym.experiments.bench.sentences import DEVELOPMENT
from edpbrl_gym.experiments.communities.community import known_people, new_people
from edpbrl_gym.experiments.communities.run import measure
from edpbrl_gym.experiments.communities.settings import KINDS, REGIMES, CommunitySettings, CommunityUnit, plan_units
from edpbrl_gym.experiments.communities.styles import REPORTED_STYLES, UNSEEN, style_sentences
from edpbrl_gym.experiments.communities.worlds import load_world, prepare_world
from edpbrl_gym.experiments.people.estimators import at_estimate
from edpbrl_gym.features import load_encoder
from tests.helpers.small_communities import ENCODER, small_communities


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("community")


@pytest.fixture(scope="module")
def world(folder):
    settings = small_communities()
    prepare_world(settings, "interiors", load_encoder(ENCODER), folder)
    return load_world(settings, "interiors", folder)


def test_styles_are_no_sentences_that_constants_are_chosen_on(minilm):
    development = [text for group in DEVELOPMENT.values() for text in group.values()]
    for words, styles in REPORTED_STYLES.items():
        cosines = minilm.encode(development) @ minilm.encode(list(styles.values())).T
        assert cosines.max() < 0.5, (words, development[cosines.max(axis=1).argmax()])
        chosen = style_sentences(words, development=True)
        assert len(chosen) == len(styles) == 8 and not set(chosen) & set(styles)
        assert chosen.items() <= DEVELOPMENT[words].items()
    assert style_sentences("images", development=False) is REPORTED_STYLES["images"]


def test_people_of_a_style_are_nearer_to_it_than_to_others(world):
    settings = small_communities(new=24, individual=0.5)
    unit = CommunityUnit("interiors-argmax", "alone")
    new = new_people(settings, unit, world)
    assert [person.kind for person in new] == [kind for kind in KINDS for _ in range(24)]
    seen = len(world.styles) - UNSEEN
    for person in new:
        assert np.linalg.norm(person.taste) == pytest.approx(1.0)
        style = {"same style": person.number % seen, "unseen style": seen + person.number % UNSEEN}.get(person.kind)
        if style is not None:
            part = person.taste / (person.taste @ world.styles[style])  # style + what is orthogonal to it
            assert person.taste @ world.styles[style] > 0.8  # sin of the angle at most 0.5
            assert np.linalg.norm(part - world.styles[style]) < 0.6


def test_answers_are_the_best_options_or_sampled_and_the_same_whoever_asks(world):
    settings = small_communities(candidates=400)
    best, sampled = (
        new_people(settings, CommunityUnit(f"interiors-{mode}", "alone"), world) for mode in ("argmax", "scale-5")
    )
    again = new_people(settings, CommunityUnit("interiors-argmax", "pref"), world)
    for one, other, same in zip(best, sampled, again, strict=True):
        utilities = one.candidates.options @ one.taste
        assert (one.candidates.chosen == utilities.argmax(axis=1)).all()
        assert (one.candidates.options == other.candidates.options).all() and (one.taste == other.taste).all()
        assert (one.candidates.chosen == same.candidates.chosen).all()
        powers = np.exp(5.0 * utilities)
        expected = (powers.max(axis=1) / powers.sum(axis=1)).mean()
        assert (other.candidates.chosen == one.candidates.chosen).mean() == pytest.approx(expected, abs=0.09)


def test_the_community_is_other_people_than_the_new_ones_and_development_has_others_still(world):
    settings, unit = small_communities(), CommunityUnit("interiors-scale-20", "alone")
    known = known_people(settings, unit, world)
    assert len(known) == settings.people and all(len(one) == settings.questions for one in known)
    new = new_people(settings, unit, world)[0]
    others = new_people(small_communities(development=True), unit, world)[0]
    assert not np.array_equal(known[0].rows[0], new.candidates.options[0])
    assert not np.array_equal(others.taste, new.taste)
    assert len({tuple(row) for row in new.candidates.options[0]}) == 4  # different prompts


def test_what_is_measured_against_the_definitions(world):
    rng = np.random.default_rng(0)
    taste, theta = (rng.normal(size=8) for _ in range(2))
    taste /= np.linalg.norm(taste)
    found = measure(at_estimate(theta), world, taste, 20.0)
    judged = world.judged
    assert judged.pool is not None
    assert found["preference_error"] == pytest.approx(preference_error(theta, taste, judged.prompts, judged.pairs))
    assert found["regret_ten"] == pytest.approx(regret_of_the_best(judged.pool @ theta, judged.pool @ taste))
    total = 0.0
    for options in world.held_out:
        truth, guess = np.exp(20.0 * options @ taste), np.exp(options @ theta)
        total += truth / truth.sum() @ np.log(guess / guess.sum())
    assert found["log_likelihood"] == pytest.approx(total / len(world.held_out))
    sure = measure(at_estimate(1e3 * taste), world, taste, float("inf"))
    assert sure["preference_error"] == sure["regret_ten"] == 0 and sure["log_likelihood"] == pytest.approx(0, abs=0.1)
    assert measure(at_estimate(0 * taste), world, taste, float("inf"))["log_likelihood"] == pytest.approx(np.log(0.25))


def test_plans_and_settings_refuse_what_they_cannot_do():
    units = plan_units(CommunitySettings())
    assert len({unit.part for unit in units}) == len(units) == 20
    assert CommunityUnit("images-scale-50", "pal").scale == 50 and CommunityUnit("images-argmax", "pal").scale == np.inf
    assert len(REGIMES) == 8
    for wrong in ({"answers": ()}, {"people": 10}, {"candidates": 5}, {"individual": -1.0}, {"new": 0}, {"pool": 3}):
        with pytest.raises(ValueError, match="Expected"):
            CommunitySettings(**wrong)
    with pytest.raises(ValueError, match="at least one estimator"):
        plan_units(CommunitySettings(), estimators=())
    with pytest.raises(ValueError, match="images-argmax"):
        plan_units(CommunitySettings(), regimes=("outdoors-argmax",))
