"""The prompt model that ships: its files match their record, and everything starts from it on a fresh machine."""

from __future__ import annotations

import configparser
import hashlib
import json
from dataclasses import asdict, replace
from pathlib import Path

import gymnasium
import numpy as np
import pytest

from edpbrl_gym.language.corpus import compose_corpus
from edpbrl_gym.language.folders import TRAINING_FILE
from edpbrl_gym.language.model import SHIPPED_FOLDER, SHIPPED_NAME, load_language_model
from edpbrl_gym.language.perplexity import measure_perplexity
from edpbrl_gym.language.training import DEFAULT, QUICK, train_prompt_lm
from edpbrl_gym.vocabulary import load_vocabulary
from tests.helpers.small_vocabulary import write_vocabulary

ROOT = Path(__file__).resolve().parents[2]


def record(folder: Path) -> dict:
    return json.loads((folder / TRAINING_FILE).read_text(encoding="utf-8"))


def check_files(folder: Path) -> None:
    """Sizes, hashes, fingerprint and sizes of the model are those of the record; no file is missing from it."""
    document = record(folder)
    files = {path.name: path.read_bytes() for path in folder.iterdir() if path.name != TRAINING_FILE}
    assert document["files"] == {
        name: {"bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()} for name, data in files.items()
    }
    language = load_language_model(folder, device="cpu")
    assert document["fingerprint"] == language.fingerprint
    assert document["report"]["parameters"] == sum(one.numel() for one in language.model.parameters())
    assert document["report"]["vocabulary_size"] == language.rules.size


def test_a_trained_model_matches_its_record(tmp_path):
    words = load_vocabulary(write_vocabulary(tmp_path / "vocabulary"))
    settings = replace(QUICK, prompts=60, held_out=20, steps=3, vocabulary_size=300)
    train_prompt_lm(tmp_path / "lm", vocabulary=words, settings=settings, seed=5)
    check_files(tmp_path / "lm")
    assert record(tmp_path / "lm")["settings"] == asdict(settings)
    (tmp_path / "lm" / "config.json").write_text("{}")
    with pytest.raises(AssertionError):
        check_files(tmp_path / "lm")


def test_the_shipped_model_matches_its_record():
    check_files(SHIPPED_FOLDER)
    document = record(SHIPPED_FOLDER)
    assert document["settings"] == asdict(DEFAULT) and document["seed"] == 0
    report = document["report"]
    words = load_vocabulary().subset(DEFAULT.tokens_per_step, 0)
    assert document["vocabulary_fingerprint"] == words.fingerprint
    corpus = compose_corpus(words, train=DEFAULT.prompts, held_out=DEFAULT.held_out, seed=0)
    assert document["corpus_fingerprint"] == corpus.fingerprint
    assert (report["prompts"], report["held_out"]) == (len(corpus.train), len(corpus.held_out))
    language = load_language_model(device="cpu")
    found = measure_perplexity(language.model, language.tokenizer, corpus.held_out)
    assert found.per_token == pytest.approx(report["perplexity_held_out"], rel=1e-4)
    assert found.per_word == pytest.approx(report["perplexity_held_out_per_word"], rel=1e-4)


def test_the_package_holds_every_file():
    """What setup.cfg names is in the wheel; MANIFEST.in in the archive of the sources."""
    setup = configparser.ConfigParser()
    setup.read(ROOT / "setup.cfg")
    patterns = setup["options.package_data"]["edpbrl_gym.language"].split()
    package = ROOT / "edpbrl_gym" / "language"
    named = {path for pattern in patterns for path in package.glob(pattern)}
    shipped = set(SHIPPED_FOLDER.iterdir())
    assert named == shipped and {path.name for path in shipped} == {*record(SHIPPED_FOLDER)["files"], TRAINING_FILE}
    listed = next(line for line in (ROOT / "MANIFEST.in").read_text().splitlines() if "edpbrl_gym" in line).split()
    assert {f"*{path.suffix}" for path in shipped} <= set(listed)
    assert sum(path.stat().st_size for path in shipped) < 6e6


def test_the_environment_works_on_a_fresh_machine(tmp_path, monkeypatch):
    import edpbrl_gym  # noqa: F401

    monkeypatch.setenv("EDPBRL_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("HOME", str(tmp_path))
    known = {word.strip(",") for token in load_vocabulary().all_tokens for word in token.split()}
    env = gymnasium.make("edpbrl/TextGeneration-v0")
    rng, written = np.random.default_rng(0), []
    for episode in range(10):
        _, info = env.reset(seed=episode)
        done = False
        while not done:
            chances = env.unwrapped.next_token_probabilities()
            _, _, done, _, info = env.step(rng.choice(len(chances), p=chances))
        written += [word.strip(",") for word in info["prompt"].split()]
    assert env.unwrapped.language_model.name == SHIPPED_NAME and "model" not in (env.spec.kwargs or {})
    assert np.mean([word in known for word in written]) > 0.8  # it writes in the words of the vocabulary
    lanes = gymnasium.make_vec("edpbrl/TextGeneration-v0", num_envs=2)
    assert np.exp(lanes.unwrapped.next_token_log_probs()).sum(axis=1) == pytest.approx(1.0, abs=1e-4)
