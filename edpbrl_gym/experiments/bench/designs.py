"""Questions that no answer changes: designs, solved once, and their questions, drawn once for each seed."""

from __future__ import annotations

import json
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from edpbrl_gym._arrays import Floats32
from edpbrl_gym._places import write_atomically
from edpbrl_gym._seeds import derive_seed
from edpbrl_gym._threads import one_thread
from edpbrl_gym.agents.base import Agent
from edpbrl_gym.agents.registry import agent_class, make_agent
from edpbrl_gym.collection.collect import make_prompt_lanes, reseed
from edpbrl_gym.experiments.bench.arms import DESIGNS
from edpbrl_gym.experiments.bench.encoders import TimedEncoder
from edpbrl_gym.experiments.bench.loading import load_world
from edpbrl_gym.experiments.bench.regime import Regime
from edpbrl_gym.experiments.bench.settings import BenchSettings
from edpbrl_gym.experiments.bench.worlds import World, option_texts, vocabulary_folder, write_arrays
from edpbrl_gym.features import TextEncoder

__all__ = ["Questions", "draw_and_save", "load_questions", "questions_path", "shared_design", "solve_and_save"]


@dataclass(frozen=True, eq=False)
class Questions:
    """The questions of a design for one seed.

    Attributes:
        tokens: Token index of each step of each option, (T, K, H).
        texts: The options, step by step, episode by episode: T * K at each of the world's ``question_steps``.
        rows: Their embeddings, (number of texts, d).
        seconds: CPU time of planning and drawing, without the encoder.
        encoder_seconds: Of embedding the options, and of what the design itself embeds.
    """

    tokens: NDArray[np.int64]
    texts: list[str]
    rows: Floats32
    seconds: float
    encoder_seconds: float


def questions_path(folder: Path, regime: Regime, design: str, seed: int) -> Path:
    """Where the questions of a design are kept."""
    return folder / "questions" / f"{regime.world}-{design}-s{seed:04d}.npz"


def shared_design(design: str, regime: Regime, folder: Path) -> Path | None:
    """The file beside the design that serves all seeds; None where every seed makes its own."""
    if DESIGNS[design].learns_per_seed or regime.drawn:
        return None
    return folder / "designs" / f"{regime.world}-{design}" / "solved.json"


def solve_and_save(settings: BenchSettings, regime: Regime, design: str, folder: Path, fingerprint: str) -> None:
    """Solve the design that serves all seeds and save it.

    Args:
        settings: Of the benchmark.
        regime: In which.
        design: Name.
        folder: The run folder.
        fingerprint: Of the encoder.
    """
    world = load_world(settings, regime, folder, fingerprint)
    episodes = max(settings.checkpoints(regime))
    done = shared_design(design, regime, folder)
    assert done is not None
    with one_thread():
        lanes = _open_lanes(world, regime, folder, world.encoder(), episodes=episodes)
        start = time.process_time()
        agent = _learn(design, lanes, regime, episodes, seed=0)
        if agent.design is not None and agent.design.status == "interrupted":
            raise KeyboardInterrupt  # Ctrl-C ends the run; a design cut short is not this benchmark's
        seconds = time.process_time() - start
        agent.save(done.parent)
    text = json.dumps({"seconds": seconds})
    write_atomically(done, lambda name: name.write_text(text, encoding="utf-8"))


def draw_and_save(
    settings: BenchSettings, regime: Regime, design: str, seed: int, folder: Path, fingerprint: str
) -> None:
    """Draw the T episodes of a design, embed what is compared, and write both to the run folder."""
    world = load_world(settings, regime, folder, fingerprint, seed=seed)
    draws = derive_seed(seed, "questions", regime.world, design)
    with one_thread():
        encoder = TimedEncoder(world.encoder())
        episodes = max(settings.checkpoints(regime))
        lanes = _open_lanes(world, regime, folder, encoder, episodes=episodes)
        start = time.process_time()
        agent = _ready_agent(design, lanes, regime, folder, episodes=episodes, seed=draws)
        done = shared_design(design, regime, folder)
        planning = 0.0 if done is None else float(json.loads(done.read_text(encoding="utf-8"))["seconds"])
        tokens = _play(agent, lanes, regime.num_options)
        seconds = planning + time.process_time() - start - encoder.seconds
        rows = encoder.encode(_texts(world, tokens))  # one call, so that batches are large
        lanes.close()
    path = questions_path(folder, regime, design, seed)
    write_arrays(path, tokens=tokens, rows=rows, seconds=np.array([seconds, encoder.seconds]))


def load_questions(folder: Path, world: World, regime: Regime, design: str, seed: int) -> Questions:
    """Read what ``draw_and_save`` wrote."""
    with np.load(questions_path(folder, regime, design, seed), allow_pickle=False) as data:
        tokens, rows, seconds = data["tokens"], data["rows"], data["seconds"]
    return Questions(tokens, _texts(world, tokens), rows, float(seconds[0]), float(seconds[1]))


def _texts(world: World, tokens: NDArray[np.int64]) -> list[str]:
    """All options of all questions, step by step."""
    flat = tokens.reshape(-1, tokens.shape[2])
    return [
        text for step in world.question_steps for text in option_texts(world.vocabulary, world.feedback, flat, step)
    ]


def _open_lanes(world: World, regime: Regime, folder: Path, encoder: TextEncoder, *, episodes: int) -> Any:
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
    lanes: Any = make_prompt_lanes(episodes * regime.num_options, vocabulary=place, encoder=world.encoder_spec)
    lanes.unwrapped.model.use_encoder(encoder)
    if lanes.unwrapped.vocabulary.tokens != world.vocabulary.tokens:
        raise RuntimeError(f"Expected in {place} the vocabulary with which the run began; begin a new run")
    return lanes


def _ready_agent(design: str, lanes: Any, regime: Regime, folder: Path, *, episodes: int, seed: int) -> Agent:
    """The agent of a design, ready to ask: with the design that all seeds share, or with one made here."""
    done = shared_design(design, regime, folder)
    if done is None:
        return _learn(design, lanes, regime, episodes, seed)
    agent = agent_class(DESIGNS[design].agent).load(done.parent, lanes)
    reseed(agent, seed)
    return agent


def _learn(design: str, lanes: Any, regime: Regime, episodes: int, seed: int) -> Agent:
    entry = DESIGNS[design]
    options = {**entry.options, **({"feedback": regime.feedback} if entry.takes_feedback else {})}
    return make_agent(
        entry.agent,
        lanes,
        num_options=regime.num_options,
        episodes=episodes,
        regularization=options.pop("regularization", 1.0),
        criterion=options.pop("criterion", "D"),
        seed=seed,
        **options,
    ).learn()


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
