"""The arguments of `edpbrl ask` that say nothing together, its display, and what goes on in a folder."""

import json

import pytest

from edpbrl_gym.cli import main
from edpbrl_gym.cli.ask_in_browser import has_display
from tests.helpers.commands import refused

TOGETHER = {
    "no subject with --terminal": ["a lighthouse", "--terminal"],
    "no --renderer with --terminal": ["--terminal", "--renderer", "posters"],
    "Expected --terminal with --feedback state": ["--feedback", "state"],
    "no --pool with --pictures": ["--pictures", ".", "--pool", "9"],
    "a folder of pictures at nowhere, found none": ["--pictures", "nowhere"],
    "Expected --renderer with --features both": ["--vocabulary", "interiors", "--features", "both"],
    "Expected --port": ["--port", "70000"],
    "did you mean 'posters'": ["--renderer", "postters"],
    "num_options (K) >= 2": ["--num-options", "1"],
}


@pytest.mark.parametrize("said", TOGETHER)
def test_options_that_say_nothing_together_are_refused(said, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert main(["ask", "--no-open", "--out", "out", *TOGETHER[said]]) in (1, 2)
    error = capsys.readouterr().err
    assert said in error and "Traceback" not in error and len(error.splitlines()) == 1
    assert not (tmp_path / "out/session").exists()


def test_a_folder_of_others_is_refused_and_one_that_began_keeps_its_settings(arguments, tmp_path, capsys):
    begun = {"format_of_file": "edpbrl-gym ask 1", "vocabulary": "posters", "num_options": 4, "format": "best",
             "feedback": "prompt", "planner": "adaptive", "prior": None, "encoder": "minilm", "seed": 0, "pool": 40,
             "renderer": "posters", "subject": "a fox", "features": "text"}  # fmt: skip
    out = tmp_path / "ask"
    out.mkdir()
    (out / "ask.json").write_text(json.dumps(begun))
    (out / "opening.jsonl").write_text("")
    ask = ["ask", "--no-open", "--out", str(out)]
    for more, said in (
        (["--pool", "50"], "Expected --pool 40, with which the questions in"),
        (["a cat"], "Expected the subject a fox, with which"),
        (["--renderer", "folder:x"], "Expected --renderer posters, with which"),
        (["--renderer-option", "width=64"], "Expected no --renderer-option,"),
        (["--format", "rating"], "Expected --format best"),
    ):
        refused(capsys, [*ask, *more], 2, said, "another --out")


def test_a_browser_is_opened_where_it_is_seen(monkeypatch):
    for name in ("SSH_CONNECTION", "DISPLAY", "WAYLAND_DISPLAY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr("sys.platform", "linux")
    assert not has_display()
    monkeypatch.setenv("WAYLAND_DISPLAY", "wayland-0")
    assert has_display()
    monkeypatch.setenv("SSH_CONNECTION", "10.0.0.1 1 10.0.0.2 22")
    assert not has_display()
    monkeypatch.delenv("SSH_CONNECTION")
    monkeypatch.delenv("WAYLAND_DISPLAY")
    monkeypatch.setattr("sys.platform", "darwin")
    assert has_display()
