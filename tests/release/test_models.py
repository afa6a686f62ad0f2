"""What made the shipped models: the shipped files match their records, and a tiny training gives such a folder."""

from __future__ import annotations

import hashlib
import json
import re
from dataclasses import asdict, replace
from itertools import combinations
from pathlib import Path

import numpy as np
import pytest
import torch

from edpbrl_gym.diffusion import BlockSchedule, load_denoiser
from edpbrl_gym.diffusion.denoiser import SHIPPED_FOLDER as DIGITS
from edpbrl_gym.language.model import SHIPPED_FOLDER as PROMPTS
from edpbrl_gym.language.model import load_language_model
from edpbrl_gym.rendering.diffusers.files import model_fingerprint
from edpbrl_gym.vocabulary import Vocabulary, load_vocabulary
from release.models import digits, prompt_lm
from release.models.corpus import MAX_PARTS, compose_corpus, compose_prompts
from release.models.folders import TRAINING_FILE
from release.models.phrasing import joins, openings, with_article
from tests.helpers.small_vocabulary import write_vocabulary

TINY = prompt_lm.Settings(
    prompts=200, held_out=20, steps=60, batch_size=8, vocabulary_size=320, width=16, layers=2, heads=2, samples=3
)
ROLES = ("bases", "ambient", "style", "composition", "lighting", "detail")
# one nonsense word a token, so that a prompt can be taken apart again without knowing how it was written
NONSENSE = Vocabulary(ROLES, tuple(tuple(f"q{step}x{i}z" for i in range(12)) for step in range(6)))


def record(folder: Path) -> dict:
    return json.loads((folder / TRAINING_FILE).read_text(encoding="utf-8"))


def parts(prompt: str) -> list[tuple[int, int]]:
    return [(int(step), int(token)) for step, token in re.findall(r"q(\d)x(\d+)z", prompt)]


def check_prompt_model(folder: Path) -> None:
    """Sizes, hashes and fingerprint are those of the record; no file is missing from it."""
    document = record(folder)
    files = {path.name: path.read_bytes() for path in folder.iterdir() if path.name != TRAINING_FILE}
    assert document["files"] == {
        name: {"bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()} for name, data in files.items()
    }
    language = load_language_model(folder, device="cpu")
    assert document["fingerprint"] == language.fingerprint
    assert document["report"]["parameters"] == sum(one.numel() for one in language.model.parameters())


def test_the_shipped_prompt_model_matches_its_record():
    check_prompt_model(PROMPTS)
    document = record(PROMPTS)
    assert document["settings"] == asdict(prompt_lm.DEFAULT) and document["seed"] == 0
    words = load_vocabulary().subset(prompt_lm.DEFAULT.tokens_per_step, 0)
    assert document["vocabulary_fingerprint"] == words.fingerprint
    corpus = compose_corpus(words, train=72_000, held_out=2_000, seed=0)
    assert document["corpus_fingerprint"] == corpus.fingerprint
    language = load_language_model(device="cpu")
    found = prompt_lm.measure_perplexity(language.model, language.tokenizer, corpus.held_out)
    report = document["report"]
    assert found == pytest.approx([report["perplexity_held_out"], report["perplexity_held_out_per_word"]], rel=1e-4)


def test_the_shipped_model_of_digits_matches_its_record_and_draws_the_digits_asked_for():
    document = record(DIGITS)
    assert document["fingerprint"] == model_fingerprint(DIGITS)
    assert digits.Settings(**{**document["settings"], "channels": (16, 32)}) == digits.DEFAULT
    denoiser, config = load_denoiser(None, range(10))
    schedule = BlockSchedule("ddim", config, steps=10, blocks=5)
    asked = np.tile(np.arange(10), 10)
    latents = np.random.default_rng(11).standard_normal((100, 1, 8, 8), dtype=np.float32)
    for block in range(5):
        latents, clean = denoiser.advance(schedule, latents, np.full(100, block), asked, np.full(100, 2.0))
    read, accuracy = digits.read_digits(denoiser.images(clean)[..., 0] / 255.0)
    assert (read == asked).mean() >= 0.9 and accuracy > 0.95


def test_a_tiny_training_of_the_prompt_model(tmp_path):
    """It learns, two give the same bytes whatever the global seed, and nothing is written over."""
    words = load_vocabulary(write_vocabulary(tmp_path / "words"))
    reports = []
    for name in ("a", "b"):
        torch.manual_seed(len(reports))
        state = torch.get_rng_state()
        reports.append(prompt_lm.train(tmp_path / name, vocabulary=words, settings=TINY, seed=1)["report"])
        assert torch.equal(torch.get_rng_state(), state)
    check_prompt_model(tmp_path / "a")
    for file in ("model.safetensors", "tokenizer.json", "config.json"):
        assert (tmp_path / "a" / file).read_bytes() == (tmp_path / "b" / file).read_bytes(), file
    assert reports[0]["samples"] == reports[1]["samples"]
    assert reports[0]["perplexity_held_out"] < 320 / 5  # untrained: as many as there are tokens
    language = load_language_model(tmp_path / "a")
    held_out = compose_corpus(words, train=200, held_out=20, seed=1).held_out
    assert reports[0]["perplexity_held_out"] == pytest.approx(_plain_perplexity(language, held_out), rel=1e-5)
    with pytest.raises(ValueError, match="Expected nothing at"):
        prompt_lm.train(tmp_path / "a", vocabulary=words, settings=TINY)
    with pytest.raises(ValueError, match="vocabulary_size >= 257"):
        prompt_lm.train(tmp_path / "c", vocabulary=words, settings=replace(TINY, vocabulary_size=100))


def _plain_perplexity(language, texts) -> float:
    """One forward for each prefix, no batch, no padding."""
    nats, count = 0.0, 0
    for text in texts:
        ids = [language.start]
        for token in [*language.tokenizer(text, add_special_tokens=False)["input_ids"], language.start]:
            with torch.no_grad():
                logits = language.model(torch.tensor([ids])).logits[0, -1].double()
            nats -= float(logits.log_softmax(-1)[token])
            count += 1
            ids.append(token)
    return float(np.exp(nats / count))


def test_a_tiny_training_of_the_digits(tmp_path):
    settings = digits.Settings(steps=3, batch_size=8, samples=10, channels=(4, 8))
    made = digits.train(tmp_path / "a", settings=settings, seed=1)
    again = digits.train(tmp_path / "b", settings=settings, seed=1)
    assert made["fingerprint"] == again["fingerprint"] == load_denoiser(str(tmp_path / "a"), [0])[0].fingerprint
    assert made["report"]["loss"] == again["report"]["loss"] and 0 <= made["report"]["read_as_asked"] <= 1


def test_prompts_are_tokens_and_connectives_and_nothing_else():
    connectives = {*"a an of photo painting picture illustration drawing in the style mood atmosphere with and".split()}
    prompts = compose_prompts(NONSENSE, 500, 1000)
    assert prompts[:50] == compose_prompts(NONSENSE, 50, 1000) != compose_prompts(NONSENSE, 50, 1001)
    for prompt in prompts:
        found = parts(prompt)
        assert 1 <= len(found) <= MAX_PARTS and len(set(found)) == len(found)
        left = re.sub(r"q\dx\d+z", " ", prompt).replace(",", " ").split()
        assert set(left) <= connectives, prompt
        assert prompt == " ".join(prompt.split()) and ",," not in prompt and prompt[0] != "," != prompt[-1]


def test_no_training_prompt_holds_a_combination_that_a_held_out_prompt_was_chosen_for():
    corpus = compose_corpus(NONSENSE, train=8000, held_out=200, seed=1002)
    seen = {frozenset(pair) for prompt in corpus.train for pair in combinations(parts(prompt), 2)}
    assert len(seen) > 0.75 * 6 * 5 // 2 * 12 * 12  # so that an unseen pair says something
    for prompt in corpus.held_out:
        assert any(frozenset(pair) not in seen for pair in combinations(parts(prompt), 2)), prompt
    assert not set(corpus.train) & set(corpus.held_out) and len(set(corpus.held_out)) == 200
    with pytest.raises(ValueError, match="enough combinations"):
        compose_corpus(Vocabulary(("only",), (("fox",),)), train=5, held_out=1, seed=0)


def test_connectives_by_role_and_words():
    assert with_article("owl") == "an owl" and with_article("the fox") == "the fox"
    assert with_article("unicorn") == "a unicorn" and with_article("80mm view") == "an 80mm view"
    assert " lit by {a}" in dict(joins("lighting", "cloud-veiled moon"))
    assert dict(joins("composition", "looking straight into the camera")).keys() == {", {}"}
    assert " with {}" in dict(joins("detail", "lace cuffs")) and " with {}" not in dict(joins("detail", "masterpiece"))
    assert openings("style", "mechanical pencil sketch") and not openings("detail", "mechanical pencil sketch")
