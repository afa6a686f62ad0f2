"""A judge as an oracle, for environments, sessions and everything else that asks oracles."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np

from edpbrl_gym.comparisons import Queries
from edpbrl_gym.oracles.base import Answers
from edpbrl_gym.oracles.judge.judge import Judge
from edpbrl_gym.oracles.judge.questions import JudgeQuestion

__all__ = ["JudgeOracle", "Picture", "PromptRenderer"]


class Picture(Protocol):
    """A picture of a prompt; :class:`edpbrl_gym.rendering.RenderedImage` is one."""

    @property
    def png(self) -> bytes:
        """The picture as PNG."""
        ...

    @property
    def flagged(self) -> bool:
        """Whether the model's safety checker has flagged it."""
        ...


class PromptRenderer(Protocol):
    """A renderer of prompts; :class:`edpbrl_gym.rendering.Renderer` is one."""

    def render(self, prompts: Sequence[str], *, seed: int = 0) -> Sequence[Picture]:
        """One picture for every prompt, in order."""
        ...


class JudgeOracle:
    """A :class:`Judge` as an :class:`~edpbrl_gym.oracles.Oracle`.

    A question without an answer (refused, unreadable, lost, over the budget) is a skip. The identity of a question in
    the ledger is "episode/step".

    Args:
        judge: The judge.
        renderer: Renderer of the options' texts, required if the judge is shown images. A question with a picture that
            the safety checker has flagged is not asked.
        image_seed: Seed of the noise of all pictures, so that options differ only by their texts.
        name: Name of the oracle, recorded with every comparison.

    Raises:
        ValueError: The judge is shown images, but there is no renderer.
    """

    def __init__(
        self, judge: Judge, renderer: PromptRenderer | None = None, *, image_seed: int = 0, name: str = "judge"
    ) -> None:
        if judge.settings.show == "images" and renderer is None:
            raise ValueError(
                "Expected a renderer for a judge that is shown images, got none; give one, or use "
                "JudgeSettings(show='texts')"
            )
        self.judge = judge
        self.renderer = renderer
        self.image_seed = image_seed
        self._name = name

    @property
    def name(self) -> str:
        """Name of the oracle."""
        return self._name

    def describe(self) -> dict[str, Any]:
        """All settings of this oracle, JSON-able."""
        settings = self.judge.settings
        described: dict[str, Any] = {
            "name": self.name,
            "kind": "judge",
            "model": settings.model,
            "address": settings.address,
            "style": settings.style,
            "show": settings.show,
            "temperature": settings.temperature,
            "second_look": settings.second_look,
            "seed": settings.seed,
        }
        if settings.show == "images":
            described["image_seed"] = self.image_seed
            described["renderer"] = getattr(self.renderer, "fingerprint", type(self.renderer).__name__)
        return described

    def answer(self, queries: Queries) -> Answers:
        """Ask the judge all questions.

        Args:
            queries: Questions with texts.

        Returns:
            The best options; a skip if there is no answer.

        Raises:
            ValueError: The questions have no texts.
            ConnectionError: The server rejects the key, does not have the model, or stopped answering.
        """
        if queries.texts is None:
            raise ValueError(
                "Expected questions with texts for a judge, got features only; use an environment with "
                "trajectory_texts (or state_texts), or give Queries their texts"
            )
        choices = np.full(len(queries), -1, dtype=np.int64)
        indices, questions = self._questions(queries, queries.texts)
        verdicts = self.judge.ask(questions)
        for index, verdict in zip(indices, verdicts, strict=True):
            if verdict.choice is not None:
                choices[index] = verdict.choice
        return Answers.of_choices(choices, self.describe())

    def _questions(self, queries: Queries, texts: list[list[str]]) -> tuple[list[int], list[JudgeQuestion]]:
        """The indices of the questions that can be asked, and these questions."""
        names = [f"{episode}/{step}" for episode, step in zip(queries.episode, queries.step, strict=True)]
        if self.judge.settings.show == "texts":
            indices = list(range(len(queries)))
            return indices, [JudgeQuestion(texts=texts[i], identity=names[i]) for i in indices]
        assert self.renderer is not None
        pictures = self.renderer.render([text for options in texts for text in options], seed=self.image_seed)
        indices, questions = [], []
        for i in range(len(queries)):
            question_pictures = pictures[i * queries.num_options : (i + 1) * queries.num_options]
            if any(picture.flagged for picture in question_pictures):
                continue
            indices.append(i)
            questions.append(
                JudgeQuestion(texts=texts[i], images=[picture.png for picture in question_pictures], identity=names[i])
            )
        return indices, questions
