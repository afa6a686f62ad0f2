"""A package of an extra that a command will need is asked for at once: nothing is encoded, searched or written."""

from __future__ import annotations

import importlib.util
import sys

import pytest

from edpbrl_gym._compat import EXTRAS, Need, check_installed
from edpbrl_gym.agents.registry import check_agent
from edpbrl_gym.cli import main
from tests.helpers.small_vocabulary import write_vocabulary

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


def hide(monkeypatch):
    """Let no package of an extra be found, as in a bare environment; those that are loaded stay, for tyro."""
    extras = set().union(*EXTRAS.values())
    find = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name, *more: None if name in extras else find(name, *more))


@pytest.mark.parametrize(
    ("command", "extras"),
    [
        (["demo"], "text,experiments"),
        (["demo", *OWN], "experiments"),
        (["ask"], "text"),
        (["ask", "--planner", "botorch-bald", *OWN], "external"),
        (["design"], "text"),
        (["design", *OWN, "--device", "cuda"], "text"),
        (["design", *OWN, "--solver", "deep"], "rl"),
        (["design", *OWN, "--solver", "reinforce-network"], "text"),
        (["design", "--encoder", "open_clip:ViT-L-14/openai"], "clip"),
        (["estimate", "answers.csv", "--encoder", "minilm"], "text"),
        (["fit-population", "answers", "--encoder", "minilm"], "text"),
        (["personalize", "theta", "--model", "m", "--encoder", "minilm", "--policy", "p"], "text,images"),
        (["render", "prompts.txt", "--model", "m"], "images"),
        (["reproduce", "synthetic"], "text,experiments"),
        (["reproduce", "reinforce", "--kind", "adapters", "--tensorboard"], "text,experiments,language"),
        (["reproduce", "llm"], "text,experiments"),
        (["bench", "efficiency", "--dask", "tcp://127.0.0.1:1"], "text,experiments,cluster"),
        (["bench", "first-answers", "--report", "run"], "experiments"),
        (["bench", "people", "electricity"], "experiments"),
        (["bench", "communities"], "text,experiments"),
        (["encode", "texts.txt"], "text"),
        (["render", "p.txt", "--model", "m", "--dask", "jobs.toml"], "images,cluster"),
        (["report", "run"], "experiments"),
        (["train-prompt-lm"], "text"),
        (["train-mini-diffusion"], "images"),
        (["study", "check", "folder"], "study"),
        (["study", "serve", "folder"], "study"),
        (["study", "export", "folder"], "study"),
        (["study", "report", "folder"], "study,experiments"),
        (["study", "replay", "folder", "someone"], "study"),
        (["study", "delete", "folder", "--participant", "someone"], "study"),
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
    assert (
        'EDPBRL_ADMIN_TOKEN), got no such package; run: pip install "edpbrl-gym[experiments]"'
        in capsys.readouterr().err
    )


def test_encoders_named_in_files_are_asked_for_when_these_are_read(tmp_path, capsys, monkeypatch):
    """Nothing is encoded or written by then."""
    hide(monkeypatch)
    file = tmp_path / "questions.csv"
    file.write_text("option_1,option_2,choice\na gate,fog,1\n")
    assert main(["estimate", str(file), "--out", str(tmp_path / "out")]) == 1
    assert (
        "for the encoder 'minilm', got no such packages; run: pip install \"edpbrl-gym[text]\""
        in capsys.readouterr().err
    )
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


def test_packages_of_others_are_installed_by_their_names():
    with pytest.raises(
        ModuleNotFoundError, match=r"'no_such_one' for mine, got no such package; run: pip install no_s"
    ):
        check_installed(Need("no_such_one", "mine"), Need("numpy", "mine"))
    with pytest.raises(
        ModuleNotFoundError, match=r'packages .* and .*run: pip install "edpbrl-gym\[text\]" no_such_one$'
    ):
        _without_torch(Need("no_such_one", "mine"), Need("torch", "models"))


def _without_torch(*needs):
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(sys.modules, "torch", None)
        check_installed(*needs)
