"""Errors of the system reach the reader with the name of the file; two commands on one ``--out`` are told so."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas
import pytest

from edpbrl_gym._files import hold
from edpbrl_gym._places import hold_place
from edpbrl_gym.cli import main
from edpbrl_gym.personalize.taste import load_taste, save_taste
from edpbrl_gym.vocabulary import load_vocabulary
from tests.helpers.small_vocabulary import write_embedded

FOLDERS = ("demo", "design", "render", "reproduce synthetic", "reproduce reinforce", "reproduce llm")
FILES = ("estimate", "personalize")


@pytest.fixture(scope="module")
def inputs(tmp_path_factory):
    """A vocabulary, its embeddings, a taste and a file of many answers."""
    place = tmp_path_factory.mktemp("inputs")
    words, encoder = write_embedded(place)
    save_taste(place / "theta.safetensors", np.arange(1.0, 11.0), {"encoder": encoder})
    rng = np.random.default_rng(0)
    tokens = load_vocabulary(words).tokens[0]
    pairs = [rng.choice(len(tokens), size=2, replace=False) for _ in range(30)]
    table = pandas.DataFrame({"option_1": [tokens[a] for a, _ in pairs], "option_2": [tokens[b] for _, b in pairs]})
    table.assign(choice=1).to_csv(place / "answers.csv", index=False)
    (place / "prompts.txt").write_text("a gate\n")
    return place, words, encoder


def given(command, inputs, out, request) -> list[str]:
    place, words, encoder = inputs
    more = {
        "personalize": [place / "theta.safetensors", "--count", "5"],
        "estimate": [place / "answers.csv", "--encoder", encoder, "--prior", "ridge"],
        "demo": ["--encoder", encoder, "--text", "a fox"],
        "render": [place / "prompts.txt", "--renderer", place / "none"],
        "design": ["--encoder", encoder, "--solver", "random", "--episodes", "3"],
    }.get(command, ["--encoder", encoder])
    if command == "reproduce reinforce":
        more += ["--quick", "--model", request.getfixturevalue("gpt2")]
    if command == "reproduce llm":
        more += ["--judge-model", "local", "--base-url", "http://127.0.0.1:9/v1", "--num-options", "2"]
    if command not in ("render", "estimate"):
        more += ["--vocabulary", words]
    return [str(one) for one in [*command.split(), *more, "--out", out]]


@pytest.fixture
def small_files():
    """Files may not grow: a real error of the system in every write, as on a full disk (Errno 27)."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)

    def limit(size: int) -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))

    yield limit
    limit(soft)


def said(capsys) -> str:
    lines = capsys.readouterr().err.strip().splitlines()
    assert lines and lines[-1].startswith("edpbrl: error: ") and "Traceback" not in "".join(lines), lines
    return lines[-1]


@pytest.mark.parametrize("command", ["personalize", "estimate", "design", "demo"])
def test_every_command_names_the_file_that_it_could_not_write(command, inputs, tmp_path, capsys, small_files, request):
    out = tmp_path / "out"
    arguments = given(command, inputs, out, request)
    small_files(20)
    assert main(arguments) == 1
    small_files(resource.RLIM_INFINITY)
    line = said(capsys)
    assert str(out) in line and "File too large" in line and "Errno" not in line and ".part" not in line
    assert not [path for path in tmp_path.rglob(".*.part")]


@pytest.mark.parametrize("what", ["answers.csv", "answers.parquet", "theta.safetensors", "prompts.txt", "vocabulary"])
def test_every_command_names_the_file_that_it_could_not_read(what, inputs, tmp_path, capsys):
    """A regular file whose bytes can't be read (Errno 5), as on a failing disk."""
    if not Path("/proc/self/mem").exists():
        pytest.skip("no /proc/self/mem on this system: no file at hand that fails when it is read")
    _, words, encoder = inputs
    file = tmp_path / what
    if what == "vocabulary":
        file.mkdir()
        file = file / "1-a.txt"
    file.symlink_to("/proc/self/mem")
    out = ["--out", tmp_path / "out"]
    command = {
        "answers.csv": ["estimate", file, "--encoder", encoder, "--prior", "ridge", *out],
        "answers.parquet": ["estimate", file, "--prior", "ridge", *out],
        "theta.safetensors": ["personalize", file, "--encoder", encoder, "--vocabulary", words, *out],
        "prompts.txt": ["render", file, "--renderer", "none", *out],
        "vocabulary": ["design", "--vocabulary", file.parent, "--encoder", encoder, *out],
    }[what]
    assert main([str(one) for one in command]) in (1, 2)
    assert str(file) in said(capsys)


@pytest.mark.parametrize("unbuffered", ["", "1"])
@pytest.mark.parametrize("arguments", [["--version"], ["report", "--help"]])
def test_a_full_or_closed_standard_output_is_one_line_or_none(arguments, unbuffered):
    command = [sys.executable, "-m", "edpbrl_gym.cli", *arguments]
    setting = {**os.environ, "PYTHONUNBUFFERED": unbuffered}
    reading, writing = os.pipe()
    os.close(reading)
    done = subprocess.run(command, stdout=writing, stderr=subprocess.PIPE, text=True, env=setting)
    os.close(writing)
    assert done.stderr == ""
    if not os.access("/dev/full", os.W_OK):
        pytest.skip("no /dev/full on this system")
    with open("/dev/full", "w") as full:
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, env=setting)
    assert done.returncode == 1 and done.stderr.splitlines() == [
        "edpbrl: error: standard output: No space left on device; free some space there, or choose another destination"
    ]


def test_out_never_replaces_a_link(inputs, tmp_path, capsys, request):
    (tmp_path / "link.safetensors").symlink_to("kept.safetensors")
    assert main(given("estimate", inputs, tmp_path / "link.safetensors", request)) == 0
    assert (tmp_path / "link.safetensors").is_symlink() and (tmp_path / "kept.safetensors").is_file()
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "design.json").symlink_to(tmp_path / "elsewhere.json")
    assert main(given("design", inputs, tmp_path / "run", request)) == 1
    assert "design.json leads to" in said(capsys) and not (tmp_path / "elsewhere.json").exists()


def test_a_destination_that_takes_no_file_is_refused_before_the_work(inputs, tmp_path, capsys, monkeypatch, request):
    os.mkfifo(tmp_path / "pipe")
    monkeypatch.setattr("edpbrl_gym.features.load_encoder", lambda *_: pytest.fail("the work began"))
    for command in FILES:
        assert main(given(command, inputs, tmp_path / "pipe", request)) == 1
        assert "pipe, found a named pipe; choose another path" in said(capsys)


@pytest.mark.parametrize("command", [*FOLDERS, *FILES])
def test_a_destination_that_another_process_holds_is_refused_before_the_work(
    command, inputs, tmp_path, capsys, request
):
    out = tmp_path / "out"
    lock = out / ".lock" if command in FOLDERS else tmp_path / ".out.lock"
    lock.parent.mkdir(exist_ok=True)
    with open(lock, "w") as file:
        assert hold(file.fileno())
        file.write("4711\n")
        file.flush()
        assert main(given(command, inputs, out, request)) == 1
        line = capsys.readouterr().err.strip().splitlines()[-1]
        assert line.startswith(f"edpbrl: error: Expected {out} to be free, another process (4711) "), line
        assert "wait until it ends" in line
        assert [path for path in tmp_path.rglob("*") if path != out] == [lock]


def test_other_files_of_the_same_folder_are_free_and_no_lock_is_left(inputs, tmp_path, request):
    held = hold_place(tmp_path / "other")
    name = "n" * 240  # with .lock longer than most file systems take
    assert main(given("estimate", inputs, tmp_path / name, request)) == 0
    del held
    assert [path.name for path in tmp_path.iterdir()] == [name]


def test_a_link_and_what_it_leads_to_are_one_destination(inputs, tmp_path, capsys, request):
    (tmp_path / "link").symlink_to("kept")
    program = "import sys; from pathlib import Path; from edpbrl_gym._places import hold_place\n"
    program += "held = hold_place(Path(sys.argv[1])); print('held', flush=True); sys.stdin.read()"
    command = [sys.executable, "-c", program, str(tmp_path / "link")]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as other:
        assert other.stdout is not None and other.stdout.readline() == "held\n"
        assert main(given("estimate", inputs, tmp_path / "kept", request)) == 1
        assert f"another process ({other.pid}) is about to write it" in capsys.readouterr().err
        other.kill()
    assert main(given("estimate", inputs, tmp_path / "kept", request)) == 0  # what a killed one left holds nothing
    assert load_taste(tmp_path / "link").theta.shape == (10,)
    assert sorted(os.listdir(tmp_path)) == ["kept", "link"]
