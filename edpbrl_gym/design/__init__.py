"""Optimal experimental design over occupancy measures: problems, criteria, solvers, certificates.

In short:

    problem = DesignProblem(mdp=mdp, features=features, num_policies=4, episodes=60,
                            criterion=make_criterion("D"), regularization=1.0)
    design = solve(problem)
    print(design.summary())
    assert verify(problem, design).confirmed
"""

from edpbrl_gym.design.certificate import certify
from edpbrl_gym.design.criteria import (
    CRITERIA,
    ACriterion,
    Criterion,
    DCriterion,
    SingularInformationError,
    VCriterion,
    make_criterion,
    token_difference_matrix,
)
from edpbrl_gym.design.exact import exact_design
from edpbrl_gym.design.gaps import GapEstimate, achieved_gap, enumerated_gap, gap_bound, optimum_bound
from edpbrl_gym.design.information import (
    exact_information,
    surrogate_information,
)
from edpbrl_gym.design.moments import MomentProblem, PolicyMoments
from edpbrl_gym.design.problem import DesignProblem, IterationState
from edpbrl_gym.design.questions import InfeasibleRestrictionsError, QuerySet, Restrictions, query_set
from edpbrl_gym.design.result import (
    Design,
    describe_design,
    prior_balance,
    support_size,
)
from edpbrl_gym.design.solvers import (
    SOLVERS,
    frank_wolfe,
    newton,
    reference,
    solve,
)
from edpbrl_gym.design.trees import EpisodeTrees
from edpbrl_gym.design.verify import Verification, verify

__all__ = [
    "CRITERIA",
    "SOLVERS",
    "ACriterion",
    "Criterion",
    "DCriterion",
    "Design",
    "DesignProblem",
    "EpisodeTrees",
    "GapEstimate",
    "InfeasibleRestrictionsError",
    "IterationState",
    "MomentProblem",
    "PolicyMoments",
    "QuerySet",
    "Restrictions",
    "SingularInformationError",
    "VCriterion",
    "Verification",
    "achieved_gap",
    "certify",
    "describe_design",
    "enumerated_gap",
    "exact_design",
    "exact_information",
    "frank_wolfe",
    "gap_bound",
    "make_criterion",
    "newton",
    "optimum_bound",
    "prior_balance",
    "query_set",
    "reference",
    "solve",
    "support_size",
    "surrogate_information",
    "token_difference_matrix",
    "verify",
]
