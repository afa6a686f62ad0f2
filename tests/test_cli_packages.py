"""A package of an extra that a command will need is asked for at once: nothing is encoded, searched or written."""

from __future__ import annotations

import sys

import pytest

from edpbrl_gym.agents.registry import check_agent
from edpbrl_gym.cli import main
from tests.small_vocabulary import write_vocabulary

OWN = ["--encoder", "tests.encoders:NeverEncoder"]


@pytest.mark.parametrize(
    ("package", "extra", "command"),
    [
        ("cvxpy", "reference", ["design", "--solver", "reference", *OWN]),
        ("cvxpy", "reference", ["reproduce", "synthetic", "--agents", "reference", "random", "--jobs", "1", *OWN]),
        ("cvxpy", "reference", ["reproduce", "llm", "--judge-model", "m", "--agents", "reference", "random", *OWN]),
        ("openai", "judge", ["reproduce", "llm", "--judge-model", "m", *OWN]),
        ("diffusers", "images", ["reproduce", "llm", "--judge-model", "m", "--render-model", "m", *OWN]),
        ("diffusers", "images", ["personalize", "theta", "--model", "m", *OWN]),
        ("PIL", "images", ["personalize", "theta", "--model", "m", *OWN]),
        ("peft", "language", ["reproduce", "reinforce", "--kind", "adapters", *OWN]),
        ("tensorboard", "language", ["reproduce", "reinforce", "--tensorboard", *OWN]),
    ],
)
def test_a_missing_package_is_told_before_any_work(package, extra, command, tmp_path, capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, package, None)
    words = write_vocabulary(tmp_path / "words")
    out = tmp_path / "out"
    assert main([*command, "--vocabulary", str(words), "--out", str(out)]) == 1
    error = capsys.readouterr().err
    assert f"'{package}'" in error and f'pip install "edpbrl-gym[{extra}]"' in error
    assert not out.exists()


def test_an_agent_without_needs_passes():
    for name in ("newton", "random", "bald", "reference"):
        check_agent(name)
