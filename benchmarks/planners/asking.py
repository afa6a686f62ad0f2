"""A planner asks a simulated user question by question, or a design does whose questions are drawn before."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal, cast

import numpy as np
from numpy.typing import NDArray

from benchmarks.kit.worlds import read_arrays, write_arrays
from benchmarks.planners.arms import ANSWERS, DESIGNS, Arm, make_prior
from benchmarks.planners.regimes import Regime
from benchmarks.planners.settings import PlannerSettings, Unit
from benchmarks.planners.tastes import utilities
from benchmarks.planners.worlds import World, load_world, option_texts, vocabulary_folder
from edpbrl_gym._arrays import Floats, Floats32
from edpbrl_gym._places import write_atomically
from edpbrl_gym._seeds import derive_seed
from edpbrl_gym._threads import one_thread
from edpbrl_gym._validation import check_feedback
from edpbrl_gym.agents.base import Agent
from edpbrl_gym.agents.registry import agent_class, make_agent
from edpbrl_gym.collection.collect import make_prompt_lanes, reseed
from edpbrl_gym.comparisons import Queries
from edpbrl_gym.features import TextEncoder
from edpbrl_gym.likelihood import Response, make_format
from edpbrl_gym.oracles import ImperfectUser, Oracle
from edpbrl_gym.oracles.base import Answers
from edpbrl_gym.planners import ComposedFeatures, Planner, PromptFeatures, ReplayPlanner
from edpbrl_gym.planners.option_features import OptionFeatures, option_features
from edpbrl_gym.planners.registry import make_planner, planner_options

_LARGE = 1000  # texts of a batch that units share


def make_user(regime: Regime, taste: Floats, name: str, seed: int, answers: str = "best") -> Oracle:
    """The simulated user of a unit, with a taste (1, d) or two styles (2, d); its draws are the same for every arm."""
    user = ImperfectUser(
        taste[0] if len(taste) == 1 else np.ones(1),
        mode=cast(Literal["argmax", "sampled"], regime.mode),
        scale=regime.scale,
        response=cast(Literal["best", "best_worst", "ranking", "partial"], ANSWERS[answers]),
        seed=derive_seed(seed, "answers", regime.name, name),
        name=name,
    )
    return user if len(taste) == 1 else _OfTwoStyles(user, taste)


class _OfTwoStyles:
    """A user who judges the options by the utility of two styles, the one feature that ``user`` sees."""

    def __init__(self, user: ImperfectUser, styles: Floats) -> None:
        self.user, self.styles, self.name = user, styles, user.name

    def answer(self, queries: Queries) -> Answers:
        values = utilities(self.styles, queries.features)[..., None]
        return self.user.answer(replace(queries, features=values.astype(np.float32)))


class SharedEncoder:
    """A world's encoder with a memory of its own, but large batches are encoded once for all units of a process.

    Thousands of random trajectories are candidates of several rules, and embedding them takes longer than all the rest.
    Only whole batches are shared: a text's embedding depends on its batch in the last bits, and the numbers of a unit
    must not depend on what ran before it. Of more ``texts`` it knows the embeddings ``rows``.
    """

    def __init__(self, world: World, texts: Sequence[str] = (), rows: Floats32 | None = None) -> None:
        self._world, self._memory = world, world.encoder(texts, rows)
        memory = self._memory
        self.name, self.dimension, self.fingerprint = memory.name, memory.dimension, memory.fingerprint

    def encode(self, texts: Sequence[str], *, progress: bool = False) -> Floats32:
        """Return the embeddings, shape (n, d)."""
        if len(texts) < _LARGE:
            return self._memory.encode(texts, progress=progress)
        return _large_batch(self._world, tuple(texts)).copy()


@functools.lru_cache(maxsize=2)
def _large_batch(world: World, texts: tuple[str, ...]) -> Floats32:
    return world.encoder().encode(texts)


def make_asker(
    settings: PlannerSettings, regime: Regime, arm: Arm, unit: Unit, world: World, folder: Path
) -> tuple[Planner, TextEncoder]:
    """Who asks in a unit, and the encoder of the options; a design's questions are read from the run folder."""
    if arm.design is not None:
        tokens, texts, rows = load_questions(folder, world, regime, arm.asker, unit.seed)
        return ReplayPlanner(tokens), SharedEncoder(world, texts, rows)
    encoder = SharedEncoder(world)
    options: dict[str, Any] = dict(arm.options)
    if arm.family == "adaptive":
        options.setdefault("prior", "vocabulary")  # the planner's default, made once for a process
    prior = options.pop("prior", None)
    if "rollout_seed" in planner_options(arm.asker):  # rules of a block choose from the same trajectories
        options.setdefault("rollout_seed", derive_seed(unit.seed, "rollouts", regime.name))
    features = _features(world)
    if isinstance(features, (ComposedFeatures, PromptFeatures)):
        features = features.with_encoder(encoder)
    planner = make_planner(
        arm.asker,
        world.vocabulary,
        features,
        prior=None if prior is None else make_prior(prior, world),
        num_options=regime.num_options,
        seed=derive_seed(unit.seed, "planner", arm.name, regime.name, unit.user),
        episodes=max(settings.checkpoints(regime, planned=True)),
        model=None if arm.family == "external" else make_format(ANSWERS[arm.answers]),
        **options,
    )
    return planner, encoder


@functools.lru_cache(maxsize=8)
def _features(world: World) -> OptionFeatures:
    """The features of a world's options, once for each process: fitting those of prompts encodes hundreds of texts."""
    return option_features(check_feedback(world.feedback), world.vocabulary, world.tokens, world.encoder())


@dataclass(frozen=True, eq=False)
class Asked:
    """All questions and answers after some episodes."""

    episodes: int  # T
    queries: Queries
    responses: list[Response]


def ask_questions(
    planner: Planner,
    world: World,
    user: Oracle,
    encoder: TextEncoder,
    *,
    num_options: int,
    checkpoints: Sequence[int],
) -> Iterator[Asked]:
    """Let a planner ask and the user answer, question by question; what is known at each checkpoint, in episodes."""
    features: list[NDArray[np.float32]] = []
    responses: list[Response] = []
    steps = world.question_steps
    for episode in range(max(checkpoints)):
        tokens = np.empty((num_options, 0), dtype=np.int64)
        for step in range(world.vocabulary.horizon):
            chosen = np.asarray(planner.ask(tokens), dtype=np.int64)
            tokens = np.concatenate([tokens, chosen[:, None]], axis=1)
            if step not in steps:
                continue
            features.append(encoder.encode(option_texts(world.vocabulary, world.feedback, tokens, step)))
            planner.think()
            query = Queries(features[-1][None], np.array([episode]), np.array([step]))
            responses += user.answer(query).responses
            planner.tell(features[-1][None], responses[-1:])
        if episode + 1 in checkpoints:
            places = np.repeat(np.arange(episode + 1), len(steps)), np.tile(steps, episode + 1)
            yield Asked(episode + 1, Queries(np.stack(features), *places), list(responses))


# -- questions that no answer changes: designs, solved once, and their questions, drawn once for each seed -----------


def questions_path(folder: Path, regime: Regime, design: str, seed: int) -> Path:
    """Where the questions of a design are kept."""
    return folder / "questions" / f"{regime.world}-{design}-s{seed:04d}.npz"


def shared_design(design: str, regime: Regime, folder: Path) -> Path | None:
    """The file beside the design that serves all seeds; None where every seed makes its own."""
    if design == "random" or regime.drawn:
        return None
    return folder / "designs" / f"{regime.world}-{design}" / "solved"


def solve_and_save(settings: PlannerSettings, regime: Regime, design: str, folder: Path, fingerprint: str) -> None:
    """Solve the design that serves all seeds and save it."""
    world = load_world(settings, regime, folder, fingerprint)
    done = shared_design(design, regime, folder)
    assert done is not None
    with one_thread():
        agent = _learn(settings, regime, design, _open_lanes(settings, regime, world, folder), seed=0)
        if agent.design is not None and agent.design.status == "interrupted":
            raise KeyboardInterrupt  # Ctrl-C ends the run; a design cut short is not this benchmark's
        agent.save(done.parent)
    write_atomically(done, Path.touch)


def draw_and_save(
    settings: PlannerSettings, regime: Regime, design: str, seed: int, folder: Path, fingerprint: str
) -> None:
    """Draw the T episodes of a design, embed what is compared, and write both to the run folder."""
    world = load_world(settings, regime, folder, fingerprint, seed=seed)
    draws = derive_seed(seed, "questions", regime.world, design)
    with one_thread():
        encoder = world.encoder()
        lanes = _open_lanes(settings, regime, world, folder, encoder)
        done = shared_design(design, regime, folder)
        if done is None:
            agent = _learn(settings, regime, design, lanes, draws)
        else:
            agent = agent_class(DESIGNS[design].agent).load(done.parent, lanes)
            reseed(agent, draws)
        tokens = _play(agent, lanes, regime.num_options)
        rows = encoder.encode(_texts(world, tokens))  # one call, so that batches are large
        lanes.close()
    write_arrays(questions_path(folder, regime, design, seed), tokens=tokens, rows=rows)


def load_questions(
    folder: Path, world: World, regime: Regime, design: str, seed: int
) -> tuple[NDArray[np.int64], list[str], Floats32]:
    """Read what ``draw_and_save`` wrote.

    Returns:
        Token index of each step of each option, (T, K, H); the options' texts, T * K at each of the world's
        ``question_steps``, and their embeddings, (number of texts, d).
    """
    data = read_arrays(questions_path(folder, regime, design, seed))
    return data["tokens"], _texts(world, data["tokens"]), data["rows"]


def _texts(world: World, tokens: NDArray[np.int64]) -> list[str]:
    """All options of all questions, step by step."""
    flat = tokens.reshape(-1, tokens.shape[2])
    return [
        text for step in world.question_steps for text in option_texts(world.vocabulary, world.feedback, flat, step)
    ]


def _open_lanes(settings: PlannerSettings, regime: Regime, world: World, folder: Path, encoder: Any = None) -> Any:
    """A vector environment over a world's vocabulary that plays all episodes at once."""
    place = str(vocabulary_folder(folder, regime.vocabulary))
    count = max(settings.checkpoints(regime)) * regime.num_options
    lanes: Any = make_prompt_lanes(count, vocabulary=place, encoder=world.encoder_spec)
    lanes.unwrapped.model.use_encoder(encoder or world.encoder())
    if lanes.unwrapped.vocabulary.tokens != world.vocabulary.tokens:
        raise RuntimeError(f"Expected in {place} the vocabulary with which the run began; begin a new run")
    return lanes


def _learn(settings: PlannerSettings, regime: Regime, design: str, lanes: Any, seed: int) -> Agent:
    entry, episodes = DESIGNS[design], max(settings.checkpoints(regime))
    options = {"num_options": regime.num_options, "episodes": episodes, "seed": seed, **entry.options}
    return make_agent(entry.agent, lanes, **options).learn()


def _play(agent: Agent, lanes: Any, num_options: int) -> NDArray[np.int64]:
    """Let the agent choose all tokens, (T, K, H); lane e * K + q is option q of episode e."""
    observation, _ = lanes.reset()
    state = None
    starts = np.ones(lanes.num_envs, dtype=np.bool_)
    for _ in range(lanes.unwrapped.mdp.horizon):
        actions, state = agent.predict(observation, state, starts)
        observation, _, _, _, _ = lanes.step(actions)
        starts = np.zeros_like(starts)
    tokens = np.array(observation, dtype=np.int64)
    return tokens.reshape(-1, num_options, tokens.shape[1])
