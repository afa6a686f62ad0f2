"""A package of an extra that a command will need is asked for at once: nothing is encoded, searched or written."""

from __future__ import annotations

import ast
import configparser
import importlib.metadata
import re
import sys
from pathlib import Path

import pytest

from edpbrl_gym.agents.registry import check_agent
from edpbrl_gym.cli import main
from tests.helpers.small_vocabulary import write_vocabulary

ROOT = Path(__file__).resolve().parents[2]
OWN = ["--encoder", "tests.helpers.encoders:NeverEncoder"]


@pytest.mark.parametrize(
    ("package", "extra", "command"),
    [
        ("cvxpy", "reference", ["design", "--solver", "reference", *OWN]),
        ("cvxpy", "reference", ["reproduce", "synthetic", "--agents", "reference", "random", "--jobs", "1", *OWN]),
        ("cvxpy", "reference", ["reproduce", "llm", "--judge-model", "m", "--agents", "reference", "random", *OWN]),
        ("diffusers", "images", ["reproduce", "llm", "--judge-model", "m", "--render-model", "m", *OWN]),
        ("diffusers", "images", ["personalize", "theta", "--model", "m", *OWN]),
        ("PIL", "images", ["personalize", "theta", "--model", "m", *OWN]),
        ("peft", "language", ["reproduce", "reinforce", "--kind", "adapters", *OWN]),
        ("distributed", "cluster", ["reproduce", "synthetic", "--dask", "tcp://127.0.0.1:1", *OWN]),
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


def test_the_extra_that_a_command_names_brings_the_package():
    """Every ``check_installed("package", ..., "extra")`` in the sources, against what setup.cfg says of that extra."""
    setup = configparser.ConfigParser()
    setup.read(ROOT / "setup.cfg")
    brought = {
        extra: {re.split(r"[^\w.-]", line)[0].lower().replace("_", "-") for line in listed.split()}
        for extra, listed in setup["options.extras_require"].items()
    }
    distributions = importlib.metadata.packages_distributions()
    asked = set()
    for path in (ROOT / "edpbrl_gym").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "check_installed":
                package, _, extra = (getattr(argument, "value", None) for argument in node.args)
                if isinstance(package, str):
                    asked.add((package, extra))
    assert len(asked) >= 4
    for package, extra in sorted(asked):
        names = {name.lower().replace("_", "-") for name in distributions.get(package, [package])}
        assert names & brought[extra], f"the extra {extra!r} does not bring {package!r}"
