"""``ArmKind``: what a study must know of an arm; the rest of the study asks it and knows no kind."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import TYPE_CHECKING

from edpbrl_gym.planners.base import Planner
from edpbrl_gym.study.config import Arm, QuestionsConfig
from edpbrl_gym.study.records import Post

if TYPE_CHECKING:
    from edpbrl_gym.study.config_reading import Table
    from edpbrl_gym.study.materials import Materials

__all__ = ["ArmKind"]


class ArmKind(ABC):
    """A kind of arm, without a state of its own: every method is told the arm.

    Attributes:
        takes_file: Whether it has a file of questions.
        learns: Whether its questions follow the answers, so that a stopping rule can ask how sure it is.
        posted: Whether a ``HumanOracle`` posts its questions.
    """

    takes_file = False
    learns = False
    posted = False

    def check(self, arm: Arm, table: Table, questions: QuestionsConfig) -> None:
        """Note what is wrong in the arm's table of the configuration."""
        if self.takes_file != table.has("file"):
            expected = "a file of questions" if self.takes_file else "no file"
            table.note("file", f"{expected} with planner = {arm.planner!r}", "add it, or take it out")
        if questions.stopping is not None and not self.learns:
            table.note("planner", "a planner that learns, as [questions.stop_when_sure] asks how sure it is")

    @abstractmethod
    def title(self, arm: Arm) -> str:
        """What asks, in a few words."""

    @abstractmethod
    def first_question(self, arm: Arm, materials: Materials) -> tuple[tuple[str, ...], float | None]:
        """The options of a first question, and the seconds that it took (None: they come from elsewhere).

        Raises:
            ValueError, OSError, ImportError, TypeError: The arm can't ask the questions of this study.
        """

    def prepare(self, arm: Arm, materials: Materials) -> None:  # noqa: B027 - posted questions need nothing
        """Make what all sessions of the arm share, before people wait."""

    @abstractmethod
    def planner(self, arm: Arm, materials: Materials, number: int) -> Planner:
        """The planner of the participant with a number."""

    def is_independent(self, arm: Arm) -> bool:
        """Whether a question depends on its number alone, neither on answers nor on earlier questions."""
        return False

    def thinks(self, arm: Arm) -> bool:
        """Whether the planner works ahead while a question is read."""
        return not (self.posted or self.is_independent(arm))

    def post(self, find: Callable[[int], Post | None], number: int) -> Post | None:
        """The question with a number that comes from elsewhere; None: the planner asks.

        Args:
            find: Gives the posted question with a number, if there is one.
            number: Among the questions that count.

        Raises:
            NotReadyError: It is not there yet.
        """
        return None

    def count(self, posted: Callable[[], int | None]) -> int | None:
        """The number of questions that count, where it is known to be smaller than the study's.

        Args:
            posted: Gives the number of posted questions when there will be no more.
        """
        return None

    def spare(self, arm: Arm, materials: Materials) -> int | None:
        """How many of a person's questions that count it can replace by others; None: any number."""
        return None

    def learner(self, arm: Arm) -> Arm | None:
        """The arm whose session learns the taste from the answers, for the last page; None: it is learnt elsewhere."""
        return arm
