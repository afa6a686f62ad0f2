"""What the answer formats share: checks, draws and weights of multinomial logits."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

from edpbrl_gym._arrays import Floats
from edpbrl_gym._validation import check_array
from edpbrl_gym.likelihood.choice import check_options, log_softmax, utilities_at
from edpbrl_gym.likelihood.response import Response
from edpbrl_gym.likelihood.terms import Terms

__all__ = [
    "best_terms",
    "checked_responses",
    "checked_uniforms",
    "checked_utilities",
    "checked_values",
    "choice_weights",
    "information_from_weights",
    "pick",
]

_BLOCK_ROWS = 4096  # rows of one BLAS product


def checked_values(options: ArrayLike, theta: ArrayLike | None, *, least: int = 2) -> tuple[Floats, Floats]:
    """Checked options (n, K, d) and their utilities (n, K); zeros for theta None."""
    features = check_options(options, least=least)
    if theta is None:
        return features, np.zeros(features.shape[:2])
    return features, utilities_at(features, theta)


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
    by_kind = {}
    for kind, indices in indices_by_kind.items():
        orders = [_order(answers[index], features.shape[1]) for index in indices]
        table = np.array(orders, dtype=np.int64).reshape(len(indices), -1 if indices else 1)
        by_kind[kind] = np.array(indices, dtype=np.int64), table
    return by_kind


def _order(answer: Response, num_options: int) -> tuple[int, ...]:
    if answer.kind != "partial":
        return answer.order or answer.levels
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


def checked_utilities(values: ArrayLike, *, least: int = 2) -> Floats:
    """Utilities (n, K), K >= ``least``, finite."""
    array = check_array(values, "values", shape=("n", "K"))
    if array.shape[1] < least:
        raise ValueError(f"Expected utilities of at least {least} options, got shape {array.shape}")
    return np.asarray(array)


def best_terms(features: Floats, indices: NDArray[np.int64], chosen: NDArray[np.int64]) -> Terms:
    """One multinomial logit over all options for each of the questions at ``indices``."""
    rows = features[indices]
    return Terms(rows, np.zeros(rows.shape[:2]), chosen)
