"""The questions of a run, and their approximate cost."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from edpbrl_gym._seeds import generator
from edpbrl_gym.experiments.llm.settings import LLMSettings
from edpbrl_gym.oracles.judge import JudgeQuestion, JudgeSettings
from edpbrl_gym.oracles.judge.messages import most_input_tokens
from edpbrl_gym.oracles.judge.questions import Usage
from edpbrl_gym.vocabulary import load_vocabulary

__all__ = ["Plan", "make_plan"]

# English text in chat models' tokenizers: about four bytes per token
_BYTES_PER_TOKEN = 4.0
_ANSWER_TOKENS = 10  # {"preference": "A"}
_SAMPLE = 400  # random prompts from which the lengths are estimated


@dataclass(frozen=True)
class Plan:
    """The size of a run, before anything is asked.

    Attributes:
        styles: Number of styles.
        arms: Number of agents.
        questions_per_arm: T * H.
        looks: 2 with a second look, else 1.
        images: Upper bound on the pictures to render (equal prompts are rendered once); 0 in text mode.
        input_tokens: Estimate for all questions.
        most_input_tokens: The bound that the judge counts if a server reports no tokens.
        output_tokens: Estimate for all questions.
        cost: Cost of the estimates, None if a price is not known.
    """

    styles: int
    arms: int
    questions_per_arm: int
    looks: int
    images: int
    input_tokens: int
    most_input_tokens: int
    output_tokens: int
    cost: float | None

    @property
    def questions(self) -> int:
        """Questions put to the judge, second looks included."""
        return self.styles * self.arms * self.questions_per_arm * self.looks


def make_plan(settings: LLMSettings, judge: JudgeSettings) -> Plan:
    """Count the questions and estimate the tokens from random prompts of the vocabulary; asks nothing, loads no model.

    In text mode a token is assumed to have four bytes; a picture is assumed to cost ``judge.tokens_per_image``, for
    most models a bound far above their count.
    """
    train, _ = settings.design.split(load_vocabulary(settings.vocabulary))
    rng = generator(settings.seed, "plan")
    looks, images = 2 if judge.second_look else 1, judge.show == "images"
    per_question, bounds = [], []
    steps = train.horizon
    for _ in range(_SAMPLE // steps):
        prompts = [[int(rng.integers(size)) for size in train.sizes] for _ in range(settings.num_options)]
        for step in range(steps):
            texts = [train.prompt(prompt[: step + 1]) for prompt in prompts]
            question = JudgeQuestion(texts=texts, images=[Path("any.png")] * len(texts) if images else None)
            bound = most_input_tokens(judge, question)
            pictures = settings.num_options * judge.tokens_per_image if images else 0
            per_question.append((bound - pictures) / _BYTES_PER_TOKEN + pictures)
            bounds.append(bound)
    questions = settings.episodes * steps
    total = len(settings.styles) * len(settings.agents) * questions * looks
    usage = Usage(round(total * float(np.mean(per_question))), total * _ANSWER_TOKENS)
    pictures = len(settings.agents) * questions * settings.num_options if images else 0
    return Plan(
        styles=len(settings.styles),
        arms=len(settings.agents),
        questions_per_arm=questions,
        looks=looks,
        images=pictures,
        input_tokens=usage.input_tokens,
        most_input_tokens=round(total * float(np.mean(bounds))),
        output_tokens=usage.output_tokens,
        cost=usage.cost(judge.price_per_million_input, judge.price_per_million_output),
    )
