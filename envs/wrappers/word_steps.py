"""One step = one word: language models write the lanes' prompts word by word, so that lanes can be compared."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np
from gymnasium.spaces import Discrete
from gymnasium.utils import RecordConstructorArgs
from gymnasium.vector import AutoresetMode, VectorEnv, VectorWrapper
from gymnasium.vector.utils import batch_space
from numpy.typing import ArrayLike, NDArray

from edpbrl_gym._arrays import Booleans, Indices
from edpbrl_gym._validation import check_number
from edpbrl_gym.envs.common import LaneInfos, check_complete, check_lane_actions, final_infos, first_seed, lane_infos
from edpbrl_gym.envs.text_generation import TextGenerationVectorEnv
from edpbrl_gym.language.decoding import PrefixDecoder
from edpbrl_gym.language.model import LanguageModel

__all__ = ["WordSteps"]


class WordSteps(VectorWrapper, RecordConstructorArgs):
    """Lanes of a text-generation environment that write one whole word in each step, all for exactly H steps.

    Lanes need different numbers of tokens for a word, so at the level of tokens they can't be compared step by step.
    Here the action of a lane is the index of the language model that writes its next word (lane b * K + q plays policy
    q, as everywhere: ``numpy.arange(num_envs) % K``), and the observation after step h is the prefix of its first h
    words, as ``edpbrl_gym.language.words.word_prefixes`` cuts it. A lane whose prompt has fewer words keeps its last
    prefix. All lanes terminate after step H, so ``PreferenceQuery`` over this wrapper asks H questions an episode.

    A word is complete when the token after it is drawn; that token is held for the next step, so it is drawn by the
    model of the word that it ends. With one model throughout, a lane's prompt has the distribution of
    ``sample_prompts``; row i of the uniforms drawn at a reset belongs to the i-th lane that is reset, one number per
    token.

    Every model caches its keys and values, so only new tokens of the lanes are fed.

    ``infos`` hold ``prompt`` (the prefix), ``step`` (steps taken), ``word`` (words of the prefix; fewer than
    ``step`` where the prompt has ended) and ``action_mask`` (num_envs, K), all ones.

    Args:
        env: A ``TextGenerationVectorEnv`` itself; wrappers of its token steps would not see the words' tokens.
        policies: K language models with the environment's tokens; None is the environment's own model alone.
        temperature: Divides the logits, > 0.
        seed: Seed of the draws until ``reset`` gets another.

    Raises:
        TypeError: If ``env`` is another environment, or a policy no ``LanguageModel``.
        ValueError: If a policy has other tokens than the environment, or its tokenizer has tokens with parts of two
            words (byte-level BPE with its usual split at spaces has none).
    """

    def __init__(
        self,
        env: VectorEnv,
        policies: Sequence[LanguageModel] | None = None,
        *,
        temperature: float = 1.0,
        seed: int | None = None,
    ) -> None:
        RecordConstructorArgs.__init__(
            self, policies=policies, temperature=temperature, seed=seed, _disable_deepcopy=True
        )
        VectorWrapper.__init__(self, env)
        if not isinstance(env, TextGenerationVectorEnv):
            raise TypeError(
                f'Expected gymnasium.make_vec("edpbrl/TextGeneration-v0", ...) without wrappers, got '
                f"{type(env).__name__}; put WordSteps on it first and other wrappers on WordSteps."
            )
        self.lanes_env = env
        self.temperature = check_number(temperature, "temperature", minimum=0.0, exclusive=True)
        self.policies = tuple([env.language_model] if policies is None else policies)
        self._check_policies()
        self.words = env.model.words
        self.single_action_space = Discrete(len(self.policies))
        self.action_space = batch_space(self.single_action_space, self.num_envs)
        self._decoders = [PrefixDecoder(policy, self.num_envs) for policy in self.policies]
        self._rng = np.random.default_rng(seed)
        self._uniforms = np.zeros((self.num_envs, env.model.horizon))
        self._num_drawn: Indices = np.zeros(self.num_envs, dtype=np.int64)  # tokens drawn in the lane's episode
        self._held: Indices = np.full(self.num_envs, -1, dtype=np.int64)  # tokens held, as part of the next word
        self._steps: Indices = np.zeros(self.num_envs, dtype=np.int64)

    def reset(
        self, *, seed: int | Sequence[int | None] | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Indices, dict[str, Any]]:
        """Begin empty prompts in all lanes, or in those of ``options["reset_mask"]``; a seed also seeds the draws."""
        mask = (options or {}).get("reset_mask")
        mask = np.ones(self.num_envs, dtype=np.bool_) if mask is None else np.array(mask)
        observations, _ = self.lanes_env.reset(seed=seed, options=options)
        if (first := first_seed(seed, self.num_envs)) is not None:
            self._rng = np.random.default_rng(first)
        self._begin(mask)
        return observations, self._infos(mask)

    def step(self, actions: ArrayLike) -> tuple[Indices, NDArray[np.float64], Booleans, Booleans, dict[str, Any]]:
        """Write one word in each lane.

        Args:
            actions: Index of the policy that writes, integers (num_envs,); ignored for a lane that restarts.

        Raises:
            ValueError: If the actions have a wrong shape or name no policy.
            ResetNeeded: If reset() was never called or, in mode "disabled", a complete lane was not reset.
        """
        policies = self._check_actions(actions)
        mode, complete = self.lanes_env.autoreset_mode, self._steps == self.words
        check_complete(complete, mode)
        if complete.any():
            self.lanes_env.reset(options={"reset_mask": complete})
            self._begin(complete)
        active = ~complete
        self._write(np.flatnonzero(active), policies)
        self._steps[active] += 1
        observations, terminations = self._observations(), self._steps == self.words
        final: dict[str, Any] = {}
        if mode is AutoresetMode.SAME_STEP and terminations.any():
            final = final_infos(observations, self._infos(terminations), terminations)
            self.lanes_env.reset(options={"reset_mask": terminations})
            self._begin(terminations)
            observations = self._observations()
        infos = self._infos(np.ones(self.num_envs, dtype=np.bool_))
        infos.update(final)
        return observations, np.zeros(self.num_envs), terminations, np.zeros_like(terminations), infos

    def _write(self, rows: Indices, policies: Indices) -> None:
        """Append to each of the rows the tokens of its next word, written by its policy."""
        lanes, rules = self.lanes_env.state, self.lanes_env.rules
        goal = self._steps + 1  # words that a lane has begun when this step's word is the last one
        rows = rows[~lanes.ended[rows]]
        while rows.size:
            undrawn = rows[self._held[rows] < 0]
            self._draw(undrawn, policies[undrawn])
            tokens = self._held[rows]
            text = tokens != rules.eos
            num_words = lanes.num_words[rows] + np.where(text, rules.started(tokens, lanes.inside[rows]), 0)
            fits = num_words <= goal[rows]  # other tokens are held: they begin the word of the next step
            rows, tokens = rows[fits], tokens[fits]
            self.lanes_env.append(rows, tokens)
            self._held[rows] = -1
            closed = rules.complete(lanes.num_words[rows], lanes.inside[rows], 1) & (
                lanes.num_words[rows] == goal[rows]
            )
            rows = rows[~lanes.ended[rows] & ~closed]

    def _draw(self, rows: Indices, policies: Indices) -> None:
        """Draw the next token of the given rows from their policies."""
        import torch

        from edpbrl_gym.language.sampling import draw_tokens, token_scores

        lanes, model = self.lanes_env.state, self.lanes_env.model
        for number in np.unique(policies):
            own = rows[policies == number]
            policy = self.policies[number]
            logits = self._decoders[number].logits(model.prefixes(lanes, own, policy.start), own.tolist())
            uniforms = torch.from_numpy(self._uniforms[own, self._num_drawn[own]])
            tokens, _, _ = draw_tokens(
                token_scores(policy, logits, self.temperature), uniforms,
                rules=model.rules, num_words=lanes.num_words[own], inside=lanes.inside[own], words=model.words,
            )  # fmt: skip
            self._held[own] = tokens.numpy()
            self._num_drawn[own] += 1

    def _begin(self, mask: Booleans) -> None:
        self._uniforms[mask] = self._rng.random((int(mask.sum()), self._uniforms.shape[1]))
        self._num_drawn[mask] = 0
        self._held[mask] = -1
        self._steps[mask] = 0
        for decoder in self._decoders:
            decoder.forget(np.flatnonzero(mask).tolist())  # a policy may have been trained since

    def _observations(self) -> Indices:
        return self.lanes_env.state.tokens.copy()

    def _check_policies(self) -> None:
        env = self.lanes_env
        if not self.policies:
            raise ValueError("Expected at least one policy, got none; None is the environment's own language model.")
        for policy in self.policies:
            if not isinstance(policy, LanguageModel):
                raise TypeError(
                    f"Expected policies as LanguageModel (load_language_model gives one), got {type(policy).__name__}."
                )
            env.model.check_language_model(policy)
        if env.rules.max_begins > 1:
            token = int(np.argmax(env.rules.begins))
            raise ValueError(
                f"Expected a tokenizer whose tokens have parts of one word at most, got {env.rules.pieces[token]!r} "
                f"(token {token}); a prefix of words is no prefix of its tokens. Use another model."
            )

    def _check_actions(self, actions: ArrayLike) -> Indices:
        chosen, count = check_lane_actions(actions, self.num_envs), len(self.policies)
        if chosen.min() < 0 or chosen.max() >= count:
            raise ValueError(
                f"Expected actions in 0..{count - 1}, the indices of the policies, got {chosen.tolist()}; lane i plays "
                f"policy i % {count} by convention."
            )
        return chosen

    def _infos(self, mask: Booleans) -> LaneInfos:
        lanes = self.lanes_env.state
        texts = partial(self.lanes_env.trajectory_texts, lanes.tokens[mask])
        counts = {"step": self._steps, "word": lanes.num_words}
        return lane_infos(mask, texts, self._all_legal, counts)

    def _all_legal(self) -> NDArray[np.int8]:
        return np.ones((self.num_envs, len(self.policies)), dtype=np.int8)
