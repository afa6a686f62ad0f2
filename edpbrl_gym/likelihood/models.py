"""Response models: the interface, and the two models that are a single multinomial logit.

A response model assigns a probability to each answer to a question with options x_1..x_K at a taste theta. The
probability depends only on the utilities v_k = theta . x_k. A model provides

* its likelihood as a sum of multinomial logits (:class:`~edpbrl_gym.likelihood.terms.Terms`), so that one estimator
  serves every format;
* its Fisher information sum_n X_n' W_n X_n, with W_n the (K, K) weights of question n, positive semidefinite with zero
  row sums (a common shift of the options changes nothing; ``WithOutside``, where the level counts, is the exception);
* random answers.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Protocol, runtime_checkable

import numpy as np
from numpy.typing import ArrayLike, NDArray

from edpbrl_gym._arrays import Floats
from edpbrl_gym._validation import check_array, check_number
from edpbrl_gym.likelihood.choice import check_options, choice_probabilities, fisher_information, log_softmax, utilities
from edpbrl_gym.likelihood.response import Kind, Response
from edpbrl_gym.likelihood.terms import Terms

__all__ = ["BestOf", "ResponseModel", "WithTies"]


_BLOCK_ROWS = 4096  # rows of one BLAS product


@runtime_checkable
class ResponseModel(Protocol):
    """An answer format and its probabilities. Arrays: options (n, K, d), theta (d,)."""

    @property
    def name(self) -> str:
        """Name of the format, for ``make_response_model``."""
        ...

    @property
    def kinds(self) -> tuple[Kind, ...]:
        """Kinds of the answers that a person may give; "skip" is among them where a skip tells something."""
        ...

    def outcomes(self, num_options: int) -> tuple[Response, ...]:
        """All answers to a question of K options that tell something, in the order of :meth:`probabilities`."""
        ...

    def probabilities(self, options: ArrayLike, theta: ArrayLike) -> Floats:
        """Probability of each outcome, (n, outcomes), rows sum to 1."""
        ...

    def terms(self, options: ArrayLike, responses: Sequence[Response]) -> Terms:
        """The likelihood of n answers as multinomial logits; a skip that tells nothing adds no term."""
        ...

    def information(self, options: ArrayLike, theta: ArrayLike | None = None) -> Floats:
        """Expected Fisher information of the questions, (d, d); None stands for theta = 0."""
        ...

    def weights(self, values: ArrayLike) -> Floats:
        """The weights W (n, K, K) in information = sum_n X_n' W_n X_n, from the utilities (n, K)."""
        ...

    def sample(self, options: ArrayLike, theta: ArrayLike, uniforms: ArrayLike | None) -> list[Response]:
        """One answer per question from the draws ``uniforms`` (n,) in [0, 1); None gives the most probable answers."""
        ...


def checked_values(options: ArrayLike, theta: ArrayLike | None) -> tuple[Floats, Floats]:
    """Checked options (n, K, d) and their utilities (n, K); zeros for theta None."""
    features = check_options(options)
    if theta is None:
        return features, np.zeros(features.shape[:2])
    hint = f"the options have {features.shape[2]} features"
    return features, utilities(features, check_array(theta, "theta", shape=(features.shape[2],), hint=hint))


def checked_responses(
    responses: Sequence[Response], features: Floats, kinds: tuple[str, ...], model: str, hint: str = ""
) -> dict[str, tuple[NDArray[np.int64], NDArray[np.int64]]]:
    """For each kind, the indices of the questions with such an answer, (m,), and their orders, (m, length).

    Those of "partial" are completed, (m, K): the options that were not named follow in ascending order.
    """
    answers = list(responses)
    if len(answers) != len(features):
        raise ValueError(f"Expected one response for each of the {len(features)} questions, got {len(answers)}")
    indices_by_kind: dict[str, list[int]] = {kind: [] for kind in kinds}
    for index, answer in enumerate(answers):
        if not isinstance(answer, Response):
            raise TypeError(f"Expected responses as Response, got {type(answer).__name__} at question {index}")
        answer.checked(features.shape[1])
        if answer.kind == "skip":
            continue
        if answer.kind not in indices_by_kind:
            allowed = ", ".join(map(repr, kinds)) + " or 'skip'"
            raise ValueError(
                f"The response model {model!r} takes only {allowed}, got {answer.kind!r} at question {index}{hint}"
            )
        indices_by_kind[answer.kind].append(index)
    return {
        kind: (
            np.array(indices, dtype=np.int64),
            np.array([_order(answers[index], features.shape[1]) for index in indices], dtype=np.int64).reshape(
                len(indices), -1
            )
            if indices
            else np.zeros((0, 1), dtype=np.int64),
        )
        for kind, indices in indices_by_kind.items()
    }


def _order(answer: Response, num_options: int) -> tuple[int, ...]:
    if answer.kind != "partial":
        return answer.order
    return (*answer.order, *(option for option in range(num_options) if option not in answer.order))


def checked_uniforms(uniforms: ArrayLike | None, count: int) -> Floats | None:
    """The draws as floats (n,) in [0, 1), or None."""
    if uniforms is None:
        return None
    draws = check_array(uniforms, "uniforms", shape=(count,), hint="one draw for each question")
    if count and not (draws.min() >= 0.0 and draws.max() < 1.0):
        raise ValueError(f"Expected uniforms in [0, 1), got values in [{draws.min()}, {draws.max()}]")
    return np.asarray(draws)


def pick(values: Floats, uniforms: Floats | None) -> tuple[NDArray[np.int64], Floats | None]:
    """Draw one alternative per row of utilities (n, J) by inverse CDF, and recycle the draws.

    The position of a draw within the chosen interval is again uniform and independent of the choice. With
    `uniforms=None` the alternative has the largest utility; ties go to the lowest index.
    """
    if uniforms is None:
        return values.argmax(axis=1), None
    cumulative = np.exp(log_softmax(values)).cumsum(axis=1)
    cumulative /= cumulative[:, -1:]  # ends at exactly 1, above every draw
    index = (cumulative <= uniforms[:, None]).sum(axis=1)
    edges = np.concatenate([np.zeros((len(values), 1)), cumulative], axis=1)
    rows = np.arange(len(values))
    low, high = edges[rows, index], edges[rows, index + 1]
    return index, np.clip((uniforms - low) / (high - low), 0.0, np.nextafter(1.0, 0.0))


def information_from_weights(features: Floats, weights: Floats) -> Floats:
    """sum_n X_n' W_n X_n for weights with zero row sums, (d, d): symmetric, positive semidefinite.

    With W_n = R_n' R_n from an eigendecomposition, this is a product of the stacked R_n X_n with itself for each block.
    """
    num_questions, num_options, dimension = features.shape
    information = np.zeros((dimension, dimension))
    block = max(1, _BLOCK_ROWS // num_options)
    for start in range(0, num_questions, block):
        block_features = features[start : start + block]
        sizes, vectors = np.linalg.eigh(weights[start : start + block])
        roots = np.sqrt(np.maximum(sizes, 0.0))[:, :, None] * vectors.transpose(0, 2, 1)
        rows = np.matmul(roots, block_features - block_features[:, :1]).reshape(-1, dimension)
        information += rows.T @ rows
    return information


def choice_weights(probabilities: Floats) -> Floats:
    """diag(p) - p p' for each row, (n, J, J): the weights of one multinomial logit."""
    weights = -probabilities[:, :, None] * probabilities[:, None, :]
    diagonal = np.arange(probabilities.shape[1])
    # the sum over the others, not p (1 - p): row sums are exactly zero even if p is nearly 1
    weights[:, diagonal, diagonal] = 0.0
    weights[:, diagonal, diagonal] = -weights.sum(axis=2)
    return weights


def checked_utilities(values: ArrayLike) -> Floats:
    """Utilities (n, K), K >= 2, finite."""
    array = check_array(values, "values", shape=("n", "K"))
    if array.shape[1] < 2:
        raise ValueError(f"Expected utilities of at least 2 options, got shape {array.shape}")
    return np.asarray(array)


def best_terms(features: Floats, indices: NDArray[np.int64], chosen: NDArray[np.int64]) -> Terms:
    """One multinomial logit over all options for each of the questions at ``indices``."""
    rows = features[indices]
    return Terms(rows, np.zeros(rows.shape[:2]), chosen)


@dataclass(frozen=True)
class BestOf:
    """The best of the K options: the multinomial logit (McFadden, 1974), the paper's model.

    P(best = k) = exp(v_k) / sum_j exp(v_j).
    """

    name: ClassVar[str] = "best"
    kinds: ClassVar[tuple[Kind, ...]] = ("best",)

    def outcomes(self, num_options: int) -> tuple[Response, ...]:
        """Responses best 0, ..., best K-1."""
        return tuple(Response.best(option) for option in range(num_options))

    def probabilities(self, options: ArrayLike, theta: ArrayLike) -> Floats:
        """Probability that each option is best, (n, K)."""
        return choice_probabilities(options, theta)

    def terms(self, options: ArrayLike, responses: Sequence[Response]) -> Terms:
        """One term for each answer.

        Raises:
            ValueError: An answer other than "best" or "skip", or one that does not match the options.
        """
        features = check_options(options)
        by_kind = checked_responses(
            responses, features, ("best",), self.name, "; use the response model of that format"
        )
        indices, orders = by_kind["best"]
        return best_terms(features, indices, orders[:, 0])

    def information(self, options: ArrayLike, theta: ArrayLike | None = None) -> Floats:
        """Fisher information, (d, d); see ``choice.fisher_information``."""
        return fisher_information(options, theta)

    def weights(self, values: ArrayLike) -> Floats:
        """diag(p) - p p', (n, K, K), of the utilities (n, K)."""
        return choice_weights(np.exp(log_softmax(checked_utilities(values))))

    def sample(self, options: ArrayLike, theta: ArrayLike, uniforms: ArrayLike | None) -> list[Response]:
        """One answer per question. With ``uniforms=None``: the largest utility, ties by the lowest index."""
        _, values = checked_values(options, theta)
        chosen, _ = pick(values, checked_uniforms(uniforms, len(values)))
        return [Response.best(int(option)) for option in chosen]


@dataclass(frozen=True)
class WithTies:
    """The best of the K options, or "can't tell": Davidson's model of ties (1970), for K options.

    P(best = k) is proportional to exp(v_k), P(tie) to nu * (prod_k exp(v_k))^(1/K) = nu * exp(mean of v). This is a
    multinomial logit with one more row, the mean of the options, and the offset log nu. For K = 2 it is Davidson's
    model with a tie proportional to nu * sqrt(pi_1 pi_2); for nu -> 0 it becomes best-of-K. At theta = 0 the share of
    ties is nu / (K + nu).

    Attributes:
        nu: The person's inclination to call a tie, > 0.

    Raises:
        ValueError: nu <= 0 or not finite.
    """

    nu: float = 1.0

    def __post_init__(self) -> None:
        object.__setattr__(self, "nu", check_number(self.nu, "nu", minimum=0.0, exclusive=True))

    name: ClassVar[str] = "ties"
    kinds: ClassVar[tuple[Kind, ...]] = ("best", "tie")

    def outcomes(self, num_options: int) -> tuple[Response, ...]:
        """Responses best 0, ..., best K-1, tie."""
        return (*BestOf().outcomes(num_options), Response.tie())

    def _extended(self, values: Floats) -> Floats:
        """Utilities of the options and of the tie, (n, K + 1)."""
        return np.concatenate([values, values.mean(axis=1, keepdims=True) + np.log(self.nu)], axis=1)

    def probabilities(self, options: ArrayLike, theta: ArrayLike) -> Floats:
        """Probabilities that each option is best, and of a tie (last), (n, K + 1)."""
        return np.exp(log_softmax(self._extended(checked_values(options, theta)[1])))

    def terms(self, options: ArrayLike, responses: Sequence[Response]) -> Terms:
        """One term for each answer, with K + 1 rows.

        Raises:
            ValueError: An answer other than "best", "tie" or "skip", or one that does not match the options.
        """
        features = check_options(options)
        num_options = features.shape[1]
        by_kind = checked_responses(responses, features, ("best", "tie"), self.name)
        chosen = np.full(len(features), -1)
        chosen[by_kind["best"][0]] = by_kind["best"][1][:, 0]
        chosen[by_kind["tie"][0]] = num_options
        answered = np.flatnonzero(chosen >= 0)
        rows = features[answered]
        rows = np.concatenate([rows, rows.mean(axis=1, keepdims=True)], axis=1)
        offsets = np.zeros(rows.shape[:2])
        offsets[:, num_options] = np.log(self.nu)
        return Terms(rows, offsets, chosen[answered])

    def information(self, options: ArrayLike, theta: ArrayLike | None = None) -> Floats:
        """Fisher information, (d, d); it does not depend on the answers."""
        features, values = checked_values(options, theta)
        return information_from_weights(features, self.weights(values))

    def weights(self, values: ArrayLike) -> Floats:
        """M' (diag(p) - p p') M, (n, K, K), from the utilities (n, K); M has the options and their mean as rows."""
        checked = checked_utilities(values)
        num_options = checked.shape[1]
        rows = np.concatenate([np.eye(num_options), np.full((1, num_options), 1.0 / num_options)])
        inner = choice_weights(np.exp(log_softmax(self._extended(checked))))
        return np.asarray(rows.T @ inner @ rows)

    def sample(self, options: ArrayLike, theta: ArrayLike, uniforms: ArrayLike | None) -> list[Response]:
        """One answer per question. With ``uniforms=None``: the most probable, ties by the lowest index, "tie" last."""
        _, values = checked_values(options, theta)
        chosen, _ = pick(self._extended(values), checked_uniforms(uniforms, len(values)))
        tie = values.shape[1]
        return [Response.tie() if option == tie else Response.best(int(option)) for option in chosen]
