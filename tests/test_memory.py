"""Freed memory goes back to the system."""

import subprocess
import sys

import pytest

_PROGRAM = """
import numpy as np
from edpbrl_gym._threads import give_back

def size():
    return int(open("/proc/self/statm").read().split()[1]) * 4096 // 2**20

blocks = [np.ones(8000) for _ in range(4000)]  # 64 kB each, so in the heap
kept = blocks[::100]
del blocks
before = size()
give_back()
print(before - size(), len(kept))
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="glibc keeps it on Linux")
def test_what_lies_between_blocks_in_use_is_given_back():
    """In a process of its own, of which nothing else is in the heap."""
    done = subprocess.run([sys.executable, "-c", _PROGRAM], capture_output=True, text=True, check=True, timeout=120)
    freed, kept = map(int, done.stdout.split())
    assert freed > 150 and kept == 40
