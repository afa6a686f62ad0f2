"""``edpbrl train-prompt-lm`` end to end, with tiny sizes."""

from __future__ import annotations

import json

import pytest
import torch

from edpbrl_gym.cli import main
from edpbrl_gym.language.model import load_language_model
from tests.helpers.commands import refused
from tests.helpers.small_vocabulary import write_vocabulary

TINY = ["train-prompt-lm", "--quick", "--prompts", "120", "--steps", "4", "--vocabulary"]


@pytest.fixture(scope="module")
def words(tmp_path_factory):
    return str(write_vocabulary(tmp_path_factory.mktemp("words") / "vocabulary"))


def test_a_model_with_its_figures_and_samples(words, tmp_path, capsys):
    out = tmp_path / "lm"
    assert main([*TINY, words, "--seed", "3", "--out", str(out)]) == 0
    printed = capsys.readouterr().out
    for text in ("parameters", "120 prompts, 4 steps", "held-out prompts", "per word", "drawn from it", "Written: "):
        assert text in printed
    document = json.loads((out / "training.json").read_text())
    assert document["seed"] == 3 and document["settings"]["prompts"] == 120
    plain = [sample for sample in document["report"]["samples"] if sample.isprintable()]
    assert plain and all(f"  {sample}\n" in printed for sample in plain)
    first = (out / "model.safetensors").read_bytes()
    assert main([*TINY, words, "--seed", "3", "--out", str(out)]) == 0  # ours: trained again, the same bytes
    assert (out / "model.safetensors").read_bytes() == first
    assert load_language_model(out).model.config.n_embd == 64


def test_without_a_place_it_is_written_here_and_the_use_is_said(words, tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("EDPBRL_CACHE", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)
    assert main([*TINY, words]) == 0
    assert "edpbrl reproduce reinforce --model prompt-lm-quick" in capsys.readouterr().out
    assert [path.name for path in tmp_path.iterdir()] == ["prompt-lm-quick"]  # never in place of the large one
    assert main(["train-prompt-lm", "--prompts", "40", "--steps", "1", "--vocabulary", words]) == 0
    assert load_language_model("prompt-lm").model.config.n_embd == 128


@pytest.mark.parametrize(
    ("option", "said"),
    [
        (["--prompts", "0"], "--prompts >= 1, got 0"),
        (["--steps", "0"], "--steps >= 1, got 0"),
        (["--seed", "-1"], "--seed >= 0, got -1"),
        (["--prompts", "many"], "'many'"),
        (["--colour", "red"], "--colour"),
    ],
)
def test_wrong_arguments(option, said, tmp_path, capsys):
    refused(capsys, ["train-prompt-lm", *option, "--out", tmp_path / "lm"], 2, "error: ", said)
    assert not list(tmp_path.iterdir())


def test_places_and_vocabularies_that_cannot_be_used(words, tmp_path, capsys):
    (tmp_path / "notes.txt").write_text("mine")
    refused(capsys, [*TINY, words, "--out", tmp_path], 1, "something else there", "choose another --out")
    refused(capsys, [*TINY, words, "--out", tmp_path / "notes.txt"], 1, "something else there")
    refused(capsys, [*TINY, tmp_path / "nowhere", "--out", tmp_path / "lm"], 1, "nowhere", "check the path")
    lonely = tmp_path / "lonely"
    lonely.mkdir()
    (lonely / "1.txt").write_text("fox\n")
    refused(capsys, [*TINY, lonely, "--out", tmp_path / "lm"], 1, "enough combinations", "add tokens")
    assert {path.name for path in tmp_path.iterdir()} == {"notes.txt", "lonely"}


def test_ctrl_c_leaves_nothing_half_written(words, tmp_path, monkeypatch, capsys):
    done = []

    def step(self, closure=None):
        done.append(None)
        if len(done) == 3:
            raise KeyboardInterrupt

    monkeypatch.setattr(torch.optim.AdamW, "step", step)
    refused(capsys, [*TINY, words, "--out", tmp_path / "lm"], 130, "stopped by you; nothing was written to")
    assert len(done) == 3 and not list(tmp_path.iterdir())
