"""The built-in token files: size, cleanliness, and that they were written, not multiplied."""

from __future__ import annotations

import configparser
import logging
import re
from collections import Counter, defaultdict
from itertools import combinations
from pathlib import Path

import pytest

from edpbrl_gym.vocabulary import BUILT_IN, built_in, load_vocabulary
from edpbrl_gym.vocabulary.heads import head_word

ROOT = Path(__file__).parents[2]
FILES = sorted(file for built_in in BUILT_IN.values() for file in built_in.folder.glob("*.txt"))
every_file = pytest.mark.parametrize("file", FILES, ids=lambda file: f"{file.parent.name}-{file.stem}")
# words that carry no content; they may occur in any number of tokens
FUNCTION_WORDS = set(
    "a an the of in on at by with and or from to for into over under through after before against as across beside "
    "behind between near around beneath toward towards its his her their no not without half one two three".split()
)


def words(token: str) -> list[str]:
    return re.findall(r"[a-z0-9']+", token.casefold())


def cross_product(pairs: set[tuple[str, str]], *, side: int = 5, density: float = 0.8) -> tuple | None:
    """Return (first words, second words) of a nearly complete product of at least ``side`` x ``side``, or None.

    A product of A x B thinned to ``density`` still has two first words that share most of B, so every pair of
    first words with ``side`` - 1 second words in common is a seed: B is what they share, A is grown greedily.
    """
    seconds: dict[str, set[str]] = defaultdict(set)
    for first, second in pairs:
        seconds[first].add(second)
    rich = [first for first in seconds if len(seconds[first]) >= side - 1]
    for one, two in combinations(rich, 2):
        if len(seconds[one] & seconds[two]) < side - 1:
            continue
        right = seconds[one] | seconds[two]
        left = sorted(rich, key=lambda first: len(seconds[first] & right), reverse=True)[:side]
        best = sorted(right, key=lambda second: sum(second in seconds[first] for first in left), reverse=True)[:side]
        filled = sum(second in seconds[first] for first in left for second in best)
        if len(left) == len(best) == side and filled >= density * side * side:
            return tuple(left), tuple(best)
    return None


def split_pairs(token: str) -> tuple[str, str] | None:
    """First and second half of a two-word phrase, function words left out."""
    content = [word for word in words(token) if word not in FUNCTION_WORDS]
    return (content[0], content[1]) if len(content) == 2 else None


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
    assert list(BUILT_IN) == ["images", "interiors"]
    assert load_vocabulary() == load_vocabulary("images") == load_vocabulary(None)
    expected = "8bcdcf9bb389de6c32d95b98c8cc52880da6a3e21139c7991ebd3b40b675327c"
    assert load_vocabulary("images").fingerprint == expected
    assert load_vocabulary("interiors", order=sorted(BUILT_IN["interiors"].order)).names[0] == "detail"


def test_a_name_wins_over_a_folder_and_says_so(tmp_path, monkeypatch, caplog):
    monkeypatch.chdir(tmp_path)
    built_in.log_folder.cache_clear()
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


def test_the_package_holds_every_file():
    setup = configparser.ConfigParser()
    setup.read(ROOT / "setup.cfg")
    package = Path(built_in.__file__).parent
    patterns = setup["options.package_data"]["edpbrl_gym.vocabulary"].split()
    named = {path for pattern in patterns for path in package.glob(pattern)}
    assert named == set(FILES) == {path for path in (package / "data").rglob("*") if path.is_file()}
    assert len(named) == 12


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


def test_no_token_twice_in_all_files():
    seen: dict[str, str] = {}
    for vocabulary in map(load_vocabulary, BUILT_IN):
        for name, tokens in zip(vocabulary.names, vocabulary.tokens, strict=True):
            for token in tokens:
                key = " ".join(words(token))
                assert key not in seen, f"{token!r} in {name} and {seen[key]}"
                seen[key] = name
    assert len(seen) >= 3400


@every_file
def test_no_two_word_lists_multiplied(file):
    tokens = file.read_text(encoding="utf-8").splitlines()
    found = cross_product({pair for pair in map(split_pairs, tokens) if pair})
    assert found is None, f"{file.name} holds nearly every combination of {found}"
    by_ends = {(w[0], " ".join(w[1:])) for w in map(words, tokens) if len(w) > 1}
    assert cross_product(by_ends) is None, f"{file.name}: first words times the rest"
    by_last = {(" ".join(w[:-1]), w[-1]) for w in map(words, tokens) if len(w) > 1}
    assert cross_product(by_last) is None, f"{file.name}: beginnings times last words"


@every_file
def test_no_word_carries_a_file(file):
    tokens = file.read_text(encoding="utf-8").splitlines()
    counts = Counter(word for token in tokens for word in set(words(token)) - FUNCTION_WORDS)
    word, count = counts.most_common(1)[0]
    assert count <= 0.08 * len(tokens), f"{file.name}: {word!r} is in {count} of {len(tokens)} tokens"
    shared = sum(1 for token in tokens if all(counts[w] > 1 for w in words(token) if w not in FUNCTION_WORDS))
    assert shared < 0.75 * len(tokens), f"{file.name}: {shared} of {len(tokens)} tokens bring no word of their own"


def test_the_detector_finds_products_and_spares_free_text():
    first, second = "soft harsh warm cold dim".split(), "light glow haze shadow mist".split()
    full = {(a, b) for a in first for b in second}
    assert cross_product(full) is not None
    assert cross_product(full - {("soft", "mist"), ("dim", "light"), ("cold", "haze")}) is not None
    noise = {(f"word{i}", f"other{i % 7}") for i in range(40)}
    assert cross_product(full | noise) is not None
    assert cross_product(noise) is None
    assert cross_product({pair for i, pair in enumerate(sorted(full)) if i % 2}) is None
