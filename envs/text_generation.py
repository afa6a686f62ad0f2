"""The text-generation environment: a prompt, one token of a language model's tokenizer at a time."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from gymnasium.error import ResetNeeded
from numpy.typing import ArrayLike, NDArray

from edpbrl_gym._arrays import Booleans, Indices
from edpbrl_gym._validation import check_count, check_number
from edpbrl_gym.envs.base import RENDER_MODES, FromModel, LegalDiscrete, PromptLanes, SingleLane, WritingModel
from edpbrl_gym.envs.common import check_encoder_argument, check_jsonable, check_observations, shared_model
from edpbrl_gym.language.model import SHIPPED_NAME, LanguageModel, load_language_model, load_tokenizer
from edpbrl_gym.language.words import WordRules

if TYPE_CHECKING:
    from edpbrl_gym.language.decoding import PrefixDecoder

__all__ = ["Lanes", "TextGenerationEnv", "TextGenerationVectorEnv", "TextModel"]


def _load_rules(spec: str) -> tuple[Any, WordRules]:
    tokenizer = load_tokenizer(spec or None)
    return tokenizer, WordRules.of_tokenizer(tokenizer)


@dataclass
class Lanes:
    """The partial prompts of n lanes."""

    tokens: Indices  # chosen tokens, (n, L), V where none is chosen yet
    steps: Indices  # number of actions taken, (n,)
    num_words: Indices  # words that have begun, (n,)
    inside: Booleans  # whether the text ends inside a word, (n,)
    ended: Booleans  # whether the prompt is complete, (n,)

    def copy(self) -> Lanes:
        """A copy that later tokens don't change."""
        return Lanes(
            self.tokens.copy(), self.steps.copy(), self.num_words.copy(), self.inside.copy(), self.ended.copy()
        )

    def complete_words(self) -> Indices:
        """Number of words that later tokens can't change, (n,)."""
        return self.num_words - (self.inside & ~self.ended)


class TextModel(WritingModel):
    """Token-by-token generation of prompts, for any number of lanes at once.

    Observations are integer arrays (n, L): the token chosen at each step, and V (the padding) where none is chosen
    yet; L is the token budget. The state of a lane's words is (num_words, inside), see ``WordRules``. The arguments are
    described in ``TextGenerationEnv``.

    Raises:
        TypeError: If an argument is of a wrong type or can't be written to the environment's spec as JSON.
        ValueError: If a number is out of range, ``encoder`` has no known form, or the tokenizer isn't byte-level BPE.
        FileNotFoundError: If the folder or a file in it is missing.
        ConnectionError: If a hub id can't be loaded.
    """

    def __init__(
        self, *, model: str | None = None, encoder: str = "minilm", words: int = 8, max_tokens: int = 32
    ) -> None:
        check_jsonable(model=model, encoder=encoder, words=words, max_tokens=max_tokens)
        if model is not None and not isinstance(model, str):
            raise TypeError(f"Expected model as a hub id, a folder's path or None, got {model!r}.")
        self.encoder_spec = check_encoder_argument(encoder)
        self.words = check_count(words, "words")
        self.horizon = check_count(max_tokens, "max_tokens")
        self.model_spec = model
        place = "" if model is None else os.path.expanduser(model)
        self.tokenizer, self.rules = shared_model(_load_rules, model or "", place)
        self.padding = self.rules.size

    def __getstate__(self) -> dict[str, Any]:
        """Leave both models out of a pickle; the copy loads them again on first use."""
        return {name: value for name, value in self.__dict__.items() if name not in ("encoder", "language_model")}

    def action_space(self) -> LegalDiscrete:
        """Return a new action space over 0..V-1."""
        return LegalDiscrete(self.padding, self.rules.always_legal)

    @cached_property
    def language_model(self) -> LanguageModel:
        """The language model, loaded on first use."""
        language = load_language_model(self.model_spec)
        self.check_language_model(language)
        return language

    def check_language_model(self, language: LanguageModel) -> None:
        """Raise unless a model can write in this environment.

        Raises:
            ValueError: If its tokens aren't those of the environment, or its context is shorter than the budget.
        """
        if language.rules.pieces != self.rules.pieces or language.rules.eos != self.rules.eos:
            raise ValueError(
                f"Expected a language model with the tokens of {self.model_spec or SHIPPED_NAME!r}, got "
                f"{language.name!r} with others; make the environment with that model."
            )
        limit = language.context_length
        if limit is not None and self.horizon > limit:
            raise ValueError(
                f"Expected max_tokens of at most {limit}, the context of {language.name!r}, got {self.horizon}."
            )

    def masks(self, lanes: Lanes) -> NDArray[np.int8]:
        """Legal actions of each lane, int8 of shape (n, V); all zero for a complete prompt."""
        masks = np.zeros((len(lanes.steps), self.padding), dtype=np.int8)
        open_lanes = np.flatnonzero(~lanes.ended)
        states = 2 * lanes.num_words[open_lanes] + lanes.inside[open_lanes]
        for state in set(states.tolist()):
            masks[open_lanes[states == state]] = self.rules.legal_mask(state // 2, bool(state % 2), self.words)
        return masks

    def legal(self, lanes: Lanes, rows: Indices, actions: Indices) -> NDArray[np.bool_]:
        """Whether an action (m,) is legal in each of the given rows (m,) of ``lanes``, which must not be complete."""
        known = (actions >= 0) & (actions < self.padding)
        tokens = np.where(known, actions, self.rules.eos)
        num_words = lanes.num_words[rows] + self.rules.started(tokens, lanes.inside[rows])
        fits = self.rules.allowed[tokens] & (num_words <= self.words)
        return known & (fits | (tokens == self.rules.eos))

    def refusal(self, action: int, lanes: Lanes, lane: int, where: str) -> str:
        """Why an action is illegal, and what is legal; ``where`` names the lane."""
        if not 0 <= action < self.padding:
            reason = f"it is no token of 0..{self.padding - 1}"
        elif not self.rules.allowed[action]:
            reason = "it is a special token, or one without text"
        else:
            reason = f"{self.rules.pieces[action]!r} would begin a word beyond the budget of {self.words}"
        return (
            f"Expected a token that may follow {int(lanes.num_words[lane])} word(s){where}, got {action}: {reason}. "
            f"EOS ({self.rules.eos}) ends the prompt; use info['action_mask'] or action_masks() to see what is legal."
        )

    def append(self, lanes: Lanes, rows: Indices, tokens: Indices) -> None:
        """Take one legal action in each of the given rows of ``lanes``, which must not be complete."""
        lanes.tokens[rows, lanes.steps[rows]] = tokens
        lanes.steps[rows] += 1
        text = tokens != self.rules.eos  # the end changes no word
        moved = rows[text]
        state = self.rules.advance(lanes.num_words[moved], lanes.inside[moved], tokens[text])
        lanes.num_words[moved], lanes.inside[moved] = state
        ended = ~text | (lanes.steps[rows] >= self.horizon)
        lanes.ended[rows] = ended | self.rules.complete(lanes.num_words[rows], lanes.inside[rows], self.words)

    def new_lanes(self, number: int) -> Lanes:
        """Empty prompts in ``number`` lanes."""
        return Lanes(
            tokens=np.full((number, self.horizon), self.padding, dtype=np.int64),
            steps=np.zeros(number, dtype=np.int64),
            num_words=np.zeros(number, dtype=np.int64),
            inside=np.zeros(number, dtype=np.bool_),
            ended=np.zeros(number, dtype=np.bool_),
        )

    def restart(self, lanes: Lanes, mask: NDArray[np.bool_]) -> None:
        """Begin an empty prompt in the masked lanes."""
        lanes.tokens[mask] = self.padding
        for part in (lanes.steps, lanes.num_words, lanes.inside, lanes.ended):
            part[mask] = 0

    def prefixes(self, lanes: Lanes, rows: Indices, start: int) -> list[list[int]]:
        """Start token and chosen tokens of the given rows, as input of a language model."""
        pairs = zip(lanes.tokens[rows].tolist(), lanes.steps[rows].tolist(), strict=True)
        return [[start, *tokens[:step]] for tokens, step in pairs]

    def checked(self, observations: ArrayLike) -> Indices:
        return check_observations(observations, self.horizon, self.padding, length="L")

    def texts(self, observations: Indices) -> list[str]:
        return [self.rules.text([token for token in lane if token != self.padding]) for lane in observations.tolist()]


class _TextAttributes:
    """What wrappers and agents ask of a text-generation environment."""

    trajectory_texts = FromModel()
    tokenizer = FromModel()
    rules = FromModel()
    language_model = FromModel()


class TextGenerationVectorEnv(_TextAttributes, PromptLanes):
    """``num_envs`` prompts at once; the page of ``TextGenerationEnv`` holds for each lane.

    With one tokenizer and one language model: ``next_token_log_probs`` feeds the new token of every lane in one forward
    pass. Lanes end after different numbers of tokens; to compare them word by word wrap it in ``WordSteps``. Arguments
    that ``TextGenerationEnv`` has too are described there, those of all lanes in ``ArrayLanes``.
    """

    model_class = TextModel
    metadata: dict[str, Any] = {**PromptLanes.metadata, "render_fps": 4}

    _decoder: PrefixDecoder | None = None

    def _make_lanes(self) -> None:
        self.state = self.model.new_lanes(self.num_envs)

    def __getstate__(self) -> dict[str, Any]:
        """Leave the cache of keys and values out of a pickle."""
        return {**self.__dict__, "_decoder": None}

    def reset(
        self, *, seed: int | Sequence[int | None] | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Indices, dict[str, Any]]:
        """Begin empty prompts; the language model's cache of these lanes is dropped."""
        observations, infos = super().reset(seed=seed, options=options)
        if self._decoder is not None:
            self._decoder.forget(np.flatnonzero(infos["_step"]).tolist())  # the model may have been trained since
        return observations, infos

    def append(self, lanes: ArrayLike, tokens: ArrayLike) -> None:
        """Append one token in each of the given lanes, none of which is complete, and leave the others alone.

        For wrappers whose step takes several tokens (``WordSteps``); it resets no lane.

        Args:
            lanes: Different lanes, (m,).
            tokens: A legal token for each, (m,).

        Raises:
            ValueError: If a token is illegal; the message names the lane and why. No lane has moved.
            ResetNeeded: If reset() was never called, or a lane is complete.
        """
        self._check_was_reset()
        rows, actions = np.asarray(lanes, dtype=np.int64), np.asarray(tokens)
        if actions.size and not np.issubdtype(actions.dtype, np.integer):
            raise ValueError(f"Expected actions as integers, got {actions.dtype}.")
        if self.state.ended[rows].any():
            raise ResetNeeded(f"Lanes {rows[self.state.ended[rows]].tolist()} are complete; reset them first.")
        illegal = np.flatnonzero(~self.model.legal(self.state, rows, actions))
        if illegal.size:
            action, lane = int(actions[illegal[0]]), int(rows[illegal[0]])
            raise ValueError(self.model.refusal(action, self.state, lane, self._where(lane)))
        self.model.append(self.state, rows, actions.astype(np.int64))

    def action_masks(self) -> NDArray[np.int8]:
        return self.model.masks(self.state)

    def next_token_log_probs(self, temperature: float = 1.0) -> NDArray[np.float64]:
        """Log-probabilities of each lane's next action under the environment's language model, (num_envs, V).

        One forward pass over the tokens that are new since the last call, whatever lanes were reset in between; see
        ``TextGenerationEnv.next_token_log_probs``.
        """
        import torch

        from edpbrl_gym.language.decoding import PrefixDecoder
        from edpbrl_gym.language.sampling import token_scores

        heat = check_number(temperature, "temperature", minimum=0.0, exclusive=True)
        language, rules = self.model.language_model, self.model.rules
        if self._decoder is None or self._decoder.model is not language:
            self._decoder = PrefixDecoder(language, self.num_envs)
        result = np.full((self.num_envs, self.model.padding), -np.inf)
        rows = np.flatnonzero(~self.state.ended)
        if rows.size:
            logits = self._decoder.logits(self.model.prefixes(self.state, rows, language.start), rows.tolist())
            logs = torch.log_softmax(token_scores(language, logits, heat).double(), dim=-1).cpu().numpy()
            for row, log in zip(rows, logs, strict=True):
                stop = rules.stop_mask(int(self.state.num_words[row]), bool(self.state.inside[row]), self.model.words)
                result[row] = np.where(stop, -np.inf, log)
                result[row, rules.eos] = np.logaddexp.reduce(log[stop])
        return result

    def next_token_probabilities(self, temperature: float = 1.0) -> NDArray[np.float64]:
        """``exp(next_token_log_probs())``, (num_envs, V)."""
        return np.exp(self.next_token_log_probs(temperature))

    @property
    def _observations(self) -> Indices:
        return self.state.tokens

    def _complete(self) -> Booleans:
        return self.state.ended

    def _take(self, lanes: Indices, actions: Indices) -> None:
        self.append(lanes, actions)

    def _restart(self, mask: Booleans) -> None:
        self.model.restart(self.state, mask)

    def _counts(self) -> dict[str, Indices]:
        return {"step": self.state.steps, "word": self.state.complete_words()}

    def _legal_state(self) -> Lanes:
        return self.state.copy()


class TextGenerationEnv(_TextAttributes, SingleLane):
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

    lanes_class = TextGenerationVectorEnv
    metadata: dict[str, Any] = {"render_modes": RENDER_MODES, "render_fps": 4}

    def next_token_log_probs(self, temperature: float = 1.0) -> NDArray[np.float64]:
        """Log-probabilities of the next action under the environment's language model, (V,).

        The model's own distribution over the tokens that may be written; the probability of tokens that would
        begin word H + 1 goes to EOS, as in ``edpbrl_gym.language.sampling.sample_prompts``; all -inf in a complete
        prompt.
        """
        logs: NDArray[np.float64] = self._lanes.next_token_log_probs(temperature)
        return logs[0]

    def next_token_probabilities(self, temperature: float = 1.0) -> NDArray[np.float64]:
        """``exp(next_token_log_probs())``, (V,)."""
        return np.exp(self.next_token_log_probs(temperature))
