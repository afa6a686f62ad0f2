"""A synthetic user with human failings: mistakes, skipped and undecided questions, a short memory, a changing taste."""

from __future__ import annotations

import math
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike

from edpbrl_gym._arrays import Floats
from edpbrl_gym._validation import check_choice_of, check_number
from edpbrl_gym.comparisons import Queries
from edpbrl_gym.likelihood import Response, ResponseModel, make_response_model
from edpbrl_gym.likelihood.choice import utilities
from edpbrl_gym.oracles.synthetic import SyntheticUser

__all__ = ["ImperfectUser"]


# Streams of random numbers beside that of the answers, which is SyntheticUser's own
_MISTAKES, _DRIFT, _SCALE = 1, 2, 3


class ImperfectUser(SyntheticUser):
    """A :class:`SyntheticUser` that errs, passes, can't decide, forgets or changes its mind.

    The options are those of the simulated teachers of B-Pref (Lee et al., "B-Pref: Benchmarking Preference-Based
    Reinforcement Learning", NeurIPS 2021), carried over from two segments to K options, and two more (drift, a scale
    that nobody knows). With u_k = theta . x_k, for one question and in this order:

    * ``skip_threshold``: the question is skipped when no option is good enough, max_k u_k < skip_threshold.
    * ``equal_threshold``: the answer is a tie ("can't tell") when the best two options differ by less,
      u_(1) - u_(2) < equal_threshold. For K = 2 this is B-Pref's |u_1 - u_2| < threshold.
    * ``mistake_rate``: otherwise, with this probability, the answer is replaced by a uniformly drawn other one of the
      same format: another option (best), another pair (best_worst), another order (ranking). For K = 2 the answer is
      flipped.
    * ``myopia`` gamma: what was read last weighs most. Word j of a partial prompt adds c_j = u(prefix_j) -
      u(prefix_{j-1}); the user answers by sum_j gamma^(h - j) c_j in place of u(prefix_h) = sum_j c_j. gamma = 1
      forgets nothing, gamma = 0 sees the last word only. The prefixes are those that the same option showed earlier in
      the same episode, so this is for truncated feedback; the thresholds above look at u itself.
    * ``drift``: after every question (also a skipped one) theta takes a step of so many radians in a uniformly random
      direction on the sphere of its norm. ``theta`` is the taste now.
    * ``scale=(low, high)``: a scale that the study does not know, drawn once, uniformly in its logarithm.

    Thresholds are in units of theta . x, whatever the scale. Answers depend on the seed and on the place of a question
    in the sequence of all questions: question i uses the i-th draw of each stream, however the sequence is cut into
    batches. With every option off the answers are those of ``SyntheticUser`` with the same mode, scale and seed.

    Args:
        theta: the taste, (d,); not normalised.
        mode: "argmax" or "sampled".
        scale: inverse temperature, >= 0; or (low, high) with 0 < low <= high.
        mistake_rate: in [0, 1].
        skip_threshold: None never skips.
        equal_threshold: >= 0; None (and 0) never ties.
        myopia: gamma in [0, 1].
        drift: radians a question, in [0, pi].
        response: format of the answers, "best", "best_worst", "ranking" or "ties" (with ``mode="sampled"`` the user
            also calls ties as Davidson's model says).
        nu: tie parameter of Davidson's model, > 0; for ``response="ties"`` only.
        seed: of all draws.
        name: who this is, recorded with every answer.

    Raises:
        ValueError: NaN in theta, an unknown mode or format, an argument out of its range, or drift of a taste that is
            0 or has one feature only.
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
        response: Literal["best", "best_worst", "ranking", "ties"] = "best",
        nu: float = 1.0,
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
        self.response = check_choice_of(response, "response", ("best", "best_worst", "ranking", "ties"))
        self.nu = check_number(nu, "nu", minimum=0.0, exclusive=True)
        self.model: ResponseModel = make_response_model(self.response, nu=self.nu)
        self.scale_range = _check_range(scale) if isinstance(scale, tuple) else None
        if self.scale_range is not None:
            low, high = np.log(self.scale_range)
            scale = float(np.exp(np.random.default_rng([seed, _SCALE]).uniform(low, high)))
        super().__init__(theta, mode=mode, scale=scale, seed=seed, name=name)  # type: ignore[arg-type]
        described = super().describe()
        self._beginning = {key: described[key] for key in ("theta_norm", "theta_sha256")}
        if self.drift and (len(self.theta) < 2 or not self.theta.any()):
            raise ValueError(
                f"Expected a taste other than 0 with at least 2 features for drift > 0, got {len(self.theta)} "
                f"feature(s) of norm {np.linalg.norm(self.theta):g}; use drift=0"
            )

    def reset(self) -> None:
        """Start the sequence of draws again, with the taste of the beginning, as if no question had been asked."""
        super().reset()
        if self._start is None:
            self._start = self.theta
        self.theta = self._start
        self._mistakes = np.random.default_rng([self.seed, _MISTAKES])
        self._walk = np.random.default_rng([self.seed, _DRIFT])
        self._shown: dict[int, list[tuple[int, Floats, Floats]]] = {}

    def _responses(self, queries: Queries) -> tuple[Response, ...]:
        """Responses of the format ``response``, ties and skips among them where the thresholds say so.

        For ``myopia`` < 1 the questions' episodes and steps say which prefixes the user has seen before.
        """
        true = self._true_utilities(queries)
        seen = true if self.myopia == 1.0 else self._myopic(queries, true)
        answers = self._answers(seen)
        if self.mistake_rate:
            draws = self._mistakes.random((len(queries), 2))
            wrong = np.flatnonzero(draws[:, 0] < self.mistake_rate)
            for index in wrong.tolist():
                answers[index] = self._other(answers[index], queries.num_options, float(draws[index, 1]))
        ordered = np.sort(true, axis=1)
        if self.equal_threshold is not None:
            for index in np.flatnonzero(ordered[:, -1] - ordered[:, -2] < self.equal_threshold).tolist():
                answers[index] = Response.tie()
        if self.skip_threshold is not None:
            for index in np.flatnonzero(ordered[:, -1] < self.skip_threshold).tolist():
                answers[index] = Response.skip()
        return tuple(answers)

    def describe(self) -> dict[str, Any]:
        """Everything that tells this user from another, JSON-able; a drifting theta by where it begins."""
        return {
            **super().describe(),
            **self._beginning,
            "kind": "imperfect",
            "response": self.response,
            **self._options(),
        }

    def _options(self) -> dict[str, Any]:
        """The options that are on."""
        found: dict[str, Any] = {
            "mistake_rate": self.mistake_rate or None,
            "skip_threshold": self.skip_threshold,
            "equal_threshold": self.equal_threshold,
            "myopia": None if self.myopia == 1.0 else self.myopia,
            "drift": self.drift or None,
            "scale_range": None if self.scale_range is None else list(self.scale_range),
            "nu": self.nu if self.response == "ties" else None,
        }
        return {key: value for key, value in found.items() if value is not None}

    def _true_utilities(self, queries: Queries) -> Floats:
        """Utilities theta . x_k at the taste of each question's moment, (n, K); moves the taste on."""
        features = queries.features.astype(np.float64)
        if not self.drift:
            return utilities(features, self.theta)
        values = np.empty(features.shape[:2])
        for index in range(len(features)):
            values[index] = utilities(features[index], self.theta)
            self.theta = self._moved(self.theta)
        return values

    def _moved(self, theta: Floats) -> Floats:
        """One step of the walk on the sphere: cos(a) theta + sin(a) |theta| v, with v a random unit tangent."""
        norm = np.linalg.norm(theta)
        tangent = self._walk.standard_normal(len(theta))
        tangent -= (tangent @ theta) / norm**2 * theta
        moved = math.cos(self.drift) * theta + math.sin(self.drift) * norm / np.linalg.norm(tangent) * tangent
        moved *= norm / np.linalg.norm(moved)
        moved.flags.writeable = False
        return moved

    def _myopic(self, queries: Queries, true: Floats) -> Floats:
        """Utilities as remembered, (n, K): m_h = gamma m_{h-1} + u_h - u_{h-1}, lane by lane within an episode."""
        seen = np.empty_like(true)
        for index, (episode, step) in enumerate(zip(queries.episode.tolist(), queries.step.tolist(), strict=True)):
            shown = self._shown.setdefault(episode, [])
            while shown and shown[-1][0] >= step:  # asked again, or the episode begins again
                shown.pop()
            if shown and len(shown[-1][1]) != queries.num_options:
                raise ValueError(
                    f"Expected {len(shown[-1][1])} options in every question of episode {episode}, got "
                    f"{queries.num_options} at step {step}; myopia follows each option through its episode"
                )
            _, before, remembered = shown[-1] if shown else (-1, np.zeros(1), np.zeros(1))
            seen[index] = self.myopia * remembered + (true[index] - before)
            shown.append((step, true[index], seen[index]))
        return seen

    def _answers(self, values: Floats) -> list[Response]:
        """Answers by utilities (n, K), through the response model with the utilities as only feature."""
        if self.mode == "argmax":
            return self.model.sample(values[:, :, None], np.ones(1), None)
        below = values - values.max(axis=1, keepdims=True)
        with np.errstate(over="ignore"):  # to -inf, a probability of 0
            return self.model.sample(below[:, :, None], np.array([self.scale]), self._rng.random(len(values)))

    def _other(self, answer: Response, num_options: int, draw: float) -> Response:
        """A uniformly drawn other answer of the format."""
        if answer.kind == "ranking":  # one of the K! - 1 other orders, by its number; the orders are not listed
            number = 1 + int(draw * (math.factorial(num_options) - 1))
            return Response.ranking([answer.order[i] for i in _permutation(number, num_options)])
        others = [one for one in self.model.outcomes(num_options) if one != answer and one.kind != "tie"]
        return others[int(draw * len(others))]


def _permutation(number: int, size: int) -> list[int]:
    """Permutation of 0..size-1 with this number in lexicographic order; number 0 is the identity."""
    left, found = list(range(size)), []
    for place in range(size - 1, -1, -1):
        index, number = divmod(number, math.factorial(place))
        found.append(left.pop(index))
    return found


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
