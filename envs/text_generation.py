"""The text-generation environment: a prompt, one token of a language model's tokenizer at a time."""

from __future__ import annotations

from typing import Any

import numpy as np
from gymnasium.error import ResetNeeded
from numpy.typing import NDArray

from edpbrl_gym.envs.array_lanes import RENDER_MODES, integer_action
from edpbrl_gym.envs.bases import SinglePrompt
from edpbrl_gym.envs.text_model import TextAttributes, TextModel

__all__ = ["TextGenerationEnv"]


class TextGenerationEnv(TextAttributes, SinglePrompt):
    """Write a text-to-image prompt token by token, with the tokens of a Hugging Face language model.

    ## Description
    The second MDP of the paper: the state is the prefix of tokens written so far, the action the next token. Nothing is
    random: the same actions give the same prompt. The prompt has at most H words (``words``); a word is a
    maximal run of characters other than ASCII white space. A language model is a policy of this environment;
    ``next_token_log_probs()`` is that of the environment's own model, computed with a cache of keys and values, so
    that a step feeds the model one token.

    Making the environment loads the tokenizer, which fixes the spaces. ``env.unwrapped.language_model`` and
    ``env.unwrapped.encoder`` load the two models on first use. There is no ``.mdp``: the states are too many to list.

    ## Action Space
    ``Discrete(V)``, V the number of the tokenizer's tokens. Legal is every token of text that doesn't begin word H + 1,
    and EOS; other special tokens are not. ``info["action_mask"]`` and ``env.unwrapped.action_masks()`` say which; an
    illegal action is a ``ValueError``. ``env.action_space.sample()`` without a mask draws from the tokens that are
    legal in every state (EOS, white space, and what begins no word after another); to draw from all legal tokens use
    ``env.action_space.sample(info["action_mask"])``.

    ## Observation Space
    ``MultiDiscrete([V + 1] * L)``, L = ``max_tokens``: the token chosen at each step, V where nothing is chosen yet.

    ## Starting State
    The empty prompt: V everywhere.

    ## Rewards
    Always 0: the reward is what is to be learned. Compare lanes word by word with ``WordSteps`` and
    ``PreferenceQuery``, or wrap the environment in ``LearnedReward`` (theta . phi(prompt)).

    ## Episode End
    - Termination: EOS is chosen; or H words are complete (the last is followed by white space); or L tokens are chosen.
      ``env.spec.max_episode_steps`` is L.
    - Truncation: never. (In an environment made from the spec of another, Gymnasium's ``TimeLimit`` reports truncated
      along with terminated after L tokens.)

    ## Information
    ``reset()`` and ``step()`` return a dict with
    - ``action_mask``: int8 (V,), 1 for the actions that the next step allows; all 0 for a complete prompt.
    - ``prompt``: the partial prompt as text without white space around, "" at the start.
    - ``step``: number of tokens chosen so far, EOS included.
    - ``word``: number of complete words, which later tokens can't change.

    ## Arguments
    ```python
    import gymnasium
    import edpbrl_gym

    gymnasium.make("edpbrl/TextGeneration-v0")  # the project's own model, part of the package
    gymnasium.make("edpbrl/TextGeneration-v0", model="Gustavosta/MagicPrompt-Stable-Diffusion")  # the paper's
    gymnasium.make_vec("edpbrl/TextGeneration-v0", num_envs=8, words=8)  # all lanes in one array
    ```

    All arguments are plain names, path strings and numbers, so ``env.spec.to_json()`` works.
    - ``model=None``: hub id or folder of a causal language model with a byte-level BPE tokenizer (GPT-2, OPT, Llama 3,
      Qwen and the like); None is the small prompt model that ships with the package.
    - ``encoder="minilm"``: the text encoder for features, as ``edpbrl_gym.features.load_encoder`` takes it.
    - ``words=8``: H, the word budget; the paper's is 8.
    - ``max_tokens=32``: L, the token budget.
    - ``render_mode=None``: "ansi" (the prompt so far as text) or "rgb_array" (that text drawn as an image).
    - the vector environment also takes ``autoreset_mode="next_step"`` | "same_step" | "disabled".

    ## References
    "Efficient Personalization of Generative Models via Optimal Experimental Design" (ED-PBRL), autoregressive token
    generation and Appendix C, "Vocabulary-Free Experimental Design via REINFORCE".

    ## Version History
    * v0: Initial version
    """

    metadata: dict[str, Any] = {"render_modes": RENDER_MODES, "render_fps": 4}

    def __init__(
        self,
        model: str | None = None,
        encoder: str = "minilm",
        words: int = 8,
        max_tokens: int = 32,
        render_mode: str | None = None,
    ) -> None:
        self._set_render_mode(render_mode)
        self._use_model(TextModel(model=model, encoder=encoder, words=words, max_tokens=max_tokens))
        self.state = self.model.new_lanes(1)
        self._was_reset = False

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[NDArray[np.int64], dict[str, Any]]:
        """Begin an empty prompt; the environment has no options."""
        super().reset(seed=seed)
        self.state = self.model.new_lanes(1)
        self._was_reset = True
        if self._decoder is not None:
            self._decoder.forget()  # the model may have been trained since
        return self.state.tokens[0].copy(), self._info()

    def step(self, action: Any) -> tuple[NDArray[np.int64], float, bool, bool, dict[str, Any]]:
        """Append the chosen token.

        Args:
            action: Id of a legal token.

        Raises:
            ValueError: If the action is illegal in this state; the message says why.
            TypeError: If the action is not an integer.
            ResetNeeded: If the prompt is complete or was never started.
        """
        if not self._was_reset or self.state.ended[0]:
            state = "complete" if self._was_reset else "not started yet"
            raise ResetNeeded(f"The prompt is {state}; call reset() before step().")
        token = integer_action(action)
        self.model.check_action(token, self.state, 0, named=False)
        self.model.append(self.state, np.array([0]), np.array([token]))
        return self.state.tokens[0].copy(), 0.0, bool(self.state.ended[0]), False, self._info()

    def action_masks(self) -> NDArray[np.int8]:
        """Legal actions of the current step, int8 (V,); the method that MaskablePPO asks."""
        return self.model.masks(self.state)[0]

    def next_token_log_probs(self, temperature: float = 1.0) -> NDArray[np.float64]:
        """Log-probabilities of the next action under the environment's language model, (V,).

        The model's own distribution over the tokens that may be written; the probability of tokens that would
        begin word H + 1 goes to EOS, as in ``edpbrl_gym.language.sampling.sample_prompts``; all -inf in a complete
        prompt.

        Args:
            temperature: Divides the model's logits, > 0.
        """
        return self._log_probs(temperature)[0]

    def next_token_probabilities(self, temperature: float = 1.0) -> NDArray[np.float64]:
        """``exp(next_token_log_probs())``, (V,)."""
        return np.exp(self.next_token_log_probs(temperature))

    def _text(self) -> str:
        return self.model.trajectory_texts(self.state.tokens)[0]

    def _info(self) -> dict[str, Any]:
        return {
            "action_mask": self.action_masks(),
            "prompt": self._text(),
            "step": int(self.state.steps[0]),
            "word": int(self.state.complete_words()[0]),
        }
