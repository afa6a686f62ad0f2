"""The ask / tell example at the keyboard, saved and resumed; tests/test_examples.py runs it with a simulated user."""

from __future__ import annotations

import io
import re
import sys

from tests.helpers.encoders import CountingEncoder
from tests.helpers.examples import load


def test_a_person_at_the_keyboard(capsys, tmp_path, monkeypatch):
    example = load("ask_tell.py")
    monkeypatch.setattr(example.eg, "load_encoder", lambda name: CountingEncoder(12))
    arguments = example.Args(tokens_per_step=6, planner="random", folder=tmp_path / "one", person=True)
    monkeypatch.setattr(sys, "stdin", io.StringIO("1\ns\nx\n9\nu\n2\n4\nq\n"))
    example.main(arguments)
    output = capsys.readouterr().out
    asked = re.findall(r"Question (\d): which", output)
    assert asked == ["1", "2", "3", "2", "3", "4"]  # one skipped, and taken back
    assert "\n3 questions, predicted accuracy" in output
    monkeypatch.setattr(sys, "stdin", io.StringIO(""))  # the end of the input ends it too
    example.main(arguments)
    output = capsys.readouterr().out
    assert output.startswith("3 questions answered before") and "Question 4: which" in output
