"""Dueling Thompson sampling, IDRL and maximum regret: against searches written out."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from edpbrl_gym.estimation import GaussianPrior
from edpbrl_gym.likelihood.choice import fisher_information
from edpbrl_gym.planners.pool.best import DuelingThompson, Idrl, MaximumRegret
from edpbrl_gym.planners.pool.state import PoolState


def make_state(*, n: int = 10, d: int = 4, K: int = 2, draws: int = 12, seed: int = 1000) -> PoolState:
    rng = np.random.default_rng(seed)
    items = rng.standard_normal((n, d))
    theta = rng.standard_normal(d)
    questions = np.stack([rng.choice(n, K, replace=False) for _ in range(4)])
    choices = (items[questions] @ theta + rng.gumbel(size=(4, K))).argmax(axis=1)
    prior = GaussianPrior.isotropic(d, 1.0)
    return PoolState.of(items, prior, questions, choices, num_options=K, draws=draws, seed=seed)


def with_draws(state: PoolState, draws: np.ndarray, *, seed: int = 0, precision: np.ndarray | None = None) -> PoolState:
    return PoolState(
        items=state.items,
        mean=state.mean,
        precision=state.precision if precision is None else precision,
        draws=draws,
        agnostic=state.agnostic,
        num_options=state.num_options,
        rng=np.random.default_rng(seed),
    )


def favourite(state: PoolState, theta: np.ndarray) -> int:
    return max(range(state.num_items), key=lambda i: float(state.items[i] @ theta))


# ---------------------------------------------------------------------------------------------------- Thompson


@pytest.mark.parametrize("K", [2, 3])
def test_thompson_asks_the_favourites_of_the_first_draws_that_differ(K: int) -> None:
    state = make_state(K=K)
    expected: list[int] = []
    for theta in state.draws:
        if (item := favourite(state, theta)) not in expected:
            expected.append(item)
    assert len(expected) >= K  # else the seed tests nothing
    assert DuelingThompson().propose(state).tolist() == expected[:K]


def test_thompson_redraws_until_the_items_differ() -> None:
    state = make_state(n=8, K=3)
    one = np.repeat(state.draws[:1], 2, axis=0)
    counts = np.zeros(8)
    for seed in range(200):
        chosen = DuelingThompson().propose(with_draws(state, one, seed=seed))
        assert chosen[0] == favourite(state, one[0])
        assert len(set(chosen.tolist())) == 3
        counts[chosen[1]] += 1
    # the second item follows the probability to be the best one, among the others
    covariance = np.linalg.inv(state.precision)
    thetas = np.random.default_rng(5).multivariate_normal(state.mean, covariance, size=100_000)
    shares = np.bincount((thetas @ state.items.T).argmax(axis=1), minlength=8).astype(float)
    shares[favourite(state, one[0])] = 0.0
    shares /= shares.sum()
    assert np.abs(counts / 200 - shares).max() < 4 * np.sqrt(0.25 / 200)


def test_thompson_of_a_sure_posterior_is_filled_up_with_the_next_best_items() -> None:
    state = make_state(K=3)
    sure = with_draws(state, np.repeat(state.mean[None], 4, axis=0), precision=1e14 * np.eye(4))
    order = np.argsort(-state.items @ state.mean)
    assert DuelingThompson(attempts=20).propose(sure).tolist() == order[:3].tolist()


# -------------------------------------------------------------------------------------------------------- IDRL


@pytest.mark.parametrize("K", [2, 3])
def test_idrl_agrees_with_a_search_through_all_questions(K: int) -> None:
    state = make_state(K=K)
    covariance = np.linalg.inv(state.precision)
    candidates = sorted({favourite(state, theta) for theta in state.draws})
    assert len(candidates) > 2
    leads = {(i, j): state.items[i] - state.items[j] for i, j in itertools.combinations(candidates, 2)}
    w = max(leads.values(), key=lambda lead: float(lead @ covariance @ lead))

    def left(question: tuple[int, ...]) -> float:
        information = fisher_information(state.items[list(question)][None], state.mean)
        return float(w @ np.linalg.inv(state.precision + information) @ w)

    questions = list(itertools.combinations(range(state.num_items), K))
    expected = np.array([left(question) for question in questions])
    rule = Idrl()
    direction = rule.direction(state)
    np.testing.assert_allclose(np.abs(direction), np.abs(w))
    value = rule.prepare(state)(np.array(questions))
    np.testing.assert_allclose(float(w @ covariance @ w) - value, expected, rtol=1e-9)
    best = set(questions[expected.argmin()])
    assert set(rule.propose(state).tolist()) == best
    assert set(Idrl(exhaustive=0, starts=8).propose(state).tolist()) == best


def test_idrl_compares_the_top_two_where_all_draws_agree() -> None:
    state = make_state()
    agreed = with_draws(state, np.repeat(state.mean[None], 3, axis=0))
    first, second = np.argsort(-state.items @ state.mean)[:2]
    np.testing.assert_array_equal(Idrl().direction(agreed), state.items[first] - state.items[second])


# ---------------------------------------------------------------------------------------------- maximum regret


def regret_by_hand(state: PoolState, m: int, n: int, form: str) -> float:
    one, two = state.draws[m], state.draws[n]
    a, b = state.items[favourite(state, one)], state.items[favourite(state, two)]
    if form == "regret":
        return float(one @ a - one @ b + two @ b - two @ a)
    return float(max(one @ a - two @ a, 0.0) + max(two @ b - one @ b, 0.0))


@pytest.mark.parametrize("form", ["regret", "same_item"])
@pytest.mark.parametrize("weights", ["density", "equal"])
@pytest.mark.parametrize("K", [2, 3])
def test_maximum_regret_agrees_with_a_search_through_all_sets_of_draws(form: str, weights: str, K: int) -> None:
    for seed in range(1000, 1004):
        state = make_state(K=K, draws=10, seed=seed)
        covariance = np.linalg.inv(state.precision)
        density = [np.exp(-0.5 * (t - state.mean) @ np.linalg.inv(covariance) @ (t - state.mean)) for t in state.draws]
        best, expected = -np.inf, set()
        for draws in itertools.combinations(range(10), K):
            items = {favourite(state, state.draws[m]) for m in draws}
            if len(items) < K:
                continue
            value = sum(regret_by_hand(state, m, n, form) for m, n in itertools.combinations(draws, 2))
            if weights == "density":
                value *= np.prod([density[m] for m in draws])
            if value > best:
                best, expected = value, items
        assert expected
        rule = MaximumRegret(form=form, weights=weights)
        assert set(rule.propose(state).tolist()) == expected


def test_no_regret_is_negative_and_both_forms_have_the_same_sum_before_clipping() -> None:
    state = make_state(draws=20)
    favourites = state.draw_utilities.argmax(axis=0)
    plain = MaximumRegret().regrets(state, favourites)
    clipped = MaximumRegret(form="same_item").regrets(state, favourites)
    apart = state.draws[:, None] - state.draws[None]
    items = state.items[favourites]
    np.testing.assert_allclose(plain, np.vecdot(apart, items[:, None] - items[None]), atol=1e-12)
    assert plain.min() >= 0
    assert (clipped >= plain - 1e-12).all()  # clipping only adds
    assert np.any(clipped > plain + 1e-9)


def test_maximum_regret_without_enough_favourites_is_filled_up() -> None:
    state = make_state(K=3)
    agreed = with_draws(state, np.repeat(state.draws[:1], 5, axis=0))
    chosen = MaximumRegret().propose(agreed)
    others = [i for i in np.argsort(-state.items @ state.mean) if i != favourite(state, state.draws[0])]
    assert chosen.tolist() == [favourite(state, state.draws[0]), *others[:2]]


def test_options_are_checked() -> None:
    with pytest.raises(ValueError, match="form"):
        MaximumRegret(form="ratio")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="weights"):
        MaximumRegret(weights="log")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="attempts"):
        DuelingThompson(attempts=-1)
