"""``edpbrl reproduce reinforce`` end to end on a tiny model."""

from edpbrl_gym.cli import main
from edpbrl_gym.experiments.runs import read_results
from edpbrl_gym.language.model import SHIPPED_NAME, load_language_model
from tests.helpers.tiny_reinforce import SMALL


def command(gpt2, words, out, *more):
    small = [*SMALL, "--evaluation-samples", "2"]
    given = ["--model", gpt2, "--vocabulary", words, "--out", str(out), "--questions", "2", "4", "--max-tokens", "6"]
    return ["reproduce", "reinforce", "--quick", "--iterations", "2", "--rank", "2", *small, *given, *more]


def test_the_experiment_is_told(gpt2, words, tmp_path, capsys):
    out = tmp_path / "run"
    assert main(command(gpt2, words, out)) == 0
    printed = capsys.readouterr().out
    for text in ("After 2 iterations", "Between-policy similarity", "Perplexity", "Prompts of the trained policies"):
        assert text in printed
    config = read_results(out).config
    assert config["training"]["iterations"] == 2 and config["counts"] == [2, 4]
    assert config["training"]["checkpoint_every"] == 5 and config["map_prompts"] == 25  # what was left to --quick
    (out / "REPORT.md").unlink()
    assert main(["report", str(out)]) == 0 and (out / "REPORT.md").is_file()


def test_mistakes_are_explained(gpt2, words, tmp_path, capsys):
    for more, said in ((["--model", "/nowhere/at/all"], "model folder"), (["--num-options", "9"], "at least K = 9")):
        assert main(command(gpt2, words, tmp_path / "run", *more)) == 1
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


def test_a_recipe_fills_what_is_not_set(gpt2, words, tmp_path):
    """The paper's is the default; what is set beats the recipe."""
    from edpbrl_gym.cli import _parse
    from edpbrl_gym.experiments.reinforce.settings import ReinforceExperiment

    def settings(*more):
        return _parse(["reproduce", "reinforce", *more]).settings

    assert settings() == settings("--recipe", "paper") == ReinforceExperiment()
    tuned = settings("--recipe", "tuned", "--regularization", "3")
    assert (tuned.kind, tuned.training.optimiser, tuned.training.credit) == ("copies", "adamw", "marginal_causal")
    assert (tuned.training.regularization, tuned.training.kl_weight) == (3.0, 0.015)
    small = settings("--quick", "--recipe=tuned", "--questions", "6", "--users", "sunny", "me=a calm sea")
    assert (small.kind, small.training.iterations, small.training.optimiser) == ("copies", 10, "adamw")
    assert (small.counts, small.taste_seeds) == ((6,), 2)
    assert small.users == {"sunny": ReinforceExperiment().users["sunny"], "me": "a calm sea"}
    out = tmp_path / "run"
    assert main(command(gpt2, words, out, "--recipe", "tuned")) == 0
    config = read_results(out).config
    assert config["kind"] == "copies" and config["training"]["meta_samples"] == 2
