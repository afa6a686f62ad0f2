"""Observe the partial prompt as text."""

from __future__ import annotations

from typing import Any

import gymnasium
from gymnasium.spaces import Text

from edpbrl_gym._base_environment import base_environment

__all__ = ["TextObservation"]


class TextObservation(gymnasium.ObservationWrapper, gymnasium.utils.RecordConstructorArgs):
    """Replace the token indices by the partial prompt, "" at the start.

    The ``Text`` space's characters are those of the vocabulary and its maximal length that of the longest prompt.

    Args:
        env: A prompt environment: ``env.unwrapped`` has ``vocabulary`` and ``trajectory_texts``.

    Raises:
        TypeError: If it lacks one of them.
    """

    def __init__(self, env: gymnasium.Env) -> None:
        gymnasium.utils.RecordConstructorArgs.__init__(self)
        gymnasium.ObservationWrapper.__init__(self, env)
        self._base = base_environment(env)
        missing = [name for name in ("vocabulary", "trajectory_texts") if not hasattr(self._base, name)]
        if missing:
            raise TypeError(
                f"Expected an environment whose unwrapped form has {' and '.join(missing)} (a prompt environment), got "
                f"{type(self._base).__name__}."
            )
        words = self._base.vocabulary
        longest = [max(range(len(step)), key=lambda index: len(step[index])) for step in words.tokens]
        prompt = words.prompt(longest)
        characters = frozenset(prompt).union(*(frozenset(token) for token in words.all_tokens))
        self.observation_space = Text(len(prompt), min_length=0, charset=characters)

    def observation(self, observation: Any) -> str:
        """Text of the partial prompt."""
        return str(self._base.trajectory_texts(observation[None])[0])
