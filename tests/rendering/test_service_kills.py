"""Runs against a server that counts: killed, interrupted, two at once. Nothing is lost, nothing paid twice."""

from __future__ import annotations

import io
import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
from contextlib import contextmanager

import pytest

pytest.importorskip("httpx2")

from PIL import Image

from tests.helpers.picture_servers import OpenAIServer, colour

if not hasattr(os, "fork"):
    pytest.skip("needs fork", allow_module_level=True)

AT_ONCE = 4
TEXTS = [f"text {index}" for index in range(200)]
# imports everything once; a run is a child of it
RUNS = """
import os, sys
import edpbrl_gym._http.transport
import edpbrl_gym.rendering.services.openai
import PIL.PngImagePlugin
from edpbrl_gym.rendering import load_renderer

spec, folder, at_once, count = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
for line in sys.stdin:
    pids = []
    for _ in range(int(line)):
        pid = os.fork()
        if not pid:
            try:
                with load_renderer(spec, cache_folder=folder, batch_size=at_once, price=0.04) as renderer:
                    renderer.render([f"text {index}" for index in range(count)])
                os._exit(0)
            except KeyboardInterrupt:
                os._exit(130)
            finally:
                os._exit(1)
        pids.append(pid)
    print(*pids, flush=True)
    print(*(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in pids), flush=True)
"""


class Runs:
    """Runs of 200 pictures into one folder."""

    def __init__(self, process, server, folder) -> None:
        self._process, self.server, self.folder = process, server, folder

    def start(self, number: int = 1) -> list[int]:
        """The ids of the processes of some runs at once."""
        self._process.stdin.write(f"{number}\n")
        self._process.stdin.flush()
        return list(map(int, self._process.stdout.readline().split()))

    def ends(self) -> list[int]:
        return list(map(int, self._process.stdout.readline().split()))

    def cached(self) -> int:
        """The number of pictures that are whole on disk."""
        return sum(1 for path in self.folder.glob("??/*.json"))

    def settled(self) -> None:
        """Wait until the server has answered, or tried to answer, all that it was asked."""
        begun, quiet = -1, 0
        while quiet < 10:  # what the server has accepted may not have begun
            time.sleep(0.005)
            quiet = quiet + 1 if len(self.server.calls) == begun and not self.server.under_way else 0
            begun = len(self.server.calls)


@contextmanager
def runs(folder, play, count=200):
    with OpenAIServer(play) as server:
        command = [sys.executable, "-c", RUNS, server.spec, str(folder), str(AT_ONCE), str(count)]
        process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        try:
            yield Runs(process, server, folder)
        finally:
            process.stdin.close()
            process.wait(timeout=20)
            process.stdout.close()


def check(folder, count=200) -> None:
    """All pictures are there, and under their own prompts."""
    records = [json.loads(path.read_text()) for path in folder.glob("??/*.json")]
    assert sorted(one["prompt"] for one in records) == sorted(TEXTS[:count])
    for one in records:
        png = (folder / one["key"][:2] / f"{one['key']}-{one['sha256'][:16]}.png").read_bytes()
        assert Image.open(io.BytesIO(png)).getpixel((0, 0)) == colour(one["prompt"])


def test_twenty_kills_lose_nothing_but_what_was_under_way(tmp_path, record_property):
    dice = random.Random(0)
    reached = threading.Event()
    goal = [0]

    def play(call):
        if call.number >= goal[0]:
            reached.set()
        time.sleep(dice.random() * 0.01)

    twice = 0
    with runs(tmp_path, play) as these:
        for _ in range(20):
            paid, kept = sum(these.server.paid.values()), these.cached()
            goal[0] = len(these.server.calls) + dice.randrange(9)
            reached.clear()
            [pid] = these.start()
            assert reached.wait(20)
            time.sleep(dice.random() * 0.02)
            os.kill(pid, signal.SIGKILL)
            assert these.ends() == [-signal.SIGKILL]
            these.settled()
            lost = sum(these.server.paid.values()) - paid - (these.cached() - kept)
            assert 0 <= lost <= AT_ONCE
            twice += lost
        assert these.cached() < len(TEXTS)  # so that each kill was one of a run
        these.start()
        assert these.ends() == [0]
        asked = sum(these.server.paid.values())
        assert asked == len(TEXTS) + twice
        keys = {call.headers["idempotency-key"] for call in these.server.calls}
        assert len(keys) == len(TEXTS)  # a server that heeds them draws nothing twice
    record_property("asked twice", f"{twice} of {asked}, after 20 kills with {AT_ONCE} at once")
    print(f"{twice} pictures were under way at 20 kills and asked for again; {asked} asked in all")
    check(tmp_path)


def test_an_interruption_waits_for_what_is_under_way(tmp_path):
    some = threading.Event()

    def play(call):
        if call.number >= 10:
            some.set()
        time.sleep(0.02)

    with runs(tmp_path, play, 40) as these:
        [pid] = these.start()
        assert some.wait(20)
        os.kill(pid, signal.SIGINT)
        assert these.ends() == [130]
        assert sum(these.server.paid.values()) == these.cached() < 40
        these.start()
        assert these.ends() == [0] and set(these.server.paid.values()) == {1}
    check(tmp_path, 40)


def test_two_processes_ask_for_no_picture_twice(tmp_path):
    with runs(tmp_path, lambda call: time.sleep(0.003), 40) as these:
        these.start(2)
        assert these.ends() == [0, 0] and set(these.server.paid.values()) == {1}
    check(tmp_path, 40)
