"""Texts by the pictures that are drawn from them: what was seen, as features of a prompt."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from edpbrl_gym._validation import check_choice_of
from edpbrl_gym.comparisons import Comparisons
from edpbrl_gym.features import ImageEncoder, JoinedEncoder, TextEncoder, blocks_of, load_image_encoder
from edpbrl_gym.features.base import hash_settings, normalise
from edpbrl_gym.features.images import PICTURE_FEATURES
from edpbrl_gym.features.notices import check_texts
from edpbrl_gym.rendering import CachedRenderer
from edpbrl_gym.rendering.settings import check_seed

__all__ = ["FEATURES", "DrawnEncoder", "Features", "drawn_by", "features_of", "seen_answers"]

Features = Literal["text", "picture", "both"]

FEATURES: tuple[Features, ...] = ("text", "picture", "both")
"""By what a taste is learnt where pictures are shown: `features_of`."""


class DrawnEncoder:
    """A text encoder by pictures: the features of a text are those of the picture that a renderer draws of it.

    What is in the renderer's cache is not drawn again, nor is a picture encoded twice; rows stay in memory.

    Args:
        renderer: Draws the pictures; those that are missing are drawn by ``encode``.
        image_encoder: Encodes them.
        seed: Of all pictures.

    Attributes:
        name: "picture:" and the image encoder's name, as ``load_encoder`` takes it.
    """

    def __init__(self, renderer: CachedRenderer, image_encoder: ImageEncoder, seed: int = 0) -> None:
        self.renderer, self.image_encoder, self.seed = renderer, image_encoder, check_seed(seed)
        self.name = f"picture:{image_encoder.name}"
        self.dimension = image_encoder.dimension
        parts = [renderer.renderer.identity(), image_encoder.fingerprint, self.seed]
        self.fingerprint = hash_settings({"kind": "drawn", "parts": parts})
        self._rows: dict[str, NDArray[np.float32]] = {}
        self._lock = threading.Lock()

    def encode(self, texts: Sequence[str], *, progress: bool = False) -> NDArray[np.float32]:
        """As ``TextEncoder.encode``; draws what was not drawn yet.

        Raises:
            RenderingError: Some texts have no picture.
        """
        from tqdm.auto import tqdm

        checked = check_texts(texts)
        with self._lock:
            missing = [text for text in dict.fromkeys(checked) if text not in self._rows]
            if missing:
                with tqdm(total=len(missing), desc="draw", unit="picture", disable=not progress) as bar:
                    images = self.renderer.render(
                        missing, seed=self.seed, progress=lambda done, _: bar.update(done - bar.n)
                    )
                raw = self.image_encoder.encode_images([image.path for image in images])
                self._rows.update(zip(missing, normalise(raw, missing, self.dimension, self.name), strict=True))
            if not checked:
                return np.empty((0, self.dimension), dtype=np.float32)
            return np.stack([self._rows[text] for text in checked])


def seen_answers(answers: Comparisons, encoder: TextEncoder, *, progress: bool = False) -> Comparisons:
    """The same answers by the features of another encoder of the options' texts, such as of their pictures.

    Raises:
        ValueError: The answers are without texts.
        RenderingError: Some texts have no picture.
    """
    if answers.texts is None:
        raise ValueError("Expected answers with the texts of their options, of which pictures are drawn, got none")
    rows = encoder.encode([text for texts in answers.texts for text in texts], progress=progress)
    features = np.zeros((*answers.present.shape, encoder.dimension), dtype=np.float32)
    features[answers.present] = rows
    known = {"encoder": encoder.name, "encoder_fingerprint": encoder.fingerprint, "blocks": list(blocks_of(encoder))}
    return replace(answers, features=features, metadata={**answers.metadata, **known})


def drawn_by(renderer: CachedRenderer, spec: str = PICTURE_FEATURES, *, seed: int = 0, **options: Any) -> TextEncoder:
    """A ``DrawnEncoder`` by an image encoder's name, or "A+B": several of the same pictures, joined.

    Args:
        renderer: Draws the pictures.
        spec: Names of image encoders.
        seed: Of all pictures.
        **options: Of ``load_image_encoder``.

    Raises:
        ValueError, ImportError, OSError: As for ``load_image_encoder``.
    """
    encoders = [load_image_encoder(name, **options) for name in spec.split("+")]
    drawn = [DrawnEncoder(renderer, encoder, seed) for encoder in encoders]
    return drawn[0] if len(drawn) == 1 else JoinedEncoder(drawn)


def features_of(kind: Features, text_encoder: TextEncoder, drawn: TextEncoder) -> TextEncoder:
    """The encoder of prompts whose pictures are shown: by the "text", the "picture", or "both" joined.

    Raises:
        ValueError: An unknown kind.
    """
    check_choice_of(kind, "features", FEATURES)
    if kind == "both":
        return JoinedEncoder([text_encoder, drawn])
    return text_encoder if kind == "text" else drawn
