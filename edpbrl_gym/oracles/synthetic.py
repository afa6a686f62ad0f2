"""A synthetic user with a known taste."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import ArrayLike

from edpbrl_gym._validation import check_array, check_choice_of, check_count, check_number
from edpbrl_gym.comparisons import Queries
from edpbrl_gym.likelihood import Response
from edpbrl_gym.likelihood.choice import log_softmax, utilities
from edpbrl_gym.oracles.base import Answers

if TYPE_CHECKING:
    from edpbrl_gym.features import TextEncoder

__all__ = ["SyntheticUser"]


class SyntheticUser:
    """A user who ranks options by theta . x, without error or with multinomial-logit noise.

    The paper does not say which of the two its simulated users are, nor at what scale; both are available, and every
    answer records the choice. With unit-norm features and theta the softmax at scale 1 is nearly uniform (for random
    directions in d = 384, K = 4, the best option is chosen in 26% of the questions instead of 25%): the answers of a
    noisy user are informative only at a scale well above 1.

    * ``mode="argmax"``: the option with the highest utility; ties go to the lowest index. ``scale`` has no effect.
    * ``mode="sampled"``: option k with probability softmax(scale * theta . x)_k; ``scale`` is the inverse temperature.
      The estimate then tends to scale * theta.

    Answers depend on the seed and on the number of a question in the sequence of all questions to this user: question i
    uses the i-th uniform draw. So the same seed gives the same answers however the sequence is split into batches; the
    order of the questions matters, and the same question asked twice gets two independent answers.

    Args:
        theta: The taste, (d,); not normalised.
        mode: "argmax" or "sampled".
        scale: Inverse temperature, >= 0 (0: uniform answers).
        seed: Seed of the draws.
        name: Name of the user, recorded with every comparison.

    Raises:
        ValueError: NaN in theta, an unknown mode, scale < 0, or a negative seed.
    """

    def __init__(
        self,
        theta: ArrayLike,
        *,
        mode: Literal["argmax", "sampled"] = "argmax",
        scale: float = 1.0,
        seed: int = 0,
        name: str = "synthetic",
    ) -> None:
        self.theta = check_array(theta, "theta", shape=("d",)).copy()
        if not len(self.theta):
            raise ValueError("Expected theta with at least 1 feature, got an empty array")
        self.theta.flags.writeable = False
        self.mode = check_choice_of(mode, "mode", ("argmax", "sampled"))
        self.scale = check_number(scale, "scale", minimum=0.0)
        self.seed = check_count(seed, "seed", minimum=0)
        self.name = name
        self._source: dict[str, str] = {}
        self.reset()

    @classmethod
    def from_text(cls, text: str, encoder: TextEncoder, **kwargs: Any) -> SyntheticUser:
        """A user whose taste is the embedding of a sentence, normalised to unit norm.

        Args:
            text: The sentence, for example "An image with warm colors depicting bright sunshine".
            encoder: The encoder of the features.
            **kwargs: ``mode``, ``scale``, ``seed`` and ``name``.

        Raises:
            ValueError: The text is empty, or the encoder returns NaN, zeros or another shape.
        """
        if not isinstance(text, str) or not text.strip():
            raise ValueError(f"Expected a text that describes the taste, got {text!r}")
        hint = f"the encoder {encoder.name} must return one row for one text"
        embedding = check_array(encoder.encode([text]), "embedding", shape=(1, encoder.dimension), hint=hint)[0]
        norm = float(np.linalg.norm(embedding))
        if norm == 0.0:
            raise ValueError(f"Expected an embedding of {text!r} that is not zero, got zeros from {encoder.name}")
        user = cls(embedding / norm, **kwargs)
        user._source = {"text": text, "encoder": encoder.name, "encoder_fingerprint": encoder.fingerprint}
        return user

    def reset(self) -> None:
        """Restart the sequence of draws, as if no question had been asked."""
        self._rng = np.random.default_rng(self.seed)

    def answer(self, queries: Queries) -> Answers:
        """Answer every question, in order.

        Args:
            queries: n questions with features (n, K, d).

        Returns:
            The answers, with the name, mode, scale and seed in the details.

        Raises:
            ValueError: The questions have another d than theta.
        """
        if queries.dimension != len(self.theta):
            raise ValueError(
                f"Expected questions with d = {len(self.theta)} features (as theta), got d = {queries.dimension}; "
                f"use one encoder for the user and the options"
            )
        details = {"oracle": self.name, "mode": self.mode, "scale": self.scale, "seed": self.seed, **self._options()}
        return Answers(self._responses(queries), details)

    def _responses(self, queries: Queries) -> tuple[Response, ...]:
        values = utilities(queries.features.astype(np.float64), self.theta)
        if self.mode == "argmax":
            choices = values.argmax(axis=1)
        else:
            shifted = values - values.max(axis=1, keepdims=True)
            with np.errstate(over="ignore"):  # to -inf, a probability of 0
                cumulative = np.exp(log_softmax(self.scale * shifted)).cumsum(axis=1)
            cumulative /= cumulative[:, -1:]  # ends at exactly 1, above every draw
            choices = (cumulative <= self._rng.random(len(queries))[:, None]).sum(axis=1)
        return Answers.of_choices(choices).responses

    def _options(self) -> dict[str, Any]:
        """Further entries of the details of an answer."""
        return {}

    def describe(self) -> dict[str, Any]:
        """All settings of this user, JSON-able; theta by its norm and the sha256 of its bytes."""
        return {
            "oracle": self.name,
            "kind": "synthetic",
            "mode": self.mode,
            "scale": self.scale,
            "seed": self.seed,
            "dimension": len(self.theta),
            "theta_norm": float(np.linalg.norm(self.theta)),
            "theta_sha256": hashlib.sha256(np.ascontiguousarray(self.theta, dtype="<f8").tobytes()).hexdigest(),
            **self._source,
        }
