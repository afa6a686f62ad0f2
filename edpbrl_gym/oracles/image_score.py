"""A user who looks at pictures and compares them with a sentence."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray

from edpbrl_gym._validation import check_array
from edpbrl_gym.comparisons import Queries
from edpbrl_gym.likelihood.choice import utilities
from edpbrl_gym.oracles.base import Answers
from edpbrl_gym.oracles.pictures import OptionPictures
from edpbrl_gym.oracles.synthetic import SyntheticUser

if TYPE_CHECKING:
    from edpbrl_gym.features import TextEncoder
    from edpbrl_gym.features.images import ImageEncoder
    from edpbrl_gym.rendering import CachedRenderer, RenderedImage

__all__ = ["ImageScoreUser"]

_CHUNK = 64  # pictures in memory at once


class ImageScoreUser:
    """A user who sees the picture of every option and prefers the one that is most similar to a sentence.

    The utility of an option is the CLIP similarity <f(image), g(sentence)> of its picture with the style sentence,
    with f and g the two towers of one CLIP model, both of unit norm. The answers are those of a :class:`SyntheticUser`
    with theta = g(sentence) and the pictures' features. CLIP similarities of pictures with one sentence are close
    together (differences of a few hundredths), so that ``mode="sampled"`` needs a large scale; CLIP itself was trained
    at a scale of 100.

    The estimate from such answers is a taste over the features of the questions (for example of texts), which are not
    those of the pictures: unlike for a synthetic user, the utilities are not linear in them.

    A picture that the model's safety checker has flagged is not shown. A question with such an option, or with one that
    the renderer could not draw, gets no answer (a skip), and the details count these questions.

    Args:
        style: The sentence, for example "An image with warm colors depicting bright sunshine".
        renderer: Of the options' texts.
        image_encoder: f.
        text_encoder: g, the text tower of the same model.
        mode, scale, seed: Of the user; see :class:`SyntheticUser`.
        image_seed: Seed of the noise of all pictures, so that options differ only by their texts.
        name: Name of the user, recorded with every comparison.
        progress: Callback of (pictures done, all pictures) while pictures are rendered.

    Raises:
        ValueError: An empty sentence, encoders of different models, or an invalid mode, scale or seed.
    """

    def __init__(
        self,
        style: str,
        renderer: CachedRenderer,
        image_encoder: ImageEncoder,
        text_encoder: TextEncoder,
        *,
        mode: Literal["argmax", "sampled"] = "argmax",
        scale: float = 100.0,
        seed: int = 0,
        image_seed: int = 0,
        name: str = "image score",
        progress: Callable[[int, int], None] | None = None,
    ) -> None:
        if image_encoder.dimension != text_encoder.dimension or image_encoder.name != text_encoder.name:
            raise ValueError(
                f"Expected both towers of one CLIP model, got the image tower {image_encoder.name} (d = "
                f"{image_encoder.dimension}) and the text tower {text_encoder.name} (d = {text_encoder.dimension}); "
                "load both with the same name"
            )
        self._user = SyntheticUser.from_text(style, text_encoder, mode=mode, scale=scale, seed=seed, name=name)
        self.style = style
        self.renderer = renderer
        self.image_encoder = image_encoder
        self._pictures = OptionPictures(renderer, seed=image_seed, progress=progress)
        self._rows: dict[str, NDArray[np.float32]] = {}  # embeddings of pictures, by key

    @property
    def name(self) -> str:
        """Name of the user."""
        return self._user.name

    def reset(self) -> None:
        """Start the sequence of draws again, as if no question had been asked."""
        self._user.reset()

    def answer(self, queries: Queries) -> Answers:
        """Answer every question with texts, in order; a skip if an option is flagged or has no picture.

        Errors are those of ``OptionPictures.of``.
        """
        seen = self._pictures.of(queries)
        rows = np.zeros((*queries.present.shape, self.image_encoder.dimension), dtype=np.float32)
        drawn = queries.present.copy()
        drawn[queries.present] = [picture is not None for picture in seen.pictures]
        rows[drawn] = self._embed([picture for picture in seen.pictures if picture is not None])
        shown_queries = Queries(features=rows, episode=queries.episode, step=queries.step, sizes=queries.sizes)
        answers = self._user.answer(shown_queries)  # also for skipped questions: question i uses draw i
        details = {**answers.details, "image_seed": self._pictures.seed, **seen.counts()}
        return Answers.of_choices(np.where(seen.hidden, -1, answers.choices), details)

    def scores(self, pictures: list[RenderedImage]) -> NDArray[np.float64]:
        """Return the utility of each picture, (n,), in -1..1; NaN for a flagged one, which is never shown."""
        values = utilities(self._embed(pictures).astype(np.float64), self._user.theta)
        return np.where([picture.flagged for picture in pictures], np.nan, values)

    def describe(self) -> dict[str, Any]:
        """All settings of this user, JSON-able."""
        return {
            **self._user.describe(),
            "kind": "image score",
            "image_seed": self._pictures.seed,
            "image_encoder_fingerprint": self.image_encoder.fingerprint,
            "renderer": self.renderer.describe(),
            "model_fingerprint": self.renderer.fingerprint,
        }

    def _embed(self, pictures: list[RenderedImage]) -> NDArray[np.float32]:
        """Return the embeddings of pictures, (n, d); each picture is embedded once."""
        missing = [*{picture.key: picture for picture in pictures if picture.key not in self._rows}.values()]
        hint = f"the image encoder {self.image_encoder.name} must return one row for each picture"
        for start in range(0, len(missing), _CHUNK):
            chunk = missing[start : start + _CHUNK]
            rows = self.image_encoder.encode_images([picture.load() for picture in chunk])
            rows = check_array(rows, "embeddings", shape=(len(chunk), self.image_encoder.dimension), hint=hint)
            self._rows.update(zip([picture.key for picture in chunk], rows.astype(np.float32), strict=True))
        if not pictures:
            return np.empty((0, self.image_encoder.dimension), dtype=np.float32)
        return np.stack([self._rows[picture.key] for picture in pictures])
