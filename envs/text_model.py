"""What the single and the vector text-generation environment share: tokenizer, spaces, masks, texts, the model."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from edpbrl_gym._arrays import Indices
from edpbrl_gym._validation import check_count, check_number
from edpbrl_gym.envs.bases import PromptEnvironment, WritingModel
from edpbrl_gym.envs.common import check_encoder_argument, check_jsonable, check_observations
from edpbrl_gym.envs.spaces import LegalDiscrete
from edpbrl_gym.language.model import SHIPPED_FOLDER, SHIPPED_NAME, LanguageModel, load_language_model, load_tokenizer
from edpbrl_gym.language.words import WordRules

if TYPE_CHECKING:
    from edpbrl_gym.language.decoding import PrefixDecoder

__all__ = ["Lanes", "TextAttributes", "TextModel"]


@functools.lru_cache(maxsize=4)
def _loaded_rules(spec: str | None, stamp: tuple[int, ...]) -> tuple[Any, WordRules]:
    tokenizer = load_tokenizer(spec)
    return tokenizer, WordRules.of_tokenizer(tokenizer)


def _shared_rules(spec: str | None) -> tuple[Any, WordRules]:
    """One tokenizer for all single environments of a process, reloaded when its local files have changed."""
    folder = SHIPPED_FOLDER if spec is None else Path(spec).expanduser()
    stats = [file.stat() for file in sorted(folder.glob("*.json"))] if folder.is_dir() else []
    return _loaded_rules(spec, tuple(value for stat in stats for value in (stat.st_mtime_ns, stat.st_size)))


@dataclass
class Lanes:
    """The partial prompts of n lanes.

    Attributes:
        tokens: Chosen tokens, (n, L), V where none is chosen yet.
        steps: Number of actions taken, (n,).
        num_words: Words that have num_words, (n,).
        inside: Whether the text ends inside a word, (n,).
        ended: Whether the prompt is complete, (n,).
    """

    tokens: Indices
    steps: Indices
    num_words: Indices
    inside: NDArray[np.bool_]
    ended: NDArray[np.bool_]

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
    yet; L is the token budget. The state of a lane's words is (num_words, inside), see ``WordRules``.

    Args:
        model: Hub id or folder of a causal language model; None is the project's own.
        encoder: What ``load_encoder`` takes, such as "minilm". Loaded on first use of a feature.
        words: H, the word budget.
        max_tokens: L, the token budget.

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
        self.tokenizer, self.rules = _shared_rules(self.model_spec)
        self.padding = self.rules.size
        self._language: LanguageModel | None = None

    def __getstate__(self) -> dict[str, Any]:
        """Leave both models out of a pickle; the copy loads them again on first use."""
        return {**self.__dict__, "_encoder": None, "_language": None}

    def action_space(self) -> LegalDiscrete:
        """Return a new action space over 0..V-1."""
        return LegalDiscrete(self.padding, self.rules.always_legal)

    @property
    def language_model(self) -> LanguageModel:
        """The language model, loaded on first use."""
        if self._language is None:
            self.use_language_model(load_language_model(self.model_spec))
        assert self._language is not None
        return self._language

    def use_language_model(self, language: LanguageModel) -> None:
        """Use a live language model instead of loading the one that ``model`` names (``check_language_model``)."""
        self.check_language_model(language)
        self._language = language

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
        for state in np.unique(states).tolist():
            masks[open_lanes[states == state]] = self.rules.legal_mask(state // 2, bool(state % 2), self.words)
        return masks

    def legal(self, lanes: Lanes, rows: Indices, actions: Indices) -> NDArray[np.bool_]:
        """Whether an action (m,) is legal in each of the given rows (m,) of ``lanes``, which must not be complete."""
        known = (actions >= 0) & (actions < self.padding)
        tokens = np.where(known, actions, self.rules.eos)
        num_words = lanes.num_words[rows] + self.rules.started(tokens, lanes.inside[rows])
        fits = self.rules.allowed[tokens] & (num_words <= self.words)
        return known & (fits | (tokens == self.rules.eos))

    def check_action(self, action: int, lanes: Lanes, lane: int, *, named: bool = True) -> None:
        """Raise a ValueError that says what is legal if ``action`` isn't; ``named``: with the lane's number."""
        num_words, inside = int(lanes.num_words[lane]), bool(lanes.inside[lane])
        if 0 <= action < self.padding and self.rules.legal_mask(num_words, inside, self.words)[action]:
            return
        if not 0 <= action < self.padding:
            reason = f"it is no token of 0..{self.padding - 1}"
        elif not self.rules.allowed[action]:
            reason = "it is a special token, or one without text"
        else:
            reason = f"{self.rules.pieces[action]!r} would begin a word beyond the budget of {self.words}"
        raise ValueError(
            f"Expected a token that may follow {num_words} word(s){f' in lane {lane}' if named else ''}, got {action}: "
            f"{reason}. EOS ({self.rules.eos}) ends the prompt; use info['action_mask'] or action_masks() to see what "
            "is legal."
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

    def next_log_probs(self, decoder: PrefixDecoder, lanes: Lanes, temperature: float) -> NDArray[np.float64]:
        """Log-probabilities of the actions under the decoder's model, (n, V): see ``next_token_log_probs``."""
        import torch

        from edpbrl_gym.language.sampling import token_scores

        heat = check_number(temperature, "temperature", minimum=0.0, exclusive=True)
        result = np.full((len(lanes.steps), self.padding), -np.inf)
        rows = np.flatnonzero(~lanes.ended)
        if rows.size:
            logits = decoder.logits(self.prefixes(lanes, rows, decoder.model.start), rows.tolist())
            logs = torch.log_softmax(token_scores(decoder.model, logits, heat).double(), dim=-1).cpu().numpy()
            for row, log in zip(rows, logs, strict=True):
                stop = self.rules.stop_mask(int(lanes.num_words[row]), bool(lanes.inside[row]), self.words)
                result[row] = np.where(stop, -np.inf, log)
                result[row, self.rules.eos] = np.logaddexp.reduce(log[stop])
        return result

    def prefixes(self, lanes: Lanes, rows: Indices, start: int) -> list[list[int]]:
        """Start token and chosen tokens of the given rows, as input of a language model."""
        pairs = zip(lanes.tokens[rows].tolist(), lanes.steps[rows].tolist(), strict=True)
        return [[start, *tokens[:step]] for tokens, step in pairs]

    def checked(self, observations: ArrayLike) -> Indices:
        """Return observations, one or many, as integers (n, L), else a ValueError."""
        return check_observations(observations, self.horizon, self.padding, length="L")

    def texts(self, observations: Indices) -> list[str]:
        """``trajectory_texts`` of checked observations, without white space around."""
        return [self.rules.text([token for token in lane if token != self.padding]) for lane in observations.tolist()]


class TextAttributes(PromptEnvironment):
    """What wrappers and agents ask of a text-generation environment, answered by its ``TextModel``."""

    model: TextModel
    state: Lanes
    _decoder: PrefixDecoder | None = None

    def _log_probs(self, temperature: float) -> NDArray[np.float64]:
        """Log-probabilities of the next tokens of all lanes, (n, V); only new tokens are fed."""
        language = self.model.language_model
        if self._decoder is None or self._decoder.model is not language:
            from edpbrl_gym.language.decoding import PrefixDecoder

            self._decoder = PrefixDecoder(language, len(self.state.steps))
        return self.model.next_log_probs(self._decoder, self.state, temperature)

    def __getstate__(self) -> dict[str, Any]:
        """Leave the cache of keys and values out of a pickle."""
        return {**self.__dict__, "_decoder": None}

    @property
    def tokenizer(self) -> Any:
        """The Hugging Face tokenizer; loaded with the environment."""
        return self.model.tokenizer

    @property
    def rules(self) -> WordRules:
        """What each token does to the words of the prompt."""
        return self.model.rules

    @property
    def language_model(self) -> LanguageModel:
        """The language model; loaded on first use."""
        return self.model.language_model
