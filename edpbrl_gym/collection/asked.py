"""Information of the questions that are actually asked, beside that of their design.

A design's certificate is about its policies: the expected information of their questions. The questions that are drawn
have less. This module computes the information of given questions at p = 1/K (theta = 0), with the prior of the design
problem.
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
    """Information of a set of questions.

    Attributes:
        value: Criterion of their information plus the prior; None if that is singular (lambda = 0).
        gain: Value minus that of the prior alone; None if either is singular.
        learned: Effective number of the d parameters that the answers determine, tr(I_data (I_data + Lambda)^-1).
        efficiency: Efficiency of the value relative to a certified bound; None without a bound.
    """

    value: float | None
    gain: float | None
    learned: float
    efficiency: float | None


def information_of(problem: DesignProblem, options: ArrayLike, *, upper_bound: float | None = None) -> Information:
    """Compute the information of questions.

    Args:
        problem: Design problem with the prior and the criterion.
        options: Features of the options, (n, K, d).
        upper_bound: Bound on the value of any such questions: `Design.upper_bound` if the options are feature rows.
    """
    data = realised_information(options)
    try:
        inverse = DCriterion().gradient(data + problem.prior)
        value = problem.criterion.value(data + problem.prior)
    except SingularInformationError:
        return Information(None, None, float(np.linalg.matrix_rank(data, hermitian=True)), None)
    gain = value - problem.baseline
    return Information(
        value=value,
        gain=gain if np.isfinite(gain) else None,
        learned=float(np.vdot(data, inverse)),
        efficiency=None if upper_bound is None else problem.criterion.efficiency(value, upper_bound, problem.dimension),
    )


def token_options(problem: DesignProblem, tokens: NDArray[np.integer]) -> NDArray[np.float64]:
    """Features (T * H, K, d) of tokens (T, K, H) of a prompt MDP, ordered by episode and step."""
    first_rows = np.array([problem.mdp.step_pairs(step).start for step in range(problem.horizon)])  # type: ignore[attr-defined]
    rows = (tokens + first_rows).transpose(0, 2, 1)
    return problem.rows(rows.ravel()).reshape(-1, tokens.shape[1], problem.dimension)


@dataclass(frozen=True)
class QuestionReport:
    """The questions of a file and their information.

    Attributes:
        count: Number of questions.
        options: Number of options K of a question.
        exchanged: Number of options exchanged because their question showed them already.
        criterion: "A", "V" or "D".
        dimension: Number of features d.
        tokens: Information for the last tokens, which the design is about; None where complete prompts are compared,
            one question an episode.
        random: The same for as many random questions; None if the questions are random themselves.
        prompts: Information for the prompts that people see; None if they see tokens, or without embeddings.
    """

    count: int
    options: int
    exchanged: int
    criterion: str
    dimension: int
    tokens: Information | None
    random: Information | None
    prompts: Information | None

    def describe(self) -> dict[str, Any]:
        """Dict for a result file."""
        return asdict(self)

    def summary(self) -> str:
        """Text for a terminal."""
        exchanged = "" if not self.exchanged else f"; {self.exchanged} duplicates replaced"
        lines = [f"{self.count} questions of {self.options} options each{exchanged}"]
        if self.tokens is not None:
            lines.append(f"  their tokens {self._line(self.tokens)}")
        if self.random is not None:
            lines.append(f"  at random    {self._line(self.random)}")
        if self.prompts is not None:
            kind = "complete" if self.tokens is None else "partial"
            lines.append(f"  as shown     {self._line(self.prompts)} ({kind} prompts, for which there is no bound)")
        return "\n".join(lines)

    def _line(self, information: Information) -> str:
        if information.value is None:
            directions = f"{information.learned:.0f} of {self.dimension} directions"
            return f"{directions}; the others are open, use a regularization > 0"
        gain = "" if information.gain is None else f" (gain {information.gain:.6g})"
        efficiency = (
            ""
            if information.efficiency is None
            else f", efficiency at least {certified(information.efficiency)} of the bound"
        )
        return (
            f"{self.criterion}-value {information.value:.6g}{gain}{efficiency}; the answers determine about "
            f"{information.learned:.1f} of {self.dimension} parameters"
        )
