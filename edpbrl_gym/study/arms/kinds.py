"""The kinds of arms: a planner for each participant, a file of questions for everybody, the loop of an environment."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np
from numpy.typing import NDArray

from edpbrl_gym._compat import constructor_options
from edpbrl_gym._seeds import derive_seed, generator
from edpbrl_gym.comparisons.question_files import read_questions
from edpbrl_gym.estimation.priors import PRIORS
from edpbrl_gym.planners.base import Planner
from edpbrl_gym.planners.registry import make_planner, planner_class, planner_options
from edpbrl_gym.planners.replay import ReplayPlanner
from edpbrl_gym.study.arms.base import ArmKind
from edpbrl_gym.study.config import OF_STUDY, Arm, QuestionsConfig
from edpbrl_gym.study.records import NotReadyError, Post
from edpbrl_gym.vocabulary import SEPARATOR, Vocabulary

if TYPE_CHECKING:
    from edpbrl_gym.study.config_reading import Table
    from edpbrl_gym.study.materials import Materials

__all__ = ["OracleArm", "PlannerArm", "QuestionsArm"]


class PlannerArm(ArmKind):
    """Each participant has a planner of their own."""

    learns = True

    def title(self, arm: Arm) -> str:
        if arm.prior is None:
            return arm.planner
        named = f"the prior {arm.prior}" if str(arm.prior) in PRIORS else "a population"
        return f"{arm.planner} with {'those who finished before' if arm.prior == OF_STUDY else named}"

    def first_question(self, arm: Arm, materials: Materials) -> tuple[tuple[str, ...], float | None]:
        session = materials.session(arm, 0)
        if not session.planner.distinct:
            raise ValueError(
                f"Expected a planner that never shows an option twice, {arm.planner!r} may; choose another one for "
                "people"
            )
        begin = time.perf_counter()
        return session.ask().texts, time.perf_counter() - begin

    def prepare(self, arm: Arm, materials: Materials) -> None:
        materials.session(arm, 0)

    def planner(self, arm: Arm, materials: Materials, number: int) -> Planner:
        questions = materials.config.questions
        options: dict[str, Any] = dict(arm.options)
        if "distinct" in planner_options(arm.planner):
            options["distinct"] = True  # people never compare an option with itself
        prior = materials.given_prior(arm)
        if "prior" in constructor_options(planner_class(arm.planner)):
            prior = materials.planner_prior(arm)
        return make_planner(
            arm.planner,
            materials.vocabulary,
            materials.features,
            feedback=questions.feedback,
            prior=prior,
            num_options=questions.options,
            seed=derive_seed(materials.config.seed, "planner", number),
            episodes=-(-questions.number // materials.per_episode),
            model=None if materials.model == Planner.model else materials.model,
            **options,
        )

    def is_independent(self, arm: Arm) -> bool:
        return arm.planner == "random"

    def spare(self, arm: Arm, materials: Materials) -> int | None:
        """None of those that are planned all at once."""
        return None if self.is_independent(arm) or planner_class(arm.planner).adaptive else 0


class QuestionsArm(PlannerArm):
    """The questions of a file of `edpbrl design`, one after the other."""

    learns = False
    takes_file = True

    def first_question(self, arm: Arm, materials: Materials) -> tuple[tuple[str, ...], float | None]:
        number = materials.config.questions.number
        if (available := len(self._tokens(arm, materials)) * materials.per_episode) < number:
            raise ValueError(f"Expected at least number = {number} questions in {arm.file}, got {available}")
        return super().first_question(arm, materials)

    def planner(self, arm: Arm, materials: Materials, number: int) -> ReplayPlanner:
        return ReplayPlanner(self._tokens(arm, materials), distinct=True)

    def _tokens(self, arm: Arm, materials: Materials) -> NDArray[np.int64]:
        return materials.once(("questions", arm.file), lambda: _read(arm, materials))

    def is_independent(self, arm: Arm) -> bool:
        return True

    def spare(self, arm: Arm, materials: Materials) -> int:
        """Those of the file after the last one that is asked."""
        return max(0, len(self._tokens(arm, materials)) - materials.config.questions.number)

    def learner(self, arm: Arm) -> Arm:
        """Random questions are learnt from in the same way."""
        return Arm(arm.name, "random", prior=arm.prior)


class OracleArm(ArmKind):
    """The questions that count are posts; the loop that posts them learns from the answers."""

    posted = True

    def check(self, arm: Arm, table: Table, questions: QuestionsConfig) -> None:
        super().check(arm, table, questions)
        for name in ("prior", "options"):
            if getattr(arm, name):
                expected = "none with planner = 'oracle', whose questions come from HumanOracle"
                table.note(name, expected, "take it out")

    def title(self, arm: Arm) -> str:
        return "questions come from HumanOracle"

    def first_question(self, arm: Arm, materials: Materials) -> tuple[tuple[str, ...], None]:
        """A question for practice, as the others are not known before."""
        drawn = materials.draw_options(generator(materials.config.seed, "check"))
        return tuple(materials.maker.texts(drawn)), None

    def planner(self, arm: Arm, materials: Materials, number: int) -> NoReturn:
        raise ValueError(f"Expected an arm with a planner, the questions of {arm.name!r} come from HumanOracle")

    def post(self, find: Callable[[int], Post | None], number: int) -> Post:
        post = find(number)
        if post is None:
            raise NotReadyError("Expected a question that the oracle has posted, there is none yet; try again soon")
        return post

    def count(self, posted: Callable[[], int | None]) -> int | None:
        return posted()

    def spare(self, arm: Arm, materials: Materials) -> int:
        return 0

    def learner(self, arm: Arm) -> None:
        return None


def _read(arm: Arm, materials: Materials) -> NDArray[np.int64]:
    """Tokens (T, K, H) of the episodes of the file."""
    assert arm.file is not None  # checked with the configuration
    path, num_options = arm.file, materials.config.questions.options
    questions = read_questions(path)
    other = next((number for number, (_, _, texts) in enumerate(questions, start=1) if len(texts) != num_options), None)
    if other is not None:
        raise ValueError(
            f"Expected questions of {num_options} options in {path}, got {len(questions[other - 1][2])} in question "
            f"{other}; set options in [questions], and give all questions so many"
        )
    tokens: list[list[list[int]]] = []
    for start in range(0, len(questions), materials.per_episode):
        rows = questions[start : start + materials.per_episode]
        if len(rows) < materials.per_episode:
            raise ValueError(
                f"Expected {materials.per_episode} questions in each episode of {path}, the last has {len(rows)}"
            )
        lanes = rows[-1][2]
        if materials.config.questions.feedback == "state":
            lanes = [SEPARATOR.join(texts[option] for _, _, texts in rows) for option in range(num_options)]
        tokens.append([])
        for text in lanes:
            found = _parsed(text, materials.vocabulary, 0)
            if found is None:
                raise ValueError(
                    f"Expected prompts of {materials.vocabulary.horizon} tokens of the vocabulary in {path}, got "
                    f"{text!r} in question {start + materials.per_episode}; was it made with another vocabulary or "
                    "feedback?"
                )
            tokens[-1].append(found)
    return np.array(tokens)


def _parsed(text: str, vocabulary: Vocabulary, step: int) -> list[int] | None:
    """Tokens of the steps from ``step`` that make the text, which may hold separators within a token; None: none do."""
    last = step + 1 == vocabulary.horizon
    for index, token in enumerate(vocabulary.tokens[step]):
        if last and text == token:
            return [index]
        if not last and text.startswith(token + SEPARATOR):
            rest = _parsed(text[len(token) + len(SEPARATOR) :], vocabulary, step + 1)
            if rest is not None:
                return [index, *rest]
    return None
