"""`edpbrl study` end to end."""

from __future__ import annotations

import pytest

from edpbrl_gym.cli import main
from tests.helpers.commands import refused
from tests.helpers.small_vocabulary import write_embedded
from tests.helpers.studies import SMALL, write_study


@pytest.fixture
def folder(tmp_path):
    """A study whose encoder needs no model."""
    words, encoder = write_embedded(tmp_path)
    text = SMALL.replace('vocabulary = "words"', f'vocabulary = "{words}"\nencoder = "{encoder}"')
    return write_study(tmp_path / "study", text)


def test_init_writes_a_study_that_check_reads(tmp_path, capsys):
    place = tmp_path / "new"
    assert main(["study", "init", str(place)]) == 0
    assert "edpbrl study check" in capsys.readouterr().out
    path = place / "study.toml"
    path.write_text(
        path.read_text(encoding="utf-8").replace("options = 4", 'options = "four"\ncolor = 1'), encoding="utf-8"
    )
    assert main(["study", "check", str(place)]) == 2
    printed = capsys.readouterr()
    assert "questions.options: expected a whole number" in printed.out and "questions.color" in printed.out
    assert printed.err.count("\n") == 1 and "found 2" in printed.err
    refused(capsys, ["study", "init", place], 2, "new or empty folder")


def test_check_says_what_the_study_will_be(folder, capsys):
    assert main(["study", "check", str(folder)]) == 0
    printed = capsys.readouterr().out
    for text in ("at most 10 (6 that count", "adaptive, 33% of the participants", "2026-11", "minutes"):
        assert text in printed


def test_a_folder_without_a_study_is_refused(tmp_path, capsys):
    refused(capsys, ["study", "check", tmp_path], 2, "edpbrl study init")
