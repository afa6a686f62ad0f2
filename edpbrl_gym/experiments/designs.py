"""The designs of an experiment: solved once, saved in the run folder, used in every run."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from edpbrl_gym._files import replacing_folder
from edpbrl_gym._threads import one_thread
from edpbrl_gym.agents.base import Agent
from edpbrl_gym.agents.registry import agent_class, check_agent, make_agent
from edpbrl_gym.collection.collect import make_prompt_lanes, reseed
from edpbrl_gym.design import describe_design
from edpbrl_gym.design.criteria import check_criterion
from edpbrl_gym.experiments.runs import RunFolderError
from edpbrl_gym.experiments.settings import AgentSettings, DesignSettings
from edpbrl_gym.features.memo import MemoEncoder, raw_encoder

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from edpbrl_gym.experiments.framework import Run
    from edpbrl_gym.features import TextEncoder
    from edpbrl_gym.vocabulary import Vocabulary

__all__ = [
    "Tokens",
    "check_agents",
    "has_design",
    "make_lanes",
    "obtain_agent",
    "solve_and_save",
    "solve_designs",
    "train_tokens",
]


class Tokens(NamedTuple):
    """Train tokens with their embeddings, passed to every process."""

    fingerprint: str  # of the encoder
    texts: list[str]  # distinct, n of them
    rows: NDArray[np.float32]  # (n, d)


def train_tokens(train: Vocabulary, encoder: TextEncoder, *, progress: bool = False) -> Tokens:
    """Embed the tokens of a vocabulary."""
    texts = list(dict.fromkeys(train.all_tokens))
    return Tokens(encoder.fingerprint, texts, encoder.encode(texts, progress=progress))


def check_agents(settings: DesignSettings) -> None:
    """Raise for agents that can't be made or that adapt to the answers: before minutes of work, not after."""
    for agent in settings.parsed_agents:
        check_agent(agent.name)
        check_criterion(agent.options.get("criterion", settings.criterion))
        if agent_class(agent.name).observe is not Agent.observe:
            raise ValueError(
                f"Expected agents whose questions don't depend on the answers, {agent.name!r} overrides observe(); "
                "this experiment asks everybody the same questions"
            )


def has_design(agent: AgentSettings) -> bool:
    """Whether an agent optimises a design that doesn't depend on its seed, so that one serves all runs."""
    from edpbrl_gym.agents.design import DesignAgent

    return issubclass(agent_class(agent.name), DesignAgent)


def make_lanes(settings: DesignSettings, tokens: Tokens, lanes: int) -> Any:
    """Make the experiment's environment, its encoder with a memo of the tokens."""
    env: Any = make_prompt_lanes(lanes, **settings.environment)
    env.unwrapped.model.use_encoder(
        MemoEncoder(raw_encoder(settings.encoder, tokens.fingerprint), texts=tokens.texts, rows=tokens.rows)
    )
    return env


def _make(settings: DesignSettings, agent: AgentSettings, env: Any, episodes: int, seed: int) -> Agent:
    options = {name: value for name, value in agent.options.items() if name != "label"}
    criterion = options.pop("criterion", settings.criterion)
    regularization = options.pop("regularization", settings.regularization)
    if agent.name == "frank_wolfe":
        options.setdefault("max_iterations", settings.iterations)
    options |= {"num_options": settings.num_options, "episodes": episodes, "seed": seed}
    try:
        return make_agent(agent.name, env, regularization=regularization, criterion=criterion, **options)
    except TypeError as error:
        if "unexpected keyword" not in str(error):
            raise
        raise ValueError(
            f"Expected options that the agent {agent.name!r} takes, got {agent.text!r}: {error}"
        ) from error


def folder_of(folder: Path, agent: AgentSettings, position: int, episodes: int) -> Path:
    """Folder of the design of the agent at a position of the list for a planned T."""
    return folder / "designs" / f"{position:02d}-{agent.name.rpartition(':')[2]}-T{episodes:04d}"


def solve_and_save(
    settings: DesignSettings, position: int, episodes: int, folder: Path, tokens: Tokens
) -> dict[str, Any]:
    """Solve one design and save it, or read the saved one; return its description."""
    agent = settings.parsed_agents[position]
    target = folder_of(folder, agent, position, episodes)
    with one_thread():
        env = make_lanes(settings, tokens, settings.num_options)
        if (target / "agent.json").is_file():
            player: Agent = agent_class(agent.name).load(target, env)
        else:
            player = _make(settings, agent, env, episodes, seed=0).learn()
            if player.design is not None and player.design.status == "interrupted":
                raise KeyboardInterrupt  # Ctrl-C ends the run; an interrupted design must not be used
            try:
                with replacing_folder(target) as new:
                    player.save(new)
            except OSError as error:
                raise RunFolderError(
                    f"Expected to write {target}, got {error.strerror or error}; choose a folder that you can write to"
                ) from error
    assert player.design is not None  # only called for agents with a design
    return {"agent": agent.label, **describe_design(player.design)}


def solve_designs(settings: DesignSettings, run: Run, tokens: Tokens) -> list[dict[str, Any]]:
    """Solve the designs of all agents that have one, each as a unit of work; return their descriptions."""
    work = [
        (settings, position, planned, run.folder.path, tokens)
        for position, agent in enumerate(settings.parsed_agents)
        if has_design(agent)
        for planned, _ in settings.planned(agent)
    ]
    return run.do_all("designs", solve_and_save, work)


def obtain_agent(settings: DesignSettings, position: int, episodes: int, folder: Path, env: Any, seed: int) -> Agent:
    """Return an agent ready to ask: with its saved design, or trained now; its draws come from ``seed``."""
    agent = settings.parsed_agents[position]
    if has_design(agent):
        player = agent_class(agent.name).load(folder_of(folder, agent, position, episodes), env)
        reseed(player, seed)
        return player
    return _make(settings, agent, env, episodes, seed).learn()
