"""Finite-horizon Markov decision processes with known transitions: the general class and the prompt MDP."""

from edpbrl_gym.mdp.finite_horizon import FiniteHorizonMDP
from edpbrl_gym.mdp.prompt import PromptMDP
from edpbrl_gym.mdp.sampling import Trajectories

__all__ = ["FiniteHorizonMDP", "PromptMDP", "Trajectories"]
