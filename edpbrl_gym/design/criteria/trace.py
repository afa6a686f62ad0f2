"""A- and V-optimality, and whatever else is -tr(B' I^-1 B)."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from numpy.typing import ArrayLike

from edpbrl_gym._arrays import Floats, positive_semidefinite_factor, read_only, row_chunks
from edpbrl_gym._validation import check_array, check_integers
from edpbrl_gym.design.criteria.base import Criterion, Form, fingerprint_of

__all__ = ["ACriterion", "TraceCriterion", "VCriterion", "token_difference_matrix"]


class TraceCriterion(Criterion):
    """s(I) = -tr(B' I^-1 B) with V = B B'.

    Args:
        factor: B, shape (d, r); None for the identity.
    """

    def __init__(self, factor: Floats | None = None) -> None:
        self.form: Form = Form(trace=True, factor=factor)

    def reciprocal(self, information: Floats) -> float:
        """The paper's form of the criterion, 1 / tr(V I^-1): same maximisers, positive."""
        return -1.0 / self.value(information)


class ACriterion(TraceCriterion):
    """A-optimality: s(I) = -tr I^-1."""

    name = "A"

    def __init__(self) -> None:
        super().__init__()


class VCriterion(TraceCriterion):
    """V-optimality: s(I) = -tr(V I^-1) for a positive semidefinite target V (the paper's choice in its experiments).

    Args:
        v_matrix: V, symmetric positive semidefinite, not zero, shape (d, d); see `token_difference_matrix`.

    Raises:
        ValueError: If V is not square, not symmetric, not positive semidefinite, zero, or has NaN.
    """

    name = "V"
    argument = "matrix"
    built = True

    def __init__(self, v_matrix: ArrayLike) -> None:
        matrix = check_array(v_matrix, "v_matrix", shape=("d", "d"))
        factor = positive_semidefinite_factor(matrix, "v_matrix")
        if factor.shape[1] == 0:
            raise ValueError("Expected a v_matrix that is not zero; build it from at least two different tokens.")
        super().__init__(factor)
        self.matrix: Floats = read_only((matrix + matrix.T) / 2)

    def fingerprint(self) -> str:
        """Name and hash of V."""
        return fingerprint_of(self.name, self.matrix)


def token_difference_matrix(features: ArrayLike, groups: Iterable[ArrayLike]) -> Floats:
    """The paper's V = C'C, whose rows are differences of tokens of the same category, in closed form.

    V = sum over groups of sum_{i<j} (phi_i - phi_j)(phi_i - phi_j)' = sum over groups of n (S - s s' / n) with
    S = sum phi phi' and s = sum phi: the n (n - 1) / 2 difference rows of a group are never built. (Centring before
    squaring keeps the digits that n S - s s' would cancel when the features have a large common mean.)

    Args:
        features: Feature rows, shape (N, d); float32 rows are converted a few thousand at a time.
        groups: Row indices of each category, integer arrays. The paper leaves out the bases: leave them out here.

    Returns:
        V, symmetric positive semidefinite, shape (d, d).

    Raises:
        ValueError: If there is no group with two rows, or an index is out of range.
    """
    rows = check_array(features, "features", shape=("N", "d"), keep=(np.float32,))
    total = np.zeros((rows.shape[1], rows.shape[1]))
    largest = 0
    for number, group in enumerate(groups):
        index = check_integers(group, f"groups[{number}]", shape=("n",), low=0, high=len(rows) - 1)
        if index.size < 2:
            continue  # a category with one token has no pair
        largest = max(largest, index.size)
        centre = sum(chunk.sum(axis=0) for _, chunk in row_chunks(rows, index)) / index.size
        for _, chunk in row_chunks(rows, index):
            centred = chunk - centre
            total += index.size * (centred.T @ centred)
    if largest < 2:
        raise ValueError("Expected at least one group with two tokens, got none; pass the row indices by category.")
    return total
