"""External baselines: planners of BoTorch and optuna behind the interface of this package.

They need the extra ``external``. Both compare pairs (K = 2) of a finite pool of items: prompts of one step.
"""

from edpbrl_gym.planners.external.optuna_gp import OptunaGPPlanner
from edpbrl_gym.planners.external.pairwise_gp import PairwiseGPPlanner

__all__ = ["OptunaGPPlanner", "PairwiseGPPlanner"]
