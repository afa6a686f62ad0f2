"""A synthetic user with human failings: mistakes, skips, ties, a short memory, a changing taste."""

from __future__ import annotations

import math
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike

from edpbrl_gym._arrays import Floats
from edpbrl_gym._validation import check_choice_of, check_count, check_number
from edpbrl_gym.comparisons import Queries
from edpbrl_gym.likelihood import RESPONSE_MODELS, Response, ResponseModel, make_response_model
from edpbrl_gym.likelihood.choice import utilities
from edpbrl_gym.oracles.synthetic import SyntheticUser

__all__ = ["ImperfectUser"]


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
        response: Format of the answers: "best", "best_worst", "ranking", "partial" or "ties" (with ``mode="sampled"``
            the user also calls ties by Davidson's model).
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
        response: Literal["best", "best_worst", "ranking", "partial", "ties"] = "best",
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
        self.response = check_choice_of(response, "response", RESPONSE_MODELS)
        self.nu = check_number(nu, "nu", minimum=0.0, exclusive=True)
        self.taps = check_count(taps, "taps")
        self.model: ResponseModel = make_response_model(self.response, nu=self.nu, taps=self.taps)
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
                answers[index] = self._mistaken(answers[index], queries.num_options, float(draws[index, 1]))
        sorted_values = np.sort(true_values, axis=1)
        if self.equal_threshold is not None:
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
            "nu": self.nu if self.response == "ties" else None,
            "taps": self.taps if self.response == "partial" else None,
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
        shifted = values - values.max(axis=1, keepdims=True)
        with np.errstate(over="ignore"):  # to -inf, a probability of 0
            return self.model.sample(shifted[:, :, None], np.array([self.scale]), self._rng.random(len(values)))

    def _mistaken(self, answer: Response, num_options: int, draw: float) -> Response:
        """A uniformly drawn other answer of the format."""
        if answer.kind in ("ranking", "partial"):  # one of the other orders, by its number; the orders are not listed
            length = len(answer.order)
            number = 1 + int(draw * (math.perm(num_options, length) - 1))
            options = (*answer.order, *(option for option in range(num_options) if option not in answer.order))
            return Response(answer.kind, tuple(options[i] for i in _permutation(number, num_options, length)))
        alternatives = [
            outcome for outcome in self.model.outcomes(num_options) if outcome != answer and outcome.kind != "tie"
        ]
        return alternatives[int(draw * len(alternatives))]


def _permutation(number: int, size: int, length: int) -> list[int]:
    """The ``length`` of 0..size-1 in order with this number in lexicographic order; number 0 is 0, 1, ..., length-1."""
    remaining, permutation = list(range(size)), []
    for place in range(1, length + 1):
        index, number = divmod(number, math.perm(size - place, length - place))
        permutation.append(remaining.pop(index))
    return permutation


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
