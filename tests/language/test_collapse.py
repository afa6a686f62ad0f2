"""Step sizes that ruin the policies: the run says so, and good weights stay on the disk."""

import re
import warnings

import numpy as np
import pytest
from scipy.stats import ttest_ind

from edpbrl_gym.cli import main
from edpbrl_gym.language.model import load_language_model
from edpbrl_gym.language.policies import load_policies, make_policies
from edpbrl_gym.language.trainer import Trainer, evaluate, train
from edpbrl_gym.language.training_log import CollapseWarning, DivergedError, Evaluation, _chance, collapse
from tests.helpers.tiny_reinforce import SMALL, HashEncoder, tiny_policies, tiny_settings


def copies(gpt2):
    return make_policies(load_language_model(gpt2, device="cpu"), 2, kind="copies", noise=0.02)


@pytest.mark.parametrize(("optimiser", "rate"), [("sgd", 50.0), ("adamw", 1e4)])
def test_a_collapse_ends_with_a_warning_and_the_best_policies_are_kept(gpt2, tmp_path, optimiser, rate):
    settings = tiny_settings(
        iterations=6, evaluate_every=2, checkpoint_every=1, evaluation_samples=16, regularization=0.5,
        optimiser=optimiser, learning_rate=rate,
    )  # fmt: skip
    said = rf"the objective .* fell .* lower the learning rate \(learning_rate, now {rate:g}\).*iteration 0.*best"
    with pytest.warns(CollapseWarning, match=said):
        history = train(copies(gpt2), HashEncoder(), settings, folder=tmp_path)
    first, last = history.evaluations[0], history.evaluations[-1]
    assert last.mean < first.mean and last.standard_error < 0.1 * first.standard_error
    best = load_policies(tmp_path / "best", load_language_model(gpt2, device="cpu"))
    assert evaluate(best, HashEncoder(), settings).values == max(history.evaluations, key=lambda one: one.mean).values
    with pytest.warns(CollapseWarning):  # a run that goes on says it again
        train(copies(gpt2), HashEncoder(), settings, folder=tmp_path)


def test_the_best_policies_are_those_of_the_best_evaluation(gpt2, tmp_path):
    settings = tiny_settings(iterations=8, evaluate_every=2, checkpoint_every=3, learning_rate=0.2)

    def interrupt(history):
        if len(history.iterations) == 5:
            raise KeyboardInterrupt

    with warnings.catch_warnings():
        warnings.simplefilter("error", CollapseWarning)
        with pytest.raises(KeyboardInterrupt):
            train(copies(gpt2), HashEncoder(), settings, folder=tmp_path, callback=interrupt)
        policies = copies(gpt2)
        history = train(policies, HashEncoder(), settings, folder=tmp_path)
    best = max(history.evaluations, key=lambda one: one.mean)
    assert 0 < best.iteration < 8  # neither the beginning nor the end, or this would show nothing
    kept = load_policies(tmp_path / "best", load_language_model(gpt2, device="cpu"))
    assert evaluate(kept, HashEncoder(), settings).values == best.values
    assert evaluate(policies, HashEncoder(), settings).values == history.evaluations[-1].values
    train(copies(gpt2), HashEncoder(), tiny_settings(iterations=0), folder=tmp_path, resume=False)
    assert evaluate(load_policies(tmp_path / "best", kept.base), HashEncoder(), settings).values != best.values


@pytest.mark.parametrize(("make", "optimiser"), [(tiny_policies, "sgd"), (copies, "adamw")])
def test_ruined_weights_are_never_saved(gpt2, tmp_path, make, optimiser):
    """They are finite after the step; what they write, or its gradient, is not."""
    sound = tiny_settings(iterations=0)
    trainer = Trainer(make(gpt2), HashEncoder(), sound)
    trainer.save(tmp_path)
    before = (tmp_path / "checkpoint.pt").read_bytes()
    settings = tiny_settings(
        iterations=8, evaluate_every=10, checkpoint_every=1, optimiser=optimiser, learning_rate=1e8
    )
    trainer = Trainer(make(gpt2), HashEncoder(), settings)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", CollapseWarning)
            trainer.run(folder=tmp_path)
    except DivergedError as error:
        assert "lower the learning rate" in str(error) and str(tmp_path / "best") in str(error)
    if (tmp_path / "checkpoint.pt").read_bytes() != before:  # what was saved can go on
        again = Trainer(make(gpt2), HashEncoder(), settings)
        again.resume(tmp_path)
        again.gradient()
        assert all(np.isfinite(one.grad.numpy()).all() for one in again.policies.parameters() if one.grad is not None)
    best = load_policies(tmp_path / "best", load_language_model(gpt2, device="cpu"))
    assert evaluate(best, HashEncoder(), settings).values == trainer.history.best.values
    Trainer(best, HashEncoder(), settings).gradient()
    assert all(np.isfinite(one.grad.numpy()).all() for one in best.parameters() if one.grad is not None)


def test_weights_without_a_finite_gradient_are_never_the_best(gpt2, tmp_path):
    """Also where what they write happens to be better than what was written before."""
    settings = tiny_settings(evaluate_every=1, checkpoint_every=9, optimiser="adamw", learning_rate=1e8)

    def belittle(history):
        history.evaluations[0] = Evaluation(0, (-100.0, -100.0))

    trainer = Trainer(tiny_policies(gpt2), HashEncoder(), settings)
    with pytest.raises(DivergedError, match=r"In iteration 1: .*\. The best policies, those of iteration 0, are kept"):
        trainer.run(folder=tmp_path, callbacks=[belittle])
    best = load_policies(tmp_path / "best", load_language_model(gpt2, device="cpu"))
    untrained = tiny_policies(gpt2).state()
    assert all(bool((untrained[name] == value).all()) for name, value in best.state().items())


def test_what_is_a_collapse():
    rng = np.random.default_rng(0)

    def series(*means, spread=1.0):
        return [Evaluation(5 * i, tuple(mean + spread * rng.normal(size=16))) for i, mean in enumerate(means)]

    assert collapse([]) is None and collapse(series(1.0)) is None
    noise = [collapse(series(*np.zeros(40))) for _ in range(200)]
    noise += [collapse([Evaluation(0, (one, -one)), Evaluation(5, (0.5, 0.6))]) for one in rng.normal(size=100)]
    assert noise.count(None) == len(noise)
    assert collapse(series(0.0, 1.0, 2.0, 3.0)) is None
    for end in (-1.0, 1.0):  # also where it ends above its beginning
        said = r"fell from [23]\.\d\d ± 0\.0\d after 5 iterations to"
        assert re.search(said, collapse(series(0.0, 3.0, end, spread=0.1)))
    start, end = series(1.0, 0.0)
    welch = ttest_ind(start.values, end.values, equal_var=False, alternative="greater")
    assert _chance(start, end) == pytest.approx(welch.pvalue, rel=1e-9)
    alike = Evaluation(5, (-0.1,) * 16)
    begin = Evaluation(0, tuple(np.linspace(-1.0, 1.0, 16)))
    assert "the same prompts" in collapse([begin, alike])
    assert collapse([begin, Evaluation(5, (0.1,) * 16)]) is None  # policies may end with one prompt each, if it is good
    assert collapse([alike, Evaluation(10, alike.values)]) is None


def test_the_command_and_its_report_say_so(gpt2, words, tmp_path, capsys):
    out = tmp_path / "run"
    small = [*SMALL, "--evaluation-samples", "16"]
    given = ["--model", gpt2, "--vocabulary", words, "--out", str(out), "--questions", "2", "--max-tokens", "6"]
    ruin = ["--iterations", "3", "--kind", "copies", "--optimiser", "adamw", "--learning-rate", "1e4"]
    assert main(["reproduce", "reinforce", "--quick", *small, *given, *ruin]) == 0
    captured = capsys.readouterr()
    assert "Warning: the objective" in captured.out and "CollapseWarning" not in captured.err
    assert "Warning: the objective" in (out / "REPORT.md").read_text()
    assert (out / "training" / "best" / "policies.safetensors").is_file()


@pytest.mark.parametrize("values", [(1.0,), (np.nan,) * 16, (1.0, -np.inf, 1.0)], ids=["one", "NaN", "infinite"])
def test_evaluations_without_a_standard_error_tell_no_collapse(values):
    begin, end = Evaluation(0, tuple(np.linspace(2.0, 3.0, 16))), Evaluation(10, (-1.0,) * 16)
    bad = Evaluation(5, values)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert collapse([begin, bad]) is None
        assert collapse([Evaluation(0, tuple(1.0 + value for value in values)), bad]) is None
        for series in ([begin, bad, end], [bad, begin, end]):  # what is known counts
            assert "fell from 2.50 ± 0.08 after 0 iterations to -1.00 ± 0.00 after 10" in collapse(series)
