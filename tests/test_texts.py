"""Text files of people: the same text in every encoding that says what it is, and with any line end."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edpbrl_gym._texts import read_lines, read_text
from edpbrl_gym.cli.texts import read_texts
from edpbrl_gym.study.config_reading import read_config
from edpbrl_gym.vocabulary import load_vocabulary
from tests.helpers.studies import write_study

ENCODINGS = ["utf-8", "utf-8-sig", "utf-16", "utf-32"]
LINES = st.lists(st.text(alphabet=st.characters(exclude_categories=("Cs",), exclude_characters="\r\n\0\ufeff")))


@given(LINES, st.sampled_from(ENCODINGS), st.sampled_from(["\n", "\r\n", "\r"]), st.booleans(), st.booleans())
def test_lines_come_back(tmp_path_factory, lines, encoding, end, packed, ended):
    text = end.join(lines) + end * ended
    path = tmp_path_factory.mktemp("t") / ("a.txt.gz" if packed else "a.txt")
    path.write_bytes(gzip.compress(text.encode(encoding)) if packed else text.encode(encoding))
    assert read_text(path) == text
    expected = text.split(end)
    assert read_lines(path) == (expected if expected[-1] else expected[:-1])


def vocabulary(folder: Path) -> tuple[list[Path], object]:
    path = folder / "a.txt"
    path.write_text("an old fox\nمی\u200cخواهم\n", encoding="utf-8")
    return [path], lambda: load_vocabulary(folder).tokens


def prompts(folder: Path) -> tuple[list[Path], object]:
    path = folder / "prompts.txt"
    path.write_text("an old fox, in the snow\n👩\u200d💻\n", encoding="utf-8")
    return [path], lambda: read_texts(path, (), "prompt")


def study(folder: Path) -> tuple[list[Path], object]:
    place = write_study(folder / "study")

    def read() -> object:
        found = read_config(place)
        return found.arms, {name: text.splitlines() for name, text in found.texts.items()}

    return [place / "study.toml", *sorted((place / "texts").glob("*.txt"))], read


@pytest.mark.parametrize("make", [vocabulary, prompts, study])
@pytest.mark.parametrize("encoding", ENCODINGS)
@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_every_reader_reads_every_encoding(tmp_path, make, encoding, end):
    files, read = make(tmp_path)
    expected = read()
    for path in files:
        path.write_bytes(path.read_text("utf-8").replace("\n", end).encode(encoding))
    assert read() == expected
    files[0].write_bytes(b"caf\xe9\n")
    with pytest.raises(ValueError, match=f"UTF-8 text in .*{files[0].name}, got byte 0xe9 at line 1"):
        read()
