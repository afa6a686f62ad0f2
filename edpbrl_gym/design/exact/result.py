"""What `exact_design` returns: policies with their certificate, bounds, and the gain over identical policies."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.optimize import brentq

from edpbrl_gym._arrays import Floats
from edpbrl_gym.design import information
from edpbrl_gym.design.problem import DesignProblem
from edpbrl_gym.design.result import Design, certified

__all__ = ["ExactDesign", "StartRecord", "expected_data", "surrogate_data"]


@dataclass(frozen=True)
class StartRecord:
    """Result of one start.

    Attributes:
        name: "clusters", "surrogate", "random" or "given".
        first: Exact objective at the start.
        value: At the end.
        sweeps: Sweeps over all policies.
        status: "converged" (the last sweep raised the objective by no more than the tolerance), "sweep_limit" or
            "interrupted".
        values: Objective after each visit of a policy; never falls.
        seconds: Time taken.
    """

    name: str
    first: float
    value: float
    sweeps: int
    status: str
    values: tuple[float, ...]
    seconds: float


@dataclass(frozen=True, eq=False, kw_only=True)
class ExactDesign:
    """K different policies, their exact expected objective, and bounds.

    Attributes:
        design: The policies with their certificate. Its `value` is the exact expected objective of K independent
            draws (not the surrogate's), its `upper_bound` the certified optimum of the surrogate, which bounds every
            way of producing the options; `gap`, `relative_gap` and `efficiency` compare the two. An agent plays its
            `policies`; `save` it like any other.
        surrogate: The surrogate's optimum, K identical policies, with its own certificate.
        identical_value: Exact objective of the surrogate's optimum played by K identical policies.
        best_identical: The identical policies with the largest exact objective. Its value and bound are exact
            expectations.
        independent_bound: No K policies with independent draws have a larger exact objective (see the module).
        block_gap: Largest bound, over the policies, of what changing one alone could still gain.
        starts: What became of each start.
    """

    design: Design
    surrogate: Design
    identical_value: float
    best_identical: Design
    independent_bound: float
    block_gap: float
    starts: tuple[StartRecord, ...]

    @property
    def policies(self) -> Floats:
        """The K policies, shape (K, H, M)."""
        return self.design.policies

    @property
    def value(self) -> float:
        """Exact expected objective."""
        return self.design.value

    @property
    def upper_bound(self) -> float:
        """Certified bound for every way of producing the options."""
        return self.design.upper_bound

    @property
    def efficiency(self) -> float:
        """Certified lower bound on the efficiency among all ways of producing the options."""
        return self.design.efficiency

    @property
    def independent_efficiency(self) -> float:
        """Certified lower bound on the efficiency among all K policies with independent draws."""
        problem = self.design.problem
        return problem.criterion.efficiency(self.value, self.independent_bound, problem.dimension)

    @property
    def gain_over_identical(self) -> float:
        """Information over that of the surrogate's optimum played by K identical policies, in [1, K/(K-1)].

        D: exp((value - identical_value) / d); A and V: identical_value / value, the ratio of the traces; the prior
        counts as information.
        """
        problem = self.design.problem
        return 1.0 / problem.criterion.efficiency(self.identical_value, self.value, problem.dimension)

    @property
    def questions_saved(self) -> float:
        """Share of the questions that these policies save beside the surrogate's optimum played identically.

        1 - T/T', with T' the episodes in which the identical policies reach the same exact objective; in [0, 1/K].
        """
        return self._saved(self.value)

    @property
    def most_questions_saved(self) -> float:
        """The same share at `independent_bound`: no K policies with independent draws save more."""
        return self._saved(self.independent_bound)

    def _saved(self, value: float) -> float:
        problem = self.design.problem
        data = surrogate_data(problem, self.surrogate)

        def shortfall(ratio: float) -> float:
            return value - problem.criterion.value(ratio * data + problem.prior)

        if shortfall(1.0) <= 0.0:
            return 0.0
        count = problem.num_policies
        largest_ratio = count / (count - 1.0)
        if shortfall(largest_ratio) >= 0.0:  # within the tolerance of the surrogate's optimum
            return 1.0 / count
        return 1.0 - 1.0 / float(brentq(shortfall, 1.0, largest_ratio, xtol=1e-12))

    def summary(self) -> str:
        """Text for a terminal: the design's own, the bound for independent draws, and the gain."""
        problem = self.design.problem
        saved = f"{self.questions_saved:.2%} of the questions saved (at most {self.most_questions_saved:.2%})"
        lines = [
            self.design.summary(),
            f"  independent  efficiency at least {certified(self.independent_efficiency)} among all policies with "
            f"independent draws (at most {self.independent_bound:.6f})",
            f"  identical    {problem.num_policies} identical policies at the surrogate's optimum: "
            f"{self.identical_value:.6f}; gain {self.gain_over_identical:.4f}x, {saved}",
        ]
        if self.starts:
            values = sorted(start.value for start in self.starts)
            best = max(self.starts, key=lambda start: start.value)
            lines.append(f"  starts       {len(values)}, best {best.name}, from {values[0]:.6f} to {values[-1]:.6f}")
        return "\n".join(lines)


def expected_data(problem: DesignProblem, occupancies: Floats) -> Floats:
    """Exact expected information of the data of K policies (K, H, M), from scratch, without the prior."""
    return information.exact_information(problem.features, problem.mdp.row_occupancy(occupancies), problem.episodes)


def surrogate_data(problem: DesignProblem, surrogate: Design) -> Floats:
    """The same of the surrogate's optimum played by K identical policies."""
    mean = surrogate.mean_occupancy
    return expected_data(problem, np.broadcast_to(mean, (problem.num_policies, *mean.shape)))
