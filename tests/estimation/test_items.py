"""The prior of a pool whose items have deviations that stay, and what other people say about the items."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.special import log_softmax
from scipy.stats import multivariate_normal

from edpbrl_gym.estimation.items import Crowd, ItemsPrior
from edpbrl_gym.estimation.population.items import fit_crowd
from edpbrl_gym.estimation.priors import load_prior


def pool(count=30, dimension=4, seed=0):
    return np.random.default_rng(seed).normal(size=(count, dimension)).astype(np.float32)


def asked(utilities, count, rng, num_options=4):
    """Items (n, K) and the choices of a noisy person."""
    shown = np.array([rng.choice(len(utilities), num_options, replace=False) for _ in range(count)])
    return shown, (utilities[shown] + rng.gumbel(size=shown.shape)).argmax(axis=1)


def crowd_of(prior, *, taste=0.5, deviation=0.8, effects=None, variance=0.1):
    count, size = prior.components.shape
    effects = np.linspace(-1.0, 1.0, count) if effects is None else effects
    seen, variances = np.full(count, 50), np.full(count, variance)
    return Crowd(np.full(size, 0.2), taste * np.eye(size), effects, variances, deviation, seen, 60)


def test_features_are_components_and_a_column_for_each_item():
    items = pool()
    prior = ItemsPrior(items)
    mapped = prior.feature_map(items[[3, 7]][None])
    np.testing.assert_allclose(mapped[0, :, prior.own], np.eye(len(items))[[3, 7]])
    assert not prior.feature_map(items[:1] + 0.5)[:, prior.own].any()  # no item of the pool
    # an item that is encoded again, in another batch
    assert prior.feature_map(items * (1 + 1e-6))[5, prior.own.start + 5] == 1.0
    spread = np.square(prior.components).sum(axis=1).mean()
    assert spread == pytest.approx(1.0)  # variance of a utility at s_b = 1


def test_the_landmarks_make_the_same_map():
    prior = ItemsPrior(pool(), blocks=(2, 2))
    again = ItemsPrior(prior.landmarks, **prior.options)
    np.testing.assert_allclose(again.feature_map(pool()), prior.feature_map(pool()), atol=1e-12)
    assert again.space == prior.space


@pytest.mark.parametrize("dimension", [1, 2])
def test_the_evidence_with_others_is_the_integral(dimension):
    """Three items: against a sum over a grid of their utilities' two differences."""
    items = pool(3, dimension, seed=1)
    prior = ItemsPrior(items)
    prior = prior.with_crowd(crowd_of(prior, taste=0.2, deviation=0.3, variance=0.05))
    rng = np.random.default_rng(0)
    shown = np.array([rng.permutation(3)[:2] for _ in range(6)])
    choices = np.array([0, 1, 0, 0, 1, 0])
    fit = prior.fit((prior.feature_map(items[shown]), choices))
    crowd, phi = prior.crowd, prior.components
    mean = phi @ crowd.taste + crowd.effects
    covariance = phi @ crowd.covariance @ phi.T + np.diag(crowd.variances + crowd.deviation)
    points = np.random.default_rng(1).multivariate_normal(mean, covariance, size=400_000)
    logs = log_softmax(points[:, shown], axis=2)[:, np.arange(6), choices].sum(axis=1)
    weights = np.exp(logs)
    assert fit.parts[0].log_evidence == pytest.approx(np.log(weights.mean()), abs=0.02)
    exact = weights @ points / weights.sum()
    utilities = prior.feature_map(items) @ fit.parts[0].mean
    np.testing.assert_allclose(utilities - utilities[0], exact - exact[0], atol=0.1)  # mode and mean


def test_items_that_were_not_shown_keep_their_prior():
    items = pool()
    prior = ItemsPrior(items)
    rng = np.random.default_rng(2)
    shown, choices = asked(rng.normal(size=len(items)), 5, rng)
    fit = prior.fit((prior.feature_map(items[shown]), choices))
    unseen = np.setdiff1d(np.arange(len(items)), shown)
    columns = prior.own.start + unseen
    assert not fit.estimate.theta[columns].any()
    covariance = fit.posterior.covariance()
    np.testing.assert_allclose(covariance[np.ix_(columns, columns)], fit.scales[-1] * np.eye(len(unseen)), atol=1e-10)
    np.testing.assert_allclose(np.linalg.inv(fit.posterior.precision), covariance, atol=1e-8)
    # the same as with all columns in one estimate
    from edpbrl_gym.estimation import GaussianPrior, estimate

    variances = np.append(np.full(prior.own.start, fit.scales[0]), np.full(len(items), fit.scales[-1]))
    whole = estimate(
        (prior.feature_map(items[shown]), choices), prior=GaussianPrior.from_precision(np.diag(1 / variances))
    )
    np.testing.assert_allclose(fit.estimate.theta, whole.theta, atol=1e-6)


def test_the_deviation_takes_what_one_item_alone_explains():
    """A person who always takes item 0, whose features are like many others', likes item 0, not its features."""
    items = pool(40, 3)
    prior = ItemsPrior(items)
    rng = np.random.default_rng(0)
    shown = np.array([[0, *rng.choice(np.arange(1, 40), 3, replace=False)] for _ in range(25)])
    theta = prior.fit((prior.feature_map(items[shown]), np.zeros(25, dtype=int))).estimate.theta
    linear, own = prior.components @ theta[: prior.own.start], theta[prior.own]
    assert own.argmax() == 0 and own[0] > linear.max()


def simulated_people(number, answers, items, rng, *, deviation=0.7, taste=0.6):
    prior = ItemsPrior(items)
    phi = prior.components
    effects = rng.normal(size=len(items))
    shared = phi @ rng.normal(size=phi.shape[1])
    people = []
    for _ in range(number):
        own = phi @ rng.normal(size=phi.shape[1]) * np.sqrt(taste)
        utilities = shared + effects + own + np.sqrt(deviation) * rng.normal(size=len(items))
        shown, choices = asked(utilities, answers, rng)
        people.append((prior.feature_map(items[shown]), choices))
    return prior, shared + effects, people


def test_recovers_effects_and_variances_of_simulated_people():
    rng = np.random.default_rng(4)
    prior, truth, people = simulated_people(250, 30, pool(25, 3), rng)
    crowd = fit_crowd(people, prior)
    found = prior.components @ crowd.taste + crowd.effects
    assert np.corrcoef(found, truth)[0, 1] > 0.97
    assert np.polyfit(found, truth, 1)[0] == pytest.approx(1.0, abs=0.1)
    assert crowd.deviation == pytest.approx(0.7, abs=0.3)
    assert np.trace(crowd.covariance) / 3 == pytest.approx(0.6, abs=0.2)
    # their posterior deviations are about the errors
    errors = found - found.mean() - truth + truth.mean()
    assert 0.4 < np.square(errors).mean() / crowd.variances.mean() < 2.5


def test_intervals_of_the_means_hold_in_units_of_a_persons_liking():
    """In these units the pull of Laplace's method towards 0, which all variances share, is no matter."""
    inside = []
    for seed in range(3):
        rng = np.random.default_rng(seed)
        prior, truth, people = simulated_people(60, 12, pool(40, 3), rng)
        prior = prior.with_crowd(fit_crowd(people, prior))
        liking = prior.liking()
        found = (prior.shared() - prior.shared().mean()) / np.sqrt(sum(liking.values()))
        wanted = (truth - truth.mean()) / np.sqrt(truth.var() + 0.6 + 0.7)
        error = 1.645 * np.sqrt(prior.crowd.variances / sum(liking.values()))
        inside.append(np.abs(found - wanted) < error)
    assert 0.82 < np.mean(inside) < 0.98


def test_without_others_nothing_is_known_of_the_crowd():
    prior = ItemsPrior(pool())
    assert not prior.shared().any()
    with pytest.raises(ValueError, match="what other people answered"):
        prior.liking()


def test_items_seen_by_few_have_no_effect_of_their_own():
    rng = np.random.default_rng(5)
    items = pool(25, 3)
    prior, _, people = simulated_people(30, 10, items, rng)
    rare = 24  # seen by the first person only
    kept = [~options[:, :, prior.own.start + rare].any(axis=1) for options, _ in people]
    people = [(options[mask], choices[mask]) for (options, choices), mask in zip(people, kept, strict=True)]
    shown = prior.feature_map(items[[[rare, 0, 1, 2]]])
    people[0] = np.concatenate([people[0][0], shown]), np.append(people[0][1], 0)
    crowd = fit_crowd(people, prior, minimum_people=20)
    assert crowd.seen[rare] == 1 and crowd.effects[rare] == 0.0
    assert crowd.effects[crowd.seen >= 20].any()


def test_refuses_small_groups_and_other_items():
    rng = np.random.default_rng(6)
    items = pool(25, 3)
    prior, _, people = simulated_people(5, 4, items, rng)
    with pytest.raises(ValueError, match="at least 20 people"):
        fit_crowd(people, prior)
    others = prior.feature_map(rng.normal(size=(2, 4, 3)).astype(np.float32))
    with pytest.raises(ValueError, match="person 5 saw others"):
        fit_crowd([*people, (others, np.zeros(2, dtype=int))], prior, minimum_people=2)


def test_a_person_unlike_all_others_falls_back():
    """Answers against all effects: the weight of the others falls, and the estimate is that of the person alone."""
    items = pool(40, 3)
    prior = ItemsPrior(items)
    prior = prior.with_crowd(crowd_of(prior, taste=0.05, deviation=0.05, effects=np.linspace(-4, 4, 40)))
    rng = np.random.default_rng(7)
    like, unlike = prior.components @ prior.crowd.taste + prior.crowd.effects, 6 * prior.components[:, 0]
    shown, choices = asked(like, 20, rng)
    assert prior.fit((prior.feature_map(items[shown]), choices)).weights[0] > 0.97
    shown, choices = asked(unlike, 20, rng)
    assert prior.fit((prior.feature_map(items[shown]), choices)).weights[0] < 0.03


def test_a_file_gives_the_same_prior(tmp_path):
    items = pool()
    prior = ItemsPrior(items).with_crowd(crowd_of(ItemsPrior(items)), {"encoder": "some"})
    path = tmp_path / "population.safetensors"
    prior.save(path)
    again = load_prior(path)
    assert again.fingerprint == prior.fingerprint and again.provenance == {"encoder": "some"}
    rng = np.random.default_rng(8)
    shown, choices = asked(rng.normal(size=len(items)), 5, rng)
    fits = [one.fit((one.feature_map(items[shown]), choices)).estimate.theta for one in (prior, again)]
    np.testing.assert_allclose(fits[0], fits[1], atol=1e-9)
    with pytest.raises(ValueError, match="Expected a prior with what other people answered"):
        ItemsPrior(items).save(path)


def test_the_start_is_what_others_said():
    prior = ItemsPrior(pool())
    prior = prior.with_crowd(crowd_of(prior))
    start, empty = prior.start(), prior.fit((np.zeros((0, 2, prior.dimension)), np.zeros(0, dtype=int)))
    np.testing.assert_allclose(start.mean, empty.parts[0].mean, atol=1e-9)
    np.testing.assert_allclose(start.covariance(), empty.parts[0].posterior.covariance(), atol=1e-9)
    assert multivariate_normal(start.mean, start.covariance()).pdf(start.mean) > 0


def test_pools_that_are_too_large_and_prompts_of_several_steps_are_refused():
    from edpbrl_gym.planners import TokenFeatures, make_planner
    from edpbrl_gym.vocabulary import Vocabulary

    with pytest.raises(ValueError, match="at most 2,000 items with the prior 'items', got 2,001"):
        ItemsPrior(pool(2001, 2))
    words = Vocabulary(("a", "b"), (("x", "y"), ("z", "w")))
    with pytest.raises(ValueError, match="a pool, a vocabulary of one step"):
        make_planner("adaptive", words, TokenFeatures(words, pool(4, 2)), prior="items", num_options=2)


def test_questions_are_those_of_matrices_of_all_coordinates():
    """Draws, updates and scores leave out the items that nobody asked this person about, and give the same."""
    from edpbrl_gym.estimation import Posterior
    from edpbrl_gym.planners import AdaptivePlanner, TokenFeatures
    from edpbrl_gym.vocabulary import Vocabulary

    class Dense(ItemsPrior):
        def start(self):
            found = super().start()
            return Posterior(found.mean, found.precision)

        def fit_planned(self, terms):
            found = super().fit_planned(terms)
            return Posterior(found.mean, found.precision)

    items = pool(60, 5)
    words = Vocabulary(("item",), (tuple(map(str, range(60))),))
    for count, score in ((2, None), (4, None), (7, None), (4, "trace"), (4, "information")):
        planners = []
        for kind in (ItemsPrior, Dense):
            prior = kind(items).with_crowd(crowd_of(kind(items)))
            options = TokenFeatures(words, items)
            planners.append(AdaptivePlanner(words, options=options, prior=prior, num_options=count, score=score))
            planners[-1]._tokens = [planners[-1]._tokens[0].astype(np.float64)]  # else ties are broken by rounding
        for _ in range(13):
            asked_items = [planner.ask(np.empty((count, 0), dtype=int)) for planner in planners]
            np.testing.assert_array_equal(*map(np.sort, asked_items))  # the order may be that of another start
            for planner in planners:
                planner.tell(items[asked_items[0]][None], [int(items[asked_items[0], 0].argmax())])


@pytest.mark.parametrize("shared", [False, True])
def test_a_posterior_without_the_coordinates_that_were_not_compared_is_the_whole_one(shared):
    from edpbrl_gym.estimation import Posterior
    from edpbrl_gym.planners.scores import ExpectedInformation, ExpectedVariance

    prior = ItemsPrior(pool(20, 3))
    prior = prior.with_crowd(crowd_of(prior))
    rng = np.random.default_rng(9)
    small = prior.start()
    whole = Posterior(small.mean, small.precision)
    rows = prior.feature_map(pool(20, 3))
    if shared:  # two tokens that are one item, and a prefix that adds an item's column
        rows[1, prior.own] = rows[0, prior.own]
    offsets = np.zeros((3, prior.dimension))
    offsets[1, prior.own.start + 7] = float(shared)
    for _ in range(3):
        np.testing.assert_allclose(small.inverse_factor, whole.inverse_factor, atol=1e-10)
        np.testing.assert_allclose(small.precision, whole.precision, atol=1e-9)
        np.testing.assert_allclose(*(one.draws(4, np.random.default_rng(1)) for one in (small, whole)), atol=1e-10)
        draws, contrasts = whole.draws(6, rng), np.zeros((prior.dimension, 2))
        contrasts[: prior.own.start] = rng.normal(size=(prior.own.start, 2))
        for make in (
            lambda posterior, draws=draws: ExpectedInformation(draws, posterior),
            lambda posterior, draws=draws: ExpectedVariance(draws, posterior),
            lambda posterior, draws=draws, b=contrasts: ExpectedVariance(draws, posterior, contrasts=b),
        ):
            scores = [make(small), make(whole)]
            for score in scores:
                score.prepare(rows, np.zeros_like(offsets))  # what is known of the rows is used again, where it may be
                score.prepare(rows, offsets)
            found = [np.delete(score.replacements(np.array([0, 1, 2]), 2), [0, 1]) for score in scores]
            np.testing.assert_allclose(*found, rtol=1e-8, atol=1e-11)
        shown = rng.choice(20, size=(1, 3), replace=False)
        differences = rows[shown[:, 1:]] - rows[shown[:, :1]]
        small, whole = small.after(differences, None), whole.after(differences, None)
        np.testing.assert_allclose(small.mean, whole.mean, atol=1e-9)


def halves(deviation=0.7):
    rng = np.random.default_rng(10)
    prior, truth, people = simulated_people(300, 25, pool(40, 4), rng, deviation=deviation)
    return prior, truth, people[:150], people[150:]


def test_an_update_is_close_to_a_fit_of_everybody():
    prior, truth, first, second = halves()
    joint = fit_crowd([*first, *second], prior)
    alone = fit_crowd(first, prior)
    updated = fit_crowd(second, prior, earlier=alone)
    assert updated.people == joint.people == 300
    np.testing.assert_array_equal(updated.seen, joint.seen)
    assert np.corrcoef(updated.effects, joint.effects)[0, 1] > 0.99
    means = [prior.components @ crowd.taste + crowd.effects for crowd in (updated, alone)]
    errors = [np.square(mean - mean.mean() - truth + truth.mean()).mean() for mean in means]
    assert errors[0] < 0.8 * errors[1]
    for one, other in (
        (updated.deviation, joint.deviation),
        (np.trace(updated.covariance), np.trace(joint.covariance)),
        (updated.variances.mean(), joint.variances.mean()),
        (np.square(updated.effects).mean(), np.square(joint.effects).mean()),
    ):
        assert one == pytest.approx(other, rel=0.15)


def test_forgetting_follows_the_new_people():
    prior, _, first, _ = halves()
    rng = np.random.default_rng(11)
    _, changed, new = simulated_people(150, 25, pool(40, 4), rng)
    alone = fit_crowd(first, prior)
    near = []
    for share in (0.0, 0.9):
        crowd = fit_crowd(new, prior, earlier=alone, forgetting=share)
        near.append(np.corrcoef(prior.components @ crowd.taste + crowd.effects, changed)[0, 1])
        assert crowd.sums["numbers"][0] == pytest.approx(150 * (1 - share) + 150)
    assert near[1] > near[0] + 0.1 and near[1] > 0.95
    with pytest.raises(ValueError, match="forgetting in"):
        fit_crowd(new, prior, earlier=alone, forgetting=1.0)


def test_nothing_is_kept_of_items_that_few_people_saw(tmp_path):
    """Sums have no row about an item below the least group; people behind it do not count again."""
    rng = np.random.default_rng(12)
    items = pool(30, 3)
    prior, _, people = simulated_people(60, 10, items, rng)
    column, shown = prior.own.start + 29, prior.feature_map(items[[[29, 0, 1, 2]]])
    people = [(o[mask], c[mask]) for o, c in people for mask in [~o[:, :, column].any(axis=1)]]

    def seen_by(some, count):
        return [
            (np.concatenate([o, shown]), np.append(c, 0)) if number < count else (o, c)
            for number, (o, c) in enumerate(some)
        ]

    first = fit_crowd(seen_by(people[:30], 15), prior)
    assert all(not first.sums[name][29].any() for name in ("diagonal", "products", "score")) and not first.effects[29]
    with_crowd = prior.with_crowd(first)
    with_crowd.save(tmp_path / "population.safetensors")
    read = load_prior(tmp_path / "population.safetensors").crowd
    few = fit_crowd(seen_by(people[30:], 15), prior, earlier=read)
    assert few.seen[29] == 15 and few.effects[29] == 0.0
    many = fit_crowd(seen_by(people[30:], 25), prior, earlier=read)
    assert many.seen[29] == 25 and many.effects[29] > 0.0 and many.sums["score"][29]


def test_updates_of_other_pools_are_refused():
    prior, _, first, second = halves()
    other = ItemsPrior(pool(20, 4))
    with pytest.raises(ValueError, match="same pool of 40 items"):
        fit_crowd(second, prior, earlier=crowd_of(other))
    with pytest.raises(ValueError, match="at least 20 people to update"):
        fit_crowd(second[:3], prior, earlier=fit_crowd(first, prior))
