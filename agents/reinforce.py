"""Language models that learn to write prompts worth comparing: the paper's vocabulary-free agent."""

from __future__ import annotations

import copy
import json
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Self

import numpy as np
from numpy.typing import NDArray

from edpbrl_gym._base_environment import base_environment, question_lanes
from edpbrl_gym._files import replacing
from edpbrl_gym._validation import check_choice_of, check_count, known_name
from edpbrl_gym.agents.base import Agent, EpisodeStart, State
from edpbrl_gym.language.settings import ReinforceSettings
from edpbrl_gym.language.training_log import TrainingLog

if TYPE_CHECKING:
    from edpbrl_gym.language.model import LanguageModel
    from edpbrl_gym.language.policies import Policies

__all__ = ["ReinforceAgent"]

_RECIPE = (
    "make the agent on the environment of gymnasium.make_vec, let it learn, and ask on words = WordSteps(venv, "
    "agent.policies.language_models(), temperature=agent.training.temperature) with agent.play_on(words)"
)
_FIXED = ("episodes", "words", "max_tokens", "regularization", "seed")  # settings that the agent or environment fixes


class ReinforceAgent(Agent):
    """K language models on a text-generation environment; lane i plays model i mod K, a single environment model 0.

    ``learn`` maximises the D-criterion of truncated prompts by REINFORCE (`edpbrl_gym.language.trainer`) with T =
    ``episodes`` trajectories. The models start from copies of the environment's own.

    Lanes that write tokens are played by ``predict``, each at its own step; keys and values are cached, so that a step
    feeds the models one token per lane. Such lanes can't be compared step by step, as their words have
    different numbers of tokens. To ask questions, let the models write whole words::

        words = WordSteps(venv, agent.policies.language_models(), temperature=agent.training.temperature)
        comparisons = collect(words, agent.play_on(words), oracle, episodes=...)

    There ``predict`` names the model that writes each lane's next word, ``numpy.arange(num_envs) % K``.

    Args:
        env: A text-generation environment, single or vector, with ``.language_model``, ``.encoder`` and ``.model``.
        kind: "adapters" (LoRA adapters on one frozen model) or "copies" (K full models).
        rank: Rank of the adapters.
        noise: Standard deviation of the noise on the models' initial weights, so that they differ.
        training: Some fields of `ReinforceSettings`; words, max_tokens, episodes, regularization and seed are those of
            the environment and the agent.
        folder: Folder of the training's checkpoints, from which it resumes; None keeps none.
        criterion: "D", the only one that it optimises.
        **arguments: See ``Agent``.

    Raises:
        TypeError: If the environment lacks one of the attributes, or ``training`` has an unknown field.
        ValueError: If the criterion is another one, a setting is out of range, or the environment can't be played (see
            `play_on`).
    """

    name = "reinforce"
    needs = ("torch", "transformers", "tokenizers")

    def __init__(
        self,
        env: Any,
        *,
        kind: Literal["adapters", "copies"] = "adapters",
        rank: int = 8,
        noise: float = 0.0,
        training: dict[str, Any] | None = None,
        folder: str | Path | None = None,
        criterion: str = "D",
        **arguments: Any,
    ) -> None:
        super().__init__(env, criterion=known_name(criterion, ("D",)), **arguments)
        for attribute in ("language_model", "encoder", "model"):
            if not hasattr(type(self.base), attribute) and not hasattr(self.base, attribute):
                raise TypeError(
                    f"The agent {self.name!r} needs env.unwrapped to have .{attribute}; {type(self.base).__name__} has "
                    'not. Make a text-generation environment: gymnasium.make_vec("edpbrl/TextGeneration-v0", ...).'
                )
        check_choice_of(self.criterion, f"the criterion of {self.name!r}, which optimises no other,", ("D",))
        self.kind = check_choice_of(kind, "kind of policies", ("adapters", "copies"))
        self.rank, self.noise = check_count(rank, "rank"), float(noise)
        self.training = self._settings(dict(training or {}))
        self.folder = None if folder is None else str(folder)
        self.policies: Policies | None = None
        self.history: TrainingLog | None = None
        self._decoders: list[Any] = []
        self._whole_words = self._writes_words(env)

    def _settings(self, fields: dict[str, Any]) -> ReinforceSettings:
        """The training's settings with those of the agent and the environment in place."""
        unknown = [name for name in fields if name in _FIXED or name not in ReinforceSettings.__dataclass_fields__]
        if unknown:
            known = ", ".join(name for name in ReinforceSettings.__dataclass_fields__ if name not in _FIXED)
            raise TypeError(f"Expected training with fields among {known}, got {unknown[0]!r}")
        return ReinforceSettings(
            **fields,
            episodes=self.episodes,
            words=int(self.base.model.words),
            max_tokens=int(self.base.model.horizon),
            regularization=self.regularization,
            seed=self.seed,
        )

    def play_on(self, env: Any) -> Self:
        """From now on play another environment with the same limits on words and tokens, such as ``WordSteps``.

        Raises:
            ValueError: If its words or tokens are others, if its ``WordSteps`` has another number of models, or if it
                compares lanes that write tokens.
        """
        base = base_environment(env)
        model, required = getattr(base, "model", None), self.base.model
        if getattr(model, "words", None) != required.words or getattr(model, "horizon", None) != required.horizon:
            raise ValueError(
                f"Expected a text-generation environment of {required.words} words and at most {required.horizon} "
                f"tokens, like the agent's, got {type(base).__name__} with other limits; make it with the same words "
                "and max_tokens."
            )
        base.model.check_language_model(self.base.language_model)
        self._whole_words = self._writes_words(env)
        self.env, self.base, self._decoders = env, base, []
        return self

    def _writes_words(self, env: Any) -> bool:
        """Whether a step of ``env`` is a whole word; refuses environments that can't be played."""
        models = _models_of_words(env)
        if models is None:
            lanes = question_lanes(env)
            if lanes is not None:
                raise ValueError(
                    f"Expected lanes that write whole words under PreferenceQuery, got lanes that write tokens, whose "
                    f"words have different lengths; {_RECIPE}."
                )
        elif models != self.num_options:
            raise ValueError(
                f"Expected WordSteps with num_options = {self.num_options} models, got {models}; {_RECIPE}."
            )
        return models is not None

    def learn(self) -> Self:
        """Train the models; resumes from the last checkpoint in ``folder`` if there is one."""
        from edpbrl_gym.language.policies import make_policies
        from edpbrl_gym.language.trainer import train

        options: dict[str, Any] = {"noise": self.noise, "seed": self.seed}
        if self.kind == "adapters":
            options["rank"] = self.rank
        policies = make_policies(self._base_copy(), self.num_options, kind=self.kind, **options)
        self.history = train(policies, self.base.encoder, self.training, folder=self.folder)
        self.policies, self._decoders = policies, []
        return self

    def predict(
        self,
        observation: Any,
        state: State = None,
        episode_start: EpisodeStart = None,
        deterministic: bool = False,
    ) -> tuple[NDArray[Any], State]:
        """Draw the next token of every lane from its model; a complete lane's action is EOS.

        The observation is the prefix, so ``state`` and ``episode_start`` are not needed. On ``WordSteps`` the action is
        the index of the lane's model, which draws the word itself.

        Raises:
            RuntimeError: Before ``learn``, on lanes that write tokens.
            ValueError: If the observations aren't those of the environment.
        """
        array = np.asarray(observation)
        single, width = array.ndim == 1, int(self.base.model.horizon)
        lanes = array[None] if single else array
        if lanes.ndim != 2 or lanes.shape[1] != width or not np.issubdtype(lanes.dtype, np.integer):
            raise ValueError(
                f"Expected observations as token ids of shape (n, {width}), got {array.dtype} of shape {array.shape}"
            )
        if self._whole_words:
            return np.arange(len(lanes)) % self.num_options, state
        decoders = self._ready(len(lanes))
        actions = np.full(len(lanes), self.base.model.rules.eos, dtype=np.int64)
        uniforms = self.rng.random(len(lanes))
        for q in range(self.num_options):
            rows = np.arange(q, len(lanes), self.num_options)
            self._choose(decoders[q], lanes, rows, uniforms, deterministic, actions)
        return (actions[0] if single else actions), state

    def _choose(
        self,
        decoder: Any,
        lanes: NDArray[Any],
        model_lanes: NDArray[np.intp],
        uniforms: NDArray[np.float64],
        deterministic: bool,
        actions: NDArray[np.int64],
    ) -> None:
        """Write the actions of one model's lanes that are not complete."""
        import torch

        from edpbrl_gym.language.sampling import draw_tokens, token_scores

        rules, words, padding = self.base.model.rules, self.training.words, self.base.model.padding
        texts, rows, num_words, inside = [], [], [], []
        for row in model_lanes.tolist():
            tokens = [int(token) for token in lanes[row] if token != padding]
            state = rules.state(tokens)
            if rules.eos in tokens or len(tokens) == lanes.shape[1] or bool(rules.complete(*state, words)):
                continue
            texts.append([decoder.model.start, *tokens])
            rows.append(row)
            num_words.append(state[0])
            inside.append(state[1])
        if not rows:
            return
        with torch.no_grad():
            scores = token_scores(decoder.model, decoder.logits(texts, rows), self.training.temperature)
        if deterministic:
            actions[rows] = [
                _most_probable(score, rules.stop_mask(*state, words), rules.eos)
                for score, *state in zip(scores.double().cpu().numpy(), num_words, inside, strict=True)
            ]
            return
        tokens_drawn, _, _ = draw_tokens(
            scores,
            torch.from_numpy(uniforms[rows]),
            rules=rules,
            num_words=np.array(num_words),
            inside=np.array(inside),
            words=words,
        )
        actions[rows] = tokens_drawn.numpy()

    def _ready(self, lanes: int) -> list[Any]:
        """A decoder with a cache for each model."""
        from edpbrl_gym.language.decoding import PrefixDecoder

        policies = self._made(self.policies, "policies")
        if not self._decoders or self._decoders[0].lanes != lanes:
            self._decoders = [PrefixDecoder(language, lanes) for language in policies.language_models()]
        return self._decoders

    def _base_copy(self) -> LanguageModel:
        """The environment's language model, as a copy: adapters would change the environment's own."""
        language: LanguageModel = self.base.language_model
        return replace(language, model=copy.deepcopy(language.model))

    def _arguments(self) -> dict[str, Any]:
        training = {name: value for name, value in asdict(self.training).items() if name not in _FIXED}
        extra = {"kind": self.kind, "rank": self.rank, "noise": self.noise, "training": training, "folder": self.folder}
        return super()._arguments() | extra

    def _save(self, folder: Path) -> None:
        if self.policies is not None:
            self.policies.save(folder / "policies")
        if self.history is not None:
            with replacing(folder / "history.json") as part:
                part.write_text(json.dumps(asdict(self.history)), encoding="utf-8")

    def _load(self, folder: Path) -> None:
        from edpbrl_gym.language.policies import load_policies

        if (folder / "policies").is_dir():
            self.policies = load_policies(folder / "policies", self._base_copy())
        if (folder / "history.json").is_file():
            self.history = TrainingLog.from_dict(json.loads((folder / "history.json").read_text(encoding="utf-8")))


def _models_of_words(env: Any) -> int | None:
    """Number of models of the ``WordSteps`` that ``env`` is or wraps; None elsewhere."""
    while env is not None:
        parts = getattr(env, "__dict__", {})
        if "policies" in parts and "lanes_env" in parts:
            return len(parts["policies"])
        env = parts.get("env")
    return None


def _most_probable(scores: NDArray[np.float64], stop: NDArray[np.bool_], eos: int) -> int:
    """The most probable action, where all tokens of the stop together are the action EOS."""
    merged = np.where(stop, -np.inf, scores)
    merged[eos] = np.logaddexp.reduce(scores[stop])
    return int(np.argmax(merged))
