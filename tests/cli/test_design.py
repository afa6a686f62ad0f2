"""`edpbrl design`: the default solver, the device, the progress bar, and Ctrl-C while it solves."""

from __future__ import annotations

import json
import os
import pty
import re
import select
import signal
import subprocess
import sys
import time
from contextlib import contextmanager
from types import SimpleNamespace

import numpy as np
import pandas
import pytest

from edpbrl_gym.agents.registry import make_agent
from edpbrl_gym.cli import main
from edpbrl_gym.cli.console import solving
from edpbrl_gym.collection.collect import make_prompt_lanes
from edpbrl_gym.design import SOLVERS
from edpbrl_gym.experiments.designs import solve_and_save
from tests.helpers.small_vocabulary import write_vocabulary

COMMAND = [sys.executable, "-c", "import sys; from edpbrl_gym.cli import main; sys.exit(main())", "design"]


@pytest.fixture(scope="module")
def words(tmp_path_factory, minilm):
    return write_vocabulary(tmp_path_factory.mktemp("words") / "vocabulary")


def document(out) -> dict:
    return json.loads((out / "design.json").read_text())


def test_newton_designs_unless_another_solver_is_named(words, tmp_path, capsys):
    given = ["design", "--vocabulary", str(words), "--episodes", "2"]
    assert main([*given, "--out", str(tmp_path / "default")]) == 0
    captured = capsys.readouterr()
    assert "Design by newton: converged" in captured.out
    assert "gap" not in captured.err  # no bar where stderr is no terminal
    assert main([*given, "--solver", "frank_wolfe", "--out", str(tmp_path / "paper")]) == 0
    newton, paper = document(tmp_path / "default")["design"], document(tmp_path / "paper")["design"]
    assert newton["solver"] == "newton" and newton["relative_gap"] <= 1e-6
    assert paper["solver"] == "frank_wolfe"
    assert paper["value"] <= newton["upper_bound"] and newton["value"] <= paper["upper_bound"]


@pytest.mark.parametrize("solver", ["newton", "frank_wolfe", "exact", "tuples"])
def test_a_time_limit_writes_the_best_so_far(words, tmp_path, capsys, solver):
    given = ["design", "--vocabulary", str(words), "--episodes", "2", "--solver", solver, "--feedback", "state"]
    assert main([*given, "--time-limit", "0", "--out", str(tmp_path)]) == 0
    assert "time_limit" in capsys.readouterr().out
    written = document(tmp_path)
    assert written["design"]["status"] == "time_limit" and written["settings"]["time_limit"] == 0
    assert len(pandas.read_csv(tmp_path / "questions.csv")) == 6


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--time-limit=-1"], "--time-limit (seconds) >= 0, got -1"),
        (["--time-limit", "9", "--solver", "random"], "'random' has no option 'time_limit'"),
    ],
)
def test_a_time_limit_that_can_not_be_kept_is_refused(arguments, said, words, tmp_path, capsys):
    assert main(["design", "--vocabulary", str(words), *arguments, "--out", str(tmp_path / "out")]) == 2
    assert said in capsys.readouterr().err.replace("\n", " ")
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("feedback", ["truncated", "state"])
@pytest.mark.parametrize("solver", ["greedy_d", "thinning"])
def test_a_rule_that_needs_no_answers_designs(words, tmp_path, capsys, solver, feedback):
    given = ["design", "--vocabulary", str(words), "--episodes", "3", "--solver", solver, "--feedback", feedback]
    assert main([*given, "--out", str(tmp_path)]) == 0
    assert f"agent {solver} has no design" in capsys.readouterr().out
    table = pandas.read_csv(tmp_path / "questions.csv")
    assert len(table) == 9
    shown = [column for column in table.columns if column.startswith("option")]
    assert len(shown) == 4 and all(table[shown].nunique(axis=1) == 4)
    assert document(tmp_path)["design"] is None
    saved = json.loads((tmp_path / "agent" / "agent.json").read_text())["arguments"]
    assert (saved["planner"], saved["feedback"]) == (solver, feedback)


@pytest.mark.parametrize("solver", ["bald", "adaptive"])
def test_a_rule_that_needs_the_answers_is_refused_before_anything_is_written(words, tmp_path, capsys, solver):
    assert main(["design", "--vocabulary", str(words), "--solver", solver, "--out", str(tmp_path / "run")]) == 2
    assert "whose questions don't depend on the answers" in capsys.readouterr().err
    assert not (tmp_path / "run").exists()


def test_torch_designs_the_same(words, tmp_path):
    given = ["design", "--vocabulary", str(words), "--episodes", "2", "--out"]
    assert main([*given, str(tmp_path / "numpy")]) == 0
    assert main([*given, str(tmp_path / "torch"), "--device", "cpu:0"]) == 0
    one, other = document(tmp_path / "numpy")["design"], document(tmp_path / "torch")["design"]
    assert abs(one["value"] - other["value"]) <= 1e-6 * one["gain"]
    assert document(tmp_path / "torch")["settings"]["device"] == "cpu:0"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--device", "cuda"], "finds none; check the driver"),
        (["--device", "quantum"], "'quantum'"),
        (["--device", "cuda", "--solver", "frank_wolfe"], "'frank_wolfe' has no option 'device'"),
    ],
)
def test_a_device_that_is_not_there_is_told_before_any_work(arguments, said, words, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    assert main(["design", "--vocabulary", str(words), *arguments, "--out", str(tmp_path / "out")]) == 2
    assert said in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_the_device_of_an_agent(words):
    env = make_prompt_lanes(2, vocabulary=str(words), encoder="minilm")
    given = {"num_options": 2, "episodes": 2}
    assert "backend" not in make_agent("newton", env, **given).options
    assert make_agent("newton", env, device="cpu", **given).options["backend"] == "numpy"
    assert make_agent("newton", env, device="cuda:1", **given).options["backend"] == "torch:cuda:1"
    with pytest.raises(ValueError, match="got both"):
        make_agent("newton", env, device="cuda", options={"backend": "numpy"}, **given)


class Terminal:
    """A command whose stderr is a terminal."""

    def __init__(self, arguments: list[str], folder) -> None:
        master, slave = pty.openpty()
        environment = {**os.environ, "OMP_NUM_THREADS": "1", "TERM": "xterm-256color", "COLUMNS": "120"}
        with open(folder / "stdout.txt", "w") as stdout:
            self.process = subprocess.Popen(
                [*COMMAND, *arguments], stdout=stdout, stderr=slave, env=environment, cwd=folder
            )
        os.close(slave)
        self._master, self.seen = master, ""

    def read(self, until: str | None, seconds: float = 120.0) -> str:
        """Read until a pattern has been seen or (None) until the end; without terminal codes."""
        limit = time.monotonic() + seconds
        while until is None or not re.search(until, self.seen):
            assert time.monotonic() < limit, f"no {until!r} in {self.seen[-2000:]!r}"
            if not select.select([self._master], [], [], 0.2)[0]:
                continue
            try:
                part = os.read(self._master, 65536)
            except OSError:  # the other end is closed
                break
            if not part:
                break
            self.seen += re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", part.decode(errors="replace"))
        assert until is None or re.search(until, self.seen), self.seen[-2000:]
        return self.seen


def test_ctrl_c_writes_the_design_so_far_with_its_questions(words, tmp_path):
    """End to end: the bar shows the gap, SIGINT ends the solve, the files are whole, the exit code is 130."""
    given = ["--vocabulary", str(words), "--solver", "frank_wolfe", "--tolerance", "1e-12", "--iterations", "10000000"]
    terminal = Terminal([*given, "--episodes", "3", "--out", "stopped"], tmp_path)
    try:
        terminal.read(r"gap \d\.\de-\d+ of the gain, aim 1e-12\s+iteration [1-9]")
        terminal.process.send_signal(signal.SIGINT)
        text = " ".join(terminal.read(None).split())
        assert terminal.process.wait(60) == 130
    finally:
        terminal.process.kill()
    assert re.search(r"edpbrl: stopped by you after \d+ iterations; the design so far is certified", text)
    assert "written to stopped with its questions" in text
    out = tmp_path / "stopped"
    design = document(out)["design"]
    assert design["status"] == "interrupted" and 0 < design["efficiency"] <= 1
    assert len(pandas.read_csv(out / "questions.csv")) == 3 * 3
    env = make_prompt_lanes(4, vocabulary=str(words), encoder="minilm")
    agent = type(make_agent("frank_wolfe", env, num_options=4, episodes=3)).load(out / "agent", env)
    assert agent.design is not None and agent.design.status == "interrupted"
    assert "callback" not in agent.options
    assert "Design by frank_wolfe: interrupted" in (tmp_path / "stdout.txt").read_text()


@contextmanager
def interrupting(tolerance):
    """In place of the bar: Ctrl-C in the second iteration."""

    def callback(state):
        if state.iteration == 1:
            raise KeyboardInterrupt

    yield callback


def test_newton_stops_as_cleanly(words, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr("edpbrl_gym.cli.design.solving", interrupting)
    given = [
        "--vocabulary",
        str(words),
        "--regularization",
        "0.001",
        "--tolerance",
        "0",
        "--out",
        str(tmp_path / "out"),
    ]
    assert main(["design", *given]) == 130
    captured = capsys.readouterr()
    assert captured.err.splitlines()[-1].startswith("edpbrl: stopped by you after 1 iterations; the design so far")
    assert "edpbrl estimate" in captured.out
    assert document(tmp_path / "out")["design"]["status"] == "interrupted"
    assert (tmp_path / "out" / "questions.csv").is_file()


def test_ctrl_c_before_the_first_iteration_writes_nothing(words, tmp_path, capsys, monkeypatch):
    def interrupted(*_, tolerance=1e-6, **__):
        raise KeyboardInterrupt

    monkeypatch.setitem(SOLVERS, "newton", interrupted)
    assert main(["design", "--vocabulary", str(words), "--out", str(tmp_path / "out")]) == 130
    assert "edpbrl: interrupted" in capsys.readouterr().err
    assert not list((tmp_path / "out").glob("*"))


def test_experiments_keep_no_design_cut_short(words, tmp_path, monkeypatch):
    """There Ctrl-C ends the run: a run that goes on later must not find a worse design than it asks for."""
    from edpbrl_gym.agents.design import DesignAgent
    from edpbrl_gym.experiments.designs import Tokens
    from edpbrl_gym.experiments.settings import SyntheticSettings

    monkeypatch.setattr(DesignAgent, "learn", _interrupted_learn)
    settings = SyntheticSettings(vocabulary=str(words), episodes=(2,), runs=1)
    tokens = Tokens(fingerprint=_fingerprint(), texts=[], rows=np.empty((0, 384), dtype=np.float32))
    with pytest.raises(KeyboardInterrupt):
        solve_and_save(settings, 0, 2, tmp_path / "run", tokens)
    assert not (tmp_path / "run").exists()


def _interrupted_learn(self):
    self.design = SimpleNamespace(status="interrupted")
    return self


def _fingerprint() -> str:
    from edpbrl_gym.features import load_encoder

    return load_encoder("minilm", cache=False).fingerprint


def states(*gaps: float):
    return [SimpleNamespace(relative_gap=gap, iteration=number) for number, gap in enumerate(gaps)]


@pytest.mark.parametrize(
    ("tolerance", "gaps", "expected"),
    [
        (1e-6, (1.0, 1e-3, 1e-2, 1e-6), [0.0, 0.5, 0.5, 1.0]),  # on a log scale, never back
        (1e-2, (1e-3,), [1.0]),  # there at once
        (1e-2, (1e-2, 1e-2), [1.0, 1.0]),
        (1e-4, (float("inf"), 1.0, 1e-2), [None, 0.0, 0.5]),
        (0.0, (1.0, 1e-3), [None, None]),  # no end: the bar runs to and fro
        (1e-6, (1.0, 10.0, 0.0), [0.0, 0.0, 1.0]),
    ],
)
def test_the_bar_shows_the_gap_on_a_log_scale(tolerance, gaps, expected, monkeypatch):
    shown = []

    def update(self, task, **fields):
        shown.append(None if fields["total"] is None else fields["completed"] / fields["total"])

    monkeypatch.setattr("rich.progress.Progress.update", update)
    with solving(tolerance) as callback:
        assert [callback(state) for state in states(*gaps)] == [None] * len(gaps)  # a true value would stop the solver
    assert [value if value is None else pytest.approx(value) for value in expected] == shown


def test_nothing_is_drawn_where_stderr_is_no_terminal(capsys):
    with solving(1e-6) as callback:
        for state in states(1.0, 1e-3):
            callback(state)
    captured = capsys.readouterr()
    assert captured.err.strip() == captured.out == ""
