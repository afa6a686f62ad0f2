"""What reaches the terminal: no control characters of texts and names, no markup in them, whole paths and commands."""

import io
import logging
import re
import shlex
import warnings

import pandas
import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.table import Table

from edpbrl_gym.cli import console as consoles
from edpbrl_gym.cli import main
from edpbrl_gym.cli.console import bullet, printable
from edpbrl_gym.reporting.tables import TextTable
from tests.helpers.small_vocabulary import write_vocabulary

EVIL = "\x1b]0;title\x07\x1b[2Jred\x9b31m \u202etxt\u2069\rover [bold]fog[/bold] :fire: [/]"
OUR_STYLES = re.compile(r"\x1b\[[0-9;]*m|\x1b\]8;[^\x1b]*\x1b\\")


@given(st.text())
def test_printable_text_has_no_controls_and_is_the_same_without_them(text):
    found = printable(text)
    assert not re.search("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]", found)
    assert len(found) == len(text)
    assert all(new == old or new == "\ufffd" for new, old in zip(found, text, strict=True))
    for kept in ("Grüße", "雨の夜", "בוקר", "می\u200cخواهم", "a\tb\n"):
        assert printable(kept) == kept


@pytest.mark.parametrize("terminal", [False, True])
def test_every_way_of_printing(terminal):
    stream = io.StringIO()
    console = consoles._console(file=stream, force_terminal=terminal, width=120, legacy_windows=False)
    console.print(f"Written: {EVIL}")
    console.print(EVIL, style="bold")
    bullet(console, "The user", EVIL)
    table = Table(title=EVIL)
    table.add_column(EVIL)
    table.add_row(EVIL)
    console.print(table)
    console.print(TextTable(EVIL, ("a", EVIL), ((EVIL, EVIL),), "").rich())
    text = OUR_STYLES.sub("", stream.getvalue())
    assert printable(text) == text and text.count("[bold]fog[/bold]") >= 4 and text.count(":fire:") >= 4


@pytest.fixture
def words(tmp_path):
    folder = write_vocabulary(tmp_path / "words")
    (folder / "4-mark.txt").write_text("[bold]fog[/bold]\n:fire: [/]\n=1+1\n", encoding="utf-8")
    return folder


def test_the_command_that_is_told_runs(words, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    given = ["design", "--vocabulary", str(words), "--solver", "random", "--episodes", "2"]
    given += ["--out", "a $HOME's; design"]
    assert main(given) == 0
    told = shlex.split(capsys.readouterr().out.partition("then: ")[2])
    table = pandas.read_csv(told[2])
    table["choice"] = 2
    table.to_csv(told[2], index=False)
    assert main([*told[1:], "--out", "theta"]) == 0
    assert "converged" in capsys.readouterr().out


def test_errors_and_logs_have_no_escapes(words, tmp_path, capsys, caplog):
    assert main(["report", str(tmp_path / "\x1b[2Jnowhere")]) == 1
    assert main(["personalize", "\x1b]0;x\x07.safetensors"]) == 2
    words = words.rename(tmp_path / "wo\x1b[2Jrds")
    (words / "no\x1b[2Jtes.md").write_text("")
    assert main(["design", "--vocabulary", str(words), "--solver", "bald", "--out", str(tmp_path / "out")]) == 2
    errors = capsys.readouterr().err
    assert "\x1b" not in errors and "\x07" not in errors
    assert "\x1b" not in warnings.formatwarning("a\x1b[2Jb", UserWarning, "file.py", 1)
    logged = logging.lastResort.format(caplog.records[-1])
    assert logged.startswith("edpbrl: Ignored in") and "tes.md" in logged and "\x1b" not in logged
