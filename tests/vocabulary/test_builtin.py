"""The built-in token files: their steps, size and cleanliness."""

from __future__ import annotations

import logging
import re
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from edpbrl_gym.features import load_encoder
from edpbrl_gym.vocabulary import BUILT_IN, load_vocabulary, loading
from edpbrl_gym.vocabulary.heads import head_word

FILES = sorted(file for built_in in BUILT_IN.values() for file in built_in.folder.glob("*.txt"))
every_file = pytest.mark.parametrize("file", FILES, ids=lambda file: f"{file.parent.name}-{file.stem}")


def words(token: str) -> list[str]:
    return re.findall(r"[a-z0-9']+", token.casefold())


def test_the_six_files_in_the_papers_order():
    assert sorted(file.stem for file in BUILT_IN["images"].folder.iterdir()) == sorted(BUILT_IN["images"].order)
    vocabulary = load_vocabulary()
    assert vocabulary.names == ("bases", "ambient", "style", "composition", "lighting", "detail")
    assert sum(vocabulary.sizes) >= 3000
    assert vocabulary.sizes[0] >= 300


def test_rooms_in_six_steps_of_phrases():
    vocabulary = load_vocabulary("interiors")
    assert vocabulary.names == ("room", "furnishing", "palette", "style", "light", "detail")
    assert all(65 <= size <= 70 for size in vocabulary.sizes) and 390 <= sum(vocabulary.sizes) <= 420
    for name, tokens in zip(vocabulary.names, vocabulary.tokens, strict=True):
        assert all(token == token.lower() and 2 <= len(token.split()) <= 6 for token in tokens)
        heads = Counter(map(head_word, tokens))
        assert len(heads) >= 0.75 * len(tokens) and max(heads.values()) <= 6, (name, heads.most_common(3))


def test_the_names_and_what_they_always_stood_for():
    """Studies record the fingerprint: another one would reject their answers."""
    assert list(BUILT_IN) == ["images", "interiors", "posters", "styles"]
    assert load_vocabulary() == load_vocabulary("images") == load_vocabulary(None)
    expected = "8bcdcf9bb389de6c32d95b98c8cc52880da6a3e21139c7991ebd3b40b675327c"
    assert load_vocabulary("images").fingerprint == expected
    assert load_vocabulary("interiors", order=sorted(BUILT_IN["interiors"].order)).names[0] == "detail"


def test_a_name_wins_over_a_folder_and_says_so(tmp_path, monkeypatch, caplog):
    monkeypatch.chdir(tmp_path)
    loading._log_folder.cache_clear()
    (tmp_path / "images").mkdir()
    (tmp_path / "interiors").mkdir()
    (tmp_path / "interiors" / "own.txt").write_text("a token\n")
    with caplog.at_level(logging.WARNING, logger="edpbrl_gym"):
        assert load_vocabulary("images").horizon == 6
        assert not caplog.records, "a folder without tokens is none of a vocabulary"
        assert load_vocabulary("interiors").horizon == 6
    assert "write ./interiors for the folder" in caplog.text
    caplog.clear()
    for path in ("./interiors", str(tmp_path / "interiors"), Path("interiors")):
        assert load_vocabulary(path).tokens == (("a token",),)
    assert not caplog.records
    with pytest.raises(FileNotFoundError, match=r"Interiors, got nothing.*give a built-in name \(images, interiors"):
        load_vocabulary("Interiors")


@every_file
def test_files_are_clean(file):
    text = file.read_bytes().decode("utf-8")
    assert not text.startswith("\ufeff") and "\r" not in text and text.endswith("\n")
    lines = text.removesuffix("\n").split("\n")
    for number, line in enumerate(lines, start=1):
        assert line and line == " ".join(line.split()), f"{file.name}, line {number}: {line!r}"
        assert line.isprintable(), f"{file.name}, line {number}: {line!r}"
        # a comma would read as two tokens in a prompt
        assert "," not in line and not line.endswith("."), f"{file.name}, line {number}: {line!r}"
        assert len(line) <= 80 and len(words(line)) <= 14, f"{file.name}, line {number} is no phrase: {line!r}"


def test_everyday_styles_in_six_steps_without_a_subject():
    vocabulary = load_vocabulary("styles")
    assert vocabulary.names == ("medium", "palette", "light", "mood", "composition", "detail")
    assert all(50 <= size <= 55 for size in vocabulary.sizes) and vocabulary.subject_step is None
    assert all(len(token.split()) <= 6 and len(token) <= 40 for token in vocabulary.all_tokens)
    quality = {"masterpiece", "8k", "4k", "hd", "best", "quality", "award", "trending", "beautiful", "artstation"}
    assert not quality & {word for token in vocabulary.all_tokens for word in words(token)}


@pytest.mark.needs("text")
def test_no_two_styles_of_a_step_are_near_copies():
    encoder = load_encoder("minilm")
    for name, tokens in zip(load_vocabulary("styles").names, load_vocabulary("styles").tokens, strict=True):
        rows = encoder.encode(tokens).astype(float)
        near = np.argwhere(np.triu(rows @ rows.T, 1) > 0.8)
        assert not len(near), (name, [(tokens[a], tokens[b]) for a, b in near])


@pytest.mark.parametrize("names", [("images", "interiors"), ("posters",), ("styles",)])
def test_no_token_twice(names):
    """In posters and styles everyday words of images may occur again."""
    seen: dict[str, str] = {}
    for vocabulary in map(load_vocabulary, names):
        for name, tokens in zip(vocabulary.names, vocabulary.tokens, strict=True):
            for token in tokens:
                key = " ".join(words(token))
                assert key not in seen, f"{token!r} in {name} and {seen[key]}"
                seen[key] = name
    assert len(seen) == sum(sum(load_vocabulary(one).sizes) for one in names)
