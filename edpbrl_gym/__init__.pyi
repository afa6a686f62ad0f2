from edpbrl_gym.agents import Agent as Agent
from edpbrl_gym.agents import make_agent as make_agent
from edpbrl_gym.collection import collect as collect
from edpbrl_gym.comparisons import Comparisons as Comparisons
from edpbrl_gym.comparisons import load_comparisons as load_comparisons
from edpbrl_gym.comparisons import load_people as load_people
from edpbrl_gym.design import DesignProblem as DesignProblem
from edpbrl_gym.design import make_criterion as make_criterion
from edpbrl_gym.design import solve as solve
from edpbrl_gym.design import verify as verify
from edpbrl_gym.envs.wrappers import LearnedReward as LearnedReward
from edpbrl_gym.envs.wrappers import LegalActions as LegalActions
from edpbrl_gym.envs.wrappers import PreferenceQuery as PreferenceQuery
from edpbrl_gym.estimation import GaussianPrior as GaussianPrior
from edpbrl_gym.estimation import VocabularyPrior as VocabularyPrior
from edpbrl_gym.estimation import estimate as estimate
from edpbrl_gym.features import load_encoder as load_encoder
from edpbrl_gym.mdp import FiniteHorizonMDP as FiniteHorizonMDP
from edpbrl_gym.oracles import Answers as Answers
from edpbrl_gym.oracles import ImperfectUser as ImperfectUser
from edpbrl_gym.oracles import SyntheticUser as SyntheticUser
from edpbrl_gym.oracles.judge import Judge as Judge
from edpbrl_gym.oracles.judge import JudgeOracle as JudgeOracle
from edpbrl_gym.oracles.judge import JudgeSettings as JudgeSettings
from edpbrl_gym.personalize import best_prompts as best_prompts
from edpbrl_gym.personalize import load_taste as load_taste
from edpbrl_gym.personalize import save_taste as save_taste
from edpbrl_gym.pictures import load_pictures as load_pictures
from edpbrl_gym.planners import make_planner as make_planner
from edpbrl_gym.rendering import Renderer as Renderer
from edpbrl_gym.rendering import load_renderer as load_renderer
from edpbrl_gym.session import Session as Session
from edpbrl_gym.session import StoppingRule as StoppingRule
from edpbrl_gym.vocabulary import Vocabulary as Vocabulary
from edpbrl_gym.vocabulary import load_vocabulary as load_vocabulary

__version__: str
__all__: list[str]
