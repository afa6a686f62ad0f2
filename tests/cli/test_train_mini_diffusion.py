"""``edpbrl train-mini-diffusion`` end to end, with a few steps."""

from __future__ import annotations

import json

import gymnasium
import pytest

import edpbrl_gym  # noqa: F401  (registers the environments)
from edpbrl_gym.cli import main
from tests.helpers.commands import refused


def test_a_model_that_the_environment_takes(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main(["train-mini-diffusion", "--quick", "--steps", "2", "--seed", "3"]) == 0
    printed = capsys.readouterr().out
    for text in ("164,689 parameters, 2 steps", "as the digit asked for", "Written: mini-diffusion-quick"):
        assert text in printed
    assert 'gymnasium.make("edpbrl/DiffusionGuidance-v0", model="mini-diffusion-quick")' in printed
    document = json.loads((tmp_path / "mini-diffusion-quick" / "training.json").read_text())
    assert document["seed"] == 3 and document["settings"]["steps"] == 2
    env = gymnasium.make("edpbrl/DiffusionGuidance-v0", model="mini-diffusion-quick", blocks=2, steps=2)
    env.reset(seed=0)
    assert env.step(7)[4]["directions"] == "7 x 2"


@pytest.mark.parametrize(
    ("option", "said"),
    [
        (["--steps", "0"], "--steps >= 1, got 0"),
        (["--seed", "-1"], "--seed >= 0, got -1"),
        (["--steps", "many"], "'many'"),
        (["--colour", "red"], "--colour"),
    ],
)
def test_wrong_arguments(option, said, tmp_path, capsys):
    refused(capsys, ["train-mini-diffusion", *option, "--out", tmp_path / "model"], 2, "error: ", said)


def test_another_folder_is_left_alone(tmp_path, capsys):
    (tmp_path / "notes.txt").write_text("keep me")
    refused(capsys, ["train-mini-diffusion", "--steps", "2", "--out", tmp_path], 1, "error: ", "free or a folder")
    assert (tmp_path / "notes.txt").read_text() == "keep me"
