"""The questions of a run, and their approximate cost."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from edpbrl_gym._seeds import generator
from edpbrl_gym.experiments.llm.settings import LLMSettings
from edpbrl_gym.oracles.judge import JudgeQuestion, JudgeSettings
from edpbrl_gym.oracles.judge.messages import most_input_tokens
from edpbrl_gym.oracles.judge.questions import Usage
from edpbrl_gym.vocabulary import load_vocabulary

__all__ = ["plan_lines"]

# English text in chat models' tokenizers: about four bytes per token
_BYTES_PER_TOKEN = 4.0
_ANSWER_TOKENS = 10  # {"preference": "A"}
_SAMPLE = 400  # random prompts from which the lengths are estimated


def plan_lines(
    settings: LLMSettings, judge: JudgeSettings, renderer: str | None, price: float | None = None
) -> list[str]:
    """Say how many questions a run asks, and what they cost by random prompts; asks nothing, loads no model.

    In text mode a token is assumed to have four bytes; a picture is assumed to cost the judge
    ``judge.tokens_per_image``, for most models a bound far above their count, and ``price`` where it is drawn.
    """
    train, _ = load_vocabulary(settings.vocabulary).split(settings.seed)
    rng = generator(settings.seed, "plan")
    images = judge.show == "images"
    pictures = settings.num_options * judge.tokens_per_image if images else 0
    bounds = []  # of the tokens of a question, which the judge counts if a server reports none
    for _ in range(_SAMPLE // train.horizon):
        prompts = [[int(rng.integers(size)) for size in train.sizes] for _ in range(settings.num_options)]
        for length in range(1, train.horizon + 1):
            texts = [train.prompt(prompt[:length]) for prompt in prompts]
            question = JudgeQuestion(texts=texts, images=[Path("any.png")] * len(texts) if images else None)
            bounds.append(most_input_tokens(judge, question))
    each = settings.episodes * train.horizon
    total = len(settings.styles) * len(settings.agents) * each * (2 if judge.second_look else 1)
    most = float(np.mean(bounds))
    usage = Usage(round(total * ((most - pictures) / _BYTES_PER_TOKEN + pictures)), total * _ANSWER_TOKENS)
    lines = [
        f"{total} questions to {judge.model} at {judge.address}: {len(settings.styles)} styles x "
        f"{len(settings.agents)} agents x {each} questions{' x 2 looks' if judge.second_look else ''}.",
        f"About {usage.input_tokens:,} input and {usage.output_tokens:,} output tokens, an estimate from random "
        f"prompts (a server that reports no counts is taken to read at most {round(total * most):,}).",
    ]
    if images:  # equal prompts are rendered once
        most_images = len(settings.agents) * each * settings.num_options
        paid = "" if price is None else f", for at most {most_images * price:g}"
        lines.append(
            f"At most {most_images} images to render with {renderer}{paid}, each counted as {judge.tokens_per_image} "
            "tokens (--tokens-per-image; its default is far more than most models count)."
        )
    cost = usage.cost(judge.price_per_million_input, judge.price_per_million_output)
    told = "give --price-per-million-input and --price-per-million-output to have it estimated"
    told = told if cost is None else f"about {cost:.2f} in the currency of the prices"
    return [*lines, f"Cost: {told}.", "Nothing was asked."]
