"""What a command says about texts that its encoder does not read in full, or can't tell apart."""

import io
import subprocess
import sys

import pytest

from edpbrl_gym.cli import main

SHARED = "a quiet street with lamps and rain on the stones, " * 40
ENDS = ["watercolour in soft blue", "neon in harsh red", "oil in dark green"]
LONG = [SHARED + end for end in ENDS]


@pytest.fixture
def chinese(tmp_path):
    folder = tmp_path / "chinese"
    folder.mkdir()
    (folder / "1-subject.txt").write_text("灯塔\n狐狸\n纸船\na lighthouse\n", encoding="utf-8")
    (folder / "2-mood.txt").write_text("before a storm\nhalf asleep\nat dusk\nin fog\n", encoding="utf-8")
    return folder


@pytest.fixture
def english(tmp_path):
    folder = tmp_path / "english"
    folder.mkdir()
    (folder / "1-subject.txt").write_text("a fox\na boat\na lighthouse\na sea\n")
    # tokens of up to 1,000 characters are allowed: the first prompts are longer than 256 word pieces
    (folder / "2-mood.txt").write_text("\n".join(f"{'rain on a window, ' * 50}{end}" for end in ENDS) + "\nin fog\n")
    return folder


def write(path, rows):
    lines = ["episode,step,option_1,option_2,choice"]
    lines += [f'{number},0,"{one}","{other}",{choice}' for number, (one, other, choice) in enumerate(rows)]
    path.write_text("\n".join(lines) + "\n")
    return path


def said(caplog):
    messages = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    caplog.clear()
    return messages


def test_answers_whose_options_are_equal_after_the_cut_teach_nothing(tmp_path, monkeypatch):
    file = write(tmp_path / "answers.csv", [(LONG[0], LONG[1], 1), (LONG[1], LONG[0], 2)] * 6)
    command = [sys.executable, "-m", "edpbrl_gym.cli", "estimate", file, "--out", tmp_path / "theta.safetensors"]
    monkeypatch.setenv("EDPBRL_CACHE", str(tmp_path / "cache"))
    for _ in range(2):  # the second time from the cache
        ended = subprocess.run(list(map(str, command)), capture_output=True, text=True)
        assert ended.returncode == 1 and ended.stdout == ""
        cut, error = (line for line in ended.stderr.splitlines() if line.startswith("edpbrl: "))
        assert cut.startswith("edpbrl: minilm reads the first 256 word pieces of a text: 2 texts are longer, so ")
        assert error.startswith("edpbrl: error: Expected options with different embeddings in ")
        assert "question 1 option 1 ('...watercolour in soft blue') and option 2 ('...neon in harsh red')" in error
    assert not (tmp_path / "theta.safetensors").exists()


def test_some_options_that_are_equal_are_named_and_the_others_count(tmp_path, caplog, capsys):
    rows = [("a fox", "a boat", 1), (LONG[0], LONG[1], 1), ("a fox", "a sea", 1), ("fog", "fog", 2)]
    file = write(tmp_path / "answers.csv", rows)
    assert main(["estimate", str(file), "--prior", "ridge", "--out", str(tmp_path / "theta.safetensors")]) == 0
    messages = said(caplog)
    assert len(messages) == 2 and "2 texts are longer" in messages[0]
    assert messages[1].startswith(f"1 of 4 questions of {file} have different options with equal embeddings, about")
    assert "in question 2 option 1 ('...watercolour in soft blue') and option 2 (" in messages[1]
    assert "4 questions" in capsys.readouterr().out


@pytest.mark.parametrize(
    "command",
    [
        ["design", "--num-options", "2", "--episodes", "2"],
        ["estimate", "ANSWERS"],
        ["fit-population", "ANSWERS", "OTHERS", "--minimum-people", "2"],
    ],
    ids=lambda command: command[0],
)
def test_tokens_with_equal_embeddings_are_named_by_each_command(command, chinese, tmp_path, capsys):
    rows = [("a fox", "a boat", 1), ("a sea", "a fox", 2)]
    files = {name: str(write(tmp_path / f"{name}.csv", rows)) for name in ("ANSWERS", "OTHERS")}
    words = [files.get(word, word) for word in command]
    words += ["--vocabulary", str(chinese), "--out", str(tmp_path / "out.safetensors")]
    assert main(words) != 0
    message = " ".join("".join(capsys.readouterr()).split())
    assert "by minilm of the tokens of a step, got equal ones: '灯塔' and '狐狸'" in message
    assert "'纸船' (1-subject). No answer could tell" in message and "reads English" in message
    assert message.count("Expected different embeddings") == 1 and "Traceback" not in message


@pytest.mark.parametrize("command", ["design", "ask", "encode"])
def test_each_command_says_which_texts_are_cut(command, english, tmp_path, caplog, capsys, monkeypatch):
    out = str(tmp_path / "out")
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"1\n1\n2\n1\n"), encoding="utf-8"))
    words = {
        "design": ["design", "--vocabulary", str(english), "--num-options", "2", "--episodes", "2", "--out", out],
        "ask": ["ask", "--terminal", "--vocabulary", str(english), "--num-options", "2", "--out", out],
        "encode": ["encode", str(tmp_path / "texts.txt"), "--out", str(tmp_path / "rows.npy")],
    }[command]
    if command == "encode":
        (tmp_path / "texts.txt").write_text("\n".join(["a fox", *LONG]))
    assert main(words) == 0, capsys.readouterr().err
    messages = [message for message in said(caplog) if "minilm reads the first 256 word pieces" in message]
    assert messages and len(messages) <= 3
    assert "longer" in messages[0] and "the first: " in messages[0]
