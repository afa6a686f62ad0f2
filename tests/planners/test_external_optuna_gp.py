"""The planner of optuna's preferential sampler: what it asks, what it learns from, and what it does not claim."""

from __future__ import annotations

import sys

import numpy as np
import optuna  # noqa: E402
import pytest
import torch  # noqa: E402

from edpbrl_gym.likelihood import Response
from edpbrl_gym.planners.external import OptunaGPPlanner

pytestmark = pytest.mark.needs("external")

EMPTY = np.zeros((2, 0), dtype=np.int64)


def pool(seed=1000, *, n=60, d=2):
    rng = np.random.default_rng(seed)
    items = rng.normal(size=(n, d))
    return items / np.linalg.norm(items, axis=1, keepdims=True), rng


def asked(planner, items, theta, count):
    """The questions and choices of a user who never errs."""
    questions, choices = [], []
    for _ in range(count):
        questions.append(planner.ask(EMPTY).tolist())
        choices.append(int((items[questions[-1]] @ theta).argmax()))
        planner.tell(items[questions[-1]][None].astype(np.float32), [choices[-1]])
    return questions, choices


def test_it_asks_the_best_so_far_against_a_new_item_and_finds_good_ones():
    places, new_values = [], []
    for seed in (1000, 1001):
        items, rng = pool(seed)
        theta = rng.normal(size=2)
        planner = OptunaGPPlanner(items, seed=seed)
        questions, choices = asked(planner, items, theta, 12)
        for before, chosen, after in zip(questions, choices, questions[1:], strict=False):
            assert after[0] == before[chosen] and after[1] not in before
        assert planner.asked == 12 and planner.best_item() == questions[-1][choices[-1]]
        values = items @ theta
        places.append(int((values > values[planner.best_item()]).sum()))
        new_values.append(float(((values[[q[1] for q in questions[4:]]] - values.mean()) / values.std()).mean()))
    assert max(places) <= 3
    assert np.mean(new_values) > 0.5  # of random items it is 0: the sampler has learned where good ones are


def test_the_answers_decide_the_questions():
    items, rng = pool(n=40)
    theta = rng.normal(size=2)
    one, _ = asked(OptunaGPPlanner(items, seed=1), items, theta, 4)
    other, _ = asked(OptunaGPPlanner(items, seed=1), items, -theta, 4)
    assert one[0] == other[0] and one[1:] != other[1:]


def test_the_same_calls_give_the_same_questions_and_nobody_elses_state_is_touched():
    items, rng = pool(n=30, d=3)
    theta = rng.normal(size=3)
    verbosity = optuna.logging.get_verbosity()
    np.random.seed(11)
    torch.manual_seed(11)
    before = np.random.get_state()[1].copy(), torch.get_rng_state().clone()
    planner = OptunaGPPlanner(items, seed=4)
    first, _ = asked(planner, items, theta, 5)
    assert (np.random.get_state()[1] == before[0]).all() and torch.equal(torch.get_rng_state(), before[1])
    assert optuna.logging.get_verbosity() == verbosity != optuna.logging.WARNING
    np.random.seed(12)
    torch.manual_seed(12)
    planner.reset()
    assert asked(planner, items, theta, 5)[0] == first
    assert asked(OptunaGPPlanner(items, seed=5), items, theta, 5)[0] != first


def test_it_has_no_taste_to_show():
    planner = OptunaGPPlanner(pool()[0])
    for name in ("estimate", "posterior"):
        with pytest.raises(AttributeError, match=r"best_item\(\) is its answer"):
            getattr(planner, name)
    with pytest.raises(ValueError, match="at least one answer"):
        planner.best_item()


def test_a_skipped_question_teaches_nothing_and_is_not_asked_again():
    items, _ = pool()
    planner = OptunaGPPlanner(items)
    question = planner.ask(EMPTY)
    planner.tell(items[question][None], [Response.skip()])
    with pytest.raises(ValueError, match="at least one answer"):
        planner.best_item()
    assert set(planner.ask(EMPTY)) != set(question)


def test_equal_items_features_that_do_not_vary_and_small_pools():
    items = np.array([[0.0, 1.0, 7.0], [0.0, 1.0, 7.0], [1.0, 0.0, 7.0]])
    planner = OptunaGPPlanner(items, seed=2)
    for _ in range(4):
        question = planner.ask(EMPTY)
        assert sorted(question) == [0, 2]
        planner.tell(items[question][None], [0])


def test_errors_say_what_was_expected():
    items, _ = pool()
    with pytest.raises(ValueError, match="at most 10 features, got 11"):
        OptunaGPPlanner(np.eye(11))
    with pytest.raises(ValueError, match="pairs only; got 4"):
        OptunaGPPlanner(items, num_options=4)
    with pytest.raises(ValueError, match="2 different items"):
        OptunaGPPlanner(np.ones((3, 2)))
    planner = OptunaGPPlanner(items)
    with pytest.raises(ValueError, match="1 tokens"):
        planner.ask(np.zeros((2, 1), dtype=np.int64))
    with pytest.raises(ValueError, match="items of the pool"):
        planner.tell(items[None, :2] + 0.3, [0])
    with pytest.raises(ValueError, match="tie"):
        planner.tell(items[None, :2], [Response.tie()])


@pytest.mark.parametrize("package", ["optuna", "optuna_dashboard"])
def test_a_missing_package_is_said_with_the_command_that_installs_it(monkeypatch, package):
    for name in list(sys.modules):
        if name.split(".")[0] == package:
            monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(ModuleNotFoundError, match=rf"{package}.*pip install \"edpbrl-gym\[external\]\""):
        OptunaGPPlanner(pool()[0])
