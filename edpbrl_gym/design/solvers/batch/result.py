"""The designs of many users, with a certificate each."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace

import numpy as np

from edpbrl_gym._arrays import Booleans, Floats, Indices
from edpbrl_gym._validation import check_integers
from edpbrl_gym.design.certificate import certify
from edpbrl_gym.design.problem import DesignProblem
from edpbrl_gym.design.result import Design, certified
from edpbrl_gym.design.solvers.newton.tokens.layout import PromptLayout

__all__ = ["BatchDesigns", "problem_of"]


@dataclass(frozen=True, eq=False, kw_only=True)
class BatchDesigns:
    """Designs of U users who share everything but the prior; K identical occupancies for each.

    Attributes:
        problem: The problem of a user with the mean prior precision; it has what all users share.
        prior_precisions: Lambda of each user, shape (U, d, d), read-only.
        tokens: Feature rows that the weights belong to, shape (n,): those of the distinct vocabularies.
        weights: Probability of each of these tokens, 1 in sum for each vocabulary, shape (U, n), read-only.
        value: Objective, shape (U,).
        upper_bound: value + gap and an allowance for the rounding of the value; no policies have a larger objective.
        gap: Largest <gradient, d - dbar> over all policies, with an allowance for its rounding in float64.
        gain: value minus the value without data.
        relative_gap: gap / gain (see `DesignProblem.relative_gap`).
        efficiency: Certified lower bound on the efficiency (see `Criterion.efficiency`).
        status: A word for each user, as of `newton`.
        iterations: Newton steps of each user, without those after `alone`.
        alone: Users for whom the batch made no progress, and whom `newton` finished one by one; a mask (U,).
        tolerance: Of "converged".
        seconds: Wall-clock time of all together.
    """

    problem: DesignProblem
    prior_precisions: Floats
    tokens: Indices
    weights: Floats
    value: Floats
    upper_bound: Floats
    gap: Floats
    gain: Floats
    relative_gap: Floats
    efficiency: Floats
    status: tuple[str, ...]
    iterations: Indices
    alone: Booleans
    tolerance: float
    seconds: float

    def __len__(self) -> int:
        """Number of users U."""
        return len(self.weights)

    def occupancy(self, user: int) -> Floats:
        """Mean occupancy of a user's policies, shape (H, M); read-only."""
        (number,) = check_integers([user], "user", shape=(1,), low=0, high=len(self) - 1)
        return occupancy_of(PromptLayout(self.problem), self.weights[number])

    def design(self, user: int) -> Design:
        """The design of one user, evaluated and certified once more by itself (`certify`).

        Args:
            user: In 0..U-1.

        Raises:
            ValueError: If there is no such user.
        """
        occupancy = self.occupancy(user)
        problem = problem_of(self.problem, self.prior_precisions[user])
        design = certify(
            problem,
            occupancy,
            status=self.status[user],
            solver="newton" if self.alone[user] else "batch",
            iterations=int(self.iterations[user]),
            oracle_calls=int(self.iterations[user]),
            seconds=self.seconds / len(self),
        )
        if design.status == "converged" and not problem.converged(design.gap, design.value, self.tolerance):
            return replace(design, status="precision_reached")  # the two certificates differ by rounding
        return design

    def summary(self) -> str:
        """Text for a terminal: problem, status of the users and the worst certificate."""
        problem = self.problem
        words = ", ".join(f"{count} {word}" for word, count in Counter(self.status).most_common())
        worst = int(np.argmax(self.relative_gap))
        return "\n".join(
            [
                f"Designs of {len(self)} users: {words} ({self.seconds:.2f} s)",
                f"  problem      {problem.criterion.name}-optimal, K = {problem.num_policies} policies, T = "
                f"{problem.episodes} episodes, H = {problem.horizon} steps, {problem.mdp.num_rows} rows x "
                f"{problem.dimension} features, a prior for each user",
                f"  gain         {self.gain.min():.6g} to {self.gain.max():.6g}",
                f"  gap          at most {self.relative_gap[worst]:.3g} of the gain (user {worst})",
                f"  efficiency   at least {certified(float(self.efficiency.min()))}",
                f"  alone        {int(self.alone.sum())} users finished by newton one by one",
            ]
        )


def problem_of(shared: DesignProblem, prior_precision: Floats) -> DesignProblem:
    """The problem of one user.

    Args:
        shared: Has what all users share.
        prior_precision: Lambda, shape (d, d).
    """
    return replace(shared, regularization=None, prior_precision=prior_precision)


def occupancy_of(layout: PromptLayout, weights: Floats) -> Floats:
    """Occupancy (H, M) of weights on all tokens of a layout, shape (n,); read-only."""
    support = np.flatnonzero(weights)
    return layout.occupancy(support, weights[support])
