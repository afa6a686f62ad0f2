"""The questions that `edpbrl design` writes: distinct options, refused where there are too few, and what they tell."""

from __future__ import annotations

import json

import numpy as np
import pandas
import pytest

from edpbrl_gym.cli import main
from edpbrl_gym.features import load_encoder, save_precomputed
from edpbrl_gym.vocabulary import load_vocabulary

D, LAMBDA = 12, 0.5
OPTIONS = [f"option_{number}" for number in range(1, 5)]


@pytest.fixture(scope="module")
def world(words, tmp_path_factory):
    """A vocabulary with precomputed embeddings of every token and partial prompt: sums of the tokens' rows."""
    folder, vocabulary, rng = tmp_path_factory.mktemp("rows"), load_vocabulary(words), np.random.default_rng(0)
    rows = {token: rng.normal(size=D) for token in vocabulary.all_tokens}
    first = vocabulary.tokens[0]
    second = {f"{a}, {b}": rows[a] + rows[b] for a in first for b in vocabulary.tokens[1]}
    third = {f"{text}, {c}": row + rows[c] for text, row in second.items() for c in vocabulary.tokens[2]}
    every = {**rows, **second, **third}
    known, tokens = folder / "known.npz", folder / "tokens.npz"
    save_precomputed(known, list(every), np.stack(list(every.values())))
    save_precomputed(tokens, list(rows), np.stack(list(rows.values())))
    return words, known, tokens


def design(world, out, *arguments, encoder=1):
    given = ["design", "--vocabulary", world[0], "--encoder", f"precomputed:{world[encoder]}"]
    given += ["--regularization", str(LAMBDA), "--episodes", "8", "--out", str(out)]
    code = main([*given, *arguments])
    return code, json.loads((out / "design.json").read_text()) if code == 0 else None


def log_det(options) -> float:
    """log det of the prior and the sum over questions of the covariance of their options, written out."""
    total = LAMBDA * np.eye(D)
    for rows in options:
        total += np.cov(rows.T, bias=True)
    return float(np.linalg.slogdet(total)[1])


@pytest.mark.parametrize(
    ("solver", "feedback"),
    [("newton", "truncated"), ("newton", "state"), ("tuples", "truncated"), ("random", "truncated")],
)
def test_what_the_written_questions_tell_is_reported(world, tmp_path, capsys, solver, feedback):
    code, document = design(world, tmp_path, "--solver", solver, "--feedback", feedback)
    assert code == 0
    printed = capsys.readouterr().out
    told = document["questions"]
    shown = pandas.read_csv(tmp_path / "questions.csv")[OPTIONS].to_numpy()
    assert all(len(set(question)) == 4 for question in shown.tolist())
    assert (told["count"], told["options"]) == (24, 4)
    encoder = load_encoder(f"precomputed:{world[1]}")
    last = np.vectorize(lambda text: text.split(", ")[-1])(shown)
    tokens = log_det([encoder.encode(question) for question in last.tolist()])
    assert told["tokens"]["value"] == pytest.approx(tokens, abs=1e-3)
    assert told["tokens"]["gain"] == pytest.approx(tokens - D * np.log(LAMBDA), abs=1e-3)
    if feedback == "truncated":
        prompts = log_det([encoder.encode(question) for question in shown.tolist()])
        assert told["prompts"]["value"] == pytest.approx(prompts, abs=1e-3)
        assert told["prompts"]["efficiency"] is None and "as shown" in printed
    else:
        assert told["prompts"] is None and "as shown" not in printed
    if solver == "random":
        assert told["random"] is None and told["tokens"]["efficiency"] is None and document["design"] is None
    else:
        bound = document["design"]["upper_bound"]
        assert told["tokens"]["value"] <= bound
        assert told["tokens"]["efficiency"] == pytest.approx(np.exp((tokens - bound) / D), abs=1e-4)
        assert told["random"]["efficiency"] < 1 and "at random" in printed
    assert f"24 questions of 4 options each{'; ' if told['exchanged'] else ''}" in printed
    assert (told["exchanged"] == 0) == (solver == "tuples")


def test_questions_of_complete_prompts_are_designed_answered_and_estimated(world, tmp_path, capsys):
    code, document = design(world, tmp_path, "--feedback", "prompt")
    assert code == 0 and document["settings"]["feedback"] == "prompt"
    printed, told = capsys.readouterr().out, document["questions"]
    table = pandas.read_csv(tmp_path / "questions.csv")
    shown = table[OPTIONS].to_numpy()
    assert table.episode.tolist() == list(range(8)) and (table.step == 2).all()
    assert all(text.count(", ") == 2 for text in shown.ravel()) and all(table[OPTIONS].nunique(axis=1) == 4)
    encoder = load_encoder(f"precomputed:{world[1]}")
    wanted = log_det([encoder.encode(question) for question in shown.tolist()])
    assert told["prompts"]["value"] == pytest.approx(wanted, abs=1e-3)
    assert told["tokens"] is None and told["random"] is None and "their tokens" not in printed
    assert "8 questions of 4 options each" in printed and "(complete prompts, for which there is no bound)" in printed
    table["choice"] = 1
    table.to_csv(tmp_path / "answered.csv", index=False)
    taste = tmp_path / "theta.safetensors"
    given = ["--prior", "ridge", "--encoder", f"precomputed:{world[1]}", "--out", str(taste)]
    assert main(["estimate", str(tmp_path / "answered.csv"), *given]) == 0 and taste.is_file()
    assert "8 questions with 4 options, 0 without an answer" in capsys.readouterr().out


def test_embeddings_without_the_prompts_are_said_to_be_missing(world, tmp_path, capsys):
    code, document = design(world, tmp_path, encoder=2)
    assert code == 0 and document["questions"]["prompts"] is None
    assert "as shown     not known: " in " ".join(capsys.readouterr().out.split(" "))
    assert document["questions"]["tokens"]["efficiency"] > 0


def test_the_files_are_whole_before_the_prompts_are_embedded(world, tmp_path, monkeypatch):
    """Ctrl-C there ends the command, not the questions."""

    def interrupted(self, texts, *, progress=False):
        if any(", " in text for text in texts):
            raise KeyboardInterrupt
        return encode(self, texts, progress=progress)

    from edpbrl_gym.features.precomputed import PrecomputedEncoder

    encode = PrecomputedEncoder.encode
    monkeypatch.setattr(PrecomputedEncoder, "encode", interrupted)
    code, _ = design(world, tmp_path)
    assert code == 130
    document = json.loads((tmp_path / "design.json").read_text())
    assert document["questions"] is None and document["design"]["status"] == "converged"
    assert len(pandas.read_csv(tmp_path / "questions.csv")) == 24
