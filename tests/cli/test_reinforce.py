"""``edpbrl reproduce reinforce`` end to end on a tiny model."""

from __future__ import annotations

import pytest

from edpbrl_gym.cli import main
from edpbrl_gym.experiments.runs import read_results
from edpbrl_gym.language.model import SHIPPED_NAME, load_language_model
from tests.helpers.tiny_language_model import write_tiny_model
from tests.helpers.tiny_reinforce import SMALL


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return write_tiny_model(tmp_path_factory.mktemp("model"))


@pytest.fixture(scope="module")
def words(tmp_path_factory):
    folder = tmp_path_factory.mktemp("words")
    (folder / "a.txt").write_text("a red fox\na blue boat\nan old clock\na green hill\n")
    (folder / "b.txt").write_text("at dawn\nin the rain\nunder stars\nby candle light\n")
    return str(folder)


def command(model, words, out, *more):
    small = [*SMALL, "--evaluation-samples", "2"]
    given = ["--model", model, "--vocabulary", words, "--out", str(out), "--questions", "2", "4", "--max-tokens", "6"]
    return ["reproduce", "reinforce", "--quick", "--iterations", "2", "--rank", "2", *small, *given, *more]


def test_the_experiment_is_told_and_goes_on_where_it_was_stopped(model, words, tmp_path, capsys, monkeypatch):
    out = tmp_path / "run"

    def interrupted(*_, **__):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("edpbrl_gym.experiments.reinforce.run.map_prompts", interrupted)
        assert main(command(model, words, out)) == 130
    capsys.readouterr()
    assert (out / "parts" / "similarity.parquet").is_file() and not (out / "results.parquet").exists()
    assert main(command(model, words, out)) == 0
    printed = capsys.readouterr().out
    for text in ("After 2 iterations", "Between-policy similarity", "Perplexity", "Prompts of the trained policies"):
        assert text in printed
    config = read_results(out).config
    assert config["training"]["iterations"] == 2 and config["counts"] == [2, 4]
    assert config["training"]["checkpoint_every"] == 5 and config["map_prompts"] == 25  # what was left to --quick
    (out / "REPORT.md").unlink()
    assert main(["report", str(out)]) == 0 and (out / "REPORT.md").is_file()


@pytest.mark.parametrize(
    ("more", "code", "said"),
    [
        (["--num-options", "1"], 2, "policies (K)"),
        (["--iterations", "0"], 2, "iterations"),
        (["--learning-rate", "0"], 2, "learning_rate"),
        (["--meta-samples", "1"], 2, "meta_samples"),
        (["--model", "/nowhere/at/all"], 1, "model folder"),
        (["--num-options", "5"], 1, "at least K = 5 tokens"),
        (["--precision", "bf16"], 1, "CUDA"),
        (["--recipe", "best"], 2, "--recipe"),
        (["--users", "nobody"], 2, "name=sentence"),
    ],
)
def test_mistakes_are_explained(model, words, tmp_path, capsys, more, code, said):
    assert main(command(model, words, tmp_path / "run", *more)) == code
    error = capsys.readouterr().err
    assert said in error and "Traceback" not in error


def test_without_a_model_it_starts_from_the_one_that_ships(words, tmp_path, monkeypatch):
    monkeypatch.setenv("EDPBRL_CACHE", str(tmp_path / "empty"))
    out = tmp_path / "run"
    given = command("unused", words, out)
    place = given.index("--model")
    assert main([*given[:place], *given[place + 2 :]]) == 0
    results, own = read_results(out), load_language_model(device="cpu")
    assert results.config["model"] is None and results.config["model_fingerprint"] == own.fingerprint
    assert results.provenance["model"] == own.name == SHIPPED_NAME and SHIPPED_NAME in (out / "REPORT.md").read_text()


def test_a_recipe_fills_what_is_not_set(model, words, tmp_path):
    """The paper's is the default; what is set beats the recipe."""
    from edpbrl_gym.cli import _parse
    from edpbrl_gym.experiments.reinforce.settings import ReinforceExperiment

    def settings(*more):
        return _parse(["reproduce", "reinforce", *more]).experiment.settings

    assert settings() == settings("--recipe", "paper") == ReinforceExperiment()
    tuned = settings("--recipe", "tuned", "--regularization", "3")
    assert (tuned.kind, tuned.training.optimiser, tuned.training.credit) == ("copies", "adamw", "marginal_causal")
    assert (tuned.training.regularization, tuned.training.kl_weight) == (3.0, 0.015)
    assert settings("--recipe", "tuned", "--kind", "adapters", "--kl-weight", "0").kind == "adapters"
    small = settings("--quick", "--recipe=tuned", "--questions", "6", "--users", "sunny", "me=a calm sea")
    assert (small.kind, small.training.iterations, small.training.optimiser) == ("copies", 10, "adamw")
    assert (small.counts, small.taste_seeds) == ((6,), 2)
    assert small.users == {"sunny": ReinforceExperiment().users["sunny"], "me": "a calm sea"}
    assert settings("--quick").training.learning_rate == 1e-3 and settings("--quick").kind == "adapters"
    out = tmp_path / "run"
    assert main(command(model, words, out, "--recipe", "tuned")) == 0
    config = read_results(out).config
    assert config["kind"] == "copies" and config["training"]["meta_samples"] == 2
