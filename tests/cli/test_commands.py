"""The command line end to end: design, answers, estimate, personalize, demo, report, help."""

from __future__ import annotations

import json
import re
import subprocess
import sys

import numpy as np
import pandas
import pytest
from PIL import Image

from edpbrl_gym import __version__
from edpbrl_gym.agents.registry import AGENTS
from edpbrl_gym.cli import main
from edpbrl_gym.comparisons import Comparisons
from edpbrl_gym.experiments.runs import read_results
from edpbrl_gym.oracles import SyntheticUser
from edpbrl_gym.personalize.search import best_prompts
from edpbrl_gym.personalize.taste import load_taste
from edpbrl_gym.planners import PLANNERS
from edpbrl_gym.vocabulary import load_vocabulary
from tests.helpers.small_vocabulary import write_vocabulary

TASTE = "a calm sea by moonlight"


@pytest.fixture(scope="module")
def words(tmp_path_factory):
    return write_vocabulary(tmp_path_factory.mktemp("words") / "vocabulary")


@pytest.fixture(scope="module")
def study(words, tmp_path_factory, minilm):
    """A design with its questions, answered by a synthetic user through the CSV file as a study would."""
    out = tmp_path_factory.mktemp("study") / "design"
    given = ["--vocabulary", str(words), "--episodes", "12", "--num-options", "3", "--out", str(out)]
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
    given = ["--vocabulary", str(words), "--criterion", "V", "--regularization", "100", "--questions", "parquet"]
    assert main(["design", *given, "--feedback", "state", "--out", str(tmp_path)]) == 0
    printed = capsys.readouterr().out
    for text in ("efficiency", "prior-dominated", "Tokens that the questions show most", "1-bases", "edpbrl estimate"):
        assert text in printed
    table = pandas.read_parquet(tmp_path / "questions.parquet")
    assert not table["option_1"].str.contains(", ").any()


def test_answers_are_never_written_over(words, tmp_path, capsys):
    given = ["design", "--vocabulary", str(words), "--solver", "random", "--episodes", "2", "--out", str(tmp_path)]
    assert main(given) == 0 and main(given) == 0  # unanswered questions may be drawn again
    table = pandas.read_csv(tmp_path / "questions.csv")
    table["choice"] = 1
    table.to_csv(tmp_path / "questions.csv", index=False)
    before = (tmp_path / "questions.csv").read_bytes()
    assert main(given) == 1
    assert "choose another --out" in capsys.readouterr().err
    assert (tmp_path / "questions.csv").read_bytes() == before


def test_every_demo_has_a_folder_of_its_own(words, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    small = ["demo", "--vocabulary", str(words), "--questions", "2", "--num-options", "3"]
    assert main([*small, "--text", "a red fox"]) == 0 and main([*small, "--text", "a blue fox"]) == 0
    assert len(list((tmp_path / "runs").iterdir())) == 2


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
    assert (
        main(["personalize", str(theta_file), "--vocabulary", str(words), "--count", "3", "--out", str(prompts_file)])
        == 0
    )
    table = pandas.read_csv(prompts_file)
    assert list(table["rank"]) == [1, 2, 3] and table["score"].is_monotonic_decreasing
    assert table["score"].to_numpy() == pytest.approx(minilm.encode(table["prompt"].tolist()) @ taste.theta, abs=1e-6)
    base = ["--base", "a portrait of my dog", "--out", str(prompts_file)]
    assert main(["personalize", str(theta_file), "--vocabulary", str(words), *base]) == 0
    found = pandas.read_csv(prompts_file)["prompt"]
    assert len(found) == 10 and found.str.startswith("a portrait of my dog, ").all()


def test_estimate_from_comparisons_equals_estimate_from_the_same_questions(study, minilm, tmp_path):
    out, _ = study
    table = pandas.read_csv(out / "answered.csv").dropna(subset=["choice"])
    table.to_parquet(tmp_path / "answered.parquet", index=False)
    texts = table[["option_1", "option_2", "option_3"]].to_numpy().tolist()
    comparisons = Comparisons.of_choices(
        features=minilm.encode([t for row in texts for t in row]).reshape(len(texts), 3, -1),
        choice=table["choice"].astype(int).to_numpy() - 1,
        episode=table["episode"].to_numpy(),
        step=table["step"].to_numpy(),
        metadata={"encoder": "minilm", "encoder_fingerprint": minilm.fingerprint},
    )
    comparisons.to_parquet(tmp_path / "comparisons.parquet")
    found = []
    for name in ("answered.parquet", "comparisons.parquet"):
        given = ["--prior", "ridge", "--out", str(tmp_path / f"{name}.theta")]
        assert main(["estimate", str(tmp_path / name), *given]) == 0
        found.append(load_taste(tmp_path / f"{name}.theta").theta)
    assert found[0] == pytest.approx(found[1], abs=1e-9)


def test_the_beam_finds_the_best_prompts_of_a_vocabulary_small_enough_to_try_all(words, minilm):
    vocabulary = load_vocabulary(words)
    theta = minilm.encode([TASTE])[0].astype(float)
    everything = [vocabulary.prompt([a, b, c]) for a in range(8) for b in range(8) for c in range(8)]
    scores = minilm.encode(everything).astype(float) @ theta
    wide = best_prompts(vocabulary, minilm, theta, count=5, width=64, shortlist=8, per_base=8)
    assert wide[0].score == pytest.approx(scores.max(), abs=1e-6)
    assert [prompt.score for prompt in wide] == sorted((prompt.score for prompt in wide), reverse=True)
    narrow = best_prompts(vocabulary, minilm, theta, count=5)
    assert len({prompt.tokens[0] for prompt in narrow}) == 5  # one prompt for each base
    assert all(vocabulary.prompt(prompt.tokens) == prompt.text for prompt in narrow)
    assert narrow[0].score >= np.quantile(scores, 0.99)
    with pytest.raises(ValueError, match="likes every prompt the same"):
        best_prompts(vocabulary, minilm, np.zeros(384))
    with pytest.raises(ValueError, match="estimated with minilm"):
        best_prompts(vocabulary, minilm, np.ones(3))


def test_the_demo_tells_its_story(words, tmp_path, capsys):
    out = tmp_path / "demo"
    given = ["--text", TASTE, "--vocabulary", str(words), "--questions", "5", "--num-options", "4", "--out", str(out)]
    assert main(["demo", *given]) == 0
    printed = capsys.readouterr().out
    for text in (
        TASTE,
        "pick the best of 4 prompts",
        "Adaptive questions",
        "Random questions",
        "true score",
        "This time",
    ):
        assert text in printed
    stages = ["start", "features", "questions", "prompts", "report"]
    assert re.search(r"Done in \d+ s \(" + ", ".join(f"{name} [\\d.]+ s" for name in stages), " ".join(printed.split()))
    table = read_results(out).table
    best = table[table["part"] == "best"]
    count = (best["agent"] == "Adaptive").sum()
    assert count == 2  # no more held-out bases
    assert "Two best prompts after Adaptive" in printed and "Two best prompts after Random" in printed
    told = printed + (out / "REPORT.md").read_text(encoding="utf-8")
    assert not re.search(r"\bten\b", told, re.IGNORECASE)
    assert set(table.loc[table["part"] == "plain curve", "agent"]) == {"Random"}
    assert set(best["agent"]) == {"Adaptive", "Random"} and best["percentile"].between(0, 100).all()
    assert read_results(out).provenance["user"]["text"] == TASTE
    image = Image.open(out / "figures" / "demo.png").convert("L")
    assert np.count_nonzero(image.histogram()) > 50
    before = (out / "figures" / "demo.png").read_bytes()
    (out / "figures" / "demo.png").unlink()
    assert main(["report", str(out)]) == 0
    assert (out / "figures" / "demo.png").read_bytes() == before
    assert main(["demo", *given]) == 0  # the same demo again gives the same numbers
    again = read_results(out).table
    pandas.testing.assert_frame_equal(again, table, rtol=0, atol=1e-9)


@pytest.mark.parametrize(
    ("answers", "marks"), [("ranking", ["1", "2", "3", "4"]), ("partial", [" ", "1", "2", "3"]), ("best", [" ", ">"])]
)
def test_the_demo_shows_the_last_question_with_its_answer(words, tmp_path, capsys, answers, marks):
    given = ["--vocabulary", str(words), "--questions", "2", "--num-options", "4", "--answers", answers]
    assert main(["demo", *given, "--out", str(tmp_path / "demo")]) == 0
    lines = capsys.readouterr().out.splitlines()
    first = next(place for place, line in enumerate(lines) if "with its answer" in line)
    question = [line[14] for line in lines[first + 1 :] if line.startswith(" " * 14) and len(line.strip()) > 8]
    assert sorted(set(question)) == marks


@pytest.mark.parametrize(
    "command",
    [
        "",
        "demo",
        "design",
        "estimate",
        "fit-population",
        "personalize",
        "reproduce synthetic",
        "reproduce reinforce",
        "reproduce llm",
        "render",
        "train-prompt-lm",
        "train-mini-diffusion",
        "bench efficiency",
        "bench people",
        "bench communities",
        "report",
    ],
)
def test_every_command_has_help_with_defaults(command, capsys):
    assert main([*command.split(), "--help"]) == 0
    printed = capsys.readouterr().out
    assert "usage: edpbrl" in printed
    if command not in ("", "report"):
        assert "(default:" in printed


def test_the_help_of_design_names_every_agent(capsys):
    assert main(["design", "--help"]) == 0
    printed = capsys.readouterr().out
    adaptive = {name for name, row in PLANNERS.items() if row.adaptive}  # by one name
    assert all(name in printed for name in {"adaptive", *(set(AGENTS) - adaptive)})


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
