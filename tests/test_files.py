"""Files written whole or not at all: links, what is no file, kills in the middle, errors that name the file."""

from __future__ import annotations

import os
import resource
import signal
import socket
import stat
import subprocess
import sys
import textwrap
from pathlib import Path

import numpy as np
import pytest

from edpbrl_gym._files import hold, replacing, replacing_folder, sweep


def put(path: Path, text: str) -> None:
    with replacing(path) as part:
        part.write_text(text)


def left(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.rglob(".*"))


@pytest.mark.parametrize("relative", [True, False])
def test_a_link_stays_and_what_it_leads_to_is_written(tmp_path, relative):
    kept = tmp_path / "kept"
    kept.mkdir()
    (kept / "file").write_text("old")
    (tmp_path / "first").symlink_to("kept/file" if relative else kept / "file")
    (tmp_path / "second").symlink_to("first" if relative else tmp_path / "first")
    put(tmp_path / "second", "new")
    assert (kept / "file").read_text() == "new" and not (kept / "file").is_symlink()
    assert (tmp_path / "first").is_symlink() and (tmp_path / "second").is_symlink()
    (tmp_path / "dangling").symlink_to(kept / "later")
    put(tmp_path / "dangling", "first")
    assert (tmp_path / "dangling").is_symlink() and (kept / "later").read_text() == "first"
    (tmp_path / "folder").symlink_to(kept)
    put(tmp_path / "folder" / "file", "through a folder")
    assert (kept / "file").read_text() == "through a folder" and left(tmp_path) == []


def test_links_that_lead_nowhere_are_errors(tmp_path):
    (tmp_path / "a").symlink_to("b")
    (tmp_path / "b").symlink_to("a")
    with pytest.raises(OSError, match=f"{tmp_path}/a"):
        put(tmp_path / "a", "x")
    (tmp_path / "gone").symlink_to("no/such/folder")
    with pytest.raises(FileNotFoundError, match="gone"):
        put(tmp_path / "gone", "x")
    assert all((tmp_path / name).is_symlink() for name in ("a", "b", "gone")) and left(tmp_path) == []


def make_node(path: Path, kind: str) -> None:
    """A file that is none; one like /dev/full for the devices, never a node of the system's own."""
    if kind == "folder":
        path.mkdir()
    elif kind == "pipe":
        os.mkfifo(path)
    elif kind == "socket":
        with socket.socket(socket.AF_UNIX) as made:
            made.bind(str(path))
    else:
        try:
            os.mknod(path, 0o600 | stat.S_IFCHR, os.makedev(1, 7))
        except PermissionError:
            pytest.skip("making a device node needs a privilege that this process lacks")


NODES = {"folder": "a folder", "pipe": "a named pipe", "socket": "a socket", "device": "a character device"}


@pytest.mark.parametrize("kind", NODES)
def test_what_is_no_file_is_refused_and_stays(tmp_path, kind, monkeypatch):
    monkeypatch.chdir(tmp_path)  # names of sockets are short
    make_node(Path("node"), kind)
    Path("link").symlink_to("node")
    before = os.stat("node")
    for name in ("node", "link"):
        with pytest.raises(OSError, match=f"{name}, found {NODES[kind]}; choose another"):
            put(Path(name), "x")
    after = os.stat("node")
    assert (before.st_mode, before.st_ino, before.st_rdev) == (after.st_mode, after.st_ino, after.st_rdev)
    assert Path("link").is_symlink() and left(tmp_path) == []


def test_a_file_for_its_owner_only_stays_so(tmp_path):
    (tmp_path / "file").write_text("old")
    (tmp_path / "file").chmod(0o600)
    put(tmp_path / "file", "new")
    assert stat.S_IMODE((tmp_path / "file").stat().st_mode) == 0o600


def test_a_folder_is_exchanged_as_a_whole_and_behind_its_link(tmp_path):
    (tmp_path / "kept").mkdir()
    (tmp_path / "kept" / "old").write_text("old")
    (tmp_path / "link").symlink_to("kept")
    with pytest.raises(KeyError), replacing_folder(tmp_path / "link") as part:
        (part / "new").write_text("half")
        raise KeyError
    assert [path.name for path in (tmp_path / "link").iterdir()] == ["old"]
    with replacing_folder(tmp_path / "link") as part:
        (part / "new").write_text("new")
    assert (tmp_path / "link").is_symlink() and [path.name for path in (tmp_path / "kept").iterdir()] == ["new"]
    (tmp_path / "file").write_text("precious")
    with pytest.raises(OSError, match="file, found something else"), replacing_folder(tmp_path / "file"):
        pass
    assert (tmp_path / "file").read_text() == "precious" and left(tmp_path) == []


def start(code: str, *arguments: object) -> subprocess.Popen[str]:
    """Run code in a process of its own until it says something."""
    command = [sys.executable, "-c", textwrap.dedent(code), *map(str, arguments)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None and process.stdout.readline() == "writing\n"
    return process


WRITING = """
    import sys, time
    from pathlib import Path
    from edpbrl_gym._files import replacing, replacing_folder
    make = replacing_folder if sys.argv[2] == "folder" else replacing
    with make(Path(sys.argv[1])) as part:
        (part / "inside" if sys.argv[2] == "folder" else part).write_text("half")
        print("writing", flush=True)
        time.sleep(600)
"""


@pytest.mark.parametrize("kind", ["file", "folder"])
def test_leftovers_of_the_killed_are_swept_and_those_of_the_living_stay(tmp_path, kind):
    place = tmp_path / "run" / "parts" / "unit"
    place.parent.mkdir(parents=True)
    killed, living = start(WRITING, place, kind), start(WRITING, place, kind)
    try:
        killed.kill()
        killed.wait()
        assert len(left(tmp_path)) == 2
        sweep(tmp_path / "run")
        (own,) = left(tmp_path)
        assert f".unit.{living.pid}." in own
        if kind == "file":
            put(place, "whole")
        else:
            with replacing_folder(place) as part:
                (part / "inside").write_text("whole")
        assert left(tmp_path) == [own]
    finally:
        living.kill()
        living.wait()
    again = start(WRITING, place, kind)  # the next writer of the name removes what was left
    assert own not in left(tmp_path) and len(left(tmp_path)) == 1
    again.kill()
    again.wait()
    sweep(tmp_path)
    assert left(tmp_path) == []
    assert (place if kind == "file" else place / "inside").read_text() == "whole"


def test_a_kill_while_folders_change_places_loses_neither(tmp_path):
    place = tmp_path / "model"
    place.mkdir()
    (place / "weights").write_text("old")
    code = """
        import os, signal, sys
        from pathlib import Path
        from edpbrl_gym import _files
        rename = os.replace
        def stop(source, target):
            if source.suffix == ".part":
                print("writing", flush=True)
                os.kill(os.getpid(), signal.SIGKILL)
            rename(source, target)
        os.replace = stop
        with _files.replacing_folder(Path(sys.argv[1])) as part:
            (part / "weights").write_text("new")
    """
    assert start(code, place).wait() == -signal.SIGKILL
    assert not place.exists() and len([name for name in left(tmp_path) if name.startswith(".model")]) == 2
    sweep(tmp_path)
    assert (place / "weights").read_text() == "old" and left(tmp_path) == []


def test_a_file_is_held_by_one(tmp_path):
    with open(tmp_path / "lock", "w") as first, open(tmp_path / "lock", "w") as second:
        assert hold(first.fileno()) and not hold(second.fileno())


def _array(part: Path) -> None:
    with open(part, "wb") as file:
        np.savez(file, np.arange(20000))


def _table(part: Path) -> None:
    import pandas

    pandas.DataFrame({"x": np.random.default_rng(0).normal(size=20000)}).to_parquet(part)


def _picture(part: Path) -> None:
    from PIL import Image

    Image.fromarray(np.random.default_rng(0).integers(0, 255, (300, 300, 3), dtype=np.uint8)).save(part, format="PNG")


@pytest.mark.parametrize("write", [_array, _table, _picture])
def test_a_write_that_fails_names_the_file_and_leaves_the_old_one(tmp_path, write):
    """Real errors of the system: files may not grow beyond 10,000 bytes. Python names no file for a failed write."""
    put(tmp_path / "kept.file", "old")
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (10_000, hard))
    try:
        with pytest.raises(OSError, match="kept.file") as caught, replacing(tmp_path / "kept.file") as part:
            write(part)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert caught.value.errno == 27 and caught.value.filename == str(tmp_path / "kept.file")
    assert (tmp_path / "kept.file").read_text() == "old" and left(tmp_path) == []


def test_a_name_of_the_greatest_length_is_written_and_its_leftovers_go(tmp_path):
    long, other = "x" * 255, "x" * 254 + "y"
    for name in (long, other):
        with pytest.raises(KeyError), replacing_folder(tmp_path / "never" / name):
            raise KeyError
        with replacing(tmp_path / name) as part:
            part.write_text(name)
            half = part.name
        (tmp_path / half).write_text("half")
    with replacing(tmp_path / other) as part:
        part.write_text("new")
    assert len(left(tmp_path)) == 1  # that of the other name stays
    sweep(tmp_path)
    assert left(tmp_path) == [] and (tmp_path / long).read_text() == long and (tmp_path / other).read_text() == "new"


@pytest.mark.skipif(not Path("/proc/self/fd").is_dir(), reason="needs a list of the process's open files")
def test_where_there_are_no_locks_no_file_is_open_when_it_is_renamed_or_removed(tmp_path, monkeypatch):
    """Windows renames and removes no open file; there are no locks there either."""
    monkeypatch.setattr("edpbrl_gym._files.fcntl", None)

    def open_files():
        paths = Path("/proc/self/fd").iterdir()
        return [target for path in paths if path.is_symlink() and (target := str(path.resolve())).endswith(".part")]

    with replacing(tmp_path / "file") as part:
        part.write_text("new", encoding="utf-8")
        assert open_files() == []
    assert (tmp_path / "file").read_text(encoding="utf-8") == "new"
    with pytest.raises(RuntimeError, match="stopped"), replacing(tmp_path / "file"):
        assert open_files() == []
        raise RuntimeError("stopped")
    with replacing_folder(tmp_path / "folder") as part:
        (part / "one").write_text("1", encoding="utf-8")
        assert open_files() == []
    assert sorted(path.name for path in tmp_path.iterdir()) == ["file", "folder"]
