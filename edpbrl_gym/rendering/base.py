"""``Renderer``: who draws the pictures of texts; ``Service``: one that draws each by itself, several at once."""

from __future__ import annotations

import hashlib
import json
import logging
import queue
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Generator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

from edpbrl_gym._compat import constructor_options

__all__ = ["Drawn", "NotDrawn", "OverBudget", "Renderer", "Service"]

_log = logging.getLogger(__name__)
_MOST_IN_A_ROW = 5  # texts without a picture, after which a service is asked for no more


class Drawn(NamedTuple):
    """A picture as it was drawn; ``RenderedImage`` describes the entries."""

    png: bytes  # of a flagged one too, such as a black picture
    flagged: bool = False
    cut: bool = False
    negative_cut: bool = False


class NotDrawn(RuntimeError):
    """Why a text has no picture, where others of its batch may have one; the next call tries it again."""


class OverBudget(NotDrawn):
    """The budget of pictures is used up."""


class Renderer(ABC):
    """Draws pictures of texts: a model on this machine, a service, or files that are there already.

    ``load_renderer`` makes one by its name and puts the cache in front of it (``CachedRenderer``), which calls ``draw``
    for missing pictures only. A class of one's own defines ``name``, ``describe`` and ``draw``.

    Attributes:
        name: What draws, as messages and reports name it.
        batch_size: Number of texts that ``draw`` takes at once, at most.
        seeded: Whether equal texts and seeds give equal pictures. If not, a seed only numbers the pictures of a text.
        price: Of one picture, in the currency of whoever is paid; None: it costs nothing.
        size: Width and height of every picture, where that is known before; one of another size is an error.
        keeps_python: Whether drawing keeps Python busy, so that a server does it in processes of its own; not for what
            waits for a GPU or for a service.
    """

    name: str
    batch_size: int = 1
    seeded: bool = True
    price: float | None = None
    size: tuple[int, int] | None = None
    keeps_python: bool = False

    @abstractmethod
    def describe(self) -> dict[str, Any]:
        """All settings that determine a picture, JSON-able; "model" is what people call the model."""

    @abstractmethod
    def draw(self, texts: Sequence[str], seeds: Sequence[int]) -> Sequence[Drawn | NotDrawn]:
        """Draw one picture of every text with its seed; at most ``batch_size`` of them.

        Returns:
            For each text its picture, or why it has none. A text that is refused for its content is a flagged picture.

        Raises:
            MemoryError: There is not enough memory for so many; it is called again with fewer.
            Exception: What concerns all of them, such as a service out of reach; it ends the work.
        """

    @property
    def fingerprint(self) -> str:
        """sha256 (hex) of what draws: equal ones draw equal pictures. By default that of ``describe``."""
        return hashlib.sha256(json.dumps(self.describe(), sort_keys=True).encode()).hexdigest()

    def identity(self) -> dict[str, Any]:
        """What determines a picture beside text and seed, as part of its key (``image_key``); JSON-able.

        Raises:
            ValueError: The settings do not go together.
        """
        return {"renderer": self.fingerprint}

    def identity_of(self, text: str, seed: int) -> dict[str, Any]:
        """``identity`` for one text and seed, where it depends on them, as pictures that exist on their files."""
        return self.identity()

    def provenance(self, batch: int) -> dict[str, Any]:
        """What is recorded beside the pictures of a batch of this size, for people; JSON-able."""
        return {"settings": self.describe(), "fingerprint": self.fingerprint, "seeded": self.seeded, "batch": batch}

    def svg(self, text: str, seed: int) -> str | None:
        """The same picture for a page, in a few milliseconds; None: it is drawn as pixels only."""
        return None

    def load(self) -> None:  # noqa: B027 - most have nothing to load
        """Load what the first picture needs, before anybody waits for it. Raises what ``draw`` would."""

    def close(self) -> None:  # noqa: B027
        """Give back what is held, such as connections."""

    @classmethod
    def options(cls) -> list[str]:
        """Names of the arguments with which it is made."""
        return constructor_options(cls)


class Service(Renderer):
    """Draws each picture by itself, ``batch_size`` of them at once, and each is kept as soon as it is there.

    A class of one's own defines ``name``, ``describe`` and ``draw_one``.
    """

    @abstractmethod
    def draw_one(self, text: str, seed: int, stop: threading.Event) -> Drawn:
        """Draw a picture; called in several threads. Once ``stop`` is set, nothing new is begun or waited for.

        Raises:
            NotDrawn: Why this text has no picture.
            Exception: What concerns all of them; it ends the work, after the pictures that are under way.
        """

    def draw(self, texts: Sequence[str], seeds: Sequence[int]) -> list[Drawn | NotDrawn]:
        def one(text: str, seed: int) -> Drawn | NotDrawn:
            try:
                return self.draw_one(text, seed, threading.Event())
            except NotDrawn as error:
                return error

        with ThreadPoolExecutor(self.batch_size) as pool:
            return list(pool.map(one, texts, seeds))

    def draw_each(
        self,
        texts: Sequence[str],
        seeds: Sequence[int],
        keep: Callable[[int, Callable[[], Drawn]], NotDrawn | None],
        stop: threading.Event | None = None,
    ) -> Generator[int]:
        """Draw any number of pictures; yields the positions of those that are done.

        Args:
            texts: n texts.
            seeds: n seeds.
            keep: Called in a thread with a position and what draws its picture or raises ``NotDrawn``; it keeps
                the picture, or returns why there is none.
            stop: Set from outside to begin nothing more.

        Raises:
            ConnectionError: Several texts in a row had no picture.
            Exception: What ``draw_one`` or ``keep`` raised. Before that, and before an interruption ends the
                iteration, the pictures under way are waited for and kept.
        """
        stop = threading.Event() if stop is None else stop
        results: queue.SimpleQueue[tuple[int, NotDrawn | None] | BaseException | None] = queue.SimpleQueue()
        order, lock = iter(range(len(texts))), threading.Lock()

        def work() -> None:
            try:
                while not stop.is_set():
                    with lock:
                        index = next(order, None)
                    if index is None:
                        break
                    text, seed = texts[index], seeds[index]
                    results.put((index, keep(index, lambda: self.draw_one(text, seed, stop))))  # noqa: B023
            except BaseException as error:  # raised by the caller's thread
                stop.set()
                results.put(error)
            results.put(None)

        number = min(self.batch_size, len(texts))
        threads = [threading.Thread(target=work, daemon=True, name=f"edpbrl-draw-{i}") for i in range(number)]
        for thread in threads:
            thread.start()
        failure: BaseException | None = None
        in_a_row = 0
        try:
            while number:
                one = results.get()
                if one is None:
                    number -= 1
                elif isinstance(one, BaseException):
                    failure = failure or one
                else:
                    yield one[0]
                    in_a_row = 0 if one[1] is None else in_a_row + 1
                    if in_a_row == _MOST_IN_A_ROW:
                        stop.set()
                        failure = failure or ConnectionError(
                            f"Expected pictures from {self.name}, but the last {in_a_row} texts had none ({one[1]}); "
                            "what was drawn is kept, and the same call asks for the others again"
                        )
        except (KeyboardInterrupt, GeneratorExit):
            _log.warning("Waiting for the pictures that %s is drawing; Ctrl-C loses them", self.name)
            raise
        finally:
            stop.set()
            for thread in threads:
                thread.join()
        if failure is not None:
            raise failure
