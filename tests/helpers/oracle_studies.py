"""Studies whose questions come from an environment's loop, the loop as a process that tests kill, and its people.

python -m tests.helpers.oracle_studies FOLDER NAME
"""

from __future__ import annotations

import sys
import threading
import time
from pathlib import Path

import numpy as np

import edpbrl_gym as eg
from edpbrl_gym.collection import collect, make_prompt_lanes
from edpbrl_gym.comparisons import Comparisons
from edpbrl_gym.likelihood import Response
from edpbrl_gym.study import HumanOracle, read_config
from edpbrl_gym.study.config import StudyConfig
from edpbrl_gym.study.materials import Materials
from edpbrl_gym.study.queue import StudyQueue
from edpbrl_gym.study.records import NotReadyError
from edpbrl_gym.study.store import Store
from tests.helpers.encoders import CountingEncoder
from tests.helpers.studies import SMALL, write_study

TEXT = SMALL[: SMALL.index("[[arms]]")] + '[[arms]]\nname = "loop"\nplanner = "oracle"\n'
THETA = np.linspace(-3, 3, 8)


def write_oracle_study(folder: Path, url: str = "", *, text: str = TEXT) -> Path:
    """Write a study of six questions of three options; return its folder."""
    return write_study(folder, f'database = "{url}"\n{text}' if url else text)


def play(folder: Path, oracle: HumanOracle, *, seed: int = 0, agent: str = "random") -> Comparisons:
    """Six questions of two episodes, one after the other, from a real environment."""
    lanes = make_prompt_lanes(3, vocabulary=str(folder / "words"), encoder="tests.helpers.encoders:OwnEncoder")
    try:
        player = eg.make_agent(agent, lanes, num_options=3, episodes=2, seed=seed).learn()
        return collect(lanes, player, oracle, episodes=2, lanes=3, seed=seed, observe=True, distinct=True)
    finally:
        lanes.close()


def liked(queue: StudyQueue, question) -> Response:
    """The answer of a person with the taste THETA; attention checks are passed."""
    if question.kind == "attention":
        return Response.best(question.expected)
    return Response.best(int((queue.materials.encoder.encode(question.texts) @ THETA).argmax()))


class Server:
    """A server of a study, without pages.

    Args:
        config: The study, or its folder.
        url: Of another database than the study's.
        pictures: Of the prompts.
    """

    def __init__(self, config: StudyConfig | Path, url: str = "", pictures=None) -> None:
        self.config = config = read_config(config) if isinstance(config, Path) else config
        self.store = Store(url or config.database_url, config=config.fingerprint)
        self.queue = StudyQueue(config, self.store, Materials(config, encoder=CountingEncoder()), pictures=pictures)

    def close(self) -> None:
        self.queue.close()
        self.store.close()

    def arrive(self, name: str):
        return self.queue.consent(self.queue.enrol({"PROLIFIC_PID": name}))

    def liked(self, question) -> Response:
        return liked(self.queue, question)

    def reach_the_loop(self, person) -> None:
        """Answer what comes before the first question that counts."""
        while True:
            try:
                question = self.queue.next_question(person)
            except NotReadyError:
                return
            self.queue.answer(person, question.key, self.liked(question))


class Person(threading.Thread):
    """Takes part in a thread: waits for the loop's questions, answers at most ``most`` that count."""

    def __init__(self, server: Server, name: str, *, most: int = 1000, liked=None) -> None:
        super().__init__(daemon=True)
        self.server, self.most, self.liked = server, most, liked or server.liked
        self.participant = server.arrive(name)
        self.asked = []
        self.leaving = threading.Event()
        self.error: BaseException | None = None

    def run(self) -> None:
        try:
            self._take_part()
        except BaseException as error:
            self.error = error

    def _take_part(self) -> None:
        while not self.leaving.is_set() and sum(one.kind == "normal" for one in self.asked) < self.most:
            try:
                question = self.server.queue.next_question(self.participant)
            except NotReadyError:
                time.sleep(0.01)
                continue
            if question is None:
                return
            self.server.queue.answer(self.participant, question.key, self.liked(question))
            self.asked.append(question)

    def __enter__(self) -> Person:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.leaving.set()
        self.join(60)
        assert self.error is None, self.error

    def wait(self) -> None:
        """Wait until the person is at the last page."""
        self.join(60)
        assert not self.is_alive()


if __name__ == "__main__":
    with HumanOracle(sys.argv[1], name=sys.argv[2], poll=0.01, timeout=60.0) as own:
        told = play(Path(sys.argv[1]), own, agent="adaptive")
        for texts, response in zip(told.texts, told.responses, strict=True):
            print(texts, *response.order)
