"""Questions for people, without repeated options.

The K options of a question come from K lanes that act independently, so that two of them may be equal: a person would
compare a prompt with itself. Such an option is exchanged before the lanes step.
"""

from __future__ import annotations

import math
from collections import Counter
from typing import Any

import numpy as np
from numpy.typing import NDArray

from edpbrl_gym._feedback import Feedback, check_feedback
from edpbrl_gym.agents.base import Agent
from edpbrl_gym.agents.tabular import require
from edpbrl_gym.mdp import PromptMDP
from edpbrl_gym.vocabulary import Vocabulary
from edpbrl_gym.vocabulary.tokens import fold
from edpbrl_gym.vocabulary.vocabulary import SEPARATOR

__all__ = ["DistinctOptions", "check_enough_options"]


def check_enough_options(vocabulary: Vocabulary, num_options: int, feedback: Feedback) -> None:
    """Raise a ValueError if a step that asks does not have K different options; the message names it.

    Args:
        vocabulary: The tokens.
        num_options: Number of options K of a question.
        feedback: With "truncated", the options of step h are the partial prompts of h + 1 tokens; with "state", its
            tokens; with "prompt", the last step alone asks, about complete prompts.
    """
    counts = [math.prod(vocabulary.sizes[: step + 1]) for step in range(vocabulary.horizon)]
    if feedback == "state":
        counts = list(vocabulary.sizes)
    if feedback == "prompt":
        if counts[-1] < num_options:
            raise ValueError(
                f"Expected at least K = {num_options} different complete prompts, so that all options of a question "
                f"differ, got {counts[-1]}; ask with fewer options, or add tokens."
            )
        return
    too_few = [
        f"{count} at step {step} ({vocabulary.names[step]})" for step, count in enumerate(counts) if count < num_options
    ]
    if not too_few:
        return
    option_kind = "partial prompts" if feedback == "truncated" else "tokens"
    order = "begin with a longer file, " if feedback == "truncated" and vocabulary.horizon > 1 else ""
    raise ValueError(
        f"Expected at least K = {num_options} different {option_kind} at every step, so that all options of a question "
        f"differ, got {', '.join(too_few)}; ask with at most K = {min(counts)} options, {order}or add tokens."
    )


class DistinctOptions:
    """Exchanges options that their question shows already.

    The first of equal options stays. Each later one is replaced by an option that the question doesn't show yet, drawn
    with the agent's weights (`Agent.option_weights`), or uniformly if it has none or they are 0 on all unused actions.
    Options are equal if their texts are (ignoring case and runs of white space). Questions without equal options stay
    as they are, and the agent's own generator is not used. Where complete prompts are compared, partial ones may be
    equal as long as the steps that follow can still tell them apart.

    Args:
        base: The innermost environment, a prompt environment.
        num_options: Number of options K of a question.
        feedback: Options compared: "truncated" (partial prompts), "state" (the last token) or "prompt" (complete
            prompts).
        seed: Seed of the draws.

    Attributes:
        exchanged: Number of options exchanged so far.

    Raises:
        TypeError: If the environment does not build prompts.
        ValueError: If there are fewer than K different options at a step.
    """

    def __init__(self, base: Any, *, num_options: int, feedback: Feedback, seed: int) -> None:
        require(base, "mdp", "vocabulary", who="distinct options")
        if not isinstance(base.mdp, PromptMDP):
            raise TypeError(
                f"Expected an environment with a PromptMDP for distinct options, got a {type(base.mdp).__name__}; its "
                "options have no texts to compare."
            )
        check_feedback(feedback)
        check_enough_options(base.vocabulary, num_options, feedback)
        self.exchanged = 0
        self._base = base
        self._num_options = num_options
        self._with_prefix = feedback != "state"
        sizes = base.vocabulary.sizes
        # lanes of each step that may be equal: the steps after it can still make them differ
        self._equal = [math.prod(sizes[step + 1 :]) if feedback == "prompt" else 1 for step in range(len(sizes))]
        self._tokens = [[fold(token) for token in step] for step in base.vocabulary.tokens]
        self._rng = np.random.default_rng([seed, 0])

    def __call__(self, agent: Agent, observation: NDArray[Any], actions: NDArray[Any]) -> NDArray[Any]:
        """Return the actions of n lanes, exchanged where a question would repeat an option.

        Args:
            agent: Agent that chose the actions.
            observation: Its observations, (n, H).
            actions: Its actions, (n,); illegal ones are left for the environment to reject.

        Raises:
            ValueError: If every unused option of a step has the text of one that is shown.
        """
        result, steps = np.array(actions), self._base.mdp_step(observation)
        if result.shape != steps.shape:
            return result
        for start in range(0, len(result), self._num_options):
            step, group = int(steps[start]), slice(start, start + self._num_options)
            if step < len(self._tokens) and ((result[group] >= 0) & (result[group] < len(self._tokens[step]))).all():
                self._exchange(agent, observation[group], step, result[group])
        return result

    def _exchange(self, agent: Agent, lanes: NDArray[Any], step: int, actions: NDArray[Any]) -> None:
        """Exchange the repeats of one question beyond those allowed, in place."""
        prefixes = [self._prefix(lane, step) for lane in lanes]
        texts = [prefix + self._tokens[step][action] for prefix, action in zip(prefixes, actions, strict=True)]
        for option, text in enumerate(texts):
            if texts[:option].count(text) < self._equal[step]:
                continue
            shown = Counter(texts[:option] + texts[option + 1 :])
            usable = np.array([shown[prefixes[option] + token] < self._equal[step] for token in self._tokens[step]])
            if not usable.any():
                raise ValueError(
                    f"Expected a token at step {step} that makes another prompt than {text!r}, found none: tokens with "
                    "commas make different choices read the same; take other tokens or fewer options."
                )
            actions[option] = self._draw(agent, lanes[option], step, option, usable)
            texts[option] = prefixes[option] + self._tokens[step][actions[option]]
            self.exchanged += 1

    def _prefix(self, lane: NDArray[Any], step: int) -> str:
        """The folded text of an option before its next token."""
        if not self._with_prefix:
            return ""
        return "".join(self._tokens[earlier_step][lane[earlier_step]] + SEPARATOR for earlier_step in range(step))

    def _draw(self, agent: Agent, observation: NDArray[Any], step: int, option: int, usable: NDArray[np.bool_]) -> int:
        weights = usable.astype(np.float64)
        for agent_weights in agent.option_weights(observation, step, option):
            if (agent_weights[: usable.size] * usable).sum() > 0:
                weights = agent_weights[: usable.size] * usable
                break
        return int(self._rng.choice(usable.size, p=weights / weights.sum()))
