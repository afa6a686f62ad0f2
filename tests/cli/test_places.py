"""Two commands on one ``--out``: the second is told so before the work, and nothing is left of the locks."""

from __future__ import annotations

import os
import subprocess
import sys

import numpy as np
import pandas
import pytest

from edpbrl_gym._files import hold
from edpbrl_gym._places import hold_place
from edpbrl_gym.cli import main
from edpbrl_gym.personalize.taste import load_taste, save_taste
from edpbrl_gym.vocabulary import load_vocabulary
from tests.helpers.small_vocabulary import write_embedded
from tests.helpers.tiny_language_model import write_tiny_model

FOLDERS = ("demo", "design", "render", "reproduce synthetic", "reproduce reinforce", "reproduce llm",
           "bench efficiency", "bench comparison")  # fmt: skip
PLACES = ("estimate", "personalize", "train-prompt-lm")  # a file, or a folder that is replaced as a whole


@pytest.fixture(scope="module")
def inputs(tmp_path_factory):
    """A vocabulary, its embeddings, a taste, answers, prompts and a tiny language model."""
    place = tmp_path_factory.mktemp("inputs")
    words, encoder = write_embedded(place)
    save_taste(place / "theta.safetensors", np.arange(1.0, 11.0), {"encoder": encoder})
    tokens = load_vocabulary(words).tokens[0]
    table = pandas.DataFrame({"option_1": tokens[:4], "option_2": tokens[4:8], "choice": [1, 2, 1, 1]})
    table.to_csv(place / "answers.csv", index=False)
    (place / "prompts.txt").write_text("a gate\n")
    return place, words, encoder


@pytest.fixture(scope="module")
def language(tmp_path_factory):
    return write_tiny_model(tmp_path_factory.mktemp("model"))


def given(command, inputs, out, request) -> list[str]:
    place, words, encoder = inputs
    more = {
        "personalize": [place / "theta.safetensors", "--count", "5"],
        "estimate": [place / "answers.csv", "--encoder", encoder, "--prior", "ridge"],
        "render": [place / "prompts.txt", "--model", place / "none"],
        "design": ["--encoder", encoder, "--solver", "random", "--episodes", "3"],
        "train-prompt-lm": ["--quick", "--prompts", "120", "--steps", "4"],
    }.get(command, ["--encoder", encoder])
    if command == "reproduce reinforce":
        more += ["--quick", "--model", request.getfixturevalue("language")]
    if command == "reproduce llm":
        more += ["--judge-model", "local", "--base-url", "http://127.0.0.1:9/v1", "--num-options", "2"]
    if command not in ("render", "estimate"):
        more += ["--vocabulary", words]
    return [str(one) for one in [*command.split(), *more, "--out", out]]


@pytest.mark.parametrize("command", [*FOLDERS, *PLACES])
def test_a_place_that_another_process_holds_is_refused_before_the_work(command, inputs, tmp_path, capsys, request):
    out = tmp_path / "out"
    lock = out / ".lock" if command in FOLDERS else tmp_path / ".out.lock"
    lock.parent.mkdir(exist_ok=True)
    with open(lock, "w") as file:
        assert hold(file.fileno())
        file.write("4711\n")
        file.flush()
        assert main(given(command, inputs, out, request)) == 1
        line = capsys.readouterr().err.strip().splitlines()[-1]
        assert line.startswith(f"edpbrl: error: Expected {out} to be free, another process (4711) "), line
        assert "wait until it ends" in line
        assert [path for path in tmp_path.rglob("*") if path != out] == [lock]


@pytest.mark.parametrize("command", PLACES)
def test_other_places_of_the_same_folder_are_free_and_no_lock_is_left(command, inputs, tmp_path, request):
    held = hold_place(tmp_path / "other")
    name = "n" * 240  # with .lock longer than most file systems take
    assert main(given(command, inputs, tmp_path / name, request)) == 0
    del held
    assert [path.name for path in tmp_path.iterdir()] == [name]


def test_a_link_and_what_it_leads_to_are_one_place(inputs, tmp_path, capsys, request):
    (tmp_path / "link").symlink_to("kept")
    program = "import sys; from pathlib import Path; from edpbrl_gym._places import hold_place\n"
    program += "held = hold_place(Path(sys.argv[1])); print('held', flush=True); sys.stdin.read()"
    command = [sys.executable, "-c", program, str(tmp_path / "link")]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as other:
        assert other.stdout is not None and other.stdout.readline() == "held\n"
        assert main(given("estimate", inputs, tmp_path / "kept", request)) == 1
        assert f"another process ({other.pid}) is about to write it" in capsys.readouterr().err
        other.kill()
    assert main(given("estimate", inputs, tmp_path / "kept", request)) == 0  # what a killed one left holds nothing
    assert load_taste(tmp_path / "link").theta.shape == (10,)
    assert sorted(os.listdir(tmp_path)) == ["kept", "link"]
