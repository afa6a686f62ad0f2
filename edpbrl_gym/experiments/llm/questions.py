"""The questions of every arm: drawn once from its design, embedded once, the same for all styles."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from edpbrl_gym._seeds import derive_seed
from edpbrl_gym._threads import one_thread
from edpbrl_gym.agents.registry import agent_class
from edpbrl_gym.collection.collect import ENVIRONMENT, draw_questions
from edpbrl_gym.experiments.designs import Tokens, make_lanes, obtain_agent, solve_designs
from edpbrl_gym.experiments.framework import Run
from edpbrl_gym.experiments.llm.settings import LLMSettings
from edpbrl_gym.experiments.runs import RunFolder
from edpbrl_gym.features.memo import raw_encoder

__all__ = ["ArmQuestions", "check_agents", "make_questions"]


@dataclass(frozen=True, eq=False)
class ArmQuestions:
    """The T * H questions of one arm, ordered by episode and step.

    Attributes:
        arm: Label of the agent.
        texts: The K partial prompts of each question.
        features: Their embeddings, (n, K, d); equal texts have equal rows.
        episode: Episode of each question, (n,).
        step: Step of each question, (n,).
    """

    arm: str
    texts: list[list[str]]
    features: NDArray[np.float32]
    episode: NDArray[np.int64]
    step: NDArray[np.int64]

    def __len__(self) -> int:
        """Number of questions n."""
        return len(self.texts)

    def identity(self, number: int) -> str:
        """Name of a question within the run; the order of its labels is a function of it."""
        return f"{self.arm}: episode {self.episode[number]}, step {self.step[number]}"

    @property
    def first_equal(self) -> NDArray[np.int64]:
        """For each option the first option of its question with the same text, (n, K).

        A design with few tokens often draws the same one for several options, especially at the first step.
        """
        return np.array([[texts.index(text) for text in texts] for texts in self.texts], dtype=np.int64)

    @property
    def with_equal_options(self) -> int:
        """Number of questions in which two options are the same."""
        return sum(len(set(texts)) < len(texts) for texts in self.texts)


def check_agents(settings: LLMSettings) -> None:
    """Raise a ValueError for an unknown agent or one that adapts to the answers, before minutes of work."""
    from edpbrl_gym.agents.base import Agent

    for agent in settings.parsed_agents:
        if agent_class(agent.name).observe is not Agent.observe:
            raise ValueError(
                f"Expected agents whose questions don't depend on the answers, {agent.name!r} adapts them; this "
                "experiment asks the same questions for all styles. Use `edpbrl bench efficiency` for adaptive ones"
            )


def make_questions(settings: LLMSettings, run: Run, tokens: Tokens) -> list[ArmQuestions]:
    """Solve the designs, draw and embed the questions of every arm; finished parts are read from the folder.

    Args:
        settings: The experiment.
        run: Designs go to ``designs/`` of its folder, questions to ``parts/questions-NN.parquet``.
        tokens: Tokens of the train part.
    """
    places = range(len(settings.parsed_agents))
    missing = [place for place in places if not run.folder.has_part(_part(place))]
    if missing:
        solved = solve_designs(settings.design, run, tokens)
        run.folder.note(designs=sorted(solved, key=lambda design: design["agent"]))
        for place in run.track("questions", missing, len(missing)):
            _draw(settings, place, run.folder, tokens)
    return [_read(run.folder, place) for place in places]


def _part(place: int) -> str:
    return f"questions-{place:02d}"


def _draw(settings: LLMSettings, place: int, folder: RunFolder, tokens: Tokens) -> None:
    """Draw the questions of one arm, embed their options and write them."""
    import pandas

    agent = settings.parsed_agents[place]
    seed = derive_seed(settings.seed, "llm questions", agent.text)
    with one_thread():
        env = make_lanes(settings.design, tokens, settings.num_options * settings.episodes)
        player = obtain_agent(settings.design, place, settings.episodes, folder.path, env, seed)
        questions = draw_questions(
            ENVIRONMENT,
            player,
            episodes=settings.episodes,
            env_arguments=settings.design.environment,
            distinct=False,  # the paper's lanes, which may show equal options
        ).questions
        env.close()
        # all texts in one call, so that the batches, and with them the last bits, are always the same
        texts = list(dict.fromkeys(text for _, _, options in questions for text in options))
        encoder = raw_encoder(settings.encoder, tokens.fingerprint)
        rows = dict(zip(texts, encoder.encode(texts), strict=True))
    table: list[dict[str, Any]] = [
        {
            "arm": agent.label, "episode": episode, "step": step, "option": option, "text": text,
            "features": rows[text],
        }
        for episode, step, options in questions
        for option, text in enumerate(options)
    ]  # fmt: skip
    folder.write_part(_part(place), pandas.DataFrame(table))


def _read(folder: RunFolder, place: int) -> ArmQuestions:
    table = folder.read_parts([_part(place)])
    options = int(table["option"].max()) + 1
    features = np.stack([np.asarray(row, dtype=np.float32) for row in table["features"]])
    first = table[table["option"] == 0]
    return ArmQuestions(
        arm=str(table["arm"].iloc[0]),
        texts=table["text"].to_numpy().reshape(-1, options).tolist(),
        features=features.reshape(-1, options, features.shape[1]),
        episode=first["episode"].to_numpy(dtype=np.int64),
        step=first["step"].to_numpy(dtype=np.int64),
    )
