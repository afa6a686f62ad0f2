"""How fast the pages of a study are while many people take part: docs/study.md.

    OMP_NUM_THREADS=1 python -m benchmarks.study_load --arm design --people 200
    OMP_NUM_THREADS=1 python -m benchmarks.study_load --arm adaptive --people 50 --database postgresql://user@host/name

``edpbrl study serve`` runs in a process of its own (``--servers`` of them share the database), this process sends the
requests over loopback. The study is that of ``edpbrl study init`` (the vocabulary "images", complete prompts, the best
of four, MiniLM) with one arm and sixty questions; the arm "design" asks those of a file of ``edpbrl design``.

Each person has a connection of their own, arrives at a random time of the first ``--arrival`` seconds, loads the style
sheet and the script, agrees, reads the instructions, and then reads every question for an exponential time (mean
``--think`` seconds), posts an answer and follows the redirect to the next question. Times are measured from the first
byte sent to the last one received; those of the ``--seconds`` after the arrivals count. "answer, then next question" is
what a person waits for: the post and the page that it leads to. A request that fails, or whose status is not the
expected one, is an error. The database (an empty one of PostgreSQL, or a file of SQLite in a temporary folder) must
have every answer that was acknowledged; the script checks that.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import re
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from html import unescape
from pathlib import Path
from urllib.parse import urlencode

import numpy as np

from benchmarks.common import make_parser, show
from edpbrl_gym.reporting.tables import TextTable
from edpbrl_gym.study.config_reading import read_config
from edpbrl_gym.study.store import Store
from edpbrl_gym.study.template import write_template

QUESTIONS = 60
PAGE = "answer, then next question"
_ARMS = {
    "design": 'planner = "questions"\nfile = "questions.csv"',
    "random": 'planner = "random"',
    "adaptive": 'planner = "adaptive"',
}
_PROGRAM = "import sys; from edpbrl_gym.cli import main; sys.exit(main(sys.argv[1:]))"
_HIDDEN = re.compile(r'<input type="hidden" name="([^"]+)" value="([^"]*)"')
_STATIC = re.compile(r'"(/static/[^"]+\.(?:css|js)[^"]*)"')


def write_study(folder: Path, arm: str, database: str | None) -> None:
    """Write the study; for the arm "design" solve its design."""
    write_template(folder)
    path = folder / "study.toml"
    text = path.read_text(encoding="utf-8").partition("[[arms]]")[0]
    text = text.replace("number = 30", f"number = {QUESTIONS}")
    if database is not None:
        text = text.replace("seed = 0\n", f'seed = 0\ndatabase = "{database}"\n', 1)
    path.write_text(f'{text}[[arms]]\nname = "{arm}"\n{_ARMS[arm]}\n', encoding="utf-8")
    if arm == "design":
        out = folder / "design"
        words = ["design", "--feedback", "prompt", "--episodes", str(QUESTIONS), "--out", str(out)]
        subprocess.run([sys.executable, "-c", _PROGRAM, *words], check=True, stdout=subprocess.DEVNULL)
        (out / "questions.csv").rename(folder / "questions.csv")


@contextmanager
def serving(folder: Path) -> Iterator[tuple[int, subprocess.Popen[bytes]]]:
    """The real server in a process of its own; yields its port."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = int(probe.getsockname()[1])
    with (folder / f"server-{port}.log").open("wb") as log:
        command = [sys.executable, "-c", _PROGRAM, "study", "serve", str(folder), "--port", str(port)]
        process = subprocess.Popen(command, stdout=log, stderr=log)
        try:
            while True:
                if process.poll() is not None:
                    raise RuntimeError((folder / f"server-{port}.log").read_text(encoding="utf-8"))
                try:
                    socket.create_connection(("127.0.0.1", port), timeout=1).close()
                    break
                except OSError:
                    time.sleep(0.1)
            yield port, process
        finally:
            process.send_signal(signal.SIGINT)
            process.wait(60)


class Browser:
    """A person's connection to the server, opened again when the server has closed it."""

    def __init__(self, port: int, times: dict[str, list[tuple[float, float]]], errors: Counter[str]) -> None:
        self._port, self._times, self._errors = port, times, errors
        self._reader: asyncio.StreamReader | None = None
        self._writer: asyncio.StreamWriter | None = None
        self._cookie = ""

    async def ask(self, method: str, address: str, fields: dict[str, str] | None = None, *, expected: int = 200) -> str:
        """A request; returns the page, or the address of a redirect."""
        body = urlencode(fields or {}).encode()
        lines = [f"{method} {address} HTTP/1.1", f"Host: 127.0.0.1:{self._port}"]
        lines += [f"Cookie: {self._cookie}"] * bool(self._cookie)
        if method == "POST":
            lines += ["Content-Type: application/x-www-form-urlencoded", f"Content-Length: {len(body)}"]
        request = "\r\n".join([*lines, "", ""]).encode() + body
        route = f"{method} {'/static' if address.startswith('/static') else address.partition('?')[0]}"
        begin = time.perf_counter()
        try:
            status, headers, page = await self._exchange(request)
        except (OSError, asyncio.IncompleteReadError, ValueError) as error:
            self._errors[f"{route}: {type(error).__name__}"] += 1
            raise ConnectionError(str(error)) from error
        self._times[route].append((begin, time.perf_counter() - begin))
        if status != expected:
            self._errors[f"{route}: {status}"] += 1
            raise ConnectionError(f"Expected {expected}, got {status}")
        if "set-cookie" in headers:
            self._cookie = headers["set-cookie"].partition(";")[0]
        return headers["location"] if status == 303 else page.decode()

    async def _exchange(self, request: bytes) -> tuple[int, dict[str, str], bytes]:
        fresh = self._writer is None or self._reader is None or self._reader.at_eof()
        if fresh:
            self.close()
            self._reader, self._writer = await asyncio.open_connection("127.0.0.1", self._port)
        assert self._reader is not None and self._writer is not None
        self._writer.write(request)
        try:
            first = await self._reader.readline()
        except OSError:
            first = b""
        if not first and not fresh:  # an idle connection that the server closed at this moment, as browsers do
            self.close()
            return await self._exchange(request)
        headers = {}
        while (line := await self._reader.readline()) not in (b"\r\n", b""):
            name, _, value = line.decode("latin-1").partition(":")
            headers[name.lower()] = value.strip()
        page = await self._reader.readexactly(int(headers.get("content-length", 0)))
        return int(first.split()[1]), headers, page

    def close(self) -> None:
        """Close the connection."""
        if self._writer is not None:
            self._writer.close()
        self._reader = self._writer = None


def hidden(page: str) -> dict[str, str]:
    """The hidden fields of a page."""
    return {name: unescape(value) for name, value in _HIDDEN.findall(page)}


class Crowd:
    """People who take part until a time is over."""

    def __init__(self, servers: list[tuple[int, int]], options: argparse.Namespace) -> None:
        self._ports, self._options = [port for port, _ in servers], options
        self._processes = [process for _, process in servers]
        self._rng = np.random.default_rng(options.seed)
        self.times: dict[str, list[tuple[float, float]]] = defaultdict(list)
        self.errors: Counter[str] = Counter()
        self.acknowledged = 0
        self.begin = self.end = self.cpu = 0.0

    async def play(self) -> None:
        """Let everybody take part."""
        options = self._options
        self.begin = time.perf_counter() + options.arrival
        self.end = self.begin + options.seconds
        arrivals = self._rng.uniform(0, options.arrival, options.people)
        await asyncio.gather(self._watch(), *(self._stay(number, after) for number, after in enumerate(arrivals)))

    async def _watch(self) -> None:
        """Note the CPU seconds of the servers while times count."""
        await asyncio.sleep(self.begin - time.perf_counter())
        before = sum(map(_cpu_seconds, self._processes))
        await asyncio.sleep(self.end - time.perf_counter())
        self.cpu = sum(map(_cpu_seconds, self._processes)) - before

    async def _stay(self, number: int, after: float) -> None:
        await asyncio.sleep(after)
        visit = 0
        while time.perf_counter() < self.end:
            browser = Browser(self._ports[number % len(self._ports)], self.times, self.errors)
            try:
                await self._take_part(browser, f"p{number}-{visit}")
            except ConnectionError:
                await asyncio.sleep(1.0)
            finally:
                browser.close()
            visit += 1

    async def _take_part(self, browser: Browser, name: str) -> None:
        page = await browser.ask("GET", f"/?PROLIFIC_PID={name}")
        for address in _STATIC.findall(page):
            await browser.ask("GET", address)
        await browser.ask("POST", "/consent", {**hidden(page), "agree": "yes"}, expected=303)
        page = await browser.ask("GET", "/instructions")
        await self._think()
        await browser.ask("POST", "/instructions", {**hidden(page), "check-0": "1"}, expected=303)
        page = await browser.ask("GET", "/question")
        while time.perf_counter() < self.end and "data-question" in page:
            await self._think()
            begin = time.perf_counter()
            fields = {**hidden(page), "best": str(int(self._rng.integers(4)))}
            await browser.ask("POST", "/answer", fields, expected=303)
            self.acknowledged += 1
            page = await browser.ask("GET", "/question")
            self.times[PAGE].append((begin, time.perf_counter() - begin))

    async def _think(self) -> None:
        await asyncio.sleep(float(self._rng.exponential(self._options.think)))

    def table(self) -> TextTable:
        """Times by route."""
        rows = []
        for route in sorted(self.times, key=lambda name: (name != PAGE, name)):
            spans = 1000 * np.array([span for begin, span in self.times[route] if self.begin <= begin < self.end])
            if len(spans):
                values = [*np.percentile(spans, [50, 95, 99]), spans.max()]
                rows.append([route, str(len(spans)), *(f"{value:.0f}" for value in values)])
        header = ["page", "count", "median (ms)", "95% (ms)", "99% (ms)", "slowest (ms)"]
        return TextTable("", header, rows, words=1)


def stored_answers(folder: Path) -> int:
    """Number of answers in the database."""
    store = Store(read_config(folder).database_url, create=False)
    try:
        people = store.participants()
        return sum(answer is not None for one in people for _, answer in store.full_history(one.id))
    finally:
        store.close()


def main() -> None:
    """Run the load and print the times."""
    parser = make_parser(__doc__)
    parser.add_argument("--arm", choices=sorted(_ARMS), default="design")
    parser.add_argument("--people", type=int, default=200)
    parser.add_argument("--seconds", type=float, default=60.0, help="how long times count")
    parser.add_argument("--arrival", type=float, default=15.0, help="seconds in which people arrive")
    parser.add_argument("--think", type=float, default=5.0, help="mean seconds for which a question is read")
    parser.add_argument("--servers", type=int, default=1)
    parser.add_argument("--database", help="URL of an empty database of PostgreSQL; without it a file of SQLite")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place) / "study"
        write_study(folder, options.arm, options.database)
        before = os.getloadavg()[0]
        servers = [serving(folder) for _ in range(options.servers)]
        opened = [server.__enter__() for server in servers]
        try:
            crowd = Crowd([(port, process.pid) for port, process in opened], options)
            asyncio.run(crowd.play())
        finally:
            for server in servers:
                server.__exit__(None, None, None)
        show(crowd.table())
        print(*crowd.table().markdown(), sep="\n")
        requests = sum(
            crowd.begin <= begin < crowd.end for name, one in crowd.times.items() if name != PAGE for begin, _ in one
        )
        stored = stored_answers(folder)
        print(
            f"{options.arm}, {options.people} people, {'PostgreSQL' if options.database else 'SQLite'}, "
            f"{options.servers} server(s): {requests / options.seconds:.0f} requests a second, errors: "
            f"{dict(crowd.errors) or 'none'}; {crowd.acknowledged} answers acknowledged, {stored} stored"
        )
        print(
            f"Servers: {crowd.cpu / options.seconds:.2f} cores, {1000 * crowd.cpu / requests:.0f} ms a request; "
            f"load average {before:.1f} before and {os.getloadavg()[0]:.1f} after"
        )
        if crowd.errors or stored < crowd.acknowledged:
            raise SystemExit(1)


def _cpu_seconds(pid: int) -> float:
    """CPU seconds of a process so far, its start included."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


if __name__ == "__main__":
    main()
