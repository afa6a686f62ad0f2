"""Pictures of the options, drawn while people read."""

from __future__ import annotations

import itertools
import logging
import queue
import threading
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from edpbrl_gym.rendering import NotDrawn, RenderingError

if TYPE_CHECKING:
    from edpbrl_gym._executor import Executor
    from edpbrl_gym.rendering import CachedRenderer
    from edpbrl_gym.study.config import PicturesConfig, StudyConfig
    from edpbrl_gym.workers import KeptProcesses

__all__ = ["Pictures", "make_pictures", "picture_shape", "study_renderer"]

_log = logging.getLogger(__name__)
_WAITED_FOR, _NEXT, _LAST, _SOME_TIME = range(4)  # order of the drawing: what a question waits for first
_KEPT = 64 * 2**20  # bytes of pictures in memory; all are on disk
_FEW = 4  # pictures that one of several processes draws at once
_Task = tuple[int, int, str | None]  # priority, order and text; None: the end


class Pictures:
    """Draws pictures in one thread, what people wait for first; each is drawn once and kept on disk.

    Args:
        renderer: Draws them.
        seed: Of all pictures.
        shape: As of ``picture_shape``, of the places for them on a page.
        processes: On which the renderer draws, closed with this; None: it draws in the thread.
    """

    def __init__(
        self, renderer: CachedRenderer, seed: int, *, shape: str = "square", processes: KeptProcesses | None = None
    ) -> None:
        self.shape, self._processes = shape, processes
        self._at_once = 1 if processes is None else processes.count
        self._renderer, self._seed = renderer, seed
        self._order = itertools.count()
        self._tasks: queue.PriorityQueue[_Task] = queue.PriorityQueue()
        self._futures: dict[str, Future[bytes | None]] = {}
        self._lock = threading.Lock()
        self._quick = True  # whether a picture takes less than a second: then nobody waits for a batch of later ones
        self._told = ""  # the last error in the log
        self._thread = threading.Thread(target=self._draw_all, name="edpbrl-pictures", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Stop after the picture that is being drawn; whoever waits for another one is told that it is cancelled."""
        self._tasks.put((-1, 0, None))
        self._thread.join()
        self._renderer.close()
        if self._processes is not None:
            self._processes.close()
        with self._lock:
            for future in self._futures.values():
                future.cancel()

    def ahead(self, texts: Sequence[str], *, soon: bool = True) -> list[Future[bytes | None]]:
        """Draw pictures that will be shown, ``soon`` or at some time."""
        return [self._future(text, _NEXT if soon else _SOME_TIME) for text in texts]

    def get(self, text: str, *, is_last: bool = False) -> Future[bytes | None]:
        """The PNG of a text, when it is drawn; None: the model's safety checker flagged it.

        The future raises what the renderer raises. Those of the last page, ``is_last``, come after those of questions.
        """
        return self._future(text, _LAST if is_last else _WAITED_FOR)

    def _future(self, text: str, priority: int) -> Future[bytes | None]:
        with self._lock:
            future = self._futures.get(text)
            if future is None or (future.done() and (future.cancelled() or future.exception() is not None)):
                future = self._futures[text] = Future()
            if not future.done():
                self._tasks.put((priority, next(self._order), text))  # more than once where it has become urgent
            return future

    def state(self, text: str) -> Future[bytes | None] | None:
        """The picture of a text as ``get`` returns it, without having it drawn; None: nobody has asked for it."""
        with self._lock:
            return self._futures.get(text)

    @property
    def waiting(self) -> int:
        """Number of pictures that are asked for and not there yet."""
        with self._lock:
            return sum(not future.done() for future in self._futures.values())

    def refused(self, text: str) -> bool:
        """Whether there is no picture of this text for a reason of its own, not of the renderer as a whole."""
        future = self.state(text)
        if future is None or not future.done() or future.cancelled():
            return False
        error = future.exception()
        return future.result() is None if error is None else isinstance(error, NotDrawn)

    def svg(self, text: str) -> str | None:
        """The picture as ``Renderer.svg`` has it."""
        return self._renderer.renderer.svg(text, self._seed)

    def draw(self, texts: Sequence[str]) -> None:
        """Draw pictures in the calling thread, or on the renderer's workers; ``get`` then has them at once."""
        self._renderer.render_some(texts, seed=self._seed)

    def _draw_all(self) -> None:
        while (first := self._tasks.get())[2] is not None:
            texts = self._batch(first)
            if texts:
                self._draw(texts)
                with self._lock:
                    self._forget()

    def _batch(self, first: _Task) -> list[str]:
        """Texts to draw at once: those of a task and of others as urgent, as many as the renderer takes."""
        tasks, texts = [first], list[str]()
        most = 1 if first[0] == _SOME_TIME and self._quick else self._renderer.batch_size * self._at_once
        while tasks:
            priority, _, text = tasks.pop()
            with self._lock:
                open = text is not None and not self._futures[text].done()
            if open and text not in texts:
                texts.append(str(text))
            if len(texts) >= most:
                break
            with suppress(queue.Empty):
                task = self._tasks.get_nowait()
                if task[0] == priority:
                    tasks.append(task)
                else:
                    self._tasks.put(task)
        return texts

    def _draw(self, texts: list[str]) -> None:
        """Draw pictures; whoever waits for one is told as soon as it is there, or why there is none."""
        begun = time.monotonic()
        try:
            self._renderer.render(texts, seed=self._seed, each=lambda place, image: self._tell(texts[place], image))
            self._quick = time.monotonic() - begun < len(texts)
        except RenderingError:
            pass  # each was told
        except Exception as error:
            for text in texts:
                self._tell(text, error)

    def _tell(self, text: str, image: Any) -> None:
        with self._lock:
            future = self._futures[text]
        if future.done():
            return
        if isinstance(image, Exception):
            if str(image) != self._told:  # a service that is out of reach says the same for each
                _log.error("A picture could not be drawn: %s", image)
            self._told = str(image)
            future.set_exception(image)
        else:
            future.set_result(None if image.flagged else image.png)

    def _forget(self) -> None:
        """Keep no more pictures in memory than about fifty people look at."""
        done = {text: future for text, future in self._futures.items() if future.done() and not future.cancelled()}
        drawn = {text: future.result() for text, future in done.items() if not future.exception()}
        sizes = {text: len(png) for text, png in drawn.items() if png is not None}  # what has none is remembered
        excess = sum(sizes.values()) - _KEPT
        for text, size in sizes.items():  # the oldest first
            if excess <= 0:
                break
            del self._futures[text]
            excess -= size


def study_renderer(
    config: StudyConfig, settings: PicturesConfig, *, budget: int | None = None, executor: Executor | None = None
) -> CachedRenderer:
    """Who draws the pictures of a study; they are kept in the folder ``pictures`` beside its configuration.

    Raises:
        ValueError, TypeError, ImportError: Of ``load_renderer``, such as for an option that the renderer doesn't have.
    """
    from edpbrl_gym.rendering import load_renderer

    place = config.folder / "pictures"
    return load_renderer(settings.renderer, cache_folder=place, beside=config.folder, executor=executor,
                         budget=budget, **settings.options)  # fmt: skip


def make_pictures(config: StudyConfig, settings: PicturesConfig, *, budget: int | None = None) -> Pictures:
    """The pictures of a study, by a renderer that is ready; errors are those of ``study_renderer`` and ``load``.

    They are drawn in processes where ``workers`` of the configuration says so, or the renderer keeps Python busy.
    """
    renderer = study_renderer(config, settings, budget=budget)
    renderer.renderer.load()  # before people wait
    count = int(renderer.renderer.keeps_python) if settings.workers is None else settings.workers
    if not count:
        return Pictures(renderer, settings.seed, shape=picture_shape(renderer.describe()))
    from edpbrl_gym.workers import KeptProcesses

    processes = renderer.executor = KeptProcesses(count)
    if count > 1:
        renderer.batch_size = min(renderer.batch_size, _FEW)
    return Pictures(renderer, settings.seed, shape=picture_shape(renderer.describe()), processes=processes)


def picture_shape(settings: Mapping[str, Any]) -> str:
    """The shape of the pictures of a renderer with these settings: tall, wide or square."""
    width, height = settings.get("width"), settings.get("height")
    if not isinstance(width, int) or not isinstance(height, int):
        return "square"
    return "tall" if height > 1.1 * width else "wide" if width > 1.1 * height else "square"
