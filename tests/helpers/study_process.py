"""The real server of a study in a process that can be killed, and people who answer whatever happens to it."""

from __future__ import annotations

import http.client
import os
import random
import signal
import socket
import subprocess
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path
from urllib.parse import urlencode

from edpbrl_gym.study.web.site import COOKIE
from tests.helpers.study_client import Forms

ROOT = Path(__file__).resolve().parents[2]
_PROGRAM = "import sys; from edpbrl_gym.cli import main; sys.exit(main(sys.argv[1:]))"


def free_port() -> int:
    """A port that nobody listens at."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


class ServerProcess:
    """``edpbrl study serve`` in a process group of its own.

    Args:
        folder: Folder of the study.
        port: Port that it listens at, also after a restart.
        more: Options of the command.
    """

    def __init__(self, folder: Path, port: int, *more: str) -> None:
        self.folder, self.port, self.more = folder, port, more
        self.log = folder / f"server-{port}.log"
        self.process: subprocess.Popen | None = None

    def start(self) -> None:
        """Start it; return when it answers."""
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-c", _PROGRAM, "study", "serve", str(self.folder), "--port", str(self.port),
                 *self.more],
                stdout=log, stderr=log, start_new_session=True, cwd=ROOT,
                env={**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)},
            )  # fmt: skip
        for _ in range(2000):
            assert self.process.poll() is None, self.log.read_text(encoding="utf-8", errors="replace")
            try:
                if request(self.port, "GET", "/health")[0] == 200:
                    return
            except OSError:
                time.sleep(0.05)
        raise AssertionError("the server did not start")

    def kill(self) -> None:
        """kill -9: nothing is finished, nothing is flushed."""
        if self.process is not None:
            with suppress(ProcessLookupError):  # it has ended
                os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait(60)
            self.process = None

    def workers(self) -> list[int]:
        """Its worker processes, the one that forks the others first."""
        found = []
        for place in Path("/proc").glob("[0-9]*"):
            with suppress(OSError):
                comm, stat = (place / "comm").read_text().strip(), (place / "stat").read_text().rpartition(")")[2]
                fields = stat.split()
                if comm == "edpbrl-worker" and os.getsid(int(place.name)) == self.process.pid and fields[0] != "Z":
                    found.append((int(fields[1]) != self.process.pid, int(place.name)))
        return [pid for _, pid in sorted(found)]

    def errors(self) -> list[str]:
        """Lines of its log that say that something failed."""
        text = self.log.read_text(encoding="utf-8", errors="replace")
        return [line for line in text.splitlines() if "Traceback" in line or "Error:" in line or "(500)" in line]


def request(
    port: int, method: str, address: str, cookie: str = "", fields: dict[str, str] | None = None, patience: float = 20.0
) -> tuple[int, dict[str, str], str]:
    """One request on a connection of its own: status, headers and text.

    Raises:
        OSError: No connection, or it ended before the whole answer.
    """
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=patience)
    try:
        body = None if fields is None else urlencode(fields)
        headers = {"Cookie": f"{COOKIE}={cookie}"} if cookie else {}
        if body is not None:
            headers["Content-Type"] = "application/x-www-form-urlencoded"
        connection.request(method, address, body, headers)
        answer = connection.getresponse()
        return answer.status, {name.lower(): value for name, value in answer.getheaders()}, answer.read().decode()
    except http.client.HTTPException as error:
        raise ConnectionError(str(error)) from error
    finally:
        connection.close()


class Stubborn(threading.Thread):
    """A participant who answers every question, and repeats what was not acknowledged until it is.

    Some posts are cut: the connection is closed before all of the post was sent, or before the answer was read. Some
    are sent from two tabs at once, with different options.

    Args:
        name: Identifier of the participant.
        ports: Ports of the servers, of which each request takes any.
        seed: Of what is cut and chosen.
    """

    def __init__(self, name: str, ports: list[int], seed: int) -> None:
        super().__init__(name=name, daemon=True)
        self.ports = ports
        self.rng = random.Random(seed)
        self.cookie = ""
        self.acknowledged: dict[str, set[int]] = {}  # by key, the options that any tab was told are stored
        self.sent: dict[str, set[int]] = {}
        self.said: dict[str, set[str]] = {}  # by key of a page
        self.cut = self.failures = self.refused = 0
        self.finished, self.stop = False, threading.Event()
        self.error: BaseException | None = None

    def run(self) -> None:
        try:
            while not self.finished and not self.stop.is_set():
                self._step()
        except BaseException as error:
            self.error = error

    def _ask(self, method: str, address: str, fields: dict[str, str] | None = None) -> tuple[int, dict[str, str], str]:
        """A request, repeated until a server answers it."""
        while not self.stop.is_set():
            try:
                status, headers, text = request(self.rng.choice(self.ports), method, address, self.cookie, fields)
            except OSError:
                self.failures += 1
                time.sleep(0.02)
                continue
            if status in (429, 503):  # faster than a person, or the database is not there
                self.refused += status == 503
                time.sleep(0.2)
                continue
            assert status < 400, (method, address, status, text)
            if "set-cookie" in headers:
                self.cookie = headers["set-cookie"].split(";")[0].partition("=")[2]
            return status, headers, text
        raise TimeoutError("told to stop")

    def _step(self) -> None:
        status, headers, text = self._ask("GET", "/question" if self.cookie else f"/?PROLIFIC_PID={self.name}")
        if status == 303:
            if headers["location"] == "/end":
                self.finished = self._ask("GET", "/end")[0] == 200
            if headers["location"] in ("/page", "/end") and not self.finished:
                self._page()
            if headers["location"] == "/instructions":
                self._post("/instructions", Forms(self._ask("GET", "/instructions")[2]).forms[0]["fields"])
            return
        if not (forms := Forms(text).forms):  # the page that waits for a question
            time.sleep(0.05)
            return
        form = forms[0]
        if form["action"] == "/consent":
            self._post("/consent", {**form["fields"], "agree": "yes"})
            return
        if self.rng.random() < 0.2:
            self._cut(form["fields"])
        if self.rng.random() < 0.1:
            other = threading.Thread(target=self._answer, args=(form["fields"],))
            other.start()
            self._answer(form["fields"])
            other.join()
        else:
            self._answer(form["fields"])

    def _post(self, address: str, fields: dict[str, str]) -> None:
        assert self._ask("POST", address, fields)[0] == 303

    def _page(self) -> None:
        """Answer the page of questions that is due, sometimes from two tabs at once."""
        status, _, text = self._ask("GET", "/page")
        if status == 303:
            return
        fields = Forms(text).forms[0]["fields"]
        tabs = []
        for _ in range(1 + (self.rng.random() < 0.3)):
            said = f"{self.rng.random()}"
            self.said.setdefault(fields["page"], set()).add(said)
            tabs.append(threading.Thread(target=self._post, args=("/page", {**fields, "q-said": said})))
        for tab in tabs:
            tab.start()
        for tab in tabs:
            tab.join()

    def _answer(self, fields: dict[str, str]) -> None:
        """Post an answer until it is acknowledged; the server says when another one had come before."""
        key, best = fields["key"], self.rng.randrange(3)
        self.sent.setdefault(key, set()).add(best)
        _, headers, _ = self._ask("POST", "/answer", {**fields, "best": str(best)})
        if headers["location"] == "/question":
            self.acknowledged.setdefault(key, set()).add(best)
        else:
            assert headers["location"] == "/question?notice=already" and len(self.sent[key]) > 1, headers["location"]

    def _cut(self, fields: dict[str, str]) -> None:
        """Post an answer on a connection that ends before the post has arrived, or before its answer has."""
        best = self.rng.randrange(3)
        body = urlencode({**fields, "best": str(best)}).encode()
        head = f"POST /answer HTTP/1.1\r\nHost: 127.0.0.1\r\nCookie: {COOKIE}={self.cookie}\r\n"
        data = head.encode() + b"Content-Type: application/x-www-form-urlencoded\r\nContent-Length: %d\r\n\r\n" % len(
            body
        )
        data += body
        whole = self.rng.random() < 0.5
        if whole:
            self.sent.setdefault(fields["key"], set()).add(best)
        try:
            with socket.create_connection(("127.0.0.1", self.rng.choice(self.ports)), timeout=5) as connection:
                connection.sendall(data if whole else data[: self.rng.randrange(1, len(data))])
                time.sleep(self.rng.choice([0.0, 0.005, 0.02]))
            self.cut += 1
        except OSError:
            self.failures += 1
