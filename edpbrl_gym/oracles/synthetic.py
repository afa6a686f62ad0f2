"""Synthetic users with a known taste, with or without failings: mistakes, skips, ties, a short memory, drift."""

from __future__ import annotations

import hashlib
import math
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import ArrayLike

from edpbrl_gym._arrays import Floats
from edpbrl_gym._validation import check_array, check_choice_of, check_count, check_number
from edpbrl_gym.comparisons import Queries
from edpbrl_gym.likelihood import FORMATS, AnswerFormat, Response, make_format
from edpbrl_gym.likelihood.choice import log_softmax, utilities
from edpbrl_gym.oracles.base import Answers

if TYPE_CHECKING:
    from edpbrl_gym.features import TextEncoder

__all__ = ["ImperfectUser", "SyntheticUser"]


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
        from edpbrl_gym.features.base import as_encoder

        encoder = as_encoder(encoder)
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

        Raises:
            ValueError: The questions have another d than theta.
        """
        if queries.dimension != len(self.theta):
            raise ValueError(
                f"Expected questions with d = {len(self.theta)} features (as theta), got d = {queries.dimension}; "
                f"use one encoder for the user and the options"
            )
        details = {"oracle": self.name, "mode": self.mode, "scale": self.scale, "seed": self.seed, **self._options()}
        parts = [queries] if queries.even else [queries.select(run) for run in queries.runs()]
        return Answers(tuple(response for part in parts for response in self._responses(part)), details)

    def _responses(self, queries: Queries) -> tuple[Response, ...]:
        """The answers to questions with K options each."""
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


# Random streams besides that of the answers, which belongs to SyntheticUser
_MISTAKES, _DRIFT, _SCALE = 1, 2, 3


class ImperfectUser(SyntheticUser):
    """A :class:`SyntheticUser` that makes mistakes, skips, can't decide, forgets or changes its mind.

    The options are those of the simulated teachers of B-Pref (Lee et al., "B-Pref: Benchmarking Preference-Based
    Reinforcement Learning", NeurIPS 2021), extended from two segments to K options, and two more (drift, an unknown
    scale). With u_k = theta . x_k, they apply to a question in this order:

    * ``skip_threshold``: the question is skipped if no option is good enough, max_k u_k < skip_threshold.
    * ``equal_threshold``: the answer is a tie ("can't tell") if the best two options differ by less than this,
      u_(1) - u_(2) < equal_threshold. For K = 2 this is B-Pref's |u_1 - u_2| < threshold.
    * ``mistake_rate``: otherwise, with this probability, the answer is replaced by a uniformly drawn other one of the
      same format: another option (best), another pair (best_worst), another order (ranking; of as many options, for
      partial ones). For K = 2 the answer is flipped.
    * ``myopia`` gamma: later words have more weight. Word j of a partial prompt adds c_j = u(prefix_j) -
      u(prefix_{j-1}); the user answers by sum_j gamma^(h - j) c_j instead of u(prefix_h) = sum_j c_j. gamma = 1
      forgets nothing, gamma = 0 uses only the last word. The prefixes are those of the same option earlier in the same
      episode, so this is for truncated feedback; the thresholds above apply to u itself.
    * ``drift``: after every question (also a skipped one) theta moves by this angle (radians) in a uniformly random
      direction on the sphere of its norm. ``theta`` is the present taste.
    * ``scale=(low, high)``: a scale unknown to the study, drawn once, uniformly in its logarithm.

    Thresholds are in units of theta . x, whatever the scale. Answers depend on the seed and on the number of a question
    in the sequence of all questions: question i uses the i-th draw of each stream, however the sequence is split into
    batches. With every option off the answers are those of ``SyntheticUser`` with the same mode, scale and seed.

    Args:
        theta: The taste, (d,); not normalised.
        mode: "argmax" or "sampled".
        scale: Inverse temperature, >= 0; or (low, high) with 0 < low <= high.
        mistake_rate: Probability of a mistake, in [0, 1].
        skip_threshold: Smallest acceptable utility; None never skips.
        equal_threshold: Difference below which options are tied, >= 0; None (and 0) never ties.
        myopia: Gamma in [0, 1].
        drift: Angle per question in radians, in [0, pi].
        response: Format of the answers, or a name of ``FORMATS`` (with "ties" and ``mode="sampled"`` the user also
            calls ties by Davidson's model).
        nu: Tie parameter of Davidson's model, > 0; only for ``response="ties"``.
        taps: Number of options named in order, >= 1; only for ``response="partial"``.
        seed: Seed of all draws.
        name: Name of the user, recorded with every answer.

    Raises:
        ValueError: NaN in theta, an unknown mode or format, an argument out of its range, or drift of a taste that is
            0 or has only one feature.
    """

    _start: Floats | None = None

    def __init__(
        self,
        theta: ArrayLike,
        *,
        mode: Literal["argmax", "sampled"] = "argmax",
        scale: float | tuple[float, float] = 1.0,
        mistake_rate: float = 0.0,
        skip_threshold: float | None = None,
        equal_threshold: float | None = None,
        myopia: float = 1.0,
        drift: float = 0.0,
        response: str | AnswerFormat = "best",
        nu: float = 1.0,
        taps: int = 3,
        seed: int = 0,
        name: str = "imperfect",
    ) -> None:
        self.mistake_rate = _in_range(mistake_rate, "mistake_rate", 1.0)
        self.skip_threshold = None if skip_threshold is None else check_number(skip_threshold, "skip_threshold")
        self.equal_threshold = (
            None if equal_threshold is None else check_number(equal_threshold, "equal_threshold", minimum=0.0)
        )
        self.myopia = _in_range(myopia, "myopia", 1.0)
        self.drift = _in_range(drift, "drift", math.pi)
        named = response.name if isinstance(response, AnswerFormat) else response
        self.response = check_choice_of(named, "response", tuple(FORMATS))
        self.nu = check_number(nu, "nu", minimum=0.0, exclusive=True)
        self.taps = check_count(taps, "taps")
        self.model: AnswerFormat = (
            response if isinstance(response, AnswerFormat) else make_format(response, nu=self.nu, taps=self.taps)
        )
        self.scale_range = _check_range(scale) if isinstance(scale, tuple) else None
        if self.scale_range is not None:
            low, high = np.log(self.scale_range)
            scale = float(np.exp(np.random.default_rng([seed, _SCALE]).uniform(low, high)))
        super().__init__(theta, mode=mode, scale=scale, seed=seed, name=name)  # type: ignore[arg-type]
        described = super().describe()
        self._initial_taste = {key: described[key] for key in ("theta_norm", "theta_sha256")}
        if self.drift and (len(self.theta) < 2 or not self.theta.any()):
            raise ValueError(
                f"Expected a taste other than 0 with at least 2 features for drift > 0, got {len(self.theta)} "
                f"feature(s) of norm {np.linalg.norm(self.theta):g}; use drift=0"
            )

    def reset(self) -> None:
        """Restart the sequence of draws with the initial taste, as if no question had been asked."""
        super().reset()
        if self._start is None:
            self._start = self.theta
        self.theta = self._start
        self._mistakes = np.random.default_rng([self.seed, _MISTAKES])
        self._walk = np.random.default_rng([self.seed, _DRIFT])
        self._history: dict[int, list[tuple[int, Floats, Floats]]] = {}

    def _responses(self, queries: Queries) -> tuple[Response, ...]:
        """Responses of the format ``response``, with ties and skips by the thresholds.

        For ``myopia`` < 1 the questions' episodes and steps identify the prefixes that the user has seen before.
        """
        true_values = self._true_utilities(queries)
        remembered = true_values if self.myopia == 1.0 else self._myopic(queries, true_values)
        answers = self._answers(remembered)
        if self.mistake_rate:
            draws = self._mistakes.random((len(queries), 2))
            mistaken = np.flatnonzero(draws[:, 0] < self.mistake_rate)
            for index in mistaken.tolist():
                answers[index] = self.model.mistaken(answers[index], queries.num_options, float(draws[index, 1]))
        sorted_values = np.sort(true_values, axis=1)
        if self.equal_threshold is not None and queries.num_options > 1:
            for index in np.flatnonzero(sorted_values[:, -1] - sorted_values[:, -2] < self.equal_threshold).tolist():
                answers[index] = Response.tie()
        if self.skip_threshold is not None:
            for index in np.flatnonzero(sorted_values[:, -1] < self.skip_threshold).tolist():
                answers[index] = Response.skip()
        return tuple(answers)

    def describe(self) -> dict[str, Any]:
        """All settings of this user, JSON-able; a drifting theta by its initial value."""
        return {
            **super().describe(),
            **self._initial_taste,
            "kind": "imperfect",
            "response": self.response,
            **self._options(),
        }

    def _options(self) -> dict[str, Any]:
        """The options in use."""
        options: dict[str, Any] = {
            "mistake_rate": self.mistake_rate or None,
            "skip_threshold": self.skip_threshold,
            "equal_threshold": self.equal_threshold,
            "myopia": None if self.myopia == 1.0 else self.myopia,
            "drift": self.drift or None,
            "scale_range": None if self.scale_range is None else list(self.scale_range),
            **vars(self.model),
        }
        return {key: value for key, value in options.items() if value is not None}

    def _true_utilities(self, queries: Queries) -> Floats:
        """Utilities theta . x_k at the present taste of each question, (n, K); the taste drifts after each."""
        features = queries.features.astype(np.float64)
        if not self.drift:
            return utilities(features, self.theta)
        values = np.empty(features.shape[:2])
        for index in range(len(features)):
            values[index] = utilities(features[index], self.theta)
            self.theta = self._next_taste(self.theta)
        return values

    def _next_taste(self, theta: Floats) -> Floats:
        """One step of the walk on the sphere: cos(a) theta + sin(a) |theta| v, with v a random unit tangent."""
        norm = np.linalg.norm(theta)
        tangent = self._walk.standard_normal(len(theta))
        tangent -= (tangent @ theta) / norm**2 * theta
        next_theta = math.cos(self.drift) * theta + math.sin(self.drift) * norm / np.linalg.norm(tangent) * tangent
        next_theta *= norm / np.linalg.norm(next_theta)
        next_theta.flags.writeable = False
        return next_theta

    def _myopic(self, queries: Queries, true: Floats) -> Floats:
        """Utilities as remembered, (n, K): m_h = gamma m_{h-1} + u_h - u_{h-1}, lane by lane within an episode."""
        result = np.empty_like(true)
        for index, (episode, step) in enumerate(zip(queries.episode.tolist(), queries.step.tolist(), strict=True)):
            history = self._history.setdefault(episode, [])
            while history and history[-1][0] >= step:  # asked again, or the episode restarts
                history.pop()
            if history and len(history[-1][1]) != queries.num_options:
                raise ValueError(
                    f"Expected {len(history[-1][1])} options in every question of episode {episode}, got "
                    f"{queries.num_options} at step {step}; myopia follows each option through its episode"
                )
            _, previous, remembered = history[-1] if history else (-1, np.zeros(1), np.zeros(1))
            result[index] = self.myopia * remembered + (true[index] - previous)
            history.append((step, true[index], result[index]))
        return result

    def _answers(self, values: Floats) -> list[Response]:
        """Answers by utilities (n, K): the response model with the utility as the only feature."""
        if self.mode == "argmax":
            return self.model.sample(values[:, :, None], np.ones(1), None)
        shifted = values - values.max(axis=1, keepdims=True) if self.model.relative else values
        with np.errstate(over="ignore"):  # to -inf, a probability of 0
            return self.model.sample(shifted[:, :, None], np.array([self.scale]), self._rng.random(len(values)))


def _in_range(value: float, name: str, high: float) -> float:
    number = check_number(value, name, minimum=0.0)
    if number > high:
        raise ValueError(f"Expected {name} in [0, {high:g}], got {number:g}")
    return number


def _check_range(scale: tuple[float, float]) -> tuple[float, float]:
    if len(scale) != 2:
        raise ValueError(f"Expected scale as a number or (low, high), got {scale!r}")
    low = check_number(scale[0], "scale (low)", minimum=0.0, exclusive=True)
    high = check_number(scale[1], "scale (high)", minimum=0.0, exclusive=True)
    if low > high:
        raise ValueError(f"Expected scale=(low, high) with low <= high, got {scale!r}")
    return low, high
