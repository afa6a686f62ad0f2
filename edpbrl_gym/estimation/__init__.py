"""The estimate of the taste: priors, penalised maximum likelihood, and its Laplace posterior."""

from edpbrl_gym.estimation.map_estimate import Estimate, estimate, estimate_comparisons
from edpbrl_gym.estimation.prior import GaussianPrior
from edpbrl_gym.estimation.terms import estimate_history, estimate_responses, estimate_terms

__all__ = [
    "Estimate",
    "GaussianPrior",
    "estimate",
    "estimate_comparisons",
    "estimate_history",
    "estimate_responses",
    "estimate_terms",
]
