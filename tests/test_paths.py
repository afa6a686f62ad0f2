"""How many files a reader has to open: those of the package in which a function runs, counted by a profile hook."""

from __future__ import annotations

import gc
import sys
from pathlib import Path

import numpy as np
import pytest

import edpbrl_gym as eg
from edpbrl_gym.cli import main
from edpbrl_gym.design import newton
from edpbrl_gym.estimation import estimate
from edpbrl_gym.mdp import PromptMDP

ROOT = Path(__file__).resolve().parent.parent
ROOMS = ("edpbrl_gym", "agents", "envs")


def files_of(call, again=None):
    """The files in which a function runs during a second call, so that all imports are done."""
    found = set()

    def note(frame, event, argument):
        if event == "call":
            found.add(frame.f_code.co_filename)

    call()
    gc.collect()  # what earlier tests left, whose finalizers would count too
    sys.setprofile(note)
    try:
        (again or call)()
    finally:
        sys.setprofile(None)
    inside = (Path(name).resolve() for name in found if not name.startswith("<"))
    return sorted(
        str(path.relative_to(ROOT))
        for path in inside
        if path.is_relative_to(ROOT) and path.relative_to(ROOT).parts[0] in ROOMS
    )


def test_an_estimate_and_a_design_by_newton():
    rng = np.random.default_rng(0)
    options, answers = rng.standard_normal((60, 4, 12)), rng.integers(4, size=60)
    assert len(files_of(lambda: estimate((options, answers)))) <= 8
    problem = eg.DesignProblem(
        mdp=PromptMDP((31,)),
        features=rng.standard_normal((31, 5)),
        num_policies=4,
        episodes=60,
        regularization=1.0,
        criterion=eg.make_criterion("D"),
    )
    assert len(files_of(lambda: newton(problem))) <= 15


@pytest.fixture
def words():
    return eg.load_vocabulary("interiors").subset(8, 0)


def test_a_question_of_a_session(minilm, words):
    """With texts whose embeddings are in the cache: the same question was asked before."""

    def begun():
        planner = eg.make_planner("adaptive", words, minilm, num_options=4, seed=1)
        session = eg.Session(planner, vocabulary=words, encoder=minilm, seed=2)
        session.ask()
        session.tell(0)
        return session

    files = files_of(begun().ask, begun().ask)
    assert len(files) <= 17, files


def test_a_design_on_the_command_line(minilm, words, tmp_path, capsys):
    for name, tokens in zip(words.names, words.tokens, strict=True):
        (tmp_path / f"{name}.txt").write_text("\n".join(tokens), encoding="utf-8")
    arguments = ["design", "--vocabulary", str(tmp_path), "--episodes", "8", "--out"]
    outs = iter([tmp_path / "first", tmp_path / "second"])
    files = files_of(lambda: main([*arguments, str(next(outs))]))
    assert "efficiency" in capsys.readouterr().out
    assert len(files) <= 45, files
