"""A planner asks a simulated user question by question; what each question costs is measured."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal, cast

import numpy as np
from numpy.typing import NDArray

from edpbrl_gym._seeds import derive_seed
from edpbrl_gym.comparisons import Queries
from edpbrl_gym.experiments.bench.arms import ANSWERS
from edpbrl_gym.experiments.bench.encoders import TimedEncoder
from edpbrl_gym.experiments.bench.regime import Regime
from edpbrl_gym.experiments.bench.worlds import World
from edpbrl_gym.features import FeatureMap
from edpbrl_gym.likelihood import Response
from edpbrl_gym.oracles import ImperfectUser, MappedUser, Oracle
from edpbrl_gym.planners.base import Planner

__all__ = ["Asked", "Clock", "ask_questions", "make_user"]


def make_user(
    regime: Regime,
    taste: NDArray[np.float64],
    name: str,
    seed: int,
    answers: str = "best",
    *,
    utility: FeatureMap | None = None,
) -> ImperfectUser | MappedUser:
    """The simulated user of a unit; its draws are the same for every arm.

    Args:
        regime: How it answers.
        taste: theta*, (d,).
        name: Its name.
        seed: Of the unit.
        answers: Format, one of ``ANSWERS``.
        utility: Of a user whose taste is not linear, in place of ``taste``.
    """
    user = ImperfectUser(
        taste if utility is None else np.ones(1),
        mode=cast(Literal["argmax", "sampled"], regime.mode),
        scale=regime.scale,
        response=cast(Literal["best", "best_worst", "ranking", "partial"], ANSWERS[answers]),
        seed=derive_seed(seed, "answers", regime.name, name),
        name=name,
        **cast(dict[str, Any], dict(regime.imperfect)),
    )
    return user if utility is None else MappedUser(user, utility)


class Clock:
    """CPU seconds without those of an encoder; it begins when it is made.

    Args:
        encoder: Whose seconds do not count.
    """

    def __init__(self, encoder: TimedEncoder) -> None:
        self._encoder = encoder
        self._start = time.process_time() - encoder.seconds

    @property
    def seconds(self) -> float:
        """Until now."""
        return time.process_time() - self._encoder.seconds - self._start


@dataclass(frozen=True, eq=False)
class Asked:
    """All that is known after some episodes.

    Attributes:
        episodes: T.
        queries: All questions so far.
        responses: Their answers.
        seconds: CPU seconds of each question, without the encoder: choosing all that it shows, and taking in the answer
            before.
        telling: Of taking in the last answer.
        thinking: Of all that the planner has done while the person looks at the options.
    """

    episodes: int
    queries: Queries
    responses: list[Response]
    seconds: list[float]
    telling: float
    thinking: float


def ask_questions(
    planner: Planner,
    world: World,
    user: Oracle,
    encoder: TimedEncoder,
    *,
    num_options: int,
    checkpoints: Sequence[int],
) -> Iterator[Asked]:
    """Let a planner ask and the user answer, question by question; what is known at each checkpoint.

    Args:
        planner: Asks.
        world: What about.
        user: Answers.
        encoder: Of the options.
        num_options: K.
        checkpoints: Numbers of episodes; questions are asked up to the largest.
    """
    horizon = world.vocabulary.horizon
    features: list[NDArray[np.float32]] = []
    responses: list[Response] = []
    seconds: list[float] = []
    telling, thinking, choosing = 0.0, 0.0, 0.0
    steps = world.question_steps
    for episode in range(max(checkpoints)):
        tokens = np.empty((num_options, 0), dtype=np.int64)
        for step in range(horizon):
            clock = Clock(encoder)
            chosen = np.asarray(planner.ask(tokens), dtype=np.int64)
            choosing += clock.seconds
            tokens = np.concatenate([tokens, chosen[:, None]], axis=1)
            if step not in steps:
                continue
            seconds.append(telling + choosing)
            choosing = 0.0
            features.append(world.options(tokens, step, encoder))
            clock = Clock(encoder)
            planner.think()
            thinking += clock.seconds
            query = Queries(features[-1][None], np.array([episode]), np.array([step]))
            responses += user.answer(query).responses
            clock = Clock(encoder)
            planner.tell(features[-1][None], responses[-1:])
            telling = clock.seconds
        if episode + 1 in checkpoints:
            places = np.repeat(np.arange(episode + 1), len(steps)), np.tile(steps, episode + 1)
            queries = Queries(np.stack(features), *places)
            yield Asked(episode + 1, queries, list(responses), list(seconds), telling, thinking)
