"""Taste files: equal tastes are equal bytes, and no byte changes unnoticed."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.numpy import load_file, save_file

from edpbrl_gym.personalize.taste import load_taste, save_taste
from edpbrl_gym.vocabulary import Vocabulary, load_vocabulary

THETA = np.linspace(-1.0, 1.0, 5)
PROVENANCE = {"encoder": "minilm", "encoder_fingerprint": "0" * 64, "questions": 7, "asked_by": "Ömer"}


def test_a_taste_comes_back_as_it_was_and_other_tools_read_it(tmp_path):
    path = save_taste(tmp_path / "theta.safetensors", THETA, PROVENANCE)
    found = load_taste(path)
    assert found.theta.tobytes() == THETA.tobytes() and found.provenance == PROVENANCE
    assert list(found.provenance) == list(PROVENANCE)
    assert load_file(path)["theta"].tobytes() == THETA.tobytes()


def test_equal_runs_write_equal_bytes(tmp_path):
    """In other processes too: safetensors orders metadata by a hash that differs from one to the next."""
    code = f"""
import sys, numpy as np
from edpbrl_gym.personalize.taste import save_taste
save_taste(sys.argv[1], np.linspace(-1.0, 1.0, 5), {PROVENANCE!r})
"""
    for name in ("a", "b"):
        subprocess.run([sys.executable, "-c", code, str(tmp_path / name)], check=True)
    save_taste(tmp_path / "c", THETA, PROVENANCE)
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes() == (tmp_path / "c").read_bytes()


@settings(max_examples=100)
@given(st.data())
def test_no_flipped_byte_gets_through(tmp_path_factory, data):
    path = save_taste(tmp_path_factory.mktemp("taste") / "theta", THETA, PROVENANCE)
    whole = bytearray(path.read_bytes())
    place = data.draw(st.integers(0, len(whole) - 1))
    whole[place] ^= data.draw(st.integers(1, 255))
    path.write_bytes(whole)
    with pytest.raises(ValueError, match="could not read"):
        load_taste(path)


@pytest.mark.parametrize("change", [lambda data: data[:-1], lambda data: data + b" ", lambda data: b"", bytes.upper])
def test_a_cut_or_longer_file_is_an_error(tmp_path, change):
    path = save_taste(tmp_path / "theta", THETA, PROVENANCE)
    path.write_bytes(change(path.read_bytes()))
    with pytest.raises(ValueError, match="could not read"):
        load_taste(path)


def test_files_of_others_and_of_other_versions_are_refused(tmp_path):
    save_file({"theta": THETA}, tmp_path / "theirs")
    with pytest.raises(ValueError, match="could not read"):
        load_taste(tmp_path / "theirs")
    save_file({"theta": THETA}, tmp_path / "before", metadata={"format": "edpbrl-gym taste 1", "provenance": "{}"})
    with pytest.raises(ValueError, match="taste 1', written by another version"):
        load_taste(tmp_path / "before")


OWN = Vocabulary(("motiv", "licht"), (("Wald", "Fluß", "Küche"), ("bei Kerzenschein", "am Mittag")))


@pytest.mark.parametrize("words", [load_vocabulary(), load_vocabulary("interiors"), load_vocabulary().split(0)[0], OWN])
def test_a_taste_knows_the_vocabulary_that_it_was_learnt_with(tmp_path, words):
    path = save_taste(tmp_path / "taste", THETA, PROVENANCE, vocabulary=words)
    taste = load_taste(path)
    assert taste.vocabulary() == words
    assert taste.provenance["vocabulary_fingerprint"] == words.fingerprint
    assert {key: taste.provenance[key] for key in PROVENANCE} == PROVENANCE
    if words in (load_vocabulary(), load_vocabulary("interiors"), OWN):
        assert path.stat().st_size < 1000


@pytest.mark.parametrize(
    ("facts", "expected"),
    [
        ({}, None),
        ({"vocabulary_fingerprint": load_vocabulary("interiors").fingerprint}, load_vocabulary("interiors")),
        ({"vocabulary": "interiors"}, load_vocabulary("interiors")),
        ({"vocabulary_fingerprint": "ab" * 32}, "a vocabulary that its file doesn't hold .sha256 abababababababab"),
        ({"vocabulary": "interiors", "vocabulary_fingerprint": "ab" * 32}, "learnt with 'interiors' .sha256 abab"),
        ({"vocabulary": "gardens"}, "learnt with 'gardens', which is none of the built-in"),
        ({"vocabulary": {"names": ["a"], "tokens": [["x", "x"]]}}, "can't be read .*distinct tokens"),
        ({"vocabulary": {"names": ["a"]}}, "can't be read"),
        ({"vocabulary": 7}, "a vocabulary that its file doesn't hold"),
    ],
)
def test_tastes_of_earlier_and_other_writers(tmp_path, facts, expected):
    taste = load_taste(save_taste(tmp_path / "taste", THETA, {**PROVENANCE, **facts}))
    if isinstance(expected, str):
        with pytest.raises(ValueError, match=expected):
            taste.vocabulary()
    else:
        assert taste.vocabulary() == expected
