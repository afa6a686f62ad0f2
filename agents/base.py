"""The interface of an agent: who chooses the options that the user compares."""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self, TypeVar

import numpy as np
from numpy.typing import NDArray

from edpbrl_gym._base_environment import base_environment, question_lanes
from edpbrl_gym._compat import constructor_options
from edpbrl_gym._files import reading, replacing
from edpbrl_gym._validation import check_count, check_number

if TYPE_CHECKING:
    from edpbrl_gym.comparisons import Comparisons
    from edpbrl_gym.design import Design

__all__ = ["Agent", "EpisodeStart", "State", "jsonable", "write_arrays"]

T = TypeVar("T")
State = tuple[NDArray[Any], ...] | None
EpisodeStart = NDArray[np.bool_] | None


class Agent(ABC):
    """Plays all lanes of a vector environment; lane i is option i mod K of its question.

    ``predict`` has Stable-Baselines3's signature, so SB3 models and our agents are interchangeable where only actions
    are asked for (``evaluate_policy``). A new agent implements ``predict`` and, as far as it needs them, ``learn``,
    ``observe``, ``_save`` and ``_load``.

    Args:
        env: Environment or vector environment, wrapped or not.
        num_options: K, the number of options of a question, at least 2.
        episodes: T, the number of episodes that the questions are planned for, at least 1.
        regularization: lambda of the ridge that the estimate will use, at least 0.
        criterion: Optimality criterion of the design by its name (``edpbrl_gym.design.make_criterion``).
        seed: Seed of the agent's own randomness; the same seed gives the same actions.

    Attributes:
        name: Name in the registry or of the class, for tables and files.
        needs: Optional packages that it imports, by their import names.
        design: The optimised design, for agents that have one.
        base: The innermost environment (with ``.mdp`` and ``.features`` if it has them).

    Raises:
        TypeError: If ``env`` is no environment or an argument is no number.
        ValueError: If a number is out of range, or ``env`` asks questions with another number of options.
    """

    name: str = "agent"
    needs: tuple[str, ...] = ()

    def __init__(
        self,
        env: Any,
        *,
        num_options: int,
        episodes: int,
        regularization: float = 1.0,
        criterion: str = "V",
        seed: int = 0,
    ) -> None:
        self.env = env
        self.base = base_environment(env)
        if not (hasattr(self.base, "action_space") and hasattr(self.base, "observation_space")):
            raise TypeError(
                f"Expected an environment (gymnasium.make) or vector environment (gymnasium.make_vec), got "
                f"{type(self.base).__name__}."
            )
        self.num_options = check_count(num_options, "num_options (K)", minimum=2)
        self.episodes = check_count(episodes, "episodes (T)")
        self.regularization = check_number(regularization, "regularization (lambda)", minimum=0.0)
        self.criterion = criterion
        self.seed = check_count(seed, "seed", minimum=0)
        lanes = question_lanes(env)
        if lanes not in (None, self.num_options):
            raise ValueError(
                f"Expected num_options = {lanes}, the lanes of the PreferenceQuery, got {self.num_options}; lane i "
                "plays policy i mod num_options, so the two must be equal."
            )
        self.rng = np.random.default_rng(self.seed)
        self.design: Design | None = None

    @abstractmethod
    def predict(
        self,
        observation: Any,
        state: State = None,
        episode_start: EpisodeStart = None,
        deterministic: bool = False,
    ) -> tuple[NDArray[Any], State]:
        """Choose an action for each lane.

        Args:
            observation: Observations of n lanes, shape (n, ...), or one observation of a single environment.
            state: What the previous call returned; None at the very start.
            episode_start: Lanes that begin a new episode, boolean (n,); None means that no lane does, unless ``state``
                is None too.
            deterministic: Take the most probable action instead of drawing one.

        Returns:
            Actions of shape (n,), or a scalar for a single observation, and the new state.
        """

    def learn(self) -> Self:
        """Do all optimisation that comes before the first question; the base class does nothing."""
        return self

    def observe(self, comparisons: Comparisons) -> None:  # noqa: B027  (optional for subclasses)
        """Learn from all answers so far; adaptive agents plan again, the base class ignores them."""

    def option_weights(self, observation: NDArray[Any], step: int, option: int) -> Iterator[NDArray[np.float64]]:
        """Preferences among actions where another option already shows the agent's own action.

        Args:
            observation: Of the lane, one observation.
            step: The step h.
            option: Which option of the question, 0..K-1.

        Returns:
            Weights (A,) >= 0 of the actions, the preferred ones first; later ones apply where the earlier leave no
            action. The base class yields none: all actions are equally good.
        """
        return iter(())

    @classmethod
    def needed_packages(cls, **fixed: Any) -> tuple[str, ...]:
        """``needs`` of an agent with these options."""
        return cls.needs

    @classmethod
    def option_names(cls, **fixed: Any) -> list[str]:
        """Names of the options that only this class has, sorted.

        Args:
            **fixed: Options that the agent's name stands for.
        """
        return sorted({*constructor_options(cls)} - {*constructor_options(Agent)} - {*fixed})

    def save(self, folder: str | Path) -> None:
        """Write the agent to a folder (agent.json and whatever ``_save`` adds); ``load`` reads it."""
        target = Path(folder)
        target.mkdir(parents=True, exist_ok=True)
        data = {
            "class": f"{type(self).__module__}:{type(self).__qualname__}",
            "arguments": self._arguments(),
            "rng": self.rng.bit_generator.state,
        }
        with replacing(target / "agent.json") as part:
            part.write_text(json.dumps(data, indent=2), encoding="utf-8")
        self._save(target)

    @classmethod
    def load(cls, folder: str | Path, env: Any) -> Self:
        """Rebuild a saved agent for an environment of the same kind.

        Raises:
            FileNotFoundError: If the folder holds no saved agent.
            ValueError: If it is damaged, was saved by another class, or doesn't fit the environment.
        """
        source = Path(folder)
        if not (source / "agent.json").is_file():
            raise FileNotFoundError(f"Expected a saved agent in {source}, it has no agent.json.")
        advice = "save it again, or load it for the environment that it was saved for"
        with reading("a saved agent", source / "agent.json", advice=advice):
            data = json.loads((source / "agent.json").read_text(encoding="utf-8"))
            saved_by, arguments, generator = data["class"], dict(data["arguments"]), data["rng"]
        expected = f"{cls.__module__}:{cls.__qualname__}"
        if saved_by != expected:
            raise ValueError(f"Expected an agent saved by {expected}, {source} was saved by {saved_by}.")
        with reading("a saved agent", source, advice=advice):
            agent = cls(env, **arguments)
            agent._load(source)
            agent.rng.bit_generator.state = generator
        return agent

    def _batch(self, observation: Any) -> tuple[NDArray[Any], bool]:
        """Observations of n lanes, and whether a single one was given."""
        array = np.asarray(observation)
        space = getattr(self.base, "single_observation_space", None) or self.base.observation_space
        shape = tuple(space.shape or ())
        if array.shape == shape:
            return array[None], True
        if array.shape[1:] != shape or array.ndim == 0:
            lanes = ", ".join(["n", *map(str, shape)]) + ("" if shape else ",")
            raise ValueError(
                f"Expected observations of shape {shape} or ({lanes}), as {type(self.base).__name__} itself gives "
                f"them, got {array.dtype} of shape {array.shape}; take off wrappers that change observations."
            )
        return array, False

    def _made(self, what: T | None, name: str) -> T:
        """What ``learn`` makes, or a RuntimeError before."""
        if what is None:
            raise RuntimeError(f"The agent {self.name!r} has no {name} yet; call learn() first.")
        return what

    def _arguments(self) -> dict[str, Any]:
        """Constructor arguments as JSON-able values; extend it in a subclass that has more."""
        return {
            "num_options": self.num_options,
            "episodes": self.episodes,
            "regularization": self.regularization,
            "criterion": self.criterion,
            "seed": self.seed,
        }

    def _save(self, folder: Path) -> None:  # noqa: B027
        """Write more than the constructor's arguments."""

    def _load(self, folder: Path) -> None:  # noqa: B027
        """Read what ``_save`` wrote."""


def write_arrays(path: Path, arrays: Mapping[str, NDArray[Any]]) -> None:
    """Write an npz file, whole or not at all."""
    with replacing(path) as part, open(part, "wb") as file:
        np.savez_compressed(file, allow_pickle=False, **arrays)


def jsonable(options: dict[str, Any]) -> dict[str, Any]:
    """A copy of options, arrays as lists, with which an agent can be saved; TypeError for others."""
    plain = {}
    for name, value in options.items():
        try:
            plain[name] = json.loads(json.dumps(value, default=_listed))
        except (TypeError, ValueError):
            raise TypeError(
                f"Expected {name} of names, numbers, arrays and dicts, got {value!r}: the agent is saved with it."
            ) from None
    return plain


def _listed(value: Any) -> Any:
    if isinstance(value, np.ndarray | np.generic):
        return value.tolist()
    raise TypeError(f"{type(value).__name__} is not JSON serializable")
