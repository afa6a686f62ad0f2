"""The questions of every arm: drawn once from its design, embedded once, the same for all styles."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from edpbrl_gym._seeds import derive_seed
from edpbrl_gym._threads import one_thread
from edpbrl_gym.collection.collect import ENVIRONMENT, draw_questions
from edpbrl_gym.experiments.designs import Tokens, make_lanes, obtain_agent, solve_designs
from edpbrl_gym.experiments.framework import Run
from edpbrl_gym.experiments.llm.settings import LLMSettings
from edpbrl_gym.features.memo import raw_encoder

__all__ = ["ArmQuestions", "make_questions"]


@dataclass(frozen=True, eq=False)
class ArmQuestions:
    """The T * H questions of one arm, ordered by episode and step."""

    arm: str  # label of the agent
    texts: list[list[str]]  # the K partial prompts of each question
    features: NDArray[np.float32]  # their embeddings, (n, K, d); equal texts have equal rows
    episode: NDArray[np.int64]  # of each question, (n,)
    step: NDArray[np.int64]  # of each question, (n,)

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


def make_questions(settings: LLMSettings, run: Run, tokens: Tokens) -> list[ArmQuestions]:
    """Solve the designs, draw and embed the questions of every arm; finished parts are read from the folder."""
    parts = [f"questions-{number:02d}" for number in range(len(settings.agents))]
    missing = [number for number, part in enumerate(parts) if not run.folder.has_part(part)]
    if missing:
        solved = solve_designs(settings, run, tokens)
        run.folder.note(designs=sorted(solved, key=lambda design: design["agent"]))
        for number in run.track("questions", missing, len(missing)):
            run.folder.write_part(parts[number], _draw(settings, number, run.folder.path, tokens))
    return [_read(run.folder.read_parts([part])) for part in parts]


def _draw(settings: LLMSettings, number: int, folder: Path, tokens: Tokens) -> Any:
    """Draw the questions of one arm and embed their options: a row for each option."""
    import pandas

    agent = settings.parsed_agents[number]
    seed = derive_seed(settings.seed, "llm questions", agent.text)
    with one_thread():
        env = make_lanes(settings, tokens, settings.num_options * settings.episodes)
        player = obtain_agent(settings, number, settings.episodes, folder, env, seed)
        questions = draw_questions(
            ENVIRONMENT,
            player,
            episodes=settings.episodes,
            env_arguments=settings.environment,
            distinct=False,  # the paper's lanes, which may show equal options
        ).questions
        env.close()
        # all texts in one call, so that the batches, and with them the last bits, are always the same
        texts = list(dict.fromkeys(text for _, _, options in questions for text in options))
        encoder = raw_encoder(settings.encoder, tokens.fingerprint)
        rows = dict(zip(texts, encoder.encode(texts), strict=True))
    return pandas.DataFrame(
        {
            "arm": agent.label, "episode": episode, "step": step, "option": option, "text": text,
            "features": rows[text],
        }
        for episode, step, options in questions
        for option, text in enumerate(options)
    )  # fmt: skip


def _read(table: Any) -> ArmQuestions:
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
