"""Commands that are refused."""

from __future__ import annotations

from edpbrl_gym.cli import main


def refused(capsys, arguments, code, *said: str) -> None:
    """Run the command; expect the exit code and one line on stderr that holds the texts."""
    assert main([str(argument) for argument in arguments]) == code
    lines = capsys.readouterr().err.strip().splitlines()
    start = "edpbrl: " if code == 130 else "edpbrl: error: "
    assert len(lines) == 1 and lines[0].startswith(start), lines
    for text in said:
        assert text in lines[0], lines[0]
