"""REINFORCE on language models: exact resume, checkpoints, evaluation."""

from dataclasses import replace

import numpy as np
import pytest

from edpbrl_gym.cli.console import FAILURE, explain
from edpbrl_gym.language.objective import d_objective
from edpbrl_gym.language.rollouts import EVALUATING, TRAINING, roll_out
from edpbrl_gym.language.settings import ReinforceSettings
from edpbrl_gym.language.trainer import Trainer, evaluate, train
from edpbrl_gym.language.training_log import DivergedError
from tests.helpers.tiny_language_model import write_tiny_model
from tests.helpers.tiny_reinforce import HashEncoder, tiny_policies, tiny_settings


@pytest.fixture(scope="module")
def few(tmp_path_factory):
    """A model of three text tokens."""
    return write_tiny_model(tmp_path_factory.mktemp("few"), tokens=("x", " a", " b"), layers=1, width=8, spread=0.7)


def same(one, two):
    """Weights are equal to the last bit."""
    import torch

    assert one.keys() == two.keys()
    return all(torch.equal(one[name], two[name]) for name in one)


def timeless(history):
    return replace(history, iterations=[replace(step, seconds=0.0) for step in history.iterations])


@pytest.mark.parametrize("optimiser", ["sgd", "adamw"])
def test_an_interrupted_run_goes_on_to_the_same_bits(gpt2, tmp_path, optimiser):
    settings = tiny_settings(iterations=6, optimiser=optimiser, checkpoint_every=2, evaluate_every=2)
    straight = tiny_policies(gpt2)
    expected = train(straight, HashEncoder(), settings)

    def interrupt(history):
        if len(history.iterations) == 5:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        train(tiny_policies(gpt2), HashEncoder(), settings, folder=tmp_path, callback=interrupt)
    resumed = tiny_policies(gpt2)
    trainer = Trainer(resumed, HashEncoder(), settings)
    assert trainer.resume(tmp_path) and trainer.iteration == 4
    history = train(resumed, HashEncoder(), settings, folder=tmp_path)
    assert same(resumed.state(), straight.state())
    assert not same(resumed.state(), tiny_policies(gpt2).state())
    assert timeless(history) == timeless(expected)
    assert [entry.iteration for entry in history.evaluations] == [0, 2, 4, 6]


def test_more_iterations_go_on_from_the_end(gpt2, tmp_path):
    short = tiny_settings(iterations=2)
    longer = replace(short, iterations=5)
    policies = tiny_policies(gpt2)
    train(policies, HashEncoder(), short, folder=tmp_path)
    again = tiny_policies(gpt2)
    history = train(again, HashEncoder(), longer, folder=tmp_path)
    straight = tiny_policies(gpt2)
    train(straight, HashEncoder(), longer)
    assert same(again.state(), straight.state()) and len(history.iterations) == 5
    anew = tiny_policies(gpt2)
    before = anew.state()
    with pytest.raises(ValueError, match="at least the 5 iterations .* got iterations = 2; ask for more, start again"):
        train(anew, HashEncoder(), short, folder=tmp_path)
    assert same(anew.state(), before)
    assert len(train(anew, HashEncoder(), short, folder=tmp_path, resume=False).iterations) == 2
    assert same(anew.state(), policies.state())


def test_a_run_that_begins_anew_forgets_the_old_one(gpt2, tmp_path):
    """Also when it is interrupted before its first checkpoint."""
    settings = tiny_settings(iterations=2, checkpoint_every=10)
    train(tiny_policies(gpt2), HashEncoder(), settings, folder=tmp_path)

    def interrupt(history):
        if history.iterations:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        train(tiny_policies(gpt2), HashEncoder(), settings, folder=tmp_path, resume=False, callback=interrupt)
    trainer = Trainer(tiny_policies(gpt2), HashEncoder(), settings)
    assert not trainer.resume(tmp_path) and trainer.iteration == 0


def test_a_checkpoint_of_another_run_is_refused(gpt2, tmp_path):
    settings = tiny_settings(iterations=1)
    train(tiny_policies(gpt2), HashEncoder(), settings, folder=tmp_path)
    for options, changed, message in (
        ({}, replace(settings, learning_rate=0.1), "learning_rate = 0.1 instead of 0.05"),
        ({"rank": 4}, settings, r"policies\.rank = 4 instead of 2"),
        ({"policies": 3}, settings, "num_options = 3"),
    ):
        policies = tiny_policies(gpt2, **options)
        before = policies.state()
        with pytest.raises(ValueError, match=message):
            train(policies, HashEncoder(), changed, folder=tmp_path)
        assert same(policies.state(), before)
    (tmp_path / "checkpoint.pt").write_bytes(b"damaged")
    with pytest.raises(ValueError, match="Expected a checkpoint in .* delete it"):
        train(tiny_policies(gpt2), HashEncoder(), settings, folder=tmp_path)


def test_the_base_line_uses_the_same_streams(gpt2):
    settings = tiny_settings(evaluation_samples=3)
    policies = tiny_policies(gpt2, noise=0.0)
    base = evaluate(policies, HashEncoder(), settings, base=True)
    assert base.values == evaluate(policies, HashEncoder(), settings).values  # no adapter has an effect yet
    rollout = roll_out(policies, HashEncoder(), settings, meta_samples=3, purpose=EVALUATING)
    np.testing.assert_allclose(base.values, d_objective(rollout.features, 1.0))
    assert base.mean == pytest.approx(np.mean(base.values))
    assert base.standard_error == pytest.approx(np.std(base.values, ddof=1) / np.sqrt(3))
    training = roll_out(policies, HashEncoder(), settings, meta_samples=3, purpose=TRAINING)
    assert training.samples[0].texts != rollout.samples[0].texts
    history = train(policies, HashEncoder(), settings)
    assert history.base == base and history.evaluations[0].values == base.values
    assert evaluate(policies, HashEncoder(), settings, base=True).values == base.values


def test_training_raises_the_objective(few):
    settings = tiny_settings(
        iterations=25, meta_samples=8, learning_rate=0.1, optimiser="adamw", credit="marginal_causal",
        evaluation_samples=300, evaluate_every=25, regularization=0.1,
    )  # fmt: skip
    history = train(tiny_policies(few), HashEncoder(), settings)
    last = history.evaluations[-1]
    assert last.mean > history.base.mean + 3 * np.hypot(last.standard_error, history.base.standard_error)


def test_a_long_gradient_is_shortened(gpt2):
    policies = tiny_policies(gpt2)
    before = policies.state()
    trainer = Trainer(policies, HashEncoder(), tiny_settings(max_gradient_norm=1e-3))
    trainer.step()
    moved = sum(float(((after - before[name]).double() ** 2).sum()) for name, after in policies.state().items())
    assert moved**0.5 == pytest.approx(0.05 * 1e-3, rel=1e-2)
    assert trainer.history.iterations[0].gradient_norm > 1e-2


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"learning_rate": 1e30}, "finite scores of the next token.* or set max_gradient_norm and start again"),
        ({"learning_rate": 1e30, "optimiser": "adamw"}, r"finite.*\(learning_rate, now 1e\+30\) and start again"),
    ],
)
def test_a_diverging_run_stops_with_advice(gpt2, tmp_path, capsys, options, message):
    settings = tiny_settings(iterations=3, checkpoint_every=1, evaluate_every=10, **options)
    with pytest.raises(DivergedError, match=message) as caught:
        train(tiny_policies(gpt2), HashEncoder(), settings, folder=tmp_path)
    assert explain(caught.value) == FAILURE
    text = capsys.readouterr().err
    assert "lower the learning rate" in text and "bug" not in text


def test_tensorboard(gpt2, tmp_path):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    settings = tiny_settings(iterations=3, evaluate_every=2, kl_weight=0.1)
    history = train(tiny_policies(gpt2), HashEncoder(), settings, folder=tmp_path, tensorboard=True)
    events = EventAccumulator(str(tmp_path / "tensorboard")).Reload()
    found = events.Scalars("objective/training")
    assert [event.step for event in found] == [0, 1, 2]
    assert [event.value for event in found] == pytest.approx([step.objective for step in history.iterations])
    assert [event.step for event in events.Scalars("objective/evaluation")] == [0, 2, 3]
    assert len(events.Scalars("prompts/divergence")) == 3
    with pytest.raises(ValueError, match="folder for TensorBoard"):
        train(tiny_policies(gpt2), HashEncoder(), settings, tensorboard=True)


@pytest.mark.parametrize(
    ("changes", "error", "message"),
    [
        ({"meta_samples": 1}, ValueError, "at least 2 meta_samples"),
        ({"evaluation_samples": 1}, ValueError, "evaluation_samples >= 2"),
        ({"learning_rate": 0.0}, ValueError, "learning_rate > 0"),
        ({"optimiser": "lbfgs"}, ValueError, "'sgd', 'adamw'"),
        ({"words": 2.5}, TypeError, "words as an integer"),
        ({"iterations": -1}, ValueError, "iterations >= 0"),
    ],
)
def test_wrong_settings(changes, error, message):
    with pytest.raises(error, match=message):
        ReinforceSettings(**changes)


def test_the_paper_is_the_default():
    settings = ReinforceSettings()
    assert (settings.iterations, settings.meta_samples, settings.episodes, settings.words) == (200, 8, 8, 8)
    assert (settings.learning_rate, settings.optimiser, settings.credit) == (1e-3, "sgd", "batch_mean")
    assert ReinforceSettings(meta_samples=1, credit="marginal_causal").meta_samples == 1
