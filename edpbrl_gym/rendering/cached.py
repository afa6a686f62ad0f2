"""``CachedRenderer``: images of prompts, in batches, each rendered once and stored on disk."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from os import PathLike
from pathlib import Path
from typing import Any, Self

import numpy as np

from edpbrl_gym._executor import Executor
from edpbrl_gym._pictures import as_png
from edpbrl_gym._validation import check_count
from edpbrl_gym.rendering.base import Drawn, NotDrawn, OverBudget, Renderer, Service
from edpbrl_gym.rendering.cache import ImageCache, NewImage, RenderedImage
from edpbrl_gym.rendering.settings import check_seed, image_key

__all__ = ["CachedRenderer", "RenderingError"]

_log = logging.getLogger(__name__)
_Done = dict[str, RenderedImage | NotDrawn]  # of a batch, by key
_AT_BYTES = "Expected an image file at bytes, but "  # which is no file


class RenderingError(RuntimeError):
    """Some prompts have no image; all others are in the cache.

    Attributes:
        images: Of every prompt, None where there is none.
        reasons: Of every prompt, why it has no image; None where it has one.
        errors: The reasons, one for each distinct prompt and seed, in the order of the prompts.
        is_over_budget: Whether the budget is among them.
    """

    def __init__(
        self,
        name: str,
        images: list[RenderedImage | None],
        reasons: list[NotDrawn | None],
        errors: list[NotDrawn],
    ) -> None:
        self.images, self.reasons, self.errors = images, reasons, errors
        over = [str(one) for one in errors if isinstance(one, OverBudget)]
        self.is_over_budget = bool(over)
        why = "; ".join(dict.fromkeys([str(errors[0]), *over]))
        super().__init__(
            f"Expected an image of each prompt from {name}, got none of {len(errors)} ({why}); the others are in "
            "the cache, and the same call tries these again"
        )


class CachedRenderer:
    """Renders prompts, including truncated ones, by any ``Renderer``; no image is rendered twice.

    A batch is on disk before the next one begins, so an interruption loses at most one batch, and the same call
    continues from there; a ``Service`` has no batches, each picture is on disk as soon as it is there, and no two
    processes ask for the same one at the same time. What is no picture, is cut or has another size than was asked for
    is not kept. If there is not enough memory for a batch, the batch size is halved permanently. Threads wait
    for each other.

    Args:
        renderer: What draws the images that are missing.
        cache_folder: Folder of the images of all renderers.
        executor: Renders the batches on its workers (None: this process renders).
        maker: Makes the renderer on a worker; required with an executor.
        budget: Number of new images that are asked for in all, at most (None: no limit).

    Attributes:
        batch_size: Number of images in a batch, at most.
        asked: Number of images that were asked for, drawn or not.
        spent: Money for the images that were drawn, at the renderer's price.
        lock: Lock of the renderer, required by any other code that changes or runs it.
    """

    def __init__(
        self,
        renderer: Renderer,
        *,
        cache_folder: str | PathLike[str],
        executor: Executor | None = None,
        maker: Callable[[], Renderer] | None = None,
        budget: int | None = None,
    ) -> None:
        self.renderer = renderer
        self.cache = ImageCache(Path(cache_folder))
        self.batch_size = renderer.batch_size
        self.budget = None if budget is None else check_count(budget, "budget", minimum=0)
        self.asked, self.spent = 0, 0.0
        self.executor, self._maker = executor, maker
        self.lock = threading.RLock()
        self._counting = threading.Lock()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        """Give back what the renderer holds."""
        self.renderer.close()

    @property
    def fingerprint(self) -> str:
        """That of the renderer."""
        return self.renderer.fingerprint

    def describe(self) -> dict[str, Any]:
        """The settings of the renderer."""
        return self.renderer.describe()

    def render(
        self,
        prompts: Sequence[str],
        *,
        seed: int | Sequence[int] = 0,
        progress: Callable[[int, int], None] | None = None,
        each: Callable[[int, RenderedImage | NotDrawn], None] | None = None,
    ) -> list[RenderedImage]:
        """Return the image of every prompt, from the cache or rendered now.

        Args:
            prompts: n texts; equal ones with equal seeds share an image.
            seed: Seed of the noise: one for all prompts, or n.
            progress: Callback of (distinct images done, all distinct images), called at the beginning and after every
                batch, of a ``Service`` after every image.
            each: Callback of a position in ``prompts`` and its image, or why it has none, as soon as that is known.

        Returns:
            n images, the i-th of ``prompts[i]``; flagged ones are marked.

        Raises:
            TypeError: The prompts are not texts, or the seeds are not integers.
            ValueError: The number of seeds is neither one nor that of the prompts, or a model or setting does not
                match.
            RenderingError: Some prompts have no image; it is raised when all others are rendered.
            RuntimeError: There is not enough memory for one image.
            OSError: The cache folder can't be written.
        """
        pairs = _pairs(prompts, seed)
        with self.lock:
            keys = self._keys(pairs)
            tasks = dict(zip(keys, pairs, strict=True))
            images = {key: image for key in tasks if (image := self.cache.get(key)) is not None}
            missing = [key for key in tasks if key not in images]
            if missing:
                self.cache.prepare()
                images.update((key, image) for key in missing if (image := self.cache.get(key)) is not None)
                missing = [key for key in missing if key not in images]

            def tell(done: Mapping[str, RenderedImage | NotDrawn]) -> None:
                if progress is not None:
                    progress(len(images) + len(errors), len(tasks))
                for index, key in enumerate(keys if each is not None else ()):
                    if each is not None and key in done:
                        each(index, done[key])

            room = len(missing) if self.budget is None else max(0, self.budget - self.asked)
            used_up = f"the budget of {self.budget} new images is used up; give a larger one"
            errors: dict[str, NotDrawn] = {}
            tell(images)
            errors |= {key: OverBudget(used_up) for key in missing[room:]}
            if errors:
                tell(errors.copy())
            try:
                for done in self._rendered(missing[:room], tasks):
                    images |= {key: one for key, one in done.items() if not isinstance(one, NotDrawn)}
                    errors |= {key: one for key, one in done.items() if isinstance(one, NotDrawn)}
                    tell(done)
            except KeyboardInterrupt:  # what was under way has been kept
                images |= {key: image for key in missing if (image := self.cache.get(key)) is not None}
                tell({})
                raise
            if errors:
                raise RenderingError(
                    self.renderer.name,
                    [images.get(key) for key in keys],
                    [errors.get(key) for key in keys],
                    [errors[key] for key in tasks if key in errors],
                )
            return [images[key] for key in keys]

    def _keys(self, pairs: Sequence[tuple[str, int]]) -> list[str]:
        return [image_key(*pair, self.renderer.identity_of(*pair)) for pair in pairs]

    def missing(self, prompts: Sequence[str], *, seed: int | Sequence[int] = 0) -> tuple[int, int]:
        """Number of distinct images, and of those that ``render`` would draw; raises as it does, and draws nothing."""
        with self.lock:
            keys = set(self._keys(_pairs(prompts, seed)))
            return len(keys), sum(not self.cache.has(key) for key in keys)

    def render_some(
        self,
        prompts: Sequence[str],
        *,
        seed: int | Sequence[int] = 0,
        progress: Callable[[int, int], None] | None = None,
    ) -> tuple[list[RenderedImage | None], RenderingError | None]:
        """As ``render``, where some or all prompts may have no image: None in its place, and what would be raised."""
        try:
            return [*self.render(prompts, seed=seed, progress=progress)], None
        except RenderingError as error:
            return error.images, error

    def _rendered(self, missing: list[str], tasks: dict[str, tuple[str, int]]) -> Iterator[_Done]:
        """What becomes of the missing keys, batch by batch."""
        if self.executor is None and isinstance(self.renderer, Service):
            yield from self._each(self.renderer, {key: tasks[key] for key in missing})
            return
        batches = [missing[start : start + self.batch_size] for start in range(0, len(missing), self.batch_size)]
        calls = [{key: tasks[key] for key in batch} for batch in batches]
        if self.executor is None:
            yield from map(self._batch, calls)
            return
        folder = self.cache.folder.absolute()
        assert self._maker is not None
        work = _Work(self._maker, str(folder), self.batch_size, self.fingerprint)
        for done in self.executor.map_unordered(_render_on_worker, [(work, batch) for batch in calls], folder):
            self._count(done)
            yield {
                key: one if isinstance(one, NotDrawn)
                else replace(one, path=self.cache.folder / one.path.relative_to(folder))
                for key, one in done.items()
            }  # fmt: skip

    def _batch(self, tasks: dict[str, tuple[str, int]]) -> _Done:
        """Render one batch and write it; in smaller ones if there is not enough memory."""
        keys, done = list(tasks), _Done()
        while len(done) < len(keys):
            part = keys[len(done) : len(done) + self.batch_size]
            texts, seeds = [tasks[key][0] for key in part], [tasks[key][1] for key in part]
            try:
                drawn = self.renderer.draw(texts, seeds)
            except MemoryError as error:
                self._halve(len(part), str(error))
                continue
            if len(drawn) != len(part):
                raise ValueError(
                    f"Expected an image or an error for each of {len(part)} prompts from {self.renderer.name}, got "
                    f"{len(drawn)}"
                )
            done |= self._store({key: (*tasks[key], one) for key, one in zip(part, drawn, strict=True)})
        return done

    def _each(self, service: Service, tasks: dict[str, tuple[str, int]]) -> Iterator[_Done]:
        """What becomes of each task of a service, when it is known; what is under way is kept if this is left."""
        keys, done, stop = list(tasks), _Done(), threading.Event()

        def keep(index: int, draw: Callable[[], Drawn]) -> NotDrawn | None:
            key = keys[index]
            with self.cache.alone(key, stop) as is_alone:
                image = self.cache.get(key)  # another process may have asked for it
                if image is not None or not is_alone:
                    done[key] = NotDrawn("stopped") if image is None else image
                else:
                    try:
                        one: Drawn | NotDrawn = draw()
                    except NotDrawn as error:
                        one = error
                    done.update(self._store({key: (*tasks[key], one)}))
            result = done[key]
            return result if isinstance(result, NotDrawn) else None

        texts, seeds = [text for text, _ in tasks.values()], [seed for _, seed in tasks.values()]
        with closing(service.draw_each(texts, seeds, keep, stop)) as results:
            for index in results:
                yield {keys[index]: done[keys[index]]}

    def _store(self, drawn: dict[str, tuple[str, int, Drawn | NotDrawn]]) -> _Done:
        """Check the images of a batch, and write those that are some."""
        done: _Done = {}
        new = []
        for key, (text, seed, one) in drawn.items():
            try:
                if isinstance(one, NotDrawn):
                    raise one
                new.append(self._checked(key, text, seed, one))
            except NotDrawn as error:
                done[key] = error
        done |= {image.key: image for image in self.cache.put_all(new, self.renderer.provenance(len(drawn)))}
        self._count(done)
        return {key: done[key] for key in drawn}

    def _checked(self, key: str, text: str, seed: int, one: Drawn) -> NewImage:
        """An image that is whole and has the size that was asked for."""
        try:
            png, size = as_png(one.png)
        except (ValueError, TypeError) as error:
            raise NotDrawn(f"no picture came: {str(error).removeprefix(_AT_BYTES)}") from None
        if not one.flagged and self.renderer.size not in (None, size):
            raise NotDrawn(
                "Expected a picture of {} x {} pixels, got one of {} x {}; ask for a size that the model has".format(
                    *self.renderer.size, *size
                )
            )
        return NewImage(key, png, text, seed, one.flagged, one.cut, one.negative_cut, size)

    def _count(self, done: _Done) -> None:
        with self._counting:
            self.asked += len(done)
            self.spent += (self.renderer.price or 0.0) * sum(not isinstance(one, NotDrawn) for one in done.values())

    def _halve(self, size: int, why: str) -> None:
        """Halve the batch size, if it is more than one image."""
        if size == 1:
            raise RuntimeError(why)
        self.batch_size = (size + 1) // 2
        _log.warning("Out of memory with %d images at once; continuing with %d", size, self.batch_size)


def _pairs(prompts: Sequence[str], seed: int | Sequence[int]) -> list[tuple[str, int]]:
    """Return (prompt, seed) pairs, checked."""
    if isinstance(prompts, (str, bytes)):
        raise TypeError("Expected a list of prompts, got a single text; write [prompt]")
    texts = list(prompts)
    for index, text in enumerate(texts):
        if not isinstance(text, str):
            raise TypeError(f"Expected texts as prompts, got {type(text).__name__} at index {index}; convert it first")
    if isinstance(seed, Sequence) or isinstance(seed, np.ndarray):
        seeds = [check_seed(number, f"seed[{index}]") for index, number in enumerate(seed)]
        if len(seeds) != len(texts):
            raise ValueError(f"Expected one seed, or one for each of the {len(texts)} prompts, got {len(seeds)} seeds")
    else:
        seeds = [check_seed(seed)] * len(texts)
    return list(zip(texts, seeds, strict=True))


# -- on a worker -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Work:
    """What a worker must know of the renderer."""

    maker: Callable[[], Renderer]
    folder: str
    batch_size: int
    fingerprint: str


_last: list[tuple[_Work, CachedRenderer]] = []  # of this process: the last one, so that its model is loaded once


def _render_on_worker(work: _Work, tasks: dict[str, tuple[str, int]]) -> _Done:
    """Render a batch, unless a worker that died with it has finished it."""
    if not _last or _last[0][0] != work:
        _last.clear()
        _last.append((work, CachedRenderer(work.maker(), cache_folder=work.folder)))
        _last[0][1].batch_size = work.batch_size
    renderer = _last[0][1]
    renderer.cache.finish_batches()
    found: _Done = {key: image for key in tasks if (image := renderer.cache.get(key)) is not None}
    if len(found) == len(tasks):
        return found
    renderer.renderer.load()
    if renderer.fingerprint != work.fingerprint:
        raise ValueError(f"Expected the same files of {renderer.renderer.name} on all workers, but they differ")
    if not isinstance(renderer.renderer, Service):
        return renderer._batch(tasks)
    for done in renderer._each(renderer.renderer, {key: tasks[key] for key in tasks if key not in found}):
        found |= done
    return found
