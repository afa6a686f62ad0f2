"""The estimate of the taste: priors, penalised maximum likelihood, and its Laplace posterior."""

from edpbrl_gym.estimation.evidence import PriorFit, VariationalPosterior, fit_posterior, fit_prior
from edpbrl_gym.estimation.map_estimate import Estimate, estimate
from edpbrl_gym.estimation.metrics import choice_accuracy, cosine_error, preference_error, sample_pairs
from edpbrl_gym.estimation.neighbourhood import VocabularyPrior
from edpbrl_gym.estimation.posterior import Posterior
from edpbrl_gym.estimation.prior import GaussianPrior, attribute_prior
from edpbrl_gym.estimation.sampling import sample_parts

__all__ = [
    "Estimate",
    "GaussianPrior",
    "Posterior",
    "PriorFit",
    "VariationalPosterior",
    "VocabularyPrior",
    "attribute_prior",
    "choice_accuracy",
    "cosine_error",
    "estimate",
    "fit_posterior",
    "fit_prior",
    "preference_error",
    "sample_pairs",
    "sample_parts",
]
