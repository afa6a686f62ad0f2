"""The objective of a criterion without a closed form on a working set of tokens, by its value and gradient."""

from __future__ import annotations

import numpy as np
from numpy.typing import DTypeLike

from edpbrl_gym._arrays import Floats, Positions
from edpbrl_gym.design.criteria import Criterion
from edpbrl_gym.design.solvers.newton.objective import Factored, InformationObjective
from edpbrl_gym.design.solvers.newton.scores import ScoreForm
from edpbrl_gym.design.solvers.newton.tokens import Tokens

__all__ = ["GradientObjective"]


class GradientObjective(InformationObjective):
    """Any criterion by its value and gradient matrix G: the scores are those of G = C' C.

    Its Hessian is a model: what a trace criterion with this gradient has, 2 c c' (K + S) o (z' G z). For Kiefer's
    criteria with p > 0 the two differ by factors about (p + 1) / 2, which secants learn.

    Args:
        tokens: All tokens.
        chosen: The working set.
        prior: Lambda, shape (d, d).
        criterion: The criterion.
        dtype: Of the sums over tokens.
    """

    exact_hessian = False

    def __init__(
        self, tokens: Tokens, chosen: Positions, prior: Floats, criterion: Criterion, dtype: DTypeLike = np.float64
    ) -> None:
        super().__init__(tokens, chosen, prior, np.eye(len(prior)), dtype)
        self._criterion = criterion
        self._evaluated: tuple[Factored, float, Floats] | None = None

    def value(self, weights: Floats) -> float:
        """The criterion's own."""
        return self._evaluate(self.at(weights))[0]

    def _evaluate(self, at: Factored) -> tuple[float, Floats]:
        if self._evaluated is None or self._evaluated[0] is not at:
            self._evaluated = at, *self._criterion.evaluate(at.data + self._prior)
        return self._evaluated[1:]

    def form_at(self, at: Factored) -> ScoreForm:
        if at.form is None:
            matrix = self._evaluate(at)[1]
            try:
                at.form = ScoreForm.of_factor(np.asarray(np.linalg.cholesky(matrix).T))
            except np.linalg.LinAlgError:  # of lower rank
                sizes, vectors = np.linalg.eigh(matrix)
                kept = sizes > sizes[-1] * len(sizes) * np.finfo(np.float64).eps
                at.form = ScoreForm.of_factor((vectors[:, kept] * np.sqrt(sizes[kept])).T)
        return at.form
