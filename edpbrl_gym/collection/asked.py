"""What the questions that are really asked tell, beside what their design promises.

A design's certificate is about its policies: what their questions would tell if the options of each balanced one
another. The questions that are drawn tell less. Here the information of these very questions is computed, at p = 1/K
(nothing is known of the taste yet) and with the prior of the design problem.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from edpbrl_gym.design import DesignProblem, realised_information
from edpbrl_gym.design.criteria import DCriterion, SingularInformationError
from edpbrl_gym.design.result import certified

__all__ = ["Information", "QuestionReport", "information_of", "token_options"]


@dataclass(frozen=True)
class Information:
    """How much some questions tell.

    Attributes:
        value: The criterion of their information with the prior; None where that is singular (lambda = 0).
        gain: The value less that of the prior alone; None where either is singular.
        learned: Parameters that the answers determine, tr(I_data (I_data + Lambda)^-1), of d.
        efficiency: Of the value, against a certified bound; None without a bound.
    """

    value: float | None
    gain: float | None
    learned: float
    efficiency: float | None


def information_of(problem: DesignProblem, options: ArrayLike, *, upper_bound: float | None = None) -> Information:
    """Compute the information of questions.

    Args:
        problem: Whose prior and criterion count.
        options: Features of the options, (n, K, d).
        upper_bound: Bound of the value of all such questions: `Design.upper_bound` where options are feature rows.
    """
    data = realised_information(options)
    try:
        inverse = DCriterion().gradient(data + problem.prior)
        value = problem.criterion.value(data + problem.prior)
    except SingularInformationError:
        return Information(None, None, float(np.linalg.matrix_rank(data, hermitian=True)), None)
    gain = value - problem.baseline
    bound = upper_bound
    return Information(
        value=value,
        gain=gain if np.isfinite(gain) else None,
        learned=float(np.vdot(data, inverse)),
        efficiency=None if bound is None else problem.criterion.efficiency(value, bound, problem.dimension),
    )


def token_options(problem: DesignProblem, tokens: NDArray[np.integer]) -> NDArray[np.float64]:
    """Features (T * H, K, d) of tokens (T, K, H) of a prompt MDP, ordered by episode and step."""
    first = np.array([problem.mdp.step_pairs(step).start for step in range(problem.horizon)])  # type: ignore[attr-defined]
    rows = (tokens + first).transpose(0, 2, 1)
    return problem.rows(rows.ravel()).reshape(-1, tokens.shape[1], problem.dimension)


@dataclass(frozen=True)
class QuestionReport:
    """The questions of a file and what they tell.

    Attributes:
        count: Number of questions.
        options: K.
        exchanged: Options that were exchanged, so that no question shows one twice.
        criterion: "A", "V" or "D".
        dimension: d.
        tokens: Of the tokens chosen last, which designs are about.
        random: The same of as many random questions; None where the questions are random themselves.
        prompts: Of the partial prompts that people see; None where they see tokens, or without embeddings.
    """

    count: int
    options: int
    exchanged: int
    criterion: str
    dimension: int
    tokens: Information
    random: Information | None
    prompts: Information | None

    def describe(self) -> dict[str, Any]:
        """For a result file."""
        return asdict(self)

    def summary(self) -> str:
        """Text for a terminal."""
        exchanged = "" if not self.exchanged else f"; {self.exchanged} duplicates replaced"
        lines = [
            f"{self.count} questions of {self.options} options each{exchanged}",
            f"  their tokens {self._line(self.tokens)}",
        ]
        if self.random is not None:
            lines.append(f"  at random    {self._line(self.random)}")
        if self.prompts is not None:
            lines.append(f"  as shown     {self._line(self.prompts)} (partial prompts, for which there is no bound)")
        return "\n".join(lines)

    def _line(self, told: Information) -> str:
        if told.value is None:
            return f"{told.learned:.0f} of {self.dimension} directions; the others are open, use a regularization > 0"
        gain = "" if told.gain is None else f" (gain {told.gain:.6g})"
        reached = "" if told.efficiency is None else f", efficiency at least {certified(told.efficiency)} of the bound"
        return (
            f"{self.criterion}-value {told.value:.6g}{gain}{reached}; the answers determine about "
            f"{told.learned:.1f} of {self.dimension} parameters"
        )
