"""Questions that people answer: no option twice.

The K options of a question come from K lanes that act independently, so that two of them may come out equal. Whoever
answers then compares a prompt with itself. Here such an option is exchanged within its question, before the lanes move.
"""

from __future__ import annotations

import math
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from edpbrl_gym._validation import check_choice_of
from edpbrl_gym.agents.base import Agent
from edpbrl_gym.agents.tabular import require
from edpbrl_gym.mdp import PromptMDP
from edpbrl_gym.vocabulary import Vocabulary
from edpbrl_gym.vocabulary.tokens import fold
from edpbrl_gym.vocabulary.vocabulary import SEPARATOR

__all__ = ["DistinctOptions", "check_enough_options"]

Feedback = Literal["truncated", "state"]


def check_enough_options(vocabulary: Vocabulary, num_options: int, feedback: str) -> None:
    """Raise a ValueError that names the steps at which no question can show K different options.

    Args:
        vocabulary: The tokens.
        num_options: K.
        feedback: "truncated": step h has as many options as there are partial prompts of h + 1 tokens; "state": as many
            as tokens.
    """
    counts = [math.prod(vocabulary.sizes[: step + 1]) for step in range(vocabulary.horizon)]
    if feedback == "state":
        counts = list(vocabulary.sizes)
    few = [
        f"{count} at step {step} ({vocabulary.names[step]})" for step, count in enumerate(counts) if count < num_options
    ]
    if not few:
        return
    shown = "partial prompts" if feedback == "truncated" else "tokens"
    order = "begin with a longer file, " if feedback == "truncated" and vocabulary.horizon > 1 else ""
    raise ValueError(
        f"Expected at least K = {num_options} different {shown} at every step, so that all options of a question "
        f"differ, got {', '.join(few)}; ask with at most K = {min(counts)} options, {order}or add tokens."
    )


class DistinctOptions:
    """Exchanges an option that its question shows already.

    Of equal options the first stays. Each later one becomes an option that the question doesn't show yet: drawn from
    what the agent would rather play (`Agent.option_weights`), or uniformly where it doesn't say, or gives all free
    actions no weight. Options are equal if their texts are (case and runs of white space ignored). Questions without a
    repeat stay as they are, and the agent's own generator is not used.

    Args:
        base: The innermost environment, a prompt environment.
        num_options: K.
        feedback: What is compared: "truncated" (partial prompts) or "state" (the last token).
        seed: Seed of the draws.

    Attributes:
        exchanged: Options exchanged so far.

    Raises:
        TypeError: If the environment builds no prompts.
        ValueError: If there are fewer than K different options at a step.
    """

    def __init__(self, base: Any, *, num_options: int, feedback: str, seed: int) -> None:
        require(base, "mdp", "vocabulary", who="distinct options")
        if not isinstance(base.mdp, PromptMDP):
            raise TypeError(
                f"Expected an environment with a PromptMDP for distinct options, got a {type(base.mdp).__name__}; its "
                "options have no texts to compare."
            )
        check_choice_of(feedback, "feedback", ("truncated", "state"))
        check_enough_options(base.vocabulary, num_options, feedback)
        self.exchanged = 0
        self._base = base
        self._num_options = num_options
        self._truncated = feedback == "truncated"
        self._tokens = [[fold(token) for token in step] for step in base.vocabulary.tokens]
        self._rng = np.random.default_rng([seed, 0])

    def __call__(self, agent: Agent, observation: NDArray[Any], actions: NDArray[Any]) -> NDArray[Any]:
        """The actions of n lanes, exchanged where a question would repeat an option.

        Args:
            agent: Who chose the actions.
            observation: What it saw, (n, H).
            actions: What it chose, (n,); illegal ones are left for the environment to refuse.

        Raises:
            ValueError: If all other options of a step read like those that are shown.
        """
        chosen, steps = np.array(actions), self._base.mdp_step(observation)
        if chosen.shape != steps.shape:
            return chosen
        for first in range(0, len(chosen), self._num_options):
            step, group = int(steps[first]), slice(first, first + self._num_options)
            if step < len(self._tokens) and ((chosen[group] >= 0) & (chosen[group] < len(self._tokens[step]))).all():
                self._exchange(agent, observation[group], step, chosen[group])
        return chosen

    def _exchange(self, agent: Agent, lanes: NDArray[Any], step: int, chosen: NDArray[Any]) -> None:
        """Exchange the repeats of one question, in place."""
        prefixes = [self._prefix(lane, step) for lane in lanes]
        texts = [prefix + self._tokens[step][action] for prefix, action in zip(prefixes, chosen, strict=True)]
        for option, text in enumerate(texts):
            if text not in texts[:option]:
                continue
            others = {*texts[:option], *texts[option + 1 :]}
            free = np.array([prefixes[option] + token not in others for token in self._tokens[step]])
            if not free.any():
                raise ValueError(
                    f"Expected a token at step {step} that makes another prompt than {text!r}, found none: tokens with "
                    "commas make different choices read the same; take other tokens or fewer options."
                )
            chosen[option] = self._draw(agent, lanes[option], step, option, free)
            texts[option] = prefixes[option] + self._tokens[step][chosen[option]]
            self.exchanged += 1

    def _prefix(self, lane: NDArray[Any], step: int) -> str:
        """What stands before the next token in an option's text, folded."""
        if not self._truncated:
            return ""
        return "".join(self._tokens[before][lane[before]] + SEPARATOR for before in range(step))

    def _draw(self, agent: Agent, observation: NDArray[Any], step: int, option: int, free: NDArray[np.bool_]) -> int:
        weights = free.astype(np.float64)
        for wanted in agent.option_weights(observation, step, option):
            if (wanted[: free.size] * free).sum() > 0:
                weights = wanted[: free.size] * free
                break
        return int(self._rng.choice(free.size, p=weights / weights.sum()))
