"""A package of an extra that a command will need is asked for at once: nothing is encoded, searched or written."""

import importlib.util
import sys

import pytest

from edpbrl_gym._compat import EXTRAS
from edpbrl_gym.cli import main

OWN = ["--encoder", "tests.helpers.encoders:NeverEncoder"]


def hide(monkeypatch):
    """Let no package of an extra be found, as in a bare environment; those that are loaded stay, for tyro."""
    extras = set().union(*EXTRAS.values())
    find = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name, *more: None if name in extras else find(name, *more))


@pytest.mark.parametrize(
    ("command", "extras"),
    [
        (["demo"], "text,experiments,pictures"),
        (["ask"], "study,pictures,text"),
        (["ask", "--terminal"], "text"),
        (["design", *OWN, "--solver", "deep"], "rl"),
        (["design", *OWN, "--solver", "reference"], "reference"),
        (["reproduce", "llm", "--judge-model", "m", "--renderer", "m", *OWN], "judge,experiments,images"),
        (["design", "--encoder", "open_clip:ViT-L-14/openai"], "clip"),
        (["personalize", "theta", "--renderer", "m", "--encoder", "minilm"], "text,images"),
        (["reproduce", "reinforce", "--kind", "adapters", "--tensorboard"], "text,experiments,language"),
        (["reproduce", "llm"], "text,judge,experiments"),
        (["encode", "texts.txt"], "text"),
        (["render", "p.txt", "--renderer", "m", "--dask", "tcp://127.0.0.1:1"], "images,cluster"),
        (["report", "run"], "experiments"),
        (["study", "check", "folder"], "study"),
        (["study", "report", "folder"], "study,experiments"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else value,
)
def test_without_any_extra_one_command_installs_all_that_is_missing(command, extras, tmp_path, capsys, monkeypatch):
    hide(monkeypatch)
    monkeypatch.chdir(tmp_path)
    assert main(command) == 1
    error = capsys.readouterr().err
    assert f'pip install "edpbrl-gym[{extras}]"' in error and len(error.splitlines()) == 1
    assert list(tmp_path.iterdir()) == []


def test_the_researchers_pages_need_figures(tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("EDPBRL_ADMIN_TOKEN", "a secret of some length")
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    assert main(["study", "serve", str(tmp_path)]) == 1
    said = 'EDPBRL_ADMIN_TOKEN), got no such package; run: pip install "edpbrl-gym[experiments]"'
    assert said in capsys.readouterr().err


def test_encoders_named_in_files_are_asked_for_when_these_are_read(tmp_path, capsys, monkeypatch):
    """Nothing is encoded or written by then."""
    hide(monkeypatch)
    file = tmp_path / "questions.csv"
    file.write_text("option_1,option_2,choice\na gate,fog,1\n")
    assert main(["estimate", str(file), "--out", str(tmp_path / "out")]) == 1
    said = "for the encoder 'minilm', got no such packages; run: pip install \"edpbrl-gym[text]\""
    assert said in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["questions.csv"]


def test_a_study_on_postgresql_asks_for_its_driver_when_the_configuration_is_read(tmp_path, capsys, monkeypatch):
    assert main(["study", "init", str(tmp_path / "study")]) == 0
    config = tmp_path / "study" / "study.toml"
    text = config.read_text(encoding="utf-8")
    config.write_text(text.replace("# database =", "database ="), encoding="utf-8")
    monkeypatch.setitem(sys.modules, "psycopg", None)
    for command in ("check", "serve", "export"):
        capsys.readouterr()
        assert main(["study", command, str(tmp_path / "study")]) == 1
        error = capsys.readouterr().err
        assert "'psycopg' for a study on PostgreSQL" in error and 'pip install "edpbrl-gym[postgresql]"' in error
        assert len(error.splitlines()) == 1
