"""Mistakes on the command line: one line that says what to do, and the right exit code."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pandas
import pytest

from edpbrl_gym.cli import main
from edpbrl_gym.personalize.taste import save_taste
from edpbrl_gym.vocabulary import load_vocabulary
from tests.helpers.commands import refused
from tests.helpers.small_vocabulary import write_vocabulary


@pytest.fixture(scope="module")
def words(tmp_path_factory):
    return write_vocabulary(tmp_path_factory.mktemp("words") / "vocabulary")


@pytest.mark.parametrize("command", [["design"], ["reproduce", "synthetic"]])
@pytest.mark.parametrize(
    ("option", "said"),
    [
        (["--num-options", "1"], ["(K) >= 2, got 1"]),
        (["--episodes", "0"], ["(T) >= 1, got 0"]),
        (["--regularization", "-1"], ["(lambda) >", "0, got -1"]),
        (["--regularization", "nan"], ["(lambda) >", "0, got nan"]),
        (["--seed", "-3"], ["got -3"]),
    ],
)
def test_numbers_out_of_range(command, option, said, capsys, tmp_path):
    refused(capsys, [*command, *option, "--out", tmp_path / "out"], 2, *said)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("option", "said"),
    [
        (["--num-options", "1"], ["(K) >= 2, got 1"]),
        (["--questions", "0"], ["questions >= 1, got 0"]),
        (["--answers", "partial", "--num-options", "3"], ["partial rankings >= 4, got 3"]),
        (["--answers", "all"], ["best", "ranking"]),
        (["--seed", "-3"], ["got -3"]),
    ],
)
def test_settings_of_the_demo_out_of_range(option, said, capsys, tmp_path):
    refused(capsys, ["demo", *option, "--out", tmp_path / "out"], 2, *said)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    "arguments",
    [
        ["design", "--vocabulary", ""],
        ["demo", "--vocabulary="],
        ["reproduce", "synthetic", "--out", ""],
        ["personalize", "theta.safetensors", "--vocabulary", ""],
        ["estimate", "answers.csv", "--vocabulary", ""],
        ["train-prompt-lm", "--vocabulary", ""],
        ["estimate", ""],
    ],
)
def test_an_empty_path_is_not_the_current_folder(arguments, capsys, words, monkeypatch):
    monkeypatch.chdir(words)
    refused(capsys, arguments, 2, "an empty path", "leave the option out")
    assert main(arguments) == 2 and "instantiated" not in capsys.readouterr().err
    assert sorted(file.name for file in words.iterdir()) == sorted(file.name for file in words.glob("*.txt"))


def test_other_values_that_make_no_sense(capsys, tmp_path):
    synthetic = ["reproduce", "synthetic", "--out", tmp_path / "out"]
    refused(capsys, [*synthetic, "--users", "windy"], 2, "sunny, medieval, technological", "'windy'")
    refused(capsys, [*synthetic, "--users", "mine="], 2, "sentence")
    refused(capsys, [*synthetic, "--runs", "0"], 2, "runs >= 1")
    refused(capsys, [*synthetic, "--jobs", "0"], 2, "jobs >= 1")
    refused(capsys, [*synthetic, "--scales", "0"], 2, "scales > 0")
    refused(capsys, [*synthetic, "--scales"], 2, "at least one scale")
    refused(capsys, [*synthetic, "--agents", "random", "random"], 2, "label=")
    refused(capsys, ["demo", "--text", " ", "--out", tmp_path / "out"], 2, "taste")
    refused(capsys, ["design", "--solver", "newtonn", "--out", tmp_path / "out"], 2, "among adaptive, ", "newtonn")
    refused(capsys, ["personalize", tmp_path / "none"], 2, "edpbrl estimate")
    refused(capsys, ["estimate", tmp_path / "none"], 2, "check the path")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["fly"], ["Unrecognized options: fly; Available subcommands: demo, ask, design", "edpbrl --help"]),
        (["demo", "--colour", "red"], ["--colour, red"]),
        (["design", "--num-options", "many"], ["--num-options", "'many'", "K, options of a question", "edpbrl --help"]),
        (["design", "--criterion", "E"], ["'E'", "('V', 'A', 'D')", "edpbrl design --help"]),
        (["reproduce"], ["synthetic, reinforce", "edpbrl"]),
    ],
)
def test_unknown_commands_and_options_exit_with_2(arguments, said, capsys):
    refused(capsys, arguments, 2, *said)


@pytest.mark.parametrize("command", [["demo"], ["design"], ["reproduce", "synthetic", "--jobs", "1"]])
def test_missing_empty_and_broken_vocabularies(command, capsys, tmp_path):
    given = [*command, "--out", tmp_path / "out", "--vocabulary"]
    refused(capsys, [*given, tmp_path / "nowhere"], 1, "nowhere", "check the path")
    (tmp_path / "empty").mkdir()
    refused(capsys, [*given, tmp_path / "empty"], 1, "at least one .txt file")
    folder = write_vocabulary(tmp_path / "words")
    (folder / "2-ambient.txt").write_text("")
    refused(capsys, [*given, folder], 1, "2-ambient.txt", "empty file")
    (folder / "2-ambient.txt").write_text("cheerful\ncheerful\n")
    refused(capsys, [*given, folder], 1, "2-ambient.txt", "cheerful")


def test_encoders_that_are_unknown_missing_or_not_installed(capsys, tmp_path, words, monkeypatch):
    given = ["design", "--vocabulary", words, "--out", tmp_path / "out", "--encoder"]
    refused(capsys, [*given, "bert"], 2, "minilm", "package.module:Class", "'bert'")
    refused(capsys, [*given, f"precomputed:{tmp_path / 'none.npz'}"], 1, "none.npz")
    monkeypatch.setitem(sys.modules, "open_clip", None)
    refused(capsys, [*given, "open_clip:ViT-L-14/openai"], 1, "open_clip", "pip install")


def test_an_option_that_the_solver_has_not_is_refused_rather_than_ignored(capsys, tmp_path, words):
    given = ["design", "--vocabulary", words, "--out", tmp_path / "out", "--solver"]
    refused(capsys, [*given, "random", "--iterations", "5"], 2, "'random' has no option 'max_iterations'")
    refused(
        capsys, [*given, "reference", "--tolerance", "0.1"], 2, "'reference' has no option 'tolerance'", "time_limit"
    )
    assert not list((tmp_path / "out").glob("questions*"))


def test_features_with_nan_or_missing_tokens(capsys, tmp_path, words):
    tokens = load_vocabulary(words).all_tokens
    rows = np.random.default_rng(0).normal(size=(len(tokens), 8)).astype(np.float32)
    file = tmp_path / "features.npz"
    given = [
        "design",
        "--vocabulary",
        words,
        "--encoder",
        f"precomputed:{file}",
        "--episodes",
        "3",
        "--out",
        tmp_path / "out",
    ]
    np.savez(file, texts=np.array(tokens), embeddings=rows)
    assert main([str(argument) for argument in given]) == 0  # single tokens are all that a design needs
    capsys.readouterr()
    np.savez(file, texts=np.array(tokens[1:]), embeddings=rows[1:])
    refused(capsys, given, 1, tokens[0], "features.npz")
    rows[3, 5] = np.nan
    np.savez(file, texts=np.array(tokens), embeddings=rows)
    refused(capsys, given, 1, "features.npz", "NaN")


def test_answers_that_cannot_be_used(capsys, tmp_path):
    out = ["--out", tmp_path / "theta"]
    foreign = tmp_path / "foreign.parquet"
    pandas.DataFrame({"x": [1.0]}).to_parquet(foreign)
    refused(capsys, ["estimate", foreign, *out], 1, "foreign.parquet")
    (tmp_path / "broken.parquet").write_bytes(b"PAR1 and nothing else")
    refused(capsys, ["estimate", tmp_path / "broken.parquet", *out], 1, "broken.parquet")
    refused(capsys, ["estimate", foreign, *out, "--regularization", "-1"], 2, "(lambda) >= 0")
    table = pandas.DataFrame({"option_1": ["a", "b"], "option_2": ["c", "d"], "choice": ["", ""]})
    csv = tmp_path / "questions.csv"
    table.to_csv(csv, index=False)
    refused(capsys, ["estimate", csv, *out], 1, "fill in 1..2")
    for wrong in ("0", "3", "left", "1.5"):
        table["choice"] = ["1", wrong]
        table.to_csv(csv, index=False)
        refused(capsys, ["estimate", csv, *out], 1, f"got '{wrong}' in question 2 (line 3)")
    table.drop(columns="choice").to_csv(csv, index=False)
    refused(capsys, ["estimate", csv, *out], 1, "and choice in", "option_1, option_2")
    csv.write_text("")
    refused(capsys, ["estimate", csv, *out], 1, "could not read")


def test_tastes_that_do_not_fit(capsys, tmp_path, words):
    file = save_taste(tmp_path / "theta", np.ones(7), {"encoder": "minilm"})
    given = ["personalize", file, "--vocabulary", words, "--out", tmp_path / "prompts.csv"]
    refused(capsys, given, 1, "(384,)", "minilm")
    save_taste(file, np.ones(384), {"encoder": "minilm", "encoder_fingerprint": "0" * 64})
    refused(capsys, given, 1, "load the same weights")
    save_taste(file, np.ones(384), {})
    refused(capsys, given, 2, "--encoder")
    refused(capsys, [*given, "--count", "0"], 2, "--count >= 1")
    file.write_text("hello")
    refused(capsys, given, 1, "edpbrl estimate")


def test_folders_that_cannot_be_written(capsys, tmp_path, words):
    (tmp_path / "file").write_text("")
    below = tmp_path / "file" / "run"
    for command in (["demo"], ["design"], ["reproduce", "synthetic", "--jobs", "1"]):
        refused(capsys, [*command, "--vocabulary", words, "--out", below], 1, "choose")
    (tmp_path / "thesis").mkdir()
    (tmp_path / "thesis" / "chapter.tex").write_text("precious")
    refused(capsys, ["demo", "--vocabulary", words, "--out", tmp_path / "thesis"], 1, "other files")


def test_reports_of_nothing(capsys, tmp_path):
    refused(capsys, ["report", tmp_path], 1, "run the experiment")
    pandas.DataFrame({"x": [1.0]}).to_parquet(tmp_path / "results.parquet")
    refused(capsys, ["report", tmp_path], 1, "Expected a results file written by an edpbrl experiment")


def test_debug_shows_the_traceback_and_an_interrupt_exits_with_130(capsys, tmp_path, monkeypatch):
    assert main(["report", str(tmp_path / "\x1b[2Jnone"), "--debug"]) == 1
    errors = capsys.readouterr().err
    assert errors.startswith("Traceback") and "FileNotFoundError: Expected" in errors and "\x1b" not in errors

    def interrupted(path):
        raise KeyboardInterrupt

    monkeypatch.setattr("edpbrl_gym.experiments.runs.read_results", interrupted)
    assert main(["report", str(tmp_path)]) == 130
    assert capsys.readouterr().err.strip().startswith("edpbrl: interrupted")


def test_a_bug_is_named_as_one_in_one_line(capsys, tmp_path, monkeypatch):
    def broken(path):
        raise KeyError("surprise")

    monkeypatch.setattr("edpbrl_gym.experiments.runs.read_results", broken)
    refused(capsys, ["report", tmp_path], 1, "KeyError", "--debug")


def test_the_installed_command_exits_with_the_code_and_no_traceback(tmp_path):
    program = "import sys; from edpbrl_gym.cli import main; sys.exit(main())"
    command = [sys.executable, "-c", program, "report", str(tmp_path / "none")]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    assert result.returncode == 1 and "Traceback" not in result.stderr and result.stderr.startswith("edpbrl: error: ")
