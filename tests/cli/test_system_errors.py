"""Errors of the system reach the reader with the name of the file: full disks, size limits, unreadable files."""

from __future__ import annotations

import os
import resource
import stat
import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas
import pytest

from edpbrl_gym._files import hold
from edpbrl_gym.cli import main
from edpbrl_gym.personalize.taste import save_taste
from edpbrl_gym.vocabulary import load_vocabulary
from tests.helpers.small_vocabulary import write_embedded


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
    return place, words, encoder


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
def test_every_command_names_the_file_that_it_could_not_write(command, inputs, tmp_path, capsys, small_files):
    place, words, encoder = inputs
    out = tmp_path / "out"
    given = {
        "personalize": ["personalize", place / "theta.safetensors", "--count", "5", "--out", out],
        "estimate": ["estimate", place / "answers.csv", "--encoder", encoder, "--prior", "ridge", "--out", out],
        "design": ["design", "--encoder", encoder, "--solver", "random", "--episodes", "3", "--out", out],
        "demo": ["demo", "--encoder", encoder, "--text", "a fox", "--out", out],
    }[command]
    if command != "estimate":
        given += ["--vocabulary", words]
    small_files(20)
    assert main([str(one) for one in given]) == 1
    small_files(resource.RLIM_INFINITY)
    line = said(capsys)
    assert str(out) in line and "File too large" in line and "Errno" not in line and ".part" not in line
    assert not [path for path in tmp_path.rglob(".*.part")]


@pytest.mark.parametrize("what", ["answers.csv", "answers.parquet", "theta.safetensors", "prompts.txt", "vocabulary"])
def test_every_command_names_the_file_that_it_could_not_read(what, inputs, tmp_path, capsys):
    """A regular file whose bytes can't be read (Errno 5), as on a failing disk."""
    if not Path("/proc/self/mem").exists():
        pytest.skip("no /proc/self/mem on this system: no file at hand that fails when it is read")
    place, words, encoder = inputs
    file = tmp_path / what
    if what == "vocabulary":
        file.mkdir()
        file = file / "1-a.txt"
    file.symlink_to("/proc/self/mem")
    out = ["--out", tmp_path / "out"]
    given = {
        "answers.csv": ["estimate", file, "--encoder", encoder, "--prior", "ridge", *out],
        "answers.parquet": ["estimate", file, "--prior", "ridge", *out],
        "theta.safetensors": ["personalize", file, "--encoder", encoder, "--vocabulary", words, *out],
        "prompts.txt": ["render", file, "--model", "none", *out],
        "vocabulary": ["design", "--vocabulary", file.parent, "--encoder", encoder, *out],
    }[what]
    assert main([str(one) for one in given]) in (1, 2)
    assert str(file) in said(capsys)


def test_a_disk_that_is_full_behind_standard_output_is_said(tmp_path):
    """A node like /dev/full in a folder of our own."""
    try:
        os.mknod(tmp_path / "full", 0o600 | stat.S_IFCHR, os.makedev(1, 7))
        full = open(tmp_path / "full", "w")  # noqa: SIM115 - closed below
    except PermissionError:
        pytest.skip("making or opening a device node needs a privilege that this process lacks")
    program = "import sys; from edpbrl_gym.cli import main; print('a word'); sys.exit(main())"
    with full:
        done = subprocess.run(
            [sys.executable, "-c", program, "report", str(tmp_path)], stdout=full, stderr=subprocess.PIPE, text=True
        )
    assert done.returncode == 1 and "Exception ignored" not in done.stderr


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
        "edpbrl: error: standard output: No space left on device; free some space there, or choose another place"
    ]


def test_out_never_replaces_a_device_or_a_link(inputs, tmp_path, capsys):
    place, words, encoder = inputs
    (tmp_path / "link.safetensors").symlink_to("kept.safetensors")
    os.mkfifo(tmp_path / "pipe")
    estimate = ["estimate", place / "answers.csv", "--encoder", encoder, "--prior", "ridge", "--out"]
    assert main([str(one) for one in [*estimate, tmp_path / "link.safetensors"]]) == 0
    assert (tmp_path / "link.safetensors").is_symlink() and (tmp_path / "kept.safetensors").is_file()
    before = os.stat(tmp_path / "pipe")
    assert main([str(one) for one in [*estimate, tmp_path / "pipe"]]) == 1
    assert "pipe, found a named pipe; choose another path" in said(capsys)
    assert os.stat(tmp_path / "pipe").st_ino == before.st_ino


def test_a_folder_that_another_process_holds_is_refused_before_anything_is_written(inputs, tmp_path, capsys):
    _, words, encoder = inputs
    given = ["design", "--vocabulary", words, "--encoder", encoder, "--solver", "random", "--episodes", "3"]
    with open(tmp_path / ".lock", "w") as lock:
        assert hold(lock.fileno())
        lock.write("4711\n")
        lock.flush()
        assert main([str(one) for one in [*given, "--out", tmp_path]]) == 1
        assert "another process (4711) runs in it" in said(capsys)
        assert [path.name for path in tmp_path.iterdir()] == [".lock"]
    (tmp_path / "design.json").symlink_to(tmp_path.parent / "elsewhere.json")
    assert main([str(one) for one in [*given, "--out", tmp_path]]) == 1
    assert "design.json leads to" in said(capsys) and not (tmp_path.parent / "elsewhere.json").exists()
    (tmp_path / "design.json").unlink()
    assert main([str(one) for one in [*given, "--out", tmp_path]]) == 0


def test_a_place_that_takes_no_file_is_refused_before_the_work(inputs, tmp_path, capsys, monkeypatch):
    place, words, encoder = inputs
    os.mkfifo(tmp_path / "pipe")
    estimate = ["estimate", place / "answers.csv", "--encoder", encoder, "--prior", "ridge"]
    personalize = ["personalize", place / "theta.safetensors", "--vocabulary", words]
    monkeypatch.setattr("edpbrl_gym.features.load_encoder", lambda *_: pytest.fail("the work began"))
    for command in (estimate, personalize):
        assert main([str(one) for one in [*command, "--out", tmp_path / "pipe"]]) == 1
        assert "pipe, found a named pipe; choose another path" in said(capsys)
