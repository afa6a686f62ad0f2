"""How fast the pages of a study are while many people take part: docs/study.md.

    OMP_NUM_THREADS=1 python -m benchmarks.study_load --arm design --people 200
    OMP_NUM_THREADS=1 python -m benchmarks.study_load --arm adaptive --people 50 --database postgresql://user@host/name
    OMP_NUM_THREADS=1 python -m benchmarks.study_load --arm adaptive --finish 25   # who finish at the same moment
    OMP_NUM_THREADS=1 python -m benchmarks.study_load --arm adaptive --people 100 --think 10 --minutes 120   # memory

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

CPU and memory are those of the servers with their worker processes, what these share counted once. With ``--minutes``
times count for so long (or until SIGTERM), whoever has finished is followed by somebody new, and the growth of the
memory is fitted by a line, without the first half, in which as many people come as are remembered.

With ``--finish`` people do finish, so many at a time: each answers twelve questions (and practice, attention checks and
repeats), reading for a mean of ``--think`` seconds, waits for the others at the last one, and all post it together.
"last page" is that post with the redirects up to thanks and completion code; then everybody asks every two seconds, as
the script of the page does, until the last question, made of the learnt taste, is there. Meanwhile newcomers open the
consent page and /health, four a second. First eight people finish, then the others up to 58; the memory of the servers
is noted when nothing is being computed any more. The script of the pages tells people that it does not know whether
their answer is stored when a post takes 15 seconds; such posts are counted.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import os
import re
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager, suppress
from html import unescape
from pathlib import Path

import httpx2
import numpy as np

from benchmarks.common import PROGRAM, make_parser, show
from edpbrl_gym.reporting.tables import TextTable
from edpbrl_gym.study.config_reading import read_config
from edpbrl_gym.study.store import Store
from edpbrl_gym.study.template import write_template

QUESTIONS = 60
FINISHED_QUESTIONS, FIRST, FINISHERS = 12, 8, 58
IMPATIENCE = 15.0  # seconds after which the script of the pages says that it knows nothing
_SAMPLE = 10.0  # seconds between two looks at the memory
PAGE = "answer, then next question"
_ARMS = {
    "design": 'planner = "questions"\nfile = "questions.csv"',
    "random": 'planner = "random"',
    "adaptive": 'planner = "adaptive"',
}
_HIDDEN = re.compile(r'<input type="hidden" name="([^"]+)" value="([^"]*)"')
_STATIC = re.compile(r'"(/static/[^"]+\.(?:css|js)[^"]*)"')


def write_study(folder: Path, arm: str, database: str | None, questions: int = QUESTIONS) -> None:
    """Write the study; for the arm "design" solve its design."""
    write_template(folder)
    path = folder / "study.toml"
    text = path.read_text(encoding="utf-8").partition("[[arms]]")[0]
    text = text.replace("number = 30", f"number = {questions}")
    if database is not None:
        text = text.replace("seed = 0\n", f'seed = 0\ndatabase = "{database}"\n', 1)
    path.write_text(f'{text}[[arms]]\nname = "{arm}"\n{_ARMS[arm]}\n', encoding="utf-8")
    if arm == "design":
        out = folder / "design"
        words = ["design", "--feedback", "prompt", "--episodes", str(questions), "--out", str(out)]
        subprocess.run([sys.executable, "-c", PROGRAM, *words], check=True, stdout=subprocess.DEVNULL)
        (out / "questions.csv").rename(folder / "questions.csv")


@contextmanager
def serving(folder: Path, workers: int | None = None) -> Iterator[tuple[int, subprocess.Popen[bytes]]]:
    """The real server in a process of its own; yields its port."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = int(probe.getsockname()[1])
    with (folder / f"server-{port}.log").open("wb") as log:
        command = [sys.executable, "-c", PROGRAM, "study", "serve", str(folder), "--port", str(port)]
        command += [] if workers is None else ["--workers", str(workers)]
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
        self._times, self._errors = times, errors
        self._client = httpx2.AsyncClient(
            base_url=f"http://127.0.0.1:{port}", timeout=None, trust_env=False, verify=False
        )

    async def ask(
        self,
        method: str,
        address: str,
        fields: dict[str, str] | None = None,
        *,
        expected: int = 200,
        may_end: bool = False,
    ) -> str:
        """A request; returns the page, or the address of a redirect; with ``may_end`` nothing at the end."""
        route = f"{method} {'/static' if address.startswith('/static') else address.partition('?')[0]}"
        begin = time.perf_counter()
        try:
            answer = await self._client.request(method, address, data=fields)
        except httpx2.TransportError as error:
            self._errors[f"{route}: {type(error).__name__}"] += 1
            raise ConnectionError(str(error)) from error
        self._times[route].append((begin, time.perf_counter() - begin))
        if may_end and answer.headers.get("location") == "/end":
            return ""
        if answer.status_code != expected:
            self._errors[f"{route}: {answer.status_code}"] += 1
            raise ConnectionError(f"Expected {expected}, got {answer.status_code}")
        return answer.headers["location"] if expected == 303 else answer.text

    async def close(self) -> None:
        """Close the connection."""
        await self._client.aclose()


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
        self.memory: list[tuple[float, float, float]] = []  # seconds since the times count; megabytes, of it no files

    async def play(self) -> None:
        """Let everybody take part."""
        options = self._options
        self.begin = time.perf_counter() + options.arrival
        self.end = self.begin + options.seconds
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, self._stop)
        arrivals = self._rng.uniform(0, options.arrival, options.people)
        await asyncio.gather(self._watch(), *(self._stay(number, after) for number, after in enumerate(arrivals)))

    def _stop(self) -> None:
        self.end = time.perf_counter()
        self._options.seconds = self.end - self.begin

    async def _watch(self) -> None:
        """Note CPU seconds and memory of the servers while times count."""
        await asyncio.sleep(self.begin - time.perf_counter())
        before = self._cpu()
        while (now := time.perf_counter()) < self.end:
            self.memory.append((now - self.begin, megabytes(self._processes), megabytes(self._processes, "Pss_Anon")))
            await asyncio.sleep(min(_SAMPLE, self.end - now))
        self.cpu = self._cpu() - before

    def _cpu(self) -> float:
        return sum(_cpu_seconds(one) for pid in self._processes for one in family(pid))

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
                await browser.close()
            visit += 1

    async def _take_part(self, browser: Browser, name: str) -> None:
        await arrive(browser, name, self._think)
        page = await browser.ask("GET", "/question")
        while time.perf_counter() < self.end and "data-question" in page:
            await self._think()
            begin = time.perf_counter()
            fields = {**hidden(page), "best": str(int(self._rng.integers(4)))}
            await browser.ask("POST", "/answer", fields, expected=303)
            self.acknowledged += 1
            page = await browser.ask("GET", "/question", may_end=True)
            self.times[PAGE].append((begin, time.perf_counter() - begin))

    async def _think(self) -> None:
        await asyncio.sleep(float(self._rng.exponential(self._options.think)))

    def print(self) -> None:
        """The times, and what the servers used."""
        options = self._options
        table = times_table(self.times, self.begin, self.end)
        show(table)
        print(*table.markdown(), sep="\n")
        requests = sum(
            self.begin <= begin < self.end for name, one in self.times.items() if name != PAGE for begin, _ in one
        )
        print(
            f"{options.people} people for {options.seconds / 60:.0f} minutes: {requests / options.seconds:.0f} "
            "requests a second; servers: "
            f"{self.cpu / options.seconds:.2f} cores, {1000 * self.cpu / requests:.0f} ms a request"
        )
        if options.minutes:
            waits = [span for begin, span in sorted(self.times[PAGE]) if self.begin <= begin < self.end]
            said = ", ".join(f"{1000 * np.percentile(part, 95):.0f}" for part in np.array_split(waits, 8) if len(part))
            print(f"One eighth of the pages after the other, 95%: {said} ms")
        seconds, *memory = np.array(self.memory).T
        later = seconds >= seconds[-1] / 2
        for what, megabytes in zip(("Memory of the servers and their workers", "Without files"), memory, strict=True):
            print(f"{what}: {megabytes[0]:.0f} MB at first, at most {megabytes.max():.0f} MB")
            if options.minutes and later.sum() > 2:
                slope = 60 * np.polyfit(seconds[later], megabytes[later], 1)[0]
                parts = [part.mean() for part in np.array_split(megabytes, min(8, len(megabytes)))]
                said = ", ".join(f"{one:.0f}" for one in parts)
                print(f"One part of the time after the other: {said} MB; in the second half {slope:+.2f} MB a minute")


async def arrive(browser: Browser, name: str, think: Callable[[], Awaitable[None]]) -> None:
    """Come by the link, agree, and pass the instructions."""
    page = await browser.ask("GET", f"/?PROLIFIC_PID={name}")
    for address in _STATIC.findall(page):
        await browser.ask("GET", address)
    await browser.ask("POST", "/consent", {**hidden(page), "agree": "yes"}, expected=303)
    page = await browser.ask("GET", "/page")
    await think()
    await browser.ask("POST", "/page", {**hidden(page), "q-task": "1"}, expected=303)


class Finishers:
    """People who finish at the same moment, and newcomers meanwhile."""

    def __init__(self, servers: list[tuple[int, int]], options: argparse.Namespace) -> None:
        self._ports, self._processes = [port for port, _ in servers], [process for _, process in servers]
        self._options = options
        self._rng = np.random.default_rng(options.seed)
        self.times: dict[str, list[tuple[float, float]]] = defaultdict(list)
        self.errors: Counter[str] = Counter()
        self.acknowledged = 0
        self.memory: dict[int, float] = {0: self._megabytes()}  # by number of people who have finished

    async def play(self) -> None:
        """Let everybody finish."""
        done = 0
        while done < FINISHERS:
            count = FIRST if not done else min(self._options.finish, FINISHERS - done)
            together = asyncio.Barrier(count)
            newcomers = asyncio.create_task(self._newcomers(done))
            await asyncio.gather(*(self._finish(done + number, together) for number in range(count)))
            newcomers.cancel()
            done += count
            self.memory[done] = self._megabytes()

    async def _finish(self, number: int, together: asyncio.Barrier) -> None:
        browser = Browser(self._ports[number % len(self._ports)], defaultdict(list), self.errors)
        await arrive(browser, f"p{number}", self._think)
        page, total = await browser.ask("GET", "/question"), None
        while total is None or total[0] < total[1]:
            found = re.search(r"Question (\d+) of (\d+)", page)
            assert found, page
            total = int(found[1]), int(found[2])
            await self._think()
            if total[0] == total[1]:
                await together.wait()
            fields = {**hidden(page), "best": str(int(self._rng.integers(4)))}
            begin = time.perf_counter()
            address = await browser.ask("POST", "/answer", fields, expected=303)
            self.acknowledged += 1
            self._note("last answer acknowledged" if total[0] == total[1] else "other answer acknowledged", begin)
            if total[0] == total[1]:
                address = await browser.ask("GET", address, expected=303)
            page = await browser.ask("GET", address)
        assert 'id="style"' in page, page
        self._note("last page", begin)
        while "data-pending" in page:
            await asyncio.sleep(2.0)
            page = await browser.ask("GET", address)
        assert "/prefer" in page, page
        self._note("last question", begin)
        await browser.close()

    async def _newcomers(self, done: int) -> None:
        for number in itertools.count():
            browser = Browser(self._ports[number % len(self._ports)], defaultdict(list), self.errors)
            link = f"/?PROLIFIC_PID=n{done}-{number}"
            for name, address in (("newcomer's first page", link), ("/health", "/health")):
                begin = time.perf_counter()
                await browser.ask("GET", address)
                self._note(name, begin)
            await browser.close()
            await asyncio.sleep(0.25)

    def _note(self, name: str, begin: float) -> None:
        self.times[name].append((begin, time.perf_counter() - begin))

    async def _think(self) -> None:
        await asyncio.sleep(float(self._rng.exponential(self._options.think)))

    def _megabytes(self) -> float:
        return megabytes(self._processes)

    def print(self) -> None:
        """The times, the memory, and how many people were told that nothing is known of their answer."""
        table = times_table(self.times, -np.inf, np.inf)
        show(table)
        print(*table.markdown(), sep="\n")
        late = sum(span > IMPATIENCE for name in self.times if "answer" in name for _, span in self.times[name])
        said = ", ".join(f"{value:.0f} MB after {count}" for count, value in self.memory.items())
        ratio = self.memory[FINISHERS] / self.memory[FIRST]
        print(f"{late} answers of {self.acknowledged} were not acknowledged within {IMPATIENCE:g} s")
        print(f"Memory of the servers: {said} people who finished; the last is {ratio:.2f} times that after {FIRST}")


def times_table(times: dict[str, list[tuple[float, float]]], begin: float, end: float) -> TextTable:
    """Times by route of what began in a time."""
    rows = []
    for route in sorted(times, key=lambda name: (name != PAGE, name)):
        spans = 1000 * np.array([span for start, span in times[route] if begin <= start < end])
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
        return sum(answer is not None for one in people for _, answer in store.record(one.id).history)
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
    parser.add_argument("--minutes", type=float, help="let times count for so long, and look how the memory grows")
    parser.add_argument("--finish", type=int, help="let people finish, so many at the same moment")
    parser.add_argument("--servers", type=int, default=1)
    parser.add_argument("--workers", type=int, help="processes of each server that choose questions")
    parser.add_argument("--database", help="URL of an empty database of PostgreSQL; without it a file of SQLite")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    if options.minutes:
        options.seconds = 60 * options.minutes
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place) / "study"
        write_study(folder, options.arm, options.database, FINISHED_QUESTIONS if options.finish else QUESTIONS)
        before = os.getloadavg()[0]
        servers = [serving(folder, options.workers) for _ in range(options.servers)]
        opened = [server.__enter__() for server in servers]
        try:
            places = [(port, process.pid) for port, process in opened]
            crowd = Finishers(places, options) if options.finish else Crowd(places, options)
            asyncio.run(crowd.play())
        finally:
            for server in servers:
                server.__exit__(None, None, None)
        crowd.print()
        stored = stored_answers(folder)
        print(
            f"{options.arm}, {'PostgreSQL' if options.database else 'SQLite'}, {options.servers} server(s), errors: "
            f"{dict(crowd.errors) or 'none'}; {crowd.acknowledged} answers acknowledged, {stored} stored; "
            f"load average {before:.1f} before and {os.getloadavg()[0]:.1f} after"
        )
        if crowd.errors or stored < crowd.acknowledged:
            raise SystemExit(1)


def family(pid: int) -> list[int]:
    """A process and those that it has started."""
    parents = {}
    for place in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            parents[int(place.name)] = int(_stat(int(place.name))[1])
    found = [pid]
    for one in found:
        found += [child for child, parent in parents.items() if parent == one]
    return found


def megabytes(pids: list[int], kind: str = "Pss") -> float:
    """Memory of processes and of those that they have started; what they share is counted once.

    "Pss" counts mapped files too, of which other programs may share some; "Pss_Anon" doesn't.
    """
    total = 0
    for one in [one for pid in pids for one in family(pid)]:
        with suppress(OSError):  # it has ended
            lines = Path(f"/proc/{one}/smaps_rollup").read_text().splitlines()
            total += sum(int(line.split()[1]) for line in lines if line.startswith(f"{kind}:"))
    return total * 1024 / 1e6


def _stat(pid: int) -> list[str]:
    """The fields of a process from its state on."""
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()


def _cpu_seconds(pid: int) -> float:
    """CPU seconds of a process so far, its start and its ended children included; 0: it has ended."""
    try:
        fields = _stat(pid)
    except OSError:
        return 0.0
    return sum(int(fields[place]) for place in (11, 12, 13, 14)) / os.sysconf("SC_CLK_TCK")


if __name__ == "__main__":
    main()
