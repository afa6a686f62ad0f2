"""The suite itself: its tests may send SIGINT wherever it runs."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

TESTS = Path(__file__).parent


@pytest.mark.skipif(sys.platform == "win32", reason="a POSIX shell's background jobs ignore SIGINT")
def test_ctrl_c_interrupts_tests_and_their_children_where_sigint_is_ignored(tmp_path):
    """As under ``pytest &`` in a script: a child process inherits that SIGINT is ignored."""
    (tmp_path / "conftest.py").write_text((TESTS / "conftest.py").read_text())
    (tmp_path / "test_ctrl_c.py").write_text(
        "import signal, subprocess, sys\n"
        "import pytest\n"
        "def test_in_this_process():\n"
        "    with pytest.raises(KeyboardInterrupt):\n"
        "        signal.raise_signal(signal.SIGINT)\n"
        "def test_in_a_child():\n"
        "    press = 'import signal; signal.raise_signal(signal.SIGINT)'\n"
        "    child = subprocess.run([sys.executable, '-c', press], stderr=subprocess.PIPE)\n"
        "    assert child.returncode == -signal.SIGINT and b'KeyboardInterrupt' in child.stderr\n"
    )
    run = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(tmp_path)],
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_IGN),
        capture_output=True,
        text=True,
    )
    assert run.returncode == 0 and "2 passed" in run.stdout, run.stdout[-2000:]
