"""Who is asked what: the questions of static rules, drawn once for each seed, and the adaptive agent's episodes."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, cast

import numpy as np
from numpy.typing import NDArray

from edpbrl_gym._places import write_atomically
from edpbrl_gym._seeds import derive_seed
from edpbrl_gym._threads import one_thread
from edpbrl_gym.agents.base import Agent
from edpbrl_gym.agents.registry import AGENTS, agent_class, make_agent
from edpbrl_gym.collection.collect import make_prompt_lanes, reseed
from edpbrl_gym.comparisons import Queries
from edpbrl_gym.experiments.query_bench.arms import ANSWERS, STATIC_RULES, Arm
from edpbrl_gym.experiments.query_bench.settings import BenchSettings, Regime
from edpbrl_gym.experiments.query_bench.worlds import World, load_world, option_texts, vocabulary_folder
from edpbrl_gym.features import TextEncoder
from edpbrl_gym.oracles.imperfect import ImperfectUser

__all__ = [
    "Questions",
    "TimedEncoder",
    "check_available",
    "design_path",
    "draw_and_save",
    "load_questions",
    "make_user",
    "open_lanes",
    "play",
    "questions_path",
    "shared_design",
    "solve_and_save",
    "static_agent",
]


class TimedEncoder:
    """An encoder that adds up the seconds which it takes.

    Here and wherever the benchmark takes times they are CPU seconds: its units run on one thread each, and other
    processes on the machine must not count.
    """

    def __init__(self, encoder: TextEncoder) -> None:
        self.encoder = encoder
        self.name, self.dimension, self.fingerprint = encoder.name, encoder.dimension, encoder.fingerprint
        self.seconds = 0.0

    def encode(self, texts: Sequence[str], *, progress: bool = False) -> NDArray[np.float32]:
        """Return the embeddings, shape (n, d)."""
        begun = time.process_time()
        try:
            return self.encoder.encode(texts, progress=progress)
        finally:
            self.seconds += time.process_time() - begun


@dataclass(frozen=True, eq=False)
class Questions:
    """The questions of a static rule for one seed.

    Attributes:
        queries: T * H questions, ordered by episode and step.
        tokens: Token index of each step of each option, (T, K, H).
        seconds: CPU time of planning and drawing, without the encoder.
        encoder_seconds: Of embedding the options, and of what the rule itself embeds.
    """

    queries: Queries
    tokens: NDArray[np.int64]
    seconds: float
    encoder_seconds: float


def check_available(arm: Arm) -> None:
    """Raise a ValueError if the arm's agent isn't registered: a missing piece should not cost hours."""
    if not arm.adaptive and STATIC_RULES[arm.rule].agent not in AGENTS:
        raise ValueError(
            f"Expected an arm whose agent this version has, got {arm.name!r}: no agent "
            f"{STATIC_RULES[arm.rule].agent!r} is registered ({', '.join(sorted(AGENTS))}); leave the arm out"
        )


def make_user(
    regime: Regime, taste: NDArray[np.float64], sentence: str, seed: int, answers: str = "best"
) -> ImperfectUser:
    """The simulated user of a unit; its draws are the same for every arm.

    Args:
        regime: How it answers.
        taste: theta*, (d,).
        sentence: Its name.
        seed: Of the unit.
        answers: Format, one of ``ANSWERS``.
    """
    return ImperfectUser(
        taste,
        mode=cast(Literal["argmax", "sampled"], regime.mode),
        scale=regime.scale,
        response=cast(Literal["best", "best_worst", "ranking"], ANSWERS[answers]),
        seed=derive_seed(seed, "answers", regime.name, sentence),
        name=sentence,
        **cast(dict[str, Any], dict(regime.imperfect)),
    )


# -- static rules ----------------------------------------------------------------------------------------------------


def design_path(folder: Path, world: str, rule: str) -> Path:
    """Where the design of a rule is kept."""
    return folder / "designs" / f"{world}-{rule}"


def questions_path(folder: Path, world: str, rule: str, seed: int) -> Path:
    """Where the questions of a rule are kept."""
    return folder / "questions" / f"{world}-{rule}-s{seed:04d}.npz"


def open_lanes(world: World, regime: Regime, folder: Path, encoder: TextEncoder, *, episodes: int) -> Any:
    """A vector environment over a world's vocabulary, which the run folder holds, that plays all episodes at once.

    Args:
        world: What is asked about.
        regime: Whose world.
        folder: The run folder.
        encoder: Embeds in place of the one that the world names.
        episodes: T.

    Raises:
        RuntimeError: If the folder's vocabulary is not the world's.
    """
    place = str(vocabulary_folder(folder, regime.vocabulary))
    made: Any = make_prompt_lanes(episodes * regime.num_options, vocabulary=place, encoder=world.encoder_spec)
    made.unwrapped.model.use_encoder(encoder)
    if made.unwrapped.vocabulary.tokens != world.vocabulary.tokens:
        raise RuntimeError(f"Expected in {place} the vocabulary with which the run began; begin a new run")
    return made


def shared_design(rule: str, regime: Regime, folder: Path) -> Path | None:
    """The file beside the design that serves all seeds of a rule; None where every seed makes its own."""
    if STATIC_RULES[rule].learns_per_seed or regime.drawn:
        return None
    return design_path(folder, regime.world, rule) / "solved.json"


def static_agent(rule: str, lanes: Any, regime: Regime, folder: Path, *, episodes: int, seed: int) -> Agent:
    """The agent of a static rule, ready to ask: with the design that all seeds share, or with one made here."""
    done = shared_design(rule, regime, folder)
    if done is None:
        return _learn(rule, lanes, regime, episodes, seed)
    agent = agent_class(STATIC_RULES[rule].agent).load(done.parent, lanes)
    reseed(agent, seed)
    return agent


def _learn(rule: str, lanes: Any, regime: Regime, episodes: int, seed: int) -> Agent:
    about = STATIC_RULES[rule]
    options = dict(about.options)
    if about.takes_feedback:
        options["feedback"] = regime.feedback
    return make_agent(
        about.agent,
        lanes,
        num_options=regime.num_options,
        episodes=episodes,
        regularization=options.pop("regularization", 1.0),
        criterion=options.pop("criterion", "D"),
        seed=seed,
        **options,
    ).learn()


def solve_and_save(
    load: Callable[..., World], settings: Any, regime: Regime, rule: str, folder: Path, fingerprint: str
) -> None:
    """Solve the design that serves all seeds of a rule and save it.

    Args:
        load: Reads the world, called with what comes next but the rule.
        settings: Of the benchmark.
        regime: In which.
        rule: Which one.
        folder: The run folder.
        fingerprint: Of the encoder.
    """
    import json

    world = load(settings, regime, folder, fingerprint)
    episodes = max(settings.checkpoints(regime))
    target = design_path(folder, regime.world, rule)
    with one_thread():
        lanes = open_lanes(world, regime, folder, world.encoder(), episodes=episodes)
        begun = time.process_time()
        agent = _learn(rule, lanes, regime, episodes, seed=0)
        if agent.design is not None and agent.design.status == "interrupted":
            raise KeyboardInterrupt  # Ctrl-C ends the run; a design cut short is not this benchmark's
        seconds = time.process_time() - begun
        agent.save(target)
    text = json.dumps({"seconds": seconds})
    write_atomically(target / "solved.json", lambda name: name.write_text(text, encoding="utf-8"))


def draw_and_save(
    settings: BenchSettings, regime: Regime, rule: str, seed: int, folder: Path, fingerprint: str
) -> None:
    """Draw the T episodes of a rule, embed what is compared, and write both to the run folder."""
    import json

    world = load_world(settings, regime, folder, fingerprint)
    own = derive_seed(seed, "questions", regime.world, rule)
    with one_thread():
        encoder = TimedEncoder(world.encoder())
        episodes = max(settings.episodes)
        lanes = open_lanes(world, regime, folder, encoder, episodes=episodes)
        begun = time.process_time()
        agent = static_agent(rule, lanes, regime, folder, episodes=episodes, seed=own)
        done = shared_design(rule, regime, folder)
        planning = 0.0 if done is None else float(json.loads(done.read_text(encoding="utf-8"))["seconds"])
        tokens = play(agent, lanes, regime.num_options)
        seconds = planning + time.process_time() - begun - encoder.seconds
        features = _embed(world, tokens, encoder)
        lanes.close()
    arrays: dict[str, Any] = {
        "tokens": tokens,
        "features": features,
        "seconds": np.array([seconds, encoder.seconds]),
    }

    def save(name: Path) -> None:
        with open(name, "wb") as file:
            np.savez(file, allow_pickle=False, **arrays)

    write_atomically(questions_path(folder, regime.world, rule, seed), save)


def play(agent: Agent, lanes: Any, num_options: int) -> NDArray[np.int64]:
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


def _embed(world: World, tokens: NDArray[np.int64], encoder: TextEncoder) -> NDArray[np.float32]:
    """Options of all questions, (T * H, K, d), ordered by episode and step; one call, so that batches are large."""
    episodes, options, horizon = tokens.shape
    flat = tokens.reshape(-1, horizon)
    texts = [text for step in range(horizon) for text in option_texts(world.vocabulary, world.feedback, flat, step)]
    rows = encoder.encode(texts).reshape(horizon, episodes, options, -1)
    return np.ascontiguousarray(rows.transpose(1, 0, 2, 3)).reshape(episodes * horizon, options, -1)


def load_questions(folder: Path, world: str, rule: str, seed: int) -> Questions:
    """Read what ``draw_and_save`` wrote."""
    with np.load(questions_path(folder, world, rule, seed)) as data:
        tokens, features, seconds = data["tokens"], data["features"], data["seconds"]
    episodes, _, horizon = tokens.shape
    episode = np.repeat(np.arange(episodes), horizon)
    step = np.tile(np.arange(horizon), episodes)
    return Questions(Queries(features, episode, step), tokens, float(seconds[0]), float(seconds[1]))
