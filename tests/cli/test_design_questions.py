"""The questions that `edpbrl design` writes: distinct options, refused where there are too few, and what they tell."""

from __future__ import annotations

import json

import numpy as np
import pandas
import pytest

from edpbrl_gym.cli import main
from edpbrl_gym.collection.asked import information_of
from edpbrl_gym.design import DesignProblem, make_criterion
from edpbrl_gym.features import load_encoder, save_precomputed
from edpbrl_gym.mdp import PromptMDP
from edpbrl_gym.vocabulary import load_vocabulary
from tests.helpers.small_vocabulary import write_vocabulary

D, LAMBDA = 12, 0.5


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    """A vocabulary with precomputed embeddings of every token and partial prompt: sums of the tokens' rows."""
    folder = write_vocabulary(tmp_path_factory.mktemp("words") / "vocabulary")
    vocabulary, rng = load_vocabulary(folder), np.random.default_rng(0)
    rows = {token: rng.normal(size=D) for token in vocabulary.all_tokens}
    first = vocabulary.tokens[0]
    second = {f"{a}, {b}": rows[a] + rows[b] for a in first for b in vocabulary.tokens[1]}
    third = {f"{text}, {c}": row + rows[c] for text, row in second.items() for c in vocabulary.tokens[2]}
    every = {**rows, **second, **third}
    known, tokens = folder.parent / "known.npz", folder.parent / "tokens.npz"
    save_precomputed(known, list(every), np.stack(list(every.values())))
    save_precomputed(tokens, list(rows), np.stack(list(rows.values())))
    return folder, known, tokens


def design(world, out, *arguments, encoder=1):
    given = ["design", "--vocabulary", str(world[0]), "--encoder", f"precomputed:{world[encoder]}"]
    given += ["--regularization", str(LAMBDA), "--episodes", "8", "--out", str(out)]
    code = main([*given, *arguments])
    return code, json.loads((out / "design.json").read_text()) if code == 0 else None


def log_det(options) -> float:
    """log det of the prior and the sum over questions of the covariance of their options, written out."""
    total = LAMBDA * np.eye(D)
    for rows in options:
        total += np.cov(rows.T, bias=True)
    return float(np.linalg.slogdet(total)[1])


@pytest.mark.parametrize("feedback", ["truncated", "state"])
@pytest.mark.parametrize("solver", ["newton", "tuples", "random"])
def test_what_the_written_questions_tell_is_reported(world, tmp_path, capsys, solver, feedback):
    code, document = design(world, tmp_path, "--solver", solver, "--feedback", feedback)
    assert code == 0
    printed = capsys.readouterr().out
    told = document["questions"]
    table = pandas.read_csv(tmp_path / "questions.csv")
    columns = [f"option_{number}" for number in range(1, 5)]
    assert all(table[columns].nunique(axis=1) == 4)
    assert (told["count"], told["options"]) == (24, 4)
    encoder = load_encoder(f"precomputed:{world[1]}")
    shown = table[columns].to_numpy()
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
    columns = [f"option_{number}" for number in range(1, 5)]
    shown = table[columns].to_numpy()
    assert table.episode.tolist() == list(range(8)) and (table.step == 2).all()
    assert all(text.count(", ") == 2 for text in shown.ravel()) and all(table[columns].nunique(axis=1) == 4)
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


def test_a_solver_that_designs_every_step_refuses_complete_prompts(world, tmp_path, capsys):
    given = ["--vocabulary", str(world[0]), "--encoder", f"precomputed:{world[1]}", "--out", str(tmp_path)]
    assert main(["design", "--solver", "deep", "--feedback", "prompt", *given]) != 0
    assert "'truncated', 'state', got 'prompt'" in capsys.readouterr().err


def test_embeddings_without_the_prompts_are_said_to_be_missing(world, tmp_path, capsys):
    code, document = design(world, tmp_path, encoder=2)
    assert code == 0 and document["questions"]["prompts"] is None
    assert "as shown     not known: " in " ".join(capsys.readouterr().out.split(" "))
    assert document["questions"]["tokens"]["efficiency"] > 0


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--num-options", "9"], "8 at step 0 (1-bases); ask with at most K = 8 options"),
        (["--num-options", "9", "--feedback", "state", "--solver", "random"], "8 at step 2 (3-lighting); ask with at"),
        (["--num-options", "50", "--solver", "exact"], "8 at step 0 (1-bases); ask with at most K = 8 options"),
        (["--num-options", "9", "--solver", "greedy_d"], "8 at step 0 (1-bases); ask with at most K = 8 options"),
    ],
)
def test_more_options_than_tokens_are_refused_before_any_work(world, tmp_path, capsys, arguments, said):
    code, _ = design(world, tmp_path / "out", *arguments)
    assert code == 2 and said in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_tuples_need_as_many_tokens_as_options_at_every_step(world, tmp_path, capsys):
    (tmp_path / "words").mkdir()
    for name, count in (("1-a", 5), ("2-b", 2)):
        (tmp_path / "words" / f"{name}.txt").write_text("\n".join(f"{name} {number}" for number in range(count)))
    given = ["design", "--vocabulary", str(tmp_path / "words"), "--encoder", f"precomputed:{world[1]}"]
    assert main([*given, "--solver", "tuples", "--num-options", "4", "--out", str(tmp_path / "out")]) == 2
    error = capsys.readouterr().err
    assert "2 at step 1 (2-b); ask with at most K = 2 options" in error and "Restrictions" not in error
    assert not (tmp_path / "out").exists()


def test_as_many_options_as_tokens_show_them_all(world, tmp_path):
    code, document = design(world, tmp_path, "--num-options", "8")
    assert code == 0 and document["questions"]["exchanged"] > 0
    first = pandas.read_csv(tmp_path / "questions.csv").query("step == 0").drop(columns=["episode", "step", "choice"])
    assert {tuple(sorted(row)) for row in first.to_numpy().tolist()} == {
        tuple(sorted(load_vocabulary(world[0]).tokens[0]))
    }


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


def test_questions_that_leave_directions_open_have_no_value():
    """lambda = 0 and two questions: their rank is what is known."""
    rng = np.random.default_rng(0)
    problem = DesignProblem(
        mdp=PromptMDP([9]), features=rng.normal(size=(9, 5)), num_policies=3, episodes=2, regularization=0.0,
        criterion=make_criterion("D"),
    )  # fmt: skip
    told = information_of(problem, rng.normal(size=(2, 3, 5)), upper_bound=1.0)
    assert (told.value, told.gain, told.efficiency) == (None, None, None) and told.learned == 4
    told = information_of(problem, rng.normal(size=(9, 3, 5)))
    assert told.value is not None and told.gain is None and told.learned == pytest.approx(5)
