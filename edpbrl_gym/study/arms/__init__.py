"""Kinds of arms: what asks the questions that count, by the planner that the configuration names."""

from edpbrl_gym.planners.registry import PLANNERS
from edpbrl_gym.study.arms.base import ArmKind
from edpbrl_gym.study.arms.kinds import OracleArm, PlannerArm, QuestionsArm
from edpbrl_gym.study.config import Arm

__all__ = ["ARM_KINDS", "ArmKind", "kind_of", "planner_names"]

ARM_KINDS: dict[str, ArmKind] = {"questions": QuestionsArm(), "oracle": OracleArm()}
"""By their planners; all other planners are those of `make_planner`."""
_PLANNED = PlannerArm()


def kind_of(arm: Arm) -> ArmKind:
    """The kind of an arm."""
    return ARM_KINDS.get(arm.planner, _PLANNED)


def planner_names() -> list[str]:
    """All that an arm may have as its planner."""
    return [*PLANNERS, *ARM_KINDS]
