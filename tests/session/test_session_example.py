"""The ask / tell example: simulated and at the keyboard, saved and resumed."""

from __future__ import annotations

import io
import re
import sys

import numpy as np
import pytest

from edpbrl_gym.oracles import ImperfectUser
from tests.helpers.encoders import CountingEncoder
from tests.helpers.examples import load

THETA = np.random.default_rng(1).normal(size=12)


@pytest.fixture
def example(monkeypatch):
    """The example with an encoder that costs nothing."""
    module = load("ask_tell.py")
    monkeypatch.setattr(module.eg, "load_encoder", lambda name: CountingEncoder(12))
    monkeypatch.setattr(ImperfectUser, "from_text", classmethod(lambda cls, text, encoder, **rest: cls(THETA, **rest)))
    return module


def run(example, capsys, folder, **arguments):
    example.main(example.Args(tokens_per_step=6, planner="random", folder=folder, **arguments))
    return capsys.readouterr().out


def test_a_simulated_user_and_on_the_next_day(example, capsys, tmp_path):
    first = run(example, capsys, tmp_path / "one", questions=30, target=0.95)
    assert first.startswith("0 questions answered before") and "after 12 questions: 12 of at least 24" in first
    assert re.search(r"\n30 questions, predicted accuracy \d\d\.\d%", first)
    lines = re.findall(r"^ +(-?[\d.]+)  \[ *(-?[\d.]+), +(-?[\d.]+)\]  .+, .+$", first, flags=re.M)
    assert len(lines) == 5
    assert all(float(low) <= float(score) <= float(high) for score, low, high in lines)
    second = run(example, capsys, tmp_path / "one", questions=3)
    assert second.startswith("30 questions answered before") and "\n33 questions, " in second


def test_a_person_at_the_keyboard(example, capsys, tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "stdin", io.StringIO("1\ns\nx\n9\nu\n2\n4\nq\n"))
    output = run(example, capsys, tmp_path / "one", person=True)
    asked = re.findall(r"Question (\d): which", output)
    assert asked == ["1", "2", "3", "2", "3", "4"]  # one skipped, and taken back
    assert "\n3 questions, predicted accuracy" in output
    monkeypatch.setattr(sys, "stdin", io.StringIO(""))
    output = run(example, capsys, tmp_path / "one", person=True)  # the end of the input ends it too
    assert output.startswith("3 questions answered before") and "Question 4: which" in output


def test_nothing_learnt(example, capsys, monkeypatch):
    monkeypatch.setattr(sys, "stdin", io.StringIO("s\nq\n"))
    assert "nothing learnt yet" in run(example, capsys, None, person=True)
