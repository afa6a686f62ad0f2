"""`edpbrl design`: the default solver, the progress bar, and Ctrl-C while it solves."""

from __future__ import annotations

import json
import re
import signal
from types import SimpleNamespace

import numpy as np
import pandas
import pytest

from edpbrl_gym.agents.design import DesignAgent
from edpbrl_gym.agents.registry import make_agent
from edpbrl_gym.cli import main
from edpbrl_gym.collection.collect import make_prompt_lanes
from edpbrl_gym.design import SOLVERS
from edpbrl_gym.experiments.designs import solve_and_save
from tests.helpers.terminals import Terminal


def document(out) -> dict:
    return json.loads((out / "design.json").read_text())


def test_newton_designs_unless_another_solver_is_named(words, tmp_path, capsys):
    given = ["design", "--vocabulary", words, "--episodes", "2"]
    assert main([*given, "--out", str(tmp_path / "default")]) == 0
    captured = capsys.readouterr()
    assert "Design by newton: converged" in captured.out
    assert "gap" not in captured.err  # no bar where stderr is no terminal
    assert main([*given, "--solver", "frank_wolfe", "--out", str(tmp_path / "paper")]) == 0
    newton, paper = document(tmp_path / "default")["design"], document(tmp_path / "paper")["design"]
    assert newton["solver"] == "newton" and newton["relative_gap"] <= 1e-6
    assert paper["solver"] == "frank_wolfe"
    assert paper["value"] <= newton["upper_bound"] and newton["value"] <= paper["upper_bound"]


@pytest.mark.parametrize("solver", ["newton", "tuples"])
def test_a_time_limit_writes_the_best_so_far(words, tmp_path, capsys, solver):
    given = ["design", "--vocabulary", words, "--episodes", "2", "--solver", solver, "--feedback", "state"]
    assert main([*given, "--time-limit", "0", "--out", str(tmp_path)]) == 0
    assert "time_limit" in capsys.readouterr().out
    written = document(tmp_path)
    assert written["design"]["status"] == "time_limit" and written["settings"]["time_limit"] == 0
    assert len(pandas.read_csv(tmp_path / "questions.csv")) == 6


@pytest.mark.parametrize("solver", ["newton", "tuples"])
def test_a_criterion_of_a_number(words, tmp_path, capsys, solver):
    given = ["design", "--vocabulary", str(words), "--episodes", "2", "--solver", solver, "--feedback", "state"]
    assert main([*given, "--criterion", "PHI:2", "--out", str(tmp_path)]) == 0
    assert "phi:2-optimal" in capsys.readouterr().out
    written = document(tmp_path)
    assert written["design"]["criterion"] == written["questions"]["criterion"] == "phi:2"
    assert 0.9 < written["design"]["efficiency"] <= 1
    assert json.loads((tmp_path / "agent" / "agent.json").read_text())["arguments"]["criterion"] == "phi:2"


def test_a_criterion_of_a_vector(words, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    np.save("direction.npy", np.random.default_rng(0).standard_normal(384))
    given = ["design", "--vocabulary", str(words), "--episodes", "2", "--feedback", "state"]
    assert main([*given, "--criterion", "c:direction.npy", "--out", "out"]) == 0
    assert "c-optimal" in capsys.readouterr().out
    assert document(tmp_path / "out")["design"]["criterion"] == "c"
    # the agent keeps the vector, not the file
    (tmp_path / "direction.npy").unlink()
    lanes = make_prompt_lanes(4, vocabulary=str(words), encoder="minilm")
    loaded = DesignAgent.load("out/agent", lanes)
    assert loaded.design.problem.criterion.vector.shape == (384,)
    for criterion, said in [
        ("c", "The criterion c needs a vector: give it as v_matrix, or as a file, c:FILE.npy"),
        ("c:direction.npy", "direction.npy"),
    ]:
        assert main([*given, "--criterion", criterion, "--out", "refused"]) != 0
        assert said in " ".join(capsys.readouterr().err.split())
    np.save("direction.npy", np.ones(3))
    assert main([*given, "--criterion", "c:direction.npy", "--out", "refused"]) != 0
    assert "dimension of the criterion's target, 3, got 384" in " ".join(capsys.readouterr().err.split())


def test_a_rule_that_needs_no_answers_designs(words, tmp_path, capsys):
    given = ["design", "--vocabulary", words, "--episodes", "3", "--solver", "thinning", "--feedback", "state"]
    assert main([*given, "--out", str(tmp_path)]) == 0
    assert "agent thinning has no design" in capsys.readouterr().out
    table = pandas.read_csv(tmp_path / "questions.csv")
    assert len(table) == 9
    shown = [column for column in table.columns if column.startswith("option")]
    assert len(shown) == 4 and all(table[shown].nunique(axis=1) == 4)
    assert document(tmp_path)["design"] is None
    saved = json.loads((tmp_path / "agent" / "agent.json").read_text())["arguments"]
    assert (saved["planner"], saved["feedback"]) == ("thinning", "state")


def test_ctrl_c_writes_the_design_so_far_with_its_questions(words, tmp_path):
    """End to end: the bar shows the gap, SIGINT ends the solve, the files are whole, the exit code is 130."""
    out = tmp_path / "stopped"
    given = ["--vocabulary", words, "--solver", "frank_wolfe", "--tolerance", "1e-12", "--iterations", "10000000"]
    with Terminal("design", *given, "--episodes", "3", "--out", out, width=200) as terminal:
        terminal.until("of the gain, aim 1e-12")
        terminal.until("of the gain, aim 1e-12")  # an iteration later
        terminal.process.send_signal(signal.SIGINT)
        assert terminal.end() == 130
        text = " ".join(terminal.plain.split())
    assert re.search(r"edpbrl: stopped by you after \d+ iterations; the design so far is certified", text)
    assert "with its questions" in text and "Design by frank_wolfe: interrupted" in text
    design = document(out)["design"]
    assert design["status"] == "interrupted" and 0 < design["efficiency"] <= 1
    assert len(pandas.read_csv(out / "questions.csv")) == 3 * 3
    env = make_prompt_lanes(4, vocabulary=words, encoder="minilm")
    agent = type(make_agent("frank_wolfe", env, num_options=4, episodes=3)).load(out / "agent", env)
    assert agent.design is not None and agent.design.status == "interrupted"
    assert "callback" not in agent.options


def test_ctrl_c_before_the_first_iteration_writes_nothing(words, tmp_path, capsys, monkeypatch):
    def interrupted(*_, tolerance=1e-6, **__):
        raise KeyboardInterrupt

    monkeypatch.setitem(SOLVERS, "newton", interrupted)
    assert main(["design", "--vocabulary", words, "--out", str(tmp_path / "out")]) == 130
    assert "edpbrl: interrupted" in capsys.readouterr().err
    assert not list((tmp_path / "out").glob("*"))


def test_experiments_keep_no_design_cut_short(words, tmp_path, monkeypatch, minilm):
    """There Ctrl-C ends the run: a run that goes on later must not find a worse design than it asks for."""
    from edpbrl_gym.agents.design import DesignAgent
    from edpbrl_gym.experiments.designs import Tokens
    from edpbrl_gym.experiments.settings import SyntheticSettings

    def interrupted(self):
        self.design = SimpleNamespace(status="interrupted")
        return self

    monkeypatch.setattr(DesignAgent, "learn", interrupted)
    settings = SyntheticSettings(vocabulary=words, episodes=(2,), runs=1)
    tokens = Tokens(fingerprint=minilm.fingerprint, texts=[], rows=np.empty((0, 384), dtype=np.float32))
    with pytest.raises(KeyboardInterrupt):
        solve_and_save(settings, 0, 2, tmp_path / "run", tokens)
    assert not (tmp_path / "run").exists()
