"""The pictures of a pool: those of the question on the page first, then those that may come next, then the others."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Future, wait
from dataclasses import dataclass
from time import monotonic, sleep
from typing import TYPE_CHECKING

from edpbrl_gym._seeds import generator

if TYPE_CHECKING:
    from edpbrl_gym.study.pictures import Pictures

__all__ = ["Paid", "PoolPictures"]


_AGAIN = 30.0  # seconds
_PAUSE = 0.1  # seconds between two looks at whether there is still time


@dataclass(frozen=True)
class Paid:
    """What is said before a service draws."""

    renderer: str
    number: int
    """Pictures that it will be asked for, at most."""
    price: float | None = None
    """Of one picture."""


class PoolPictures:
    """Pictures of a pool, drawn ahead; of a renderer that has them as SVG, pages show that at once.

    Args:
        pictures: Draws them.
        texts: The items of the pool.
        paid: What a person must agree to before the first picture is drawn; None: nothing.
        shape: "tall", "wide" or "square", of all pictures, or "mixed".
    """

    def __init__(
        self, pictures: Pictures, texts: Sequence[str], *, paid: Paid | None = None, shape: str = "mixed"
    ) -> None:
        self._pictures, self._texts = pictures, tuple(texts)
        self.paid, self.shape = paid, shape
        self.at_once = pictures.svg(self._texts[0]) is not None
        self._begun = False
        self._again: dict[str, float] = {}  # when what failed may be tried again

    def agree(self) -> None:
        """The person has agreed that pictures are drawn."""
        self.paid = None

    def get(self, text: str) -> Future[bytes | None]:
        """The picture of a text on the page: its SVG or PNG, None if it is withheld, or why there is none.

        One that failed is tried again after half a minute.
        """
        if self.at_once:
            there = Future[bytes | None]()
            there.set_result(str(self._pictures.svg(text)).encode())
            return there
        future = self._pictures.state(text)
        if (
            future is not None
            and self.failed(text)
            and monotonic() < self._again.setdefault(text, monotonic() + _AGAIN)
        ):
            return future
        self._again.pop(text, None)
        return self._pictures.get(text)

    def ahead(self, texts: Sequence[str]) -> bool:
        """Draw pictures that may be shown next, and at the first call those of the whole pool some time.

        Returns:
            Whether pictures of the pool are missing yet.
        """
        if self.paid is not None or self.at_once:
            return False
        if not self._begun:
            self._begun = True
            self._pictures.ahead(self._texts, soon=False)
        self._pictures.ahead(texts)
        return not all(self.drawn(text) for text in self._texts)

    def soon(self, texts: Sequence[str]) -> None:
        """Draw pictures of the next question."""
        if self.paid is None and not self.at_once:
            self._pictures.ahead(texts)

    def wait(self, texts: Sequence[str], stopping: Callable[[], bool], *, soon: bool = True) -> dict[str, str]:
        """Draw pictures and wait for them, until ``stopping`` says that there is no time.

        Returns:
            The texts that were refused, and why.
        """
        while self.paid is not None and not stopping():
            sleep(_PAUSE)
        if self.paid is not None:
            return {}
        if self.at_once:  # a tenth of a second each
            self._pictures.draw(texts)
        futures = dict(zip(texts, self._pictures.ahead(texts, soon=soon), strict=True))
        while wait(futures.values(), _PAUSE).not_done and (self.at_once or not stopping()):
            pass
        return {text: str(futures[text].exception() or "withheld") for text in futures if self._pictures.refused(text)}

    def drawn(self, text: str) -> bool:
        """Whether a page can show the picture of a text."""
        future = self._pictures.state(text)
        return self.at_once or (future is not None and future.done() and not self.failed(text))

    def failed(self, text: str) -> bool:
        """Whether there is no picture of a text, for now or at all."""
        future = self._pictures.state(text)
        if future is None or not future.done():
            return False
        return future.cancelled() or future.exception() is not None or future.result() is None

    def without_refused(self, texts: Sequence[str], pool: Sequence[str]) -> tuple[str, ...]:
        """Options with others of a pool, drawn already if there are such, in the place of those that are refused."""
        found = list(texts)
        for option, text in enumerate(texts):
            if self._pictures.refused(text):
                others = [one for one in pool if one not in found and not self._pictures.refused(one)]
                others = [one for one in others if self.drawn(one)] or others
                if others:
                    found[option] = others[generator(0, "instead of", text).integers(len(others))]
        return tuple(found)

    def png(self, text: str) -> bytes | None:
        """The picture of a text, if it was drawn."""
        future = self._pictures.state(text)
        return None if future is None or self.failed(text) or not future.done() else future.result()

    def close(self) -> None:
        """Stop drawing."""
        self._pictures.close()
