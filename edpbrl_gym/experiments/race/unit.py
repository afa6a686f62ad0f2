"""One unit of work: a contender asks one user in one regime; at the checkpoints both of its scores are measured."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from edpbrl_gym._seeds import derive_seed
from edpbrl_gym._threads import one_thread
from edpbrl_gym.comparisons import Queries
from edpbrl_gym.experiments.code import code_fingerprint
from edpbrl_gym.experiments.query_bench.asking import TimedEncoder, make_user
from edpbrl_gym.experiments.query_bench.estimators import fit
from edpbrl_gym.experiments.query_bench.measuring import Scorer, load_ceiling
from edpbrl_gym.experiments.query_bench.worlds import World
from edpbrl_gym.experiments.race.contenders import Contender, get_contender
from edpbrl_gym.experiments.race.planners import Seat, SharedEncoder, make_planner, warm_up
from edpbrl_gym.experiments.race.settings import RaceRegime, RaceSettings, get_regime
from edpbrl_gym.experiments.race.worlds import PoolScorer, load_world
from edpbrl_gym.experiments.runs import RunFolder
from edpbrl_gym.features import TextEncoder
from edpbrl_gym.likelihood import BestOf, Response, Terms
from edpbrl_gym.oracles.imperfect import ImperfectUser
from edpbrl_gym.planners import Planner

__all__ = ["KIND", "Asked", "Unit", "ask_questions", "scorer_of", "perform", "scores"]

Floats = NDArray[np.float64]

KIND = "race"


@dataclass(frozen=True, order=True)
class Unit:
    """What is run, and the name of its part.

    Attributes:
        seed: Of items, questions and answers.
        regime: Name.
        user: Name.
        arm: Name of the contender.
    """

    seed: int
    regime: str
    user: str
    arm: str

    @property
    def part(self) -> str:
        """Name of its part file."""
        return f"{self.regime}__{self.arm}__s{self.seed:04d}-{self.user}"


@dataclass(frozen=True, eq=False)
class Asked:
    """All that is known after some episodes.

    Attributes:
        episodes: T.
        features: Options of all questions so far, (n, K, d).
        responses: Their answers.
        planner: Which asked them.
        timing: CPU seconds: ``seconds_setup`` (until the planner can ask), ``seconds_first`` (the first question),
            ``seconds_question`` and ``seconds_longest`` (mean and maximum of the others, with taking in the answer
            before), ``seconds_encoder`` (embedding, mean over the questions; in none of the other times).
    """

    episodes: int
    features: NDArray[np.float32]
    responses: list[Response]
    planner: Planner
    timing: dict[str, float]


@dataclass
class _Clock:
    """Adds up CPU seconds without those of an encoder."""

    encoder: TimedEncoder
    spent: list[float] = field(default_factory=list)
    _begun: tuple[float, float] = (0.0, 0.0)

    def start(self) -> None:
        self._begun = time.process_time(), self.encoder.seconds

    def stop(self) -> float:
        return time.process_time() - self._begun[0] - (self.encoder.seconds - self._begun[1])


def ask_questions(
    contender: Contender, settings: RaceSettings, regime: RaceRegime, world: World, user: ImperfectUser, seed: int,
    folder: Path,
) -> Iterator[Asked]:  # fmt: skip
    """Let a contender ask and the user answer, question by question; what is known at each checkpoint."""
    encoder = TimedEncoder(SharedEncoder(world))
    clock = _Clock(encoder)
    warm_up(world)
    clock.start()
    own = derive_seed(seed, "planner", contender.name, regime.name, user.name)
    planner = make_planner(contender, Seat(settings, regime, world, folder, own, seed, encoder))
    setup = clock.stop()
    horizon = world.vocabulary.horizon
    starts = np.cumsum((0, *world.vocabulary.sizes))
    features: list[NDArray[np.float32]] = []
    responses: list[Response] = []
    asking: list[float] = []
    telling = 0.0  # of the last answer: it is part of the next question's time
    checkpoints = settings.checkpoints(regime)
    for episode in range(max(checkpoints)):
        tokens = np.empty((regime.num_options, 0), dtype=np.int64)
        for step in range(horizon):
            clock.start()
            chosen = np.asarray(planner.ask(tokens), dtype=np.int64)
            asking.append(telling + clock.stop())
            tokens = np.concatenate([tokens, chosen[:, None]], axis=1)
            if world.feedback == "state":
                features.append(world.tokens[starts[step] + chosen])
            else:
                features.append(world.options(tokens, step, encoder))
            query = Queries(features[-1][None], np.array([episode]), np.array([step]))
            responses += user.answer(query).responses
            clock.start()
            planner.tell(features[-1][None], responses[-1:])
            telling = clock.stop()
        if episode + 1 in checkpoints:
            later = asking[1:] or [float("nan")]
            timing = {
                "seconds_setup": setup,
                "seconds_first": asking[0],
                "seconds_question": float(np.mean(later)),
                "seconds_longest": float(np.max(later)),
                "seconds_encoder": encoder.seconds / len(asking),
            }
            yield Asked(episode + 1, np.stack(features), list(responses), planner, timing)


def scorer_of(regime: RaceRegime, world: World, user: str, folder: Path) -> Scorer:
    """Who measures estimates of a user's taste."""
    if regime.items:
        return PoolScorer(world, world.tastes[user], float("nan"))
    return Scorer(world, world.tastes[user], load_ceiling(folder, regime.base.vocabulary, user))


def scores(contender: Contender, asked: Asked, world: World, scorer: Scorer, encoder: TextEncoder | None) -> list[Any]:
    """Both scores: what our estimator and the contender's own make of the same answers.

    Args:
        contender: Who asked.
        asked: The answers, and its planner.
        world: What they are about.
        scorer: Measures.
        encoder: For the search of the best prompt; None leaves it out. Items need none.

    Returns:
        Two rows: ``score`` "ours" or "own", the errors, ``regret``, ``converged`` and ``seconds_estimate``.
    """
    terms = BestOf().terms(asked.features.astype(np.float64), asked.responses)
    return [
        _score(name, estimator, asked.planner, terms, world, scorer, encoder)
        for name, estimator in (("ours", "ours"), ("own", contender.own))
    ]


def _score(
    name: str, estimator: str, planner: Any, terms: Terms, world: World, scorer: Scorer, encoder: TextEncoder | None
) -> dict[str, Any]:
    begun = time.process_time()
    if estimator == "item":
        assert isinstance(scorer, PoolScorer)
        errors = dict.fromkeys(("cosine_error", "preference_error", "choice_error"), float("nan"))
        regret = scorer.regret_of(int(planner.best_item()))
        seconds = time.process_time() - begun
        return {"score": name, **errors, "regret": regret, "converged": True, "seconds_estimate": seconds}
    found = planner.estimate if estimator == "planner" else fit(estimator, terms, world)
    theta = np.asarray(found.theta)
    seconds = time.process_time() - begun
    regret = float("nan")
    if isinstance(scorer, PoolScorer):
        regret = scorer.regret(theta)
    elif encoder is not None:
        regret = scorer.prompt(theta, encoder)["prompt_regret"]
    return {
        "score": name,
        **scorer.errors(theta),
        "regret": regret,
        "converged": bool(found.converged),
        "seconds_estimate": seconds,
    }


def perform(settings: RaceSettings, unit: Unit, folder: Path, fingerprint: str) -> str:
    """Do one unit and write its part; return its name."""
    import pandas

    begun = time.process_time()
    regime, contender = get_regime(unit.regime), get_contender(unit.arm)
    world = load_world(settings, regime, unit.seed, folder, fingerprint)
    rows: list[dict[str, Any]] = []
    with one_thread():
        scorer = scorer_of(regime, world, unit.user, folder)
        user = make_user(regime.base, world.tastes[unit.user], unit.user, unit.seed)
        searching = None if regime.items else world.encoder()
        for asked in ask_questions(contender, settings, regime, world, user, unit.seed, folder):
            known = {
                "regime": regime.name, "seed": unit.seed, "user": unit.user, "arm": contender.name,
                "episodes": asked.episodes, "questions": len(asked.responses),
            }  # fmt: skip
            looks = searching if asked.episodes in settings.prompt_episodes else None
            for score in scores(contender, asked, world, scorer, looks):
                rows.append(known | score | asked.timing | {"code": code_fingerprint(__name__)})
    table = pandas.DataFrame(rows)
    table["seconds_unit"] = time.process_time() - begun
    RunFolder(folder, kind=KIND, config={}).write_part(unit.part, table)
    return unit.part
