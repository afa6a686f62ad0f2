"""The command line end to end: design, answers, estimate, personalize, demo, report, help."""

import json
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas
import pytest

from edpbrl_gym import __version__
from edpbrl_gym.cli import main
from edpbrl_gym.cli.demo import _default_folder
from edpbrl_gym.experiments.runs import read_results
from edpbrl_gym.experiments.settings import DemoSettings
from edpbrl_gym.oracles import SyntheticUser
from edpbrl_gym.personalize.taste import load_taste
from edpbrl_gym.vocabulary import load_vocabulary

TASTE = "a calm sea by moonlight"


@pytest.fixture(scope="module")
def study(words, tmp_path_factory, minilm):
    """A design with its questions, answered by a synthetic user through the CSV file as a study would."""
    out = tmp_path_factory.mktemp("study") / "design"
    given = ["--vocabulary", words, "--episodes", "12", "--num-options", "3", "--out", str(out)]
    assert main(["design", *given]) == 0
    table = pandas.read_csv(out / "questions.csv")
    user = SyntheticUser.from_text(TASTE, minilm)
    options = [f"option_{number}" for number in (1, 2, 3)]
    scores = minilm.encode(table[options].to_numpy().ravel().tolist()).astype(float) @ user.theta
    table["choice"] = scores.reshape(-1, 3).argmax(axis=1) + 1
    table["choice"] = table["choice"].astype("Int64")
    table.loc[5, "choice"] = None
    table.to_csv(out / "answered.csv", index=False)
    return out, user


def test_a_design_comes_with_certificate_questions_and_provenance(study, words, capsys):
    out, _ = study
    document = json.loads((out / "design.json").read_text())
    assert 0 < document["design"]["efficiency"] <= 1 and document["design"]["criterion"] == "D"
    assert document["settings"]["encoder"] == "minilm" and len(document["encoder_fingerprint"]) == 64
    assert document["vocabulary_fingerprint"] == load_vocabulary(words).fingerprint
    table = pandas.read_csv(out / "questions.csv")
    assert list(table.columns) == ["episode", "step", "option_1", "option_2", "option_3", "choice"]
    assert len(table) == 12 * 3 and table["choice"].isna().all()
    known = {token for step in load_vocabulary(words).tokens for token in step}
    assert all(part in known for text in table["option_2"] for part in text.split(", "))
    assert (table["option_1"].str.count(", ") == table["step"]).all()


def test_design_prints_summary_warnings_and_heaviest_tokens(words, tmp_path, capsys):
    given = ["--vocabulary", words, "--criterion", "V", "--regularization", "100"]
    assert main(["design", *given, "--feedback", "state", "--out", str(tmp_path)]) == 0
    printed = capsys.readouterr().out
    for text in ("efficiency", "prior-dominated", "Tokens that the questions show most", "1-bases", "edpbrl estimate"):
        assert text in printed
    table = pandas.read_csv(tmp_path / "questions.csv")
    assert not table["option_1"].str.contains(", ").any()


def test_answers_are_never_written_over(words, tmp_path, capsys):
    given = ["design", "--vocabulary", words, "--solver", "random", "--episodes", "2", "--out", str(tmp_path)]
    assert main(given) == 0 and main(given) == 0  # unanswered questions may be drawn again
    table = pandas.read_csv(tmp_path / "questions.csv")
    table["choice"] = 1
    table.to_csv(tmp_path / "questions.csv", index=False)
    before = (tmp_path / "questions.csv").read_bytes()
    assert main(given) == 1
    assert "choose another --out" in capsys.readouterr().err
    assert (tmp_path / "questions.csv").read_bytes() == before


def test_every_demo_has_a_folder_of_its_own():
    folders = {
        _default_folder(DemoSettings(**given)) for given in ({}, {"text": ("a red fox",)}, {"text": ("a blue fox",)})
    }
    assert len(folders) == 3 and Path("runs/demo") in folders


def test_estimate_and_personalize_from_answered_questions(study, words, minilm, tmp_path, capsys):
    out, user = study
    theta_file = tmp_path / "theta.safetensors"
    assert main(["estimate", str(out / "answered.csv"), "--out", str(theta_file)]) == 0
    printed = capsys.readouterr().out
    assert "35 questions with 3 options, 1 without an answer" in printed and "converged" in printed
    taste = load_taste(theta_file)
    assert taste.provenance["encoder"] == "minilm" and taste.provenance["questions"] == 35
    assert taste.theta @ user.theta / np.linalg.norm(taste.theta) > 0.3
    prompts_file = tmp_path / "prompts.csv"
    given = ["personalize", str(theta_file), "--vocabulary", words]
    assert main([*given, "--count", "3", "--out", str(prompts_file)]) == 0
    table = pandas.read_csv(prompts_file)
    assert list(table["rank"]) == [1, 2, 3] and table["score"].is_monotonic_decreasing
    assert table["score"].to_numpy() == pytest.approx(minilm.encode(table["prompt"].tolist()) @ taste.theta, abs=1e-6)
    base = ["--base", "a portrait of my dog", "--out", str(prompts_file)]
    assert main([*given, *base]) == 0
    found = pandas.read_csv(prompts_file)["prompt"]
    assert len(found) == 10 and found.str.startswith("a portrait of my dog, ").all()


def test_the_demo_tells_its_story(words, tmp_path, capsys):
    out = tmp_path / "demo"
    texts = [TASTE, "a blue whale"]
    given = ["--text", *texts, "--vocabulary", words, "--questions", "5", "--num-options", "4", "--out", str(out)]
    assert main(["demo", *given]) == 0
    printed = capsys.readouterr().out
    for text in (TASTE, "with the answer", "User 2 of 2", "after 5 answers", "taste known", "edpbrl ask"):
        assert text in printed
    assert re.search(r"Done in \d+ s\.", printed)
    table = read_results(out).table
    best = table[table["part"] == "best"]
    assert set(best["way"]) == {"paper", "ours", "known"} and best["percentile"].between(0, 100).all()
    assert set(table["user"]) == set(texts) and table["wrong"].dropna().between(0, 1).all()
    assert table.loc[table["part"] == "curve", "answers"].max() == 5
    assert [user["text"] for user in read_results(out).provenance["users"]] == texts
    before = (out / "figures" / "demo.png").read_bytes()
    (out / "figures" / "demo.png").unlink()
    assert main(["report", str(out)]) == 0
    assert (out / "figures" / "demo.png").read_bytes() == before
    assert main(["demo", *given]) == 0  # the same demo again gives the same numbers
    again = read_results(out).table
    pandas.testing.assert_frame_equal(again, table, rtol=0, atol=1e-9)


def test_every_command_has_help_with_defaults(capsys):
    commands = ["demo", "design", "estimate", "fit-population", "personalize", "render"]
    for command in ("", "report", *commands, *(f"reproduce {name}" for name in ("synthetic", "reinforce", "llm"))):
        assert main([*command.split(), "--help"]) == 0
        printed = capsys.readouterr().out
        assert "usage: edpbrl" in printed and ("(default:" in printed or command in ("", "report"))


def test_version_and_no_arguments(capsys):
    assert main(["--version"]) == 0
    assert capsys.readouterr().out.strip() == f"edpbrl {__version__}"
    assert main([]) == 0
    assert "reproduce" in capsys.readouterr().out


def test_help_loads_nothing_heavy():
    code = (
        "import sys; from edpbrl_gym.cli import main; main(['--help']); main(['reproduce', '--help']); "
        "print(sorted({'torch', 'transformers', 'pandas', 'scipy', 'matplotlib', 'joblib'} & set(sys.modules)))"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout.splitlines()[-1] == "[]"
