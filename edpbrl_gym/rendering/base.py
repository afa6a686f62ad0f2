"""``Renderer``: who draws the pictures of texts."""

from __future__ import annotations

import hashlib
import json
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, NamedTuple

from edpbrl_gym._compat import constructor_options

__all__ = ["Drawn", "NotDrawn", "Renderer"]


class Drawn(NamedTuple):
    """A picture as it was drawn; ``RenderedImage`` describes the entries."""

    png: bytes  # of a flagged one too, such as a black picture
    flagged: bool = False
    cut: bool = False
    negative_cut: bool = False


class NotDrawn(RuntimeError):
    """Why a text has no picture, where others of its batch may have one; the next call tries it again."""


class Renderer(ABC):
    """Draws pictures of texts: a model on this machine, a service, or files that are there already.

    ``load_renderer`` makes one by its name and puts the cache in front of it (``CachedRenderer``), which calls ``draw``
    for missing pictures only. A class of one's own defines ``name``, ``describe`` and ``draw``.

    Attributes:
        name: What draws, as messages and reports name it.
        batch_size: Number of texts that ``draw`` takes at once, at most.
        seeded: Whether equal texts and seeds give equal pictures. If not, a seed only numbers the pictures of a text.
        price: Of one picture, in the currency of whoever is paid; None: it costs nothing.
    """

    name: str
    batch_size: int = 1
    seeded: bool = True
    price: float | None = None

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
        """What else determines the picture of one text and seed, such as a file; a part of its key, JSON-able."""
        return {}

    def provenance(self, batch: int) -> dict[str, Any]:
        """What is recorded beside the pictures of a batch of this size, for people; JSON-able."""
        return {"settings": self.describe(), "fingerprint": self.fingerprint, "seeded": self.seeded, "batch": batch}

    def load(self) -> None:  # noqa: B027 - most have nothing to load
        """Load what the first picture needs, before anybody waits for it. Raises what ``draw`` would."""

    def close(self) -> None:  # noqa: B027
        """Give back what is held, such as connections."""

    @classmethod
    def options(cls) -> list[str]:
        """Names of the arguments with which it is made."""
        return constructor_options(cls)
