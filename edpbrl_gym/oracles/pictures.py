"""The pictures of the options of questions, for oracles that answer by looking."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from edpbrl_gym.comparisons import Queries
from edpbrl_gym.rendering.settings import check_seed

if TYPE_CHECKING:
    from edpbrl_gym.rendering import CachedRenderer, RenderedImage

__all__ = ["OptionPictures", "Seen"]

_MOST_UNSEEN = 20  # questions in a row without any picture, after which nobody is asked to draw more
_log = logging.getLogger(__name__)


class Seen(NamedTuple):
    """The pictures of n questions."""

    pictures: list[RenderedImage | None]  # of all options, one question after the other; None: not drawn
    flagged: NDArray[np.bool_]  # questions with a picture that the safety checker flagged, (n,)
    undrawn: NDArray[np.bool_]  # questions with an option that has no picture, (n,)

    @property
    def hidden(self) -> NDArray[np.bool_]:
        """Questions that can't be answered by looking, (n,)."""
        return self.flagged | self.undrawn

    def counts(self) -> dict[str, int]:
        """Numbers of such questions, for the details of answers."""
        return {"flagged_questions": int(self.flagged.sum()), "undrawn_questions": int(self.undrawn.sum())}


class OptionPictures:
    """Draws the options of questions. A question of which some option has no picture is left out, not an error.

    Args:
        renderer: Of the options' texts.
        seed: Of all pictures, so that options differ only by their texts.
        progress: Callback of (pictures done, all pictures) while they are drawn.
    """

    def __init__(
        self, renderer: CachedRenderer, *, seed: int = 0, progress: Callable[[int, int], None] | None = None
    ) -> None:
        self.renderer, self.seed, self.progress = renderer, check_seed(seed, "image_seed"), progress
        self._unseen: int | None = None  # questions in a row without any picture; None: there has been no picture yet

    def of(self, queries: Queries) -> Seen:
        """The pictures of the options of all questions.

        Raises:
            ValueError: The questions have no texts; see also ``CachedRenderer.render``.
            RenderingError: There is no picture at all, neither of these options nor, before, of others; or there is
                none of the last 20 questions.
        """
        if queries.texts is None:
            raise ValueError("Expected questions with texts, as pictures are made from them, got questions without")
        texts = [text for options in queries.texts for text in options]
        pictures, error = self.renderer.render_some(texts, seed=self.seed, progress=self.progress)
        if any(picture is not None for picture in pictures):
            self._unseen = 0
        elif error is not None:
            if self._unseen is None or self._unseen + len(queries) >= _MOST_UNSEEN:
                raise error
            self._unseen += len(queries)
        if error is not None:
            _log.warning("Questions without a picture of each option are left out: %s", error)
        which = np.repeat(np.arange(len(queries)), queries.sizes)
        flagged, undrawn = np.zeros((2, len(queries)), dtype=bool)
        flagged[which[[picture is not None and picture.flagged for picture in pictures]]] = True
        undrawn[which[[picture is None for picture in pictures]]] = True
        return Seen(pictures, flagged, undrawn)
