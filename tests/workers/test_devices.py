"""Each worker process has a device of its own, until it ends."""

from __future__ import annotations

import subprocess
import sys

import pytest

from edpbrl_gym import _devices
from edpbrl_gym._devices import claim, own_device

OTHER = """
import sys
from edpbrl_gym._devices import claim
print(claim(["one", "two"]), flush=True)
sys.stdin.read()
"""


@pytest.fixture(autouse=True)
def own_folder(tmp_path, monkeypatch):
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr(_devices.tempfile, "tempdir", None)
    monkeypatch.setattr(_devices, "_claimed", {})


def test_workers_take_different_devices_and_leave_them_when_they_die():
    other = subprocess.Popen([sys.executable, "-c", OTHER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    with other:
        assert other.stdout.readline() == "0\n"
        with pytest.raises(RuntimeError, match=r"Expected a free GPU of .*, other workers have all 1"):
            claim(["one"])
        assert claim(["one", "two"]) == 1
        assert claim(["one", "two"]) == 1  # the one it has
        other.kill()
    assert claim(["one"]) == 0


def test_a_device_that_is_named_is_shared():
    assert [own_device(name) for name in ("cpu", "cuda:0", "mps")] == ["cpu", "cuda:0", "mps"]
