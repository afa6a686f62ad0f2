from edpbrl_gym.agents.base import Agent as Agent
from edpbrl_gym.agents.base import EpisodeStart as EpisodeStart
from edpbrl_gym.agents.base import State as State
from edpbrl_gym.agents.design import DesignAgent as DesignAgent
from edpbrl_gym.agents.planner import PlannerAgent as PlannerAgent
from edpbrl_gym.agents.registry import AGENTS as AGENTS
from edpbrl_gym.agents.registry import agent_class as agent_class
from edpbrl_gym.agents.registry import check_agent as check_agent
from edpbrl_gym.agents.registry import make_agent as make_agent

__all__: list[str]
