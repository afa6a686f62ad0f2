"""The estimate of the taste: priors, penalised maximum likelihood, and its Laplace posterior."""

from edpbrl_gym.estimation.calibrated import VariationalPosterior, fit_posterior
from edpbrl_gym.estimation.diagnosis import Diagnosis
from edpbrl_gym.estimation.evidence import PriorChoice, PriorFit, choose_prior, fit_prior, log_evidence
from edpbrl_gym.estimation.learnt_answers import AnswerFit, learn_outside, learn_ties
from edpbrl_gym.estimation.map_estimate import Estimate, estimate
from edpbrl_gym.estimation.metrics import choice_accuracy, cosine_error, preference_error, sample_pairs
from edpbrl_gym.estimation.neighbourhood import VocabularyPrior
from edpbrl_gym.estimation.posterior import Posterior
from edpbrl_gym.estimation.prior import GaussianPrior

__all__ = [
    "AnswerFit",
    "Diagnosis",
    "Estimate",
    "GaussianPrior",
    "Posterior",
    "PriorChoice",
    "PriorFit",
    "VariationalPosterior",
    "VocabularyPrior",
    "choice_accuracy",
    "choose_prior",
    "cosine_error",
    "estimate",
    "fit_posterior",
    "fit_prior",
    "learn_outside",
    "learn_ties",
    "log_evidence",
    "preference_error",
    "sample_pairs",
]
