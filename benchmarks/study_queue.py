"""How fast the queue of a study is, without web pages: docs/study.md.

    python -m benchmarks.study_queue one                                     # one participant of each arm
    python -m benchmarks.study_queue crowd --arm design --participants 200   # many at once, for a minute
    python -m benchmarks.study_queue crowd --arm adaptive --participants 50
    python -m benchmarks.study_queue crowd --database postgresql://user@host/name

The study is that of ``edpbrl study init``: the vocabulary "images", complete prompts, the best of four, MiniLM. The arm
"design" asks the questions of a file (here drawn at random: which ones makes no difference to the time). Answers are
those of a simulated user; each is stored in SQLite on this disk (or --database) and flushed before it counts.

"one": for each arm the median milliseconds of ``answer``, and of ``next_question`` called at once after it, when it
waits for the choice, and called after --reading seconds, when the question was chosen in the meantime; after 0 to 4,
10 to 14 and 30 to 34 answers. Then what a server that has just been started takes to ask the next question.

"crowd": so many participants in as many threads of one process, or of several (--processes) that share the database
like several servers, each with its share of the participants. Each participant reads every question for --reading
seconds on average (uniform between half and one and a half times as long; people need about ten), answers it, and asks
for the next one at once, as a page does that is sent after the answer was stored. A page is both together.
"""

from __future__ import annotations

import argparse
import dataclasses
import os
import resource
import tempfile
import threading
import time
import uuid
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

import numpy as np

from benchmarks.common import make_parser
from edpbrl_gym.comparisons.question_files import write_questions
from edpbrl_gym.likelihood import Response
from edpbrl_gym.study.config import Arm, StudyConfig
from edpbrl_gym.study.config_reading import read_config
from edpbrl_gym.study.drawing import draw_options
from edpbrl_gym.study.materials import Materials
from edpbrl_gym.study.queue import StudyQueue
from edpbrl_gym.study.records import Participant, StoredQuestion
from edpbrl_gym.study.store import Store
from edpbrl_gym.study.template import write_template

ARMS = ("adaptive", "random", "design")
QUESTIONS = 60


def study(folder: Path, arms: tuple[str, ...]) -> tuple[StudyConfig, Materials]:
    """The study of the template with these arms, and more questions than anybody answers here."""
    write_template(folder)
    config = read_config(folder)
    materials = Materials(config)
    rng = np.random.default_rng(0)
    drawn = [draw_options(materials.maker, config.questions.options, rng) for _ in range(QUESTIONS)]
    entries = [(number, 5, list(materials.maker.texts(tokens))) for number, tokens in enumerate(drawn)]
    file = write_questions(folder / "questions.csv", entries)
    known = {
        "adaptive": Arm("adaptive", "adaptive"),
        "random": Arm("random", "random"),
        "design": Arm("design", "questions", file=file),
    }
    questions = dataclasses.replace(config.questions, number=QUESTIONS)
    config = dataclasses.replace(config, arms=tuple(known[name] for name in arms), questions=questions)
    materials = Materials(config)
    _ = materials.features
    return config, materials


def milliseconds(start: float) -> float:
    """Since a time of the performance counter."""
    return 1e3 * (time.perf_counter() - start)


class Person:
    """A simulated participant who prefers long texts, up to some noise."""

    def __init__(self, queue: StudyQueue, number: int) -> None:
        self.queue = queue
        self.participant: Participant = queue.consent(queue.enrol({"id": f"{uuid.uuid4()}"}))
        self.rng = np.random.default_rng(number)

    def response(self, question: StoredQuestion) -> Response:
        """The answer; no time is spent on embeddings."""
        lengths = np.array([len(text) for text in question.texts])
        return Response.best(int((lengths + self.rng.gumbel(size=len(lengths)) * 10).argmax()))


def one(arguments: argparse.Namespace) -> None:
    """The table of single participants."""
    print(
        "| arm | answers before | answer | next question at once | next question after reading |\n|---|---|---|---|---|"
    )
    with tempfile.TemporaryDirectory() as folder:
        for name in ARMS:
            place = Path(folder) / name
            config, materials = study(place / "study", (name,))
            url = arguments.database or f"sqlite:///{place / 'study.db'}"
            store = Store(url, config=config.fingerprint)
            queue = StudyQueue(config, store, materials)
            person = Person(queue, 0)
            found: dict[int, list[tuple[float, float, float]]] = {0: [], 10: [], 30: []}
            answered = 0
            question = queue.next_question(person.participant)
            while question is not None and answered < 35:
                counts = question.kind == "normal"
                time.sleep(arguments.reading)
                reading = milliseconds_of(lambda: queue.next_question(person.participant))  # noqa: B023
                response = person.response(question)
                spent = milliseconds_of(lambda: queue.answer(person.participant, question.key, response))  # noqa: B023
                start = time.perf_counter()
                question = queue.next_question(person.participant)
                wait = milliseconds(start)
                answered += counts
                group = max(start for start in found if start <= answered)
                if question is not None and question.kind == "normal" and answered - group < 5:
                    found[group].append((spent, wait, reading))
            for group, times in found.items():
                cells = " | ".join(f"{value:.0f}" for value in np.median(times, axis=0))
                print(f"| {name} | {group} to {group + 4} | {cells} |")
            assert question is not None
            queue.answer(person.participant, question.key, person.response(question))
            queue.close()
            fresh = StudyQueue(config, store, materials)
            start = time.perf_counter()
            fresh.next_question(person.participant)
            wait = milliseconds(start)
            print(f"{name}: a server just started asks after {answered} answers in {wait:.0f} ms", flush=True)
            fresh.close()
            store.close()


def milliseconds_of(call: Callable[[], object]) -> float:
    """How long a call takes."""
    start = time.perf_counter()
    call()
    return milliseconds(start)


def serve(place: Path, arguments: argparse.Namespace, share: int) -> tuple[list[tuple[float, float]], list[str], float]:
    """One process with its share of the participants: milliseconds of answers and next questions, errors, CPU time."""
    config, materials = study(place, (arguments.arm,))
    store = Store(arguments.database or f"sqlite:///{place.parent / 'study.db'}", config=config.fingerprint)
    queue = StudyQueue(config, store, materials, workers=arguments.workers)
    people = [Person(queue, number) for number in range(share)]
    times: list[tuple[float, float]] = []
    errors: list[str] = []
    begin, busy = time.perf_counter(), time.process_time()

    def take_part(person: Person) -> None:
        time.sleep(person.rng.uniform(0, arguments.reading))
        try:
            question = queue.next_question(person.participant)
            while question is not None:
                time.sleep(person.rng.uniform(0.5, 1.5) * arguments.reading)
                if time.perf_counter() - begin > arguments.seconds:
                    return
                response = person.response(question)
                start = time.perf_counter()
                queue.answer(person.participant, question.key, response)
                answered = milliseconds(start)
                question = queue.next_question(person.participant)
                times.append((answered, milliseconds(start) - answered))
        except Exception as error:
            errors.append(str(error))

    threads = [threading.Thread(target=take_part, args=(person,)) for person in people]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    busy = time.process_time() - busy
    queue.close()
    store.close()
    return times, errors, busy


def crowd(arguments: argparse.Namespace) -> None:
    """Many participants at once."""
    shares = [len(part) for part in np.array_split(np.arange(arguments.participants), arguments.processes)]
    with tempfile.TemporaryDirectory() as folder:
        places = [Path(folder) / f"study-{number}" for number in range(len(shares))]
        with ProcessPoolExecutor(len(shares), mp_context=get_context("spawn")) as pool:
            found = list(pool.map(serve, places, [arguments] * len(shares), shares))
    times = np.array([row for part in found for row in part[0]])
    errors = [error for part in found for error in part[1]]
    busy = sum(part[2] for part in found)
    print(
        f"{arguments.participants} participants of the arm {arguments.arm}, {arguments.reading:g} s of reading, "
        f"{len(shares)} processes:\n| milliseconds | median | 95% | 99% | longest |\n|---|---|---|---|---|"
    )
    for name, values in (("answer", times[:, 0]), ("next question", times[:, 1]), ("page", times.sum(axis=1))):
        cells = [*np.quantile(values, [0.5, 0.95, 0.99]), max(values)]
        print(f"| {name} | " + " | ".join(f"{cell:.0f}" for cell in cells) + " |")
    memory = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024
    print(
        f"{len(times)} pages, {len(errors)} errors {errors[:3]}, {1e3 * busy / len(times):.0f} ms of CPU a page, "
        f"largest memory of a process {memory:.0f} MB, load average {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores"
    )


def main() -> None:
    """Run one of the two."""
    parser = make_parser(__doc__)
    parser.add_argument("what", choices=["one", "crowd"])
    parser.add_argument("--arm", choices=ARMS, default="adaptive")
    parser.add_argument("--participants", type=int, default=50)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--reading", type=float, default=None, help="1 for one participant, 5 for many, unless given")
    parser.add_argument("--processes", type=int, default=1, help="that share the participants and the database")
    parser.add_argument("--workers", type=int, default=1, help="worker threads of the queue")
    parser.add_argument("--database", help="a URL; a new file of SQLite unless given")
    arguments = parser.parse_args()
    if arguments.reading is None:
        arguments.reading = 1.0 if arguments.what == "one" else 5.0
    (one if arguments.what == "one" else crowd)(arguments)


if __name__ == "__main__":
    main()
