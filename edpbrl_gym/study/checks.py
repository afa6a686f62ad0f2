"""Checks of a study before it begins: everything is loaded, and every arm asks its first question."""

from __future__ import annotations

import time
from dataclasses import dataclass

from edpbrl_gym._seeds import generator
from edpbrl_gym.features import TextEncoder
from edpbrl_gym.planners.replay import ReplayPlanner
from edpbrl_gym.study.config import CONFIG, ORACLE, Arm, StudyConfig
from edpbrl_gym.study.drawing import draw_options
from edpbrl_gym.study.materials import Materials
from edpbrl_gym.study.pictures import make_pictures
from edpbrl_gym.study.toml_reading import Mistakes

__all__ = ["ArmPlan", "Plan", "examine"]

_WORDS_PER_SECOND = 4.0  # silent reading of English, 238 words a minute (Brysbaert, 2019)
_SECONDS_PER_PICTURE = 1.0  # an assumption, as are the next two
_SECONDS_PER_ANSWER = {"best": 3.0, "best_worst": 5.0, "ranking": 3.0, "partial": 6.0}
_MINUTES_BEFORE = 2.0  # consent and instructions


@dataclass(frozen=True)
class ArmPlan:
    """What an arm does: its name and planner, share of the participants, first question, and seconds it took.

    The questions of an arm with the planner "oracle" are not known before: ``texts`` is a question for practice.
    """

    arm: Arm
    share: float
    texts: tuple[str, ...]
    seconds: float


@dataclass(frozen=True)
class Plan:
    """What a study will be.

    Attributes:
        questions: Largest number of questions that a participant sees, with practice, checks and repeats.
        minutes: Estimated minutes for them, with consent and instructions.
        arms: The arms.
    """

    questions: int
    minutes: float
    arms: tuple[ArmPlan, ...]


def examine(config: StudyConfig, *, encoder: TextEncoder | None = None) -> tuple[Plan, Materials]:
    """Load everything that a study needs, and ask the first question of each arm.

    Args:
        config: The configuration.
        encoder: Encoder to use; None loads the configured one.

    Returns:
        The plan, and what was loaded.

    Raises:
        Mistakes: Something can't be loaded, or an arm can't ask; the error lists all of them.
    """
    mistakes: list[str] = []
    try:
        materials = Materials(config, encoder=encoder)
    except (ValueError, OSError, ImportError, TypeError) as error:
        raise Mistakes(str(config.folder / CONFIG), [f"questions: {error}"]) from None
    total = sum(arm.weight for arm in config.arms)
    plans = []
    for index, arm in enumerate(config.arms, start=1):
        try:
            plans.append(_tried(arm, arm.weight / total, materials))
        except (ValueError, OSError, ImportError, TypeError) as error:
            mistakes.append(f"arms[{index}] ({arm.name}): {error}")
    if config.renderer is not None:
        try:
            make_pictures(config, config.renderer).close()
        except (ValueError, OSError, ImportError) as error:
            mistakes.append(f"renderer: {error}")
    if mistakes:
        raise Mistakes(str(config.folder / CONFIG), mistakes)
    questions = config.questions.number + config.practice.questions + config.checks.number
    return Plan(questions, _minutes(config, questions, plans), tuple(plans)), materials


def _tried(arm: Arm, share: float, materials: Materials) -> ArmPlan:
    begin = time.perf_counter()
    if arm.planner == ORACLE:
        config = materials.config
        drawn = draw_options(materials.maker, config.questions.options, generator(config.seed, "check"))
        return ArmPlan(arm, share, tuple(materials.maker.texts(drawn)), time.perf_counter() - begin)
    session = materials.session(arm, 0)
    if not session.planner.distinct:
        raise ValueError(
            f"Expected a planner that never shows an option twice, {arm.planner!r} may; choose another one for people"
        )
    questions = materials.config.questions
    if isinstance(session.planner, ReplayPlanner):
        episodes = len(session.planner.tokens)
        available = episodes * (1 if questions.feedback == "prompt" else materials.vocabulary.horizon)
        if available < questions.number:
            raise ValueError(f"Expected at least number = {questions.number} questions in {arm.file}, got {available}")
    begin = time.perf_counter()
    texts = session.ask().texts
    return ArmPlan(arm, share, texts, time.perf_counter() - begin)


def _minutes(config: StudyConfig, questions: int, plans: list[ArmPlan]) -> float:
    """Minutes for a participant: reading or looking, then answering."""
    kind, options = config.questions.format, config.questions.options
    words = sum(len(text.split()) for plan in plans for text in plan.texts) / (len(plans) * options)
    looking = _SECONDS_PER_PICTURE if config.renderer is not None else words / _WORDS_PER_SECOND
    answering = _SECONDS_PER_ANSWER[kind] * (options if kind == "ranking" else 1)
    return _MINUTES_BEFORE + questions * (options * looking + answering) / 60.0
