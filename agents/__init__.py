"""Agents play environments and so choose what is asked (imported as ``edpbrl_gym.agents``)."""

from edpbrl_gym._lazy import lazy_names

__getattr__, __dir__, __all__ = lazy_names(
    __name__,
    {
        "base": ("Agent", "EpisodeStart", "State"),
        "design": ("DesignAgent",),
        "planner": ("PlannerAgent",),
        "registry": ("AGENTS", "agent_class", "check_agent", "make_agent"),
    },
)
