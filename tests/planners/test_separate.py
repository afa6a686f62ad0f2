"""Planners that ask about one option at a time: values against their definitions, and what they learn."""

from __future__ import annotations

import numpy as np
import pytest

from edpbrl_gym.estimation import Posterior
from edpbrl_gym.likelihood import make_format
from edpbrl_gym.planners import TokenFeatures, make_planner
from edpbrl_gym.planners.separate import SeparateOptions
from edpbrl_gym.vocabulary import Vocabulary

TAU = (-1.0, 0.0, 1.5)
N, D = 60, 4
WORDS = Vocabulary(("a",), (tuple(f"word {i}" for i in range(N)),))


def items(seed):
    rows = np.random.default_rng(seed).normal(size=(N, D)) + 0.7
    return rows / np.linalg.norm(rows, axis=1, keepdims=True)


@pytest.mark.parametrize("kind", ["information", "variance", "mutual"])
@pytest.mark.parametrize("count", [1, 2, 3])
def test_values_are_their_definitions(kind, count):
    rng = np.random.default_rng(count)
    model = make_format("rating", levels=4, thresholds=TAU)
    root, draws, rows = np.tril(rng.normal(size=(D, D))), rng.normal(size=(7, D)), items(0)
    covariance, offsets = root.T @ root, 0.1 * rng.normal(size=(count, D))
    score = SeparateOptions(draws, model, Posterior(np.zeros(D), np.linalg.inv(covariance)), score=kind)
    score.prepare(rows, offsets + 1.0)  # then the same candidates with other offsets
    score.prepare(rows, offsets)
    question = rng.integers(N, size=count)
    values = score.replacements(question, count - 1)
    for candidate in (0, 17, 59):
        options = rows[[*question[:-1], candidate]] + offsets
        information = np.mean([model.information(options[None], theta) for theta in draws], axis=0)
        after = np.linalg.inv(np.linalg.inv(covariance) + information)
        expected = {
            "information": np.linalg.slogdet(covariance)[1] - np.linalg.slogdet(after)[1],
            "variance": np.trace(covariance) - np.trace(after),
        }
        if kind == "mutual":
            p = np.array([[model.probabilities(x[None, None], theta)[0] for theta in draws] for x in options])
            entropy = lambda q: -(q * np.log(q)).sum(axis=-1)  # noqa: E731
            expected["mutual"] = (entropy(p.mean(axis=1)) - entropy(p).mean(axis=1)).sum()
        assert values[candidate] == pytest.approx(expected[kind], rel=1e-8)


@pytest.mark.parametrize(("name", "tau"), [("rating", (-2.0, -0.5, 0.5, 2.0)), ("like", (0.0,))])
def test_one_option_at_a_time_adaptive_learns_about_as_much_as_random_or_more(name, tau):
    def error(planner, seed):
        rng = np.random.default_rng(seed)
        rows, theta = items(seed), 4 * rng.normal(size=D)
        user = make_format(name, thresholds=tuple(np.array(tau) + theta @ rows.mean(axis=0)))
        features = TokenFeatures(WORDS, rows.astype(np.float32))
        made = make_planner(planner, WORDS, features, num_options=1, seed=seed, model=make_format(name))
        for _ in range(15):
            option = rows[made.ask(np.zeros((1, 0), dtype=np.int64))][None].astype(np.float32)
            made.tell(option, user.sample(option.astype(float), theta, rng.random(1)))
        return 1 - np.corrcoef(rows @ theta, rows @ made.estimate.theta)[0, 1]

    errors = {planner: np.mean([error(planner, seed) for seed in range(6)]) for planner in ("adaptive", "random")}
    assert errors["adaptive"] < 1.5 * errors["random"] < 1.0


def test_planners_need_as_many_options_as_the_format():
    features = TokenFeatures(WORDS, items(0).astype(np.float32))
    for planner in ("adaptive", "random"):
        with pytest.raises(ValueError, match=">= 2"):
            make_planner(planner, WORDS, features, num_options=1)
    best = make_planner("adaptive-best", WORDS, features, num_options=1, model=make_format("like"))
    assert best.ask(np.zeros((1, 0), dtype=np.int64)).shape == (1,)
