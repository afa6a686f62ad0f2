from edpbrl_gym.planners.adaptive import AdaptivePlanner as AdaptivePlanner
from edpbrl_gym.planners.base import Planner as Planner
from edpbrl_gym.planners.option_features import ComposedFeatures as ComposedFeatures
from edpbrl_gym.planners.option_features import PromptFeatures as PromptFeatures
from edpbrl_gym.planners.option_features import TokenFeatures as TokenFeatures
from edpbrl_gym.planners.random import RandomPlanner as RandomPlanner
from edpbrl_gym.planners.registry import PLANNERS as PLANNERS
from edpbrl_gym.planners.registry import PlannerEntry as PlannerEntry
from edpbrl_gym.planners.registry import make_planner as make_planner
from edpbrl_gym.planners.registry import planner_class as planner_class
from edpbrl_gym.planners.replay import ReplayPlanner as ReplayPlanner
from edpbrl_gym.planners.scores import ExpectedBest as ExpectedBest
from edpbrl_gym.planners.scores import ExpectedInformation as ExpectedInformation
from edpbrl_gym.planners.scores import ExpectedVariance as ExpectedVariance
from edpbrl_gym.planners.scores import MutualInformation as MutualInformation
from edpbrl_gym.planners.scores import QuestionScore as QuestionScore

__all__: list[str]
